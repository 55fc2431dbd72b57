import { Command } from 'commander'
import { report } from './failure.js'
import { Target, type TargetFlags } from './target.js'

/** Runs the action of a command, and turns its errors into messages and exit codes. */
export function action<Flags extends object = TargetFlags, Args extends readonly unknown[] = []>(
  run: (target: Target, flags: Flags, ...args: Args) => Promise<number | undefined>,
): (...input: unknown[]) => Promise<void> {
  return plainAction<Flags, Args>(async (flags, ...args) => {
    const target = await Target.find(flags as TargetFlags)
    try {
      return await run(target, flags, ...args)
    } catch (error) {
      return report(error, target.url)
    }
  })
}

/** Like `action`, for commands that need no server. */
export function plainAction<Flags, Args extends readonly unknown[]>(
  run: (flags: Flags, ...args: Args) => Promise<number | undefined>,
): (...input: unknown[]) => Promise<void> {
  return async (...input) => {
    // Commander passes the arguments, the flags and the command.
    const args = input.slice(0, -2) as unknown as Args
    const command = input.at(-1) as Command
    try {
      process.exitCode = (await run(command.optsWithGlobals() as Flags, ...args)) ?? 0
    } catch (error) {
      process.exitCode = report(error, undefined)
    }
  }
}

/** Creates a command with examples in its help. */
export function createCommand(name: string, description: string, examples: readonly string[] = []) {
  const command = new Command(name).description(description)
  if (examples.length === 0) return command
  return command.addHelpText(
    'after',
    `\nExamples:\n${examples.map((example) => `  $ ${example}`).join('\n')}`,
  )
}
