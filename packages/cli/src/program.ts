import { Command, CommanderError } from 'commander'
import { branchCommand } from './commands/branch.js'
import { checkoutCommand } from './commands/checkout.js'
import { checkpointCommand } from './commands/checkpoint.js'
import { ciCommand } from './commands/ci.js'
import { codegenCommand } from './commands/codegen.js'
import { completionCommand } from './commands/completion.js'
import { dbCommand } from './commands/db.js'
import { diffCommand } from './commands/diff.js'
import { envCommand, runCommand } from './commands/env.js'
import { exportCommand } from './commands/export.js'
import { historyCommand } from './commands/history.js'
import { hookCommand } from './commands/hook.js'
import { importCommand } from './commands/import.js'
import { keysCommand } from './commands/keys.js'
import { linkCommand } from './commands/link.js'
import { logCommand } from './commands/log.js'
import { loginCommand } from './commands/login.js'
import { logoutCommand } from './commands/logout.js'
import { mergeCommand, pullCommand } from './commands/merge.js'
import { openCommand } from './commands/open.js'
import { operationCommand } from './commands/operation.js'
import { proposalCommand } from './commands/proposal.js'
import { resetCommand } from './commands/reset.js'
import { revertCommand } from './commands/revert.js'
import { schemaCommand } from './commands/schema.js'
import { sqlCommand } from './commands/sql.js'
import { statusCommand } from './commands/status.js'
import { whoamiCommand } from './commands/whoami.js'
import { EXIT, report, UsageError } from './shared/failure.js'
import { endWithReader, notice, print } from './shared/output.js'

/** All commands that talk to a server, in the order of the help. */
function createProgram(): Command {
  const program = new Command('offshoot').description(
    'Offshoot: a database service that branches like git.',
  )
  const groups: readonly (readonly [title: string, commands: readonly Command[]])[] = [
    [
      'The service (settings: offshoot start --help):',
      [
        serviceCommand('start', 'start the service'),
        serviceCommand('backup', 'write a snapshot of the instance, or of one database, to a file'),
        serviceCommand('restore', 'fill an empty instance from a backup, or add a database to one'),
      ],
    ],
    ['Signing in:', [loginCommand(), logoutCommand(), whoamiCommand(), keysCommand()]],
    ['A project:', [linkCommand(), statusCommand(), envCommand(), runCommand(), openCommand()]],
    [
      'Branches:',
      [
        branchCommand(),
        checkoutCommand(),
        diffCommand(),
        mergeCommand(),
        pullCommand(),
        revertCommand(),
        resetCommand(),
        checkpointCommand(),
        proposalCommand(),
        logCommand(),
        operationCommand(),
        hookCommand(),
        ciCommand(),
      ],
    ],
    [
      'Data and schema:',
      [
        dbCommand(),
        sqlCommand(),
        importCommand(),
        exportCommand(),
        historyCommand(),
        schemaCommand(),
        codegenCommand(),
        completionCommand(() => program),
      ],
    ],
  ]
  for (const [title, commands] of groups) {
    for (const command of commands) program.addCommand(command.helpGroup(title))
  }
  for (const command of allOf(program)) {
    command.exitOverride().configureOutput({
      writeOut: print,
      writeErr: (text) => notice(text.replace(/^error: /, 'offshoot: ').trimEnd()),
    })
  }
  return program
    .helpCommand(false)
    .showSuggestionAfterError()
    .addHelpText('after', '\nHelp of a command: offshoot COMMAND --help')
}

/** The service has its own arguments; the entry is only for the help and for suggestions. */
const serviceCommand = (name: string, description: string) =>
  new Command(name).description(description)

function allOf(command: Command): Command[] {
  return [command, ...command.commands.flatMap(allOf)]
}

/** Runs a command. Returns the exit code. */
export async function runProgram(args: readonly string[]): Promise<number> {
  endWithReader()
  try {
    await createProgram().parseAsync(args, { from: 'user' })
    return Number(process.exitCode ?? EXIT.done)
  } catch (error) {
    // The parser of an argument has refused it.
    if (error instanceof UsageError) return report(error, undefined)
    if (!(error instanceof CommanderError)) throw error
    return error.exitCode === 0 ? EXIT.done : EXIT.usage
  }
}
