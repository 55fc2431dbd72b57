import { spawn } from 'node:child_process'
import { constants } from 'node:os'
import { action, createCommand } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { printData, printJson } from '../shared/output.js'
import { shellWord } from '../shared/shell-word.js'
import { type Target, withBranch } from '../shared/target.js'

async function variables(target: Target): Promise<Record<string, string>> {
  return {
    OFFSHOOT_URL: target.url,
    OFFSHOOT_WORKSPACE: await target.workspace(),
    OFFSHOOT_DATABASE: target.databaseName,
    OFFSHOOT_BRANCH: (await target.findBranch()).name,
    OFFSHOOT_API_KEY: target.apiKey,
  }
}

/** `offshoot env`: prints the environment for other programs. */
export const envCommand = () =>
  withBranch(
    createCommand('env', 'print the variables that other programs need', [
      'eval "$(offshoot env)"',
    ]),
  ).action(
    action(async (target, { json }) => {
      const found = await variables(target)
      if (json) printJson(found)
      else {
        for (const [name, value] of Object.entries(found)) {
          printData(`export ${name}=${shellWord(value)}\n`)
        }
      }
      return 0
    }),
  )

/** `offshoot run -- command`: runs a program with that environment. */
export const runCommand = () =>
  withBranch(
    createCommand('run', 'run a command with the variables of offshoot env', [
      'offshoot run -- npm test',
    ]),
  )
    .argument('<command...>', 'the command, after --')
    .action(
      action<object, [string[]]>(async (target, _flags, [program = '', ...args]) => {
        const env = { ...process.env, ...(await variables(target)) }
        const child = spawn(program, args, { stdio: 'inherit', env })
        return new Promise<number>((resolve, reject) => {
          child.once('error', (error: NodeJS.ErrnoException) => {
            reject(
              error.code === 'ENOENT' ? new UsageError(`there is no command [${program}]`) : error,
            )
          })
          // As a shell does: a signal gives 128 and its number.
          child.once('exit', (code, signal) => {
            resolve(code ?? 128 + (signal === null ? 0 : constants.signals[signal]))
          })
        })
      }),
    )
