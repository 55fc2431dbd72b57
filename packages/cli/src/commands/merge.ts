import {
  type LongCallOptions,
  type MergeOptions,
  type MergeResult,
  OffshootError,
  type Resolution,
  type SchemaDefinition,
} from '@offshoot/client'
import type { Command } from 'commander'
import { action, createCommand } from '../shared/command.js'
import { describeConflict } from '../shared/describe-conflict.js'
import { EXIT, UsageError } from '../shared/failure.js'
import { notice, print, printJson, printTable, showingProgress } from '../shared/output.js'
import { requireTerminal } from '../shared/prompts.js'
import { readInput } from '../shared/read-input.js'
import { refusedResolutions, resolveConflicts } from '../shared/resolve-conflicts.js'
import { withBranch } from '../shared/target.js'
import { describeOperation } from './diff.js'

export interface MergeFlags {
  readonly json?: boolean
  readonly dryRun?: boolean
  readonly ours?: boolean
  readonly theirs?: boolean
  readonly allowDataLoss?: boolean
  readonly interactive?: boolean
  readonly resolutions?: string
  readonly onlyTable?: readonly string[]
  readonly onlyRecord?: readonly string[]
}

export const withMergeFlags = (command: Command) =>
  withDecisionFlags(
    command.option('--dry-run', 'show the result and the conflicts without changing anything'),
  )

export const withDecisionFlags = (command: Command) =>
  command
    .option('--ours', 'in a conflict, keep what the target has')
    .option('--theirs', 'in a conflict, take what the merged branch has')
    .option('--allow-data-loss', 'allow the removal of tables and columns that hold values')

const withResolutionFlags = (command: Command) =>
  command
    .option('--interactive', 'decide conflicts one by one in the terminal, then merge')
    .option('--resolutions <file>', 'decide conflicts by a JSON file; - reads stdin')

const append = (value: string, earlier: readonly string[] = []) => [...earlier, value]

/** The flags of merges, pulls and reverts. */
export const withPartFlags = (command: Command) =>
  withResolutionFlags(withMergeFlags(command))
    .option('--only-table <table>', 'take only this table with its schema; repeatable', append)
    .option('--only-record <table/id>', 'take only this record; repeatable', append)

/** `offshoot merge`: merges a branch into its source or another branch. */
export const mergeCommand = () =>
  withPartFlags(
    withBranch(
      createCommand('merge', 'merge a branch into the branch that it was forked from', [
        'offshoot merge feat-login --dry-run',
        'offshoot merge feat-login',
        'offshoot merge feat-login --into staging --theirs',
        'offshoot merge feat-login --interactive',
        'offshoot merge feat-login --only-table users',
      ]),
    ),
  )
    .argument('[branch]', 'branch to merge; default: the current one')
    .option('--into <branch>', 'target; default: the source of the branch')
    .action(
      action<MergeFlags & { into?: string }, [string?]>(async (target, flags, name) => {
        const branch = name === undefined ? await target.branch() : target.branchNamed(name)
        const { into } = flags
        return runMerge(flags, {
          announcement: `Merging ${branch.name} into ${into ?? 'its source'} on ${target.url}`,
          branch,
          merge: (options) => branch.merge({ ...options, ...(into === undefined ? {} : { into }) }),
        })
      }),
    )

/** `offshoot pull`: merges the source of a branch into it. */
export const pullCommand = () =>
  withPartFlags(
    withBranch(
      createCommand('pull', 'bring the changes of the source into a branch', [
        'offshoot pull',
        'offshoot pull --interactive',
      ]),
    ),
  )
    .argument('[branch]', 'branch that gets the changes; default: the current one')
    .option('--from <branch>', 'branch to pull; default: the source of the branch')
    .action(
      action<MergeFlags & { from?: string }, [string?]>(async (target, flags, name) => {
        const branch = name === undefined ? await target.branch() : target.branchNamed(name)
        const { from } = flags
        return runMerge(flags, {
          announcement: `Pulling ${from ?? 'the source'} into ${branch.name} on ${target.url}`,
          branch,
          merge: (options) => branch.pull({ ...options, ...(from === undefined ? {} : { from }) }),
        })
      }),
    )

export function optionsOf({
  dryRun,
  ours,
  theirs,
  allowDataLoss,
  ...flags
}: MergeFlags): MergeOptions {
  if (ours && theirs) throw new UsageError('use --ours or --theirs, not both')
  if (flags.interactive) {
    if (ours || theirs || flags.resolutions !== undefined) {
      throw new UsageError('use --interactive without --ours, --theirs and --resolutions')
    }
    requireTerminal('--interactive', 'decide conflicts with --resolutions, --ours or --theirs')
  }
  return {
    ...(dryRun ? { dryRun } : {}),
    ...(ours ? { strategy: 'ours' } : theirs ? { strategy: 'theirs' } : {}),
    ...(allowDataLoss ? { allowDataLoss } : {}),
    ...onlyOf(flags),
  }
}

/** Returns the part of the difference that the flags name. */
function onlyOf({ onlyTable, onlyRecord }: MergeFlags): Pick<MergeOptions, 'only'> {
  if (onlyTable !== undefined && onlyRecord !== undefined) {
    throw new UsageError('use --only-table or --only-record, not both')
  }
  if (onlyTable !== undefined) return { only: { tables: onlyTable } }
  if (onlyRecord === undefined) return {}
  const records = onlyRecord.map((text) => {
    const [table = '', ...rest] = text.split('/')
    const id = rest.join('/')
    if (table === '' || id === '') throw new UsageError(`--only-record ${text}: must be table/id`)
    return { table, id }
  })
  return { only: { records } }
}

interface Merging {
  /** Names what is changed. It is printed when the flags are known to be right. */
  readonly announcement: string
  readonly branch: { schema(): Promise<SchemaDefinition> }
  merge(options: MergeOptions & Pick<LongCallOptions, 'onProgress'>): Promise<MergeResult>
  /** The last line of the output. By default it has the names of both branches. */
  readonly done?: string
}

/** Runs a merge and prints its result. Conflicts end with the exit code 3. */
export async function runMerge(
  flags: MergeFlags,
  { announcement, merge, ...rest }: Merging,
): Promise<number> {
  const options = optionsOf(flags)
  notice(announcement)
  const on = {
    ...rest,
    merge: (asked: MergeOptions) => showingProgress((shown) => merge({ ...asked, ...shown })),
  }
  try {
    if (flags.interactive) return await mergeInteractively(flags, options, on)
    const result = await on.merge({ ...options, ...(await readResolutions(flags.resolutions)) })
    return printOutcome(flags, result, on)
  } catch (error) {
    if (!isRefusal(error)) throw error
    if (flags.json) printJson({ merged: false, ...error.body })
    explainRefusal(error)
    notice(`Nothing was merged. ${ADVICE[error.code]}`)
    return EXIT.conflict
  }
}

/** Advice for a merge that needs another decision, by the code of its error. */
const ADVICE = {
  merge_conflict: 'Decide with --interactive, --ours or --theirs.',
  outdated_resolution:
    'These conflicts are open again: decide them with --interactive, or with a new file.',
  data_loss: 'Allow the loss with --allow-data-loss.',
} as const

/** Returns whether an error means that a merge was refused, because it needs another decision. */
export function isRefusal(error: unknown): error is OffshootError & { code: keyof typeof ADVICE } {
  return error instanceof OffshootError && error.code in ADVICE
}

/** Prints why a merge was refused, with its conflicts. */
export function explainRefusal(error: OffshootError): void {
  notice(`offshoot: ${error.message}`)
  for (const { message } of error.errors?.slice(1) ?? []) notice(`    ${message}`)
  printConflicts(error.body.conflicts as MergeResult['conflicts'] | undefined)
}

function printOutcome(
  flags: MergeFlags,
  result: MergeResult,
  { done }: Pick<Merging, 'done'>,
): number {
  if (flags.json) printJson(result)
  else printResult(result, { isDryRun: flags.dryRun === true, done })
  return result.conflictCount > 0 ? EXIT.conflict : EXIT.done
}

/** Asks about all conflicts, then merges. Asks again about conflicts that have changed meanwhile. */
async function mergeInteractively(
  flags: MergeFlags,
  options: MergeOptions,
  on: Omit<Merging, 'announcement'>,
): Promise<number> {
  let resolutions: readonly Resolution[] = []
  for (;;) {
    const decided = await resolveConflicts(on, options, resolutions)
    resolutions = decided.resolutions
    if (!decided.isComplete) {
      notice('Nothing was merged. Go on later with --resolutions and the decisions so far:')
      printJson(resolutions)
      return EXIT.conflict
    }
    try {
      return printOutcome(flags, await on.merge({ ...options, resolutions }), on)
    } catch (error) {
      const isOpen = error instanceof OffshootError && error.code === 'merge_conflict'
      if (!isOpen && refusedResolutions(error) === undefined) throw error
    }
  }
}

/** Reads the resolutions of a file: a list, or an object with the field `resolutions`. */
async function readResolutions(
  file: string | undefined,
): Promise<{ resolutions: readonly Resolution[] } | undefined> {
  if (file === undefined) return undefined
  const text = await readInput(file)
  let content: unknown
  try {
    content = JSON.parse(text)
  } catch (error) {
    throw new UsageError(`${file} is not JSON: ${(error as Error).message}`)
  }
  const list = Array.isArray(content)
    ? content
    : (content as { resolutions?: unknown })?.resolutions
  if (!Array.isArray(list)) throw new UsageError(`${file} must have a list of resolutions`)
  return { resolutions: list as readonly Resolution[] }
}

function printResult(
  result: MergeResult,
  { isDryRun, done }: { isDryRun: boolean; done: string | undefined },
): void {
  for (const operation of result.schema.operations) {
    print(`${describeOperation(operation)}\n`)
  }
  const changed = result.tables.filter(
    (table) => table.inserted + table.updated + table.deleted > 0,
  )
  if (changed.length > 0) {
    printTable(
      ['table', 'inserted', 'updated', 'deleted'],
      changed.map(({ name, inserted, updated, deleted }) => [
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
  else if (result.merged) notice(done ?? `Merged ${result.from} into ${result.into}.`)
  else if (done !== undefined) notice('There is nothing to take back.')
  else notice(`${result.into} already has everything of ${result.from}.`)
}

function printConflicts(conflicts: MergeResult['conflicts'] = []): void {
  for (const conflict of conflicts) describeConflict(conflict).forEach(notice)
}
