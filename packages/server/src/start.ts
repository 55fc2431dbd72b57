import { statSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const BUNDLE = new URL('../bundle/main.js', import.meta.url)

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
export async function main(): Promise<number> {
  const service = (
    isBundleFresh() ? await import(BUNDLE.href) : await import('./main.js')
  ) as typeof import('./main.js')
  return service.main()
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
