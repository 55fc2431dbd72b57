import { action, createCommand } from '../shared/command.js'
import { age, notice, printJson, printTable } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { withBranch } from '../shared/target.js'

/** `offshoot checkpoint`: states of a branch that are kept. */
export const checkpointCommand = () =>
  createCommand('checkpoint', 'checkpoints of a branch: ls, create, rename, rm')
    .addCommand(list())
    .addCommand(create())
    .addCommand(rename())
    .addCommand(remove())

const list = () =>
  withBranch(createCommand('ls', 'list the checkpoints of a branch, newest first')).action(
    action(async (target, { json }) => {
      const branch = await target.branch()
      const checkpoints = []
      for await (const checkpoint of branch.checkpoints()) checkpoints.push(checkpoint)
      if (json) printJson(checkpoints)
      else {
        printTable(
          ['checkpoint', 'age', 'made', 'note'],
          checkpoints.map(({ name, createdAt, kind, before, note }) => [
            name,
            age(createdAt),
            before === undefined ? kind : `before ${before}`,
            note ?? '',
          ]),
        )
      }
      return 0
    }),
  )

const create = () =>
  withBranch(
    createCommand('create', 'keep the present state of a branch', [
      'offshoot checkpoint create before-import --note "prices of 2026"',
      'offshoot reset --at before-import',
    ]),
  )
    .argument('[name]', 'name of the checkpoint; default: its id')
    .option('--note <text>', 'what it is for')
    .action(
      action<{ json?: boolean; note?: string }, [string?]>(async (target, { json, note }, name) => {
        const branch = await target.branch()
        const made = await branch.checkpoint({
          ...(name === undefined ? {} : { name }),
          ...(note === undefined ? {} : { note }),
        })
        if (json) printJson(made)
        else notice(`Made checkpoint ${made.name} of ${branch.name}.`)
        return 0
      }),
    )

const rename = () =>
  withBranch(createCommand('rename', 'give a checkpoint another name'))
    .argument('<checkpoint>', 'id or name of the checkpoint')
    .argument('<name>', 'the new name')
    .action(
      action<{ json?: boolean }, [string, string]>(async (target, { json }, checkpoint, name) => {
        const branch = await target.branch()
        const renamed = await branch.updateCheckpoint(checkpoint, { name })
        if (json) printJson(renamed)
        else notice(`Renamed checkpoint ${checkpoint} to ${name}.`)
        return 0
      }),
    )

const remove = () =>
  withBranch(createCommand('rm', 'delete a checkpoint').alias('delete'))
    .argument('<checkpoint>', 'id or name of the checkpoint')
    .option('--yes', 'do not ask')
    .action(
      action<{ json?: boolean; yes?: boolean }, [string]>(
        async (target, { json, yes }, checkpoint) => {
          const branch = await target.branch()
          await requireConsent(
            `This deletes the checkpoint ${checkpoint} of ${branch.name} of ${target.databaseName} on ${target.url}.`,
            yes,
          )
          await branch.deleteCheckpoint(checkpoint)
          if (json) printJson({ checkpoint, deleted: true })
          else notice(`Deleted checkpoint ${checkpoint}.`)
          return 0
        },
      ),
    )
