# The service with its embedded PostgreSQL. See docs/guides/deploying.md.
# The embedded PostgreSQL has no build for Alpine, so both stages need glibc.
FROM node:22-slim AS build
WORKDIR /app
COPY . .
# No dependency needs an install script.
RUN npm ci --ignore-scripts --no-audit --no-fund \
  && node node_modules/typescript/bin/tsc -b packages/cli \
  && node packages/server/bundle.js \
  && node packages/cli/bundle.js \
  && node packages/console/build.js \
  && npm prune --omit=dev --omit=peer --ignore-scripts --no-audit --no-fund \
  && rm -rf packages/*/src packages/*/tsconfig.json packages/*/dist/.tsbuildinfo

FROM node:22-slim
LABEL org.opencontainers.image.title="Offshoot" \
  org.opencontainers.image.description="A self-hosted database service that branches like git" \
  org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /app/package.json /app/LICENSE /app/
COPY --from=build /app/node_modules /app/node_modules
COPY --from=build /app/packages /app/packages
# PostgreSQL refuses to run as root. The user node is a part of the image.
RUN mkdir /data && chown node:node /data \
  && ln -s /app/packages/cli/bin/offshoot.js /usr/local/bin/offshoot
USER node
WORKDIR /data
ENV NODE_ENV=production OFFSHOOT_HOST=0.0.0.0 OFFSHOOT_DATA_DIR=/data
VOLUME /data
EXPOSE 6001 6432
HEALTHCHECK --start-period=60s --interval=10s --timeout=5s CMD ["node", "-e", \
  "fetch('http://127.0.0.1:' + (process.env.OFFSHOOT_PORT || 6001) + '/health').then(({ ok }) => process.exit(ok ? 0 : 1), () => process.exit(1))"]
ENTRYPOINT ["offshoot"]
CMD ["start"]
