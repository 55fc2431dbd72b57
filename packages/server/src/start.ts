import { type Bundle, importBundled, isFresh } from './bundled.js'
import type { MainOptions } from './main.js'

/** Modules that run the commands of the service, and that the bundle has under the same names. */
const MODULES = {
  main: () => import('./main.js'),
  backup: () => import('./backup/run.js'),
}
type Modules = { [Name in keyof typeof MODULES]: Awaited<ReturnType<(typeof MODULES)[Name]>> }

const BUNDLE: Bundle = {
  folder: new URL('../bundle/', import.meta.url),
  module: 'main',
  newerIfStale: [
    '../bundle.js',
    './.tsbuildinfo',
    '../../contract/dist/.tsbuildinfo',
    '../../embedded-postgres/dist/.tsbuildinfo',
    '../../../node_modules/.package-lock.json',
  ].map((file) => new URL(file, import.meta.url)),
}

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

async function load<Name extends keyof Modules>(name: Name): Promise<Modules[Name]> {
  return ((await importBundled(BUNDLE, name)) ?? (await MODULES[name]())) as Modules[Name]
}

/** Returns whether there is a bundle of the modules as they are now. */
export function isBundleFresh(): boolean {
  return isFresh(BUNDLE)
}
