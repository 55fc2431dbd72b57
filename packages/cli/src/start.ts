import { main } from '@offshoot/server/main'
import { help } from './help.js'

/** `offshoot start`: the service, until it is told to stop. */
export async function start(args: readonly string[]): Promise<number> {
  const [option] = args
  if (option === '--help' || option === '-h') {
    process.stdout.write(help())
    return 0
  }
  if (option !== undefined) {
    process.stderr.write(
      `offshoot start: [${option}] is not known; settings come from the environment, see offshoot --help\n`,
    )
    return 2
  }
  return main()
}
