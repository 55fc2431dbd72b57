#!/usr/bin/env node
import {
  existsSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'

/*
 * Bundles the built server with the packages that it loads at its start. The modules are more than a thousand files,
 * and finding and reading them takes two thirds of the time that loading takes. Names and lines are kept, so
 * stack traces stay readable. `src/start.ts` uses the modules themselves if the bundle is missing or stale.
 */

const folder = fileURLToPath(new URL('.', import.meta.url))
const target = path.join(folder, 'bundle')
const entry = path.join(target, 'main.js')
const SOURCES = ['dist', '../contract/dist', '../embedded-postgres/dist', 'bundle.js']

/** Packages that load files of their own, or that are optional parts of others. */
const EXTERNAL = [/^libpg-query/, 'pg-native', 'pg-cloudflare']

function isStale() {
  if (!existsSync(entry)) return true
  const builtAt = statSync(entry).mtimeMs
  return SOURCES.some((name) => newestOf(path.join(folder, name)) > builtAt)
}

async function bundle() {
  const { rolldown } = await import('rolldown')
  const building = path.join(folder, `bundle-${process.pid}`)
  try {
    const built = await rolldown({
      input: {
        main: path.join(folder, 'dist', 'main.js'),
        'plan-worker': path.join(folder, 'dist', 'data', 'sql', 'plan-worker.js'),
      },
      platform: 'node',
      external: EXTERNAL,
      logLevel: 'warn',
    })
    const { output } = await built.write({
      dir: building,
      format: 'esm',
      entryFileNames: '[name].js',
      chunkFileNames: '[name]-[hash].js',
      comments: { legal: true, annotation: false, jsdoc: false },
    })
    await built.close()
    const modules = output.flatMap((chunk) => ('moduleIds' in chunk ? chunk.moduleIds : []))
    writeFileSync(path.join(building, 'LICENSES.txt'), licensesOf(modules))
    const old = `${building}-old`
    if (existsSync(target)) renameSync(target, old)
    renameSync(building, target)
    rmSync(old, { recursive: true, force: true })
  } finally {
    rmSync(building, { recursive: true, force: true })
  }
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

function newestOf(file) {
  if (!existsSync(file)) return 0
  if (!statSync(file).isDirectory()) return statSync(file).mtimeMs
  const times = readdirSync(file, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith('.js'))
    .map((entry) => statSync(path.join(entry.parentPath, entry.name)).mtimeMs)
  return Math.max(0, ...times)
}

if (!process.argv.includes('--if-stale') || isStale()) await bundle()
