import { main } from '@offshoot/server/start'

/** `offshoot start`: runs the service until it is told to stop. */
export async function start(args: readonly string[]): Promise<number> {
  const [option] = args
  if (option === '--help' || option === '-h') {
    const { startHelp } = await import('./start-help.js')
    process.stdout.write(startHelp())
    return 0
  }
  if (option !== undefined) {
    process.stderr.write(`offshoot start: unknown option [${option}]: ${await advice(option)}\n`)
    return 2
  }
  return main()
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
