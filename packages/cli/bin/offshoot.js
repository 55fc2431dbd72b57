#!/usr/bin/env node
import { spawn } from 'node:child_process'
import { existsSync, readdirSync, statSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'

const packageFolder = fileURLToPath(new URL('..', import.meta.url))
const built = path.join(packageFolder, 'dist', 'offshoot.js')

// A checkout has the sources of all packages, and no build or a stale one. An installed package is built, and the
// folders around it belong to somebody else.
const root = path.join(packageFolder, '..', '..')
const consoleBuild = path.join(root, 'packages', 'console', 'build.js')
const server = path.join(root, 'packages', 'server')
const PACKAGES = ['contract', 'embedded-postgres', 'client', 'server', 'cli']

if (existsSync(path.join(packageFolder, 'tsconfig.json'))) await buildIfStale()

const { run } = await import(pathToFileURL(built).href)
process.exitCode = await run(process.argv.slice(2))

/** Compiles the packages and builds the console, at the same time, and bundles the server, if they have changed. */
async function buildIfStale() {
  const isStart = process.argv[2] === 'start'
  const builds = []
  if (isStale()) {
    const compiler = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc')
    builds.push([compiler, '-b', packageFolder])
  }
  if (isStart && process.env.OFFSHOOT_CONSOLE !== 'off') {
    const { isConsoleStale } = await import(pathToFileURL(consoleBuild).href)
    if (isConsoleStale()) builds.push([consoleBuild])
  }
  if (builds.length > 0) {
    process.stderr.write('offshoot: compiling the sources; this takes a moment\n')
    await runAll(builds)
  }
  if (isStart) {
    const { isBundleFresh } = await import(
      pathToFileURL(path.join(server, 'dist', 'start.js')).href
    )
    if (!isBundleFresh()) await runAll([[path.join(server, 'bundle.js')]])
  }
}

async function runAll(builds) {
  const codes = await Promise.all(builds.map(runNode))
  if (codes.every((code) => code === 0)) return
  process.stderr.write('offshoot: the build failed; run `npm ci` first\n')
  process.exit(1)
}

function runNode(args) {
  return new Promise((resolve) => {
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'inherit', 'inherit'] })
    child.on('error', () => resolve(1))
    child.on('exit', (code) => resolve(code ?? 1))
  })
}

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
