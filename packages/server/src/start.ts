import { statSync } from 'node:fs'
import nodeModule from 'node:module'
import { fileURLToPath } from 'node:url'
import type { MainOptions } from './main.js'

const BUNDLE = new URL('../bundle/main.js', import.meta.url)
/** Replaced with the bundle, so it does not grow. Whoever can write to it can also change the code. */
const COMPILED = new URL('../bundle/.compiled', import.meta.url)

/** Files that are only in a checkout, and newer than the bundle if it is stale. */
const NEWER_IF_STALE = [
  '../bundle.js',
  './.tsbuildinfo',
  '../../contract/dist/.tsbuildinfo',
  '../../embedded-postgres/dist/.tsbuildinfo',
  '../../../node_modules/.package-lock.json',
]

/**
 * Runs the service until it is told to stop. Resolves with the exit code. The service is loaded from its bundle
 * if there is one, because that takes a third of the time of loading all modules.
 */
export async function main(options: MainOptions = {}): Promise<number> {
  const isFresh = isBundleFresh()
  if (isFresh) keepCompiled()
  const service = (
    isFresh ? await import(BUNDLE.href) : await import('./main.js')
  ) as typeof import('./main.js')
  return service.main(options)
}

/**
 * Lets Node.js 22 and later keep the code that V8 has compiled, for the next start. It does nothing if the folder cannot be
 * written to.
 */
function keepCompiled(): void {
  const { enableCompileCache } = nodeModule as { enableCompileCache?(folder: string): unknown }
  enableCompileCache?.(fileURLToPath(COMPILED))
}

/** Returns whether there is a bundle of the modules as they are now. */
export function isBundleFresh(): boolean {
  const builtAt = timeOf(BUNDLE)
  if (builtAt === undefined) return false
  return NEWER_IF_STALE.every((file) => (timeOf(new URL(file, import.meta.url)) ?? 0) <= builtAt)
}

function timeOf(file: URL): number | undefined {
  return statSync(fileURLToPath(file), { throwIfNoEntry: false })?.mtimeMs
}
