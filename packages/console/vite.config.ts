import { defineConfig, type Plugin } from 'vite'

/** The service that `vite` forwards requests to during development. */
const SERVICE = process.env.OFFSHOOT_URL ?? 'http://127.0.0.1:6001'

const BASE = '/console/'
/** The module that shows the console. The entry imports it after it has sent the first requests. */
const START = '/src/app/start.tsx'

/** Makes browsers load the code that shows the console beside the entry, not after it. */
const preloadStart: Plugin = {
  name: 'preload-start',
  transformIndexHtml: {
    order: 'post',
    handler(html, { bundle = {} }) {
      const start = Object.values(bundle).find(
        (one) => one.type === 'chunk' && one.facadeModuleId?.endsWith(START),
      )
      if (start?.type !== 'chunk') return []
      return [start.fileName, ...start.imports]
        .map((file) => BASE + file)
        .filter((href) => !html.includes(href))
        .map((href) => ({
          tag: 'link',
          attrs: { rel: 'modulepreload', crossorigin: true, href, nonce: '%NONCE%' },
          injectTo: 'head',
        }))
    },
  },
}

export default defineConfig({
  root: import.meta.dirname,
  base: BASE,
  plugins: [preloadStart],
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
      output: {
        // Few files, because browsers load at most six at once over HTTP/1: what the entry needs to send the
        // first requests, what several pages share, and each page.
        codeSplitting: {
          groups: [
            { name: 'entry', tags: ['$initial'], priority: 2 },
            { name: 'shared', minShareCount: 2, priority: 1 },
          ],
        },
      },
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
