import { action, createCommand } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { age, notice, printJson, printTable } from '../shared/output.js'
import { requireConsent } from '../shared/prompts.js'
import { withBranch } from '../shared/target.js'
import { countOf, parseDuration } from './branch.js'

/** `offshoot checkpoint`: states of a branch that are kept. */
export const checkpointCommand = () =>
  createCommand('checkpoint', 'checkpoints of a branch: ls, create, rename, rm, schedule')
    .addCommand(list())
    .addCommand(create())
    .addCommand(rename())
    .addCommand(remove())
    .addCommand(schedule())

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

/** Scheduled checkpoints that are kept without `--keep`. */
const KEPT = 24

const schedule = () =>
  withBranch(
    createCommand('schedule', 'make checkpoints of a branch regularly, and keep the newest', [
      'offshoot checkpoint schedule 1h --keep 24',
      'offshoot checkpoint schedule off',
    ]),
  )
    .argument('<every>', 'time between two checkpoints, such as 30m or 1d; or off')
    .option('--keep <number>', `how many are kept; default: ${KEPT}`)
    .action(
      action<{ json?: boolean; keep?: string }, [string]>(async (target, { json, keep }, every) => {
        const isOff = every === 'off'
        if (isOff && keep !== undefined)
          throw new UsageError('--keep goes with a time, not with off')
        const count = keep === undefined ? KEPT : countOf('--keep', keep)
        const checkpoints = isOff ? null : { every: parseDuration(every), keep: count }
        const branch = await target.branch()
        await branch.update({ checkpoints })
        if (json) printJson({ branch: branch.name, checkpoints })
        else if (isOff) notice(`No checkpoints of ${branch.name} are made regularly any more.`)
        else {
          notice(
            `A checkpoint of ${branch.name} is made every ${every}, and the newest ${count} are kept.`,
          )
        }
        return 0
      }),
    )
