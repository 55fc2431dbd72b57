import { statSync } from 'node:fs'
import nodeModule from 'node:module'
import { fileURLToPath } from 'node:url'
import type { MainOptions } from './main.js'

/** Modules that run the commands of the service, and that the bundle has under the same names. */
const MODULES = {
  main: () => import('./main.js'),
  backup: () => import('./backup/run.js'),
}
type Modules = { [Name in keyof typeof MODULES]: Awaited<ReturnType<(typeof MODULES)[Name]>> }

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

/** Runs the service until it is told to stop. Resolves with the exit code. */
export async function main(options: MainOptions = {}): Promise<number> {
  return (await load('main')).main(options)
}

export const runBackup: Modules['backup']['runBackup'] = async (options) =>
  (await load('backup')).runBackup(options)

export const runRestore: Modules['backup']['runRestore'] = async (options) =>
  (await load('backup')).runRestore(options)

export const runRestoreDatabase: Modules['backup']['runRestoreDatabase'] = async (options) =>
  (await load('backup')).runRestoreDatabase(options)

/**
 * Loads modules from the bundle if there is one, because that takes a third of the time of loading them one by one.
 */
async function load<Name extends keyof Modules>(name: Name): Promise<Modules[Name]> {
  if (!isBundleFresh()) return (await MODULES[name]()) as Modules[Name]
  keepCompiled()
  return (await import(new URL(`${name}.js`, BUNDLE).href)) as Modules[Name]
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
