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
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'

const folder = fileURLToPath(new URL('.', import.meta.url))
const page = path.join(folder, 'dist', 'index.html')
const SOURCES = ['src', '../client/src', 'index.html', 'vite.config.ts', 'package.json']

/** Returns whether a source is newer than the built page, which is the last file of a build. */
export function isConsoleStale() {
  if (!existsSync(page)) return true
  const builtAt = statSync(page).mtimeMs
  return SOURCES.some((name) => newestOf(path.join(folder, name)) > builtAt)
}

/**
 * Builds the console, and compresses its assets. It is built in a folder of its own and then renamed, so
 * that several processes can build at once and no server sees a part of a build.
 */
export async function buildConsole() {
  const { build } = await import('vite')
  const building = path.join(folder, `dist-${process.pid}`)
  try {
    await build({
      configFile: path.join(folder, 'vite.config.ts'),
      logLevel: 'warn',
      build: { outDir: building },
    })
    const assets = path.join(building, 'assets')
    for (const name of readdirSync(assets)) compress(path.join(assets, name))
    const html = path.join(building, 'index.html')
    writeFileSync(html, readFileSync(html))
    const old = `${building}-old`
    if (existsSync(path.join(folder, 'dist'))) renameSync(path.join(folder, 'dist'), old)
    renameSync(building, path.join(folder, 'dist'))
    rmSync(old, { recursive: true, force: true })
  } finally {
    rmSync(building, { recursive: true, force: true })
  }
}

function newestOf(file) {
  if (!existsSync(file)) return 0
  if (!statSync(file).isDirectory()) return statSync(file).mtimeMs
  const times = readdirSync(file, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && !/\.test\.tsx?$/.test(entry.name))
    .map((entry) => statSync(path.join(entry.parentPath, entry.name)).mtimeMs)
  return Math.max(0, ...times)
}

function compress(file) {
  const content = readFileSync(file)
  const quality = { [constants.BROTLI_PARAM_QUALITY]: 9 }
  writeFileSync(`${file}.br`, brotliCompressSync(content, { params: quality }))
  writeFileSync(`${file}.gz`, gzipSync(content, { level: 9 }))
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (!process.argv.includes('--if-stale') || isConsoleStale()) await buildConsole()
}
