import { statSync } from 'node:fs'
import nodeModule from 'node:module'
import { fileURLToPath } from 'node:url'

/** Modules of a package that the build has bundled with all that they load (`scripts/bundle-package.js`). */
export interface Bundle {
  readonly folder: URL
  /** One of its modules, as old as the others. */
  readonly module: string
  /** Files that are only in a checkout, and newer than the bundle if it is stale. */
  readonly newerIfStale: readonly URL[]
}

/**
 * Loads a module from a bundle, because that takes a third of the time of loading its modules one by one. Returns undefined
 * if the bundle is missing or stale.
 */
export async function importBundled(bundle: Bundle, name: string): Promise<unknown> {
  if (!isFresh(bundle)) return undefined
  keepCompiled(bundle)
  return await import(new URL(`${name}.js`, bundle.folder).href)
}

/**
 * Lets Node.js 22 and later keep the code that V8 has compiled, for the next start. It does nothing if the folder cannot be
 * written to. The folder is replaced with the bundle, so it does not grow. Whoever can write to it can also change the code.
 */
function keepCompiled({ folder }: Bundle): void {
  const { enableCompileCache } = nodeModule as { enableCompileCache?(folder: string): unknown }
  enableCompileCache?.(fileURLToPath(new URL('.compiled', folder)))
}

/** Returns whether there is a bundle of the modules as they are now. */
export function isFresh({ folder, module, newerIfStale }: Bundle): boolean {
  const builtAt = timeOf(new URL(`${module}.js`, folder))
  if (builtAt === undefined) return false
  return newerIfStale.every((file) => (timeOf(file) ?? 0) <= builtAt)
}

function timeOf(file: URL): number | undefined {
  return statSync(fileURLToPath(file), { throwIfNoEntry: false })?.mtimeMs
}
