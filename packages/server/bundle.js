#!/usr/bin/env node
import { readdirSync, readFileSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { replaceFolder } from '../../scripts/replace-folder.js'

/*
 * Bundles the built server and its commands with the packages that they load. The modules are more than a thousand files,
 * and finding and reading them takes two thirds of the time that loading takes. Names and lines are kept, so
 * stack traces stay readable. `src/start.ts` uses the modules themselves if the bundle is missing or stale.
 */

const folder = fileURLToPath(new URL('.', import.meta.url))

/** Packages that load files of their own, or that are optional parts of others. */
const EXTERNAL = [/^libpg-query/, 'pg-native', 'pg-cloudflare']

export async function bundleServer() {
  const { rolldown } = await import('rolldown')
  await replaceFolder(path.join(folder, 'bundle'), async (target) => {
    const built = await rolldown({
      input: {
        main: path.join(folder, 'dist', 'main.js'),
        backup: path.join(folder, 'dist', 'backup', 'run.js'),
        'plan-worker': path.join(folder, 'dist', 'data', 'sql', 'plan-worker.js'),
        'openapi-worker': path.join(folder, 'dist', 'http', 'openapi', 'openapi-worker.js'),
      },
      platform: 'node',
      external: EXTERNAL,
      logLevel: 'warn',
    })
    const { output } = await built.write({
      dir: target,
      format: 'esm',
      entryFileNames: '[name].js',
      chunkFileNames: '[name]-[hash].js',
      comments: { legal: true, annotation: false, jsdoc: false },
    })
    await built.close()
    const modules = output.flatMap((chunk) => ('moduleIds' in chunk ? chunk.moduleIds : []))
    writeFileSync(path.join(target, 'LICENSES.txt'), licensesOf(modules))
  })
}

/** Returns the licenses of all packages that the bundle contains parts of. */
function licensesOf(modules) {
  const packages = new Set()
  for (const id of modules) {
    const found = /^.*\/node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/.exec(id.replaceAll('\\', '/'))
    if (found !== null) packages.add(found[0])
  }
  return [...packages]
    .sort()
    .map((name) => {
      const manifest = JSON.parse(readFileSync(path.join(name, 'package.json'), 'utf8'))
      const file = readdirSync(name).find((entry) => /^licen[cs]e/i.test(entry))
      const text = file === undefined ? '' : readFileSync(path.join(name, file), 'utf8')
      return `${manifest.name} ${manifest.version} (${manifest.license})\n\n${text.trim()}\n`
    })
    .join(`\n${'-'.repeat(80)}\n\n`)
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { isBundleFresh } = await import('./dist/start.js')
  if (!process.argv.includes('--if-stale') || !isBundleFresh()) await bundleServer()
}
