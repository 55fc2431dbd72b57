import { Failure, UsageError } from './failure.js'
import { printable } from './output.js'
import { readStdin } from './read-input.js'

/** Loads the questions on demand: most commands ask none, and loading takes a good part of their time. */
export const loadPrompts = () => import('@clack/prompts')

const isInteractive = () => process.stdin.isTTY === true && process.stderr.isTTY === true

/** Refuses an option that needs a terminal. `instead` says how to do without. */
export function requireTerminal(option: string, instead: string): void {
  if (!isInteractive()) throw new UsageError(`${option} needs a terminal; ${instead}`)
}

/** Asks before something is lost. Without a terminal, `--yes` must have been given. */
export async function requireConsent(question: string, yes: boolean | undefined): Promise<void> {
  if (yes) return
  if (!isInteractive())
    throw new UsageError(`${question}\n  Repeat the command with --yes to go on`)
  const { confirm, isCancel } = await loadPrompts()
  const answer = await confirm({
    message: printable(question),
    initialValue: false,
    output: process.stderr,
  })
  if (isCancel(answer) || !answer) throw new Failure('nothing was changed')
}

/** Asks for an API key, without showing it. Without a terminal, reads it from stdin. */
export async function askForKey(url: string): Promise<string> {
  if (isInteractive()) {
    const { isCancel, password } = await loadPrompts()
    const answer = await password({
      message: printable(`API key for ${url}`),
      output: process.stderr,
    })
    if (isCancel(answer)) throw new Failure('nothing was changed')
    return answer
  }
  return readStdin()
}
