import { type Bundle, importBundled, isFresh } from '@offshoot/server/bundled'

/**
 * Commands that run the service. Each resolves with the exit code. All modules are loaded on demand,
 * because the service takes long to load.
 */
const SERVICE_COMMANDS: Readonly<Record<string, (args: readonly string[]) => Promise<number>>> = {
  start: async (args) => (await import('./start.js')).start(args),
  backup: async (args) => (await import('./backup.js')).backup(args),
  restore: async (args) => (await import('./restore.js')).restore(args),
}

/** The commands that talk to a server. */
const BUNDLE: Bundle = {
  folder: new URL('../bundle/', import.meta.url),
  module: 'program',
  newerIfStale: [
    '../bundle.js',
    './.tsbuildinfo',
    '../../client/dist/.tsbuildinfo',
    '../../server/dist/.tsbuildinfo',
    '../../embedded-postgres/dist/.tsbuildinfo',
    '../../../node_modules/.package-lock.json',
  ].map((file) => new URL(file, import.meta.url)),
}

export async function run(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args
  if (command === '--version' || command === '-v') {
    const { version } = await import('@offshoot/server/version')
    const { print } = await import('./shared/output.js')
    print(`${version}\n`)
    return 0
  }
  const { [command ?? '']: service } = SERVICE_COMMANDS
  if (service !== undefined && Object.hasOwn(SERVICE_COMMANDS, command ?? '')) return service(rest)
  const { runProgram } = await loadProgram()
  return runProgram(command === undefined || command === 'help' ? ['--help'] : args)
}

async function loadProgram(): Promise<typeof import('./program.js')> {
  const bundled = await importBundled(BUNDLE, 'program')
  return (bundled as typeof import('./program.js') | undefined) ?? (await import('./program.js'))
}

/** Returns whether there is a bundle of the commands as they are now. */
export function isBundleFresh(): boolean {
  return isFresh(BUNDLE)
}
