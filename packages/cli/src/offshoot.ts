import { print } from './shared/output.js'

/**
 * Commands that run the service. Each resolves with the exit code. All modules are loaded on demand,
 * because the service takes long to load.
 */
const SERVICE_COMMANDS: Readonly<Record<string, (args: readonly string[]) => Promise<number>>> = {
  start: async (args) => (await import('./start.js')).start(args),
  backup: async (args) => (await import('./backup.js')).backup(args),
  restore: async (args) => (await import('./restore.js')).restore(args),
}

export async function run(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args
  if (command === '--version' || command === '-v') {
    const { version } = await import('@offshoot/server/version')
    print(`${version}\n`)
    return 0
  }
  const { [command ?? '']: service } = SERVICE_COMMANDS
  if (service !== undefined && Object.hasOwn(SERVICE_COMMANDS, command ?? '')) return service(rest)
  const { runProgram } = await import('./program.js')
  return runProgram(command === undefined || command === 'help' ? ['--help'] : args)
}
