import { settingsTable } from '@offshoot/server/config'
import { main } from '@offshoot/server/main'
import { startHelp } from './start-help.js'

/** `offshoot start`: runs the service until it is told to stop. */
export async function start(args: readonly string[]): Promise<number> {
  const [option] = args
  if (option === '--help' || option === '-h') {
    process.stdout.write(startHelp())
    return 0
  }
  if (option !== undefined) {
    process.stderr.write(`offshoot start: unknown option [${option}]: ${advice(option)}\n`)
    return 2
  }
  return main()
}

/** Suggests the environment variable for an option such as `--port`. */
function advice(option: string): string {
  const [name = ''] = option.replace(/^-+/, '').split('=')
  const env = `OFFSHOOT_${name.replaceAll('-', '_').toUpperCase()}`
  const isSetting = settingsTable().some((row) => row.env === env)
  return isSetting
    ? `set ${env} in the environment instead`
    : 'settings come from the environment, see offshoot start --help'
}
