#!/usr/bin/env node
import { spawnSync } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const packageFolder = fileURLToPath(new URL('..', import.meta.url))
const built = path.join(packageFolder, 'dist', 'offshoot.js')

// A checkout has the sources of all packages, and no build or a stale one. An installed package is built.
const root = path.join(packageFolder, '..', '..')
const PACKAGES = ['contract', 'embedded-postgres', 'client', 'server', 'cli']

if (existsSync(path.join(root, 'packages', 'cli', 'tsconfig.json')) && isStale()) {
  process.stderr.write('offshoot: compiling the sources; this takes a moment\n')
  const compiler = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc')
  const { status } = spawnSync(process.execPath, [compiler, '-b', packageFolder], {
    stdio: ['ignore', 'inherit', 'inherit'],
  })
  if (status !== 0) {
    process.stderr.write('offshoot: the build failed; run `npm ci` first\n')
    process.exit(1)
  }
}

const { run } = await import(pathToFileURL(built).href)
process.exitCode = await run(process.argv.slice(2))

function isStale() {
  return !existsSync(built) || PACKAGES.some(isPackageStale)
}

function isPackageStale(name) {
  const folder = path.join(root, 'packages', name)
  const info = path.join(folder, 'dist', '.tsbuildinfo')
  if (!existsSync(info)) return true
  const builtAt = statSync(info).mtimeMs
  return readdirSync(path.join(folder, 'src'), { recursive: true, withFileTypes: true }).some(
    (entry) =>
      entry.isFile() &&
      !entry.name.endsWith('.test.ts') &&
      statSync(path.join(entry.parentPath, entry.name)).mtimeMs > builtAt,
  )
}
