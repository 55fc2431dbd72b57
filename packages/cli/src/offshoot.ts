import { version } from '@offshoot/server/version'
import { help } from './help.js'

/**
 * One entry per command; each resolves with the exit code. The modules of a command are loaded on
 * demand.
 */
const COMMANDS: Readonly<Record<string, (args: readonly string[]) => Promise<number>>> = {
  start: async (args) => (await import('./start.js')).start(args),
  backup: async (args) => (await import('./backup.js')).backup(args),
  restore: async (args) => (await import('./restore.js')).restore(args),
}

export async function run(args: readonly string[]): Promise<number> {
  const [command, ...rest] = args
  if (command === '--version' || command === '-v') {
    process.stdout.write(`${version}\n`)
    return 0
  }
  if (command === undefined || command === '--help' || command === '-h' || command === 'help') {
    process.stdout.write(help())
    return 0
  }
  const action = Object.hasOwn(COMMANDS, command) ? COMMANDS[command] : undefined
  if (action === undefined) {
    process.stderr.write(`offshoot: unknown command [${command}]: see offshoot --help\n`)
    return 2
  }
  return action(rest)
}
