import { defineConfig } from 'vite'

/** The service that `vite` forwards requests to during development. */
const SERVICE = process.env.OFFSHOOT_URL ?? 'http://127.0.0.1:6001'

export default defineConfig({
  root: import.meta.dirname,
  base: '/console/',
  // The client is compiled from its sources, so that the console needs no earlier build.
  resolve: { conditions: ['source', 'module', 'browser', 'production'] },
  // The server replaces the placeholder in each answer.
  html: { cspNonce: '%NONCE%' },
  build: {
    outDir: 'dist',
    emptyOutDir: true,
    target: 'es2023',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    // Libraries mark modules with "use client" for servers that render, which this is not.
    rolldownOptions: {
      checks: { bundlerTimings: false },
      onLog: (level, log, write) => {
        if (log.code !== 'MODULE_LEVEL_DIRECTIVE') write(level, log)
      },
    },
  },
  server: {
    proxy: {
      '^/(?!console/(?!session))': { target: SERVICE, changeOrigin: true },
    },
  },
})
