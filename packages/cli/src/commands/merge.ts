import { type MergeOptions, type MergeResult, OffshootError } from '@offshoot/client'
import type { Command } from 'commander'
import { action, createCommand } from '../shared/command.js'
import { EXIT, UsageError } from '../shared/failure.js'
import { notice, oneLine, printJson, printTable } from '../shared/output.js'
import { withBranch } from '../shared/target.js'
import { describeOperation } from './diff.js'

interface MergeFlags {
  readonly json?: boolean
  readonly dryRun?: boolean
  readonly ours?: boolean
  readonly theirs?: boolean
  readonly allowDataLoss?: boolean
}

const withMergeFlags = (command: Command) =>
  command
    .option('--dry-run', 'show the result and the conflicts without changing anything')
    .option('--ours', 'in a conflict, keep what the target has')
    .option('--theirs', 'in a conflict, take what the merged branch has')
    .option('--allow-data-loss', 'allow the removal of tables and columns that hold values')

/** `offshoot merge`: merges a branch into its source or another branch. */
export const mergeCommand = () =>
  withMergeFlags(
    withBranch(
      createCommand('merge', 'merge a branch into the branch that it was forked from', [
        'offshoot merge feat-login --dry-run',
        'offshoot merge feat-login',
        'offshoot merge feat-login --into staging --theirs',
      ]),
    ),
  )
    .argument('[branch]', 'branch to merge; default: the current one')
    .option('--into <branch>', 'target; default: the source of the branch')
    .action(
      action<MergeFlags & { into?: string }, [string?]>(async (target, flags, name) => {
        const branch = name === undefined ? await target.branch() : target.branchNamed(name)
        const { into } = flags
        notice(`Merging ${branch.name} into ${into ?? 'its source'} on ${target.url}`)
        return show(flags, () =>
          branch.merge({ ...optionsOf(flags), ...(into === undefined ? {} : { into }) }),
        )
      }),
    )

/** `offshoot pull`: merges the source of a branch into it. */
export const pullCommand = () =>
  withMergeFlags(
    withBranch(
      createCommand('pull', 'bring the changes of the source into a branch', ['offshoot pull']),
    ),
  )
    .argument('[branch]', 'branch that gets the changes; default: the current one')
    .option('--from <branch>', 'branch to pull; default: the source of the branch')
    .action(
      action<MergeFlags & { from?: string }, [string?]>(async (target, flags, name) => {
        const branch = name === undefined ? await target.branch() : target.branchNamed(name)
        const { from } = flags
        notice(`Pulling ${from ?? 'the source'} into ${branch.name} on ${target.url}`)
        return show(flags, () =>
          branch.pull({ ...optionsOf(flags), ...(from === undefined ? {} : { from }) }),
        )
      }),
    )

function optionsOf({ dryRun, ours, theirs, allowDataLoss }: MergeFlags): MergeOptions {
  if (ours && theirs) throw new UsageError('use --ours or --theirs, not both')
  return {
    ...(dryRun ? { dryRun } : {}),
    ...(ours ? { strategy: 'ours' } : theirs ? { strategy: 'theirs' } : {}),
    ...(allowDataLoss ? { allowDataLoss } : {}),
  }
}

/** Runs a merge and prints its result. Conflicts end with the exit code 3. */
async function show(flags: MergeFlags, merge: () => Promise<MergeResult>): Promise<number> {
  try {
    const result = await merge()
    if (flags.json) printJson(result)
    else printResult(result, flags.dryRun === true)
    return result.conflictCount > 0 ? EXIT.conflict : EXIT.done
  } catch (error) {
    if (!(error instanceof OffshootError)) throw error
    if (error.code !== 'merge_conflict' && error.code !== 'data_loss') throw error
    if (flags.json) printJson({ merged: false, ...error.body })
    notice(`offshoot: ${error.message}`)
    printConflicts(error.body.conflicts as MergeResult['conflicts'] | undefined)
    if (error.code === 'merge_conflict') {
      notice('Nothing was merged. Decide with --ours or --theirs, or change one of the branches.')
    } else notice('Nothing was merged. Allow the loss with --allow-data-loss.')
    return EXIT.conflict
  }
}

function printResult(result: MergeResult, isDryRun: boolean): void {
  for (const operation of result.schema.operations) {
    process.stdout.write(`${describeOperation(operation)}\n`)
  }
  if (result.tables.length > 0) {
    printTable(
      ['table', 'inserted', 'updated', 'deleted'],
      result.tables.map(({ name, inserted, updated, deleted }) => [
        name,
        `+${inserted}`,
        `~${updated}`,
        `-${deleted}`,
      ]),
    )
  }
  printConflicts(result.conflicts)
  for (const { table, column, records, more } of result.dataLoss) {
    const where = column === undefined ? `table ${table}` : `column ${table}.${column}`
    notice(`${where} would be removed with ${more ? 'more than ' : ''}${records} values`)
  }
  if (isDryRun) notice(`Dry run: nothing was changed; ${result.conflictCount} conflicts.`)
  else if (result.merged) notice(`Merged ${result.from} into ${result.into}.`)
  else notice(`${result.into} already has everything of ${result.from}.`)
}

function printConflicts(conflicts: MergeResult['conflicts'] = []): void {
  for (const { table, id, kind, columns, message } of conflicts) {
    const where = id === undefined ? String(table) : `${table}/${oneLine(id)}`
    notice(`conflict in ${where}: ${message ?? kind}`)
    const values = (columns ?? {}) as Record<string, { ours?: unknown; theirs?: unknown }>
    for (const [name, { ours, theirs }] of Object.entries(values)) {
      notice(`    ${name}: ours ${oneLine(ours ?? null)}, theirs ${oneLine(theirs ?? null)}`)
    }
  }
}
