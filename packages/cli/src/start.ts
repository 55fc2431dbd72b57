import { main } from '@offshoot/server/start'
import { notice, print } from './shared/output.js'

/** `offshoot start`: runs the service until it is told to stop. */
export async function start(args: readonly string[]): Promise<number> {
  const [option] = args
  if (option === '--help' || option === '-h') {
    const { startHelp } = await import('./start-help.js')
    print(startHelp())
    return 0
  }
  if (option !== undefined) {
    notice(`offshoot start: unknown option [${option}]: ${await advice(option)}`)
    return 2
  }
  if (process.env.npm_lifecycle_event === undefined) return main()
  const { endOfNpm } = await import('./end-of-npm.js')
  return main({ stop: await endOfNpm() })
}

/** Suggests the environment variable for an option such as `--port`. */
async function advice(option: string): Promise<string> {
  const { settingsTable } = await import('@offshoot/server/config')
  const [name = ''] = option.replace(/^-+/, '').split('=')
  const env = `OFFSHOOT_${name.replaceAll('-', '_').toUpperCase()}`
  const isSetting = settingsTable().some((row) => row.env === env)
  return isSetting
    ? `set ${env} in the environment instead`
    : 'settings come from the environment, see offshoot start --help'
}
