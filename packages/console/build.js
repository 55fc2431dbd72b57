#!/usr/bin/env node
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { brotliCompressSync, constants, gzipSync } from 'node:zlib'
import { replaceFolder } from '../../scripts/replace-folder.js'

const folder = fileURLToPath(new URL('.', import.meta.url))
const page = path.join(folder, 'dist', 'index.html')
const SOURCES = ['src', '../client/src', 'index.html', 'vite.config.ts', 'package.json']

/** Returns whether a source is newer than the built page, which is the last file of a build. */
export function isConsoleStale() {
  if (!existsSync(page)) return true
  const builtAt = statSync(page).mtimeMs
  return SOURCES.some((name) => newestOf(path.join(folder, name)) > builtAt)
}

/** Builds the console, and compresses its assets. */
export async function buildConsole(into = path.join(folder, 'dist')) {
  // Otherwise, NODE_ENV=development in the shell of a user would build React for development.
  process.env.NODE_ENV = 'production'
  const { build } = await import('vite')
  await replaceFolder(into, async (target) => {
    await build({
      configFile: path.join(folder, 'vite.config.ts'),
      logLevel: 'warn',
      build: { outDir: target },
    })
    const assets = path.join(target, 'assets')
    for (const name of readdirSync(assets)) compress(path.join(assets, name))
    // The page is the last file of the build, which tells how old the build is.
    const html = path.join(target, 'index.html')
    writeFileSync(html, readFileSync(html))
  })
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
