import type { RevertStep } from '@offshoot/client'
import { action, createCommand } from '../shared/command.js'
import { UsageError } from '../shared/failure.js'
import { withBranch } from '../shared/target.js'
import { type MergeFlags, runMerge, withPartFlags } from './merge.js'

interface RevertFlags extends MergeFlags {
  readonly from?: string
  readonly to?: string
}

/** `offshoot revert`: takes back a change of a branch, and keeps what came later. */
export const revertCommand = () =>
  withPartFlags(
    withBranch(
      createCommand('revert', 'take back a change of a branch, and keep what came later', [
        'offshoot log',
        'offshoot revert log_d2m4o9k8v3q1t7h5n6c0 --dry-run',
        'offshoot revert --from before-import --to after-import',
      ]),
    ),
  )
    .argument('[entry]', 'entry of the log: a merge, pull, reset, revert, migration or bulk load')
    .option('--from <checkpoint>', 'instead of an entry: the checkpoint before the changes')
    .option('--to <checkpoint>', 'with --from: the checkpoint after the changes')
    .action(
      action<RevertFlags, [string?]>(async (target, flags, entry) => {
        const branch = await target.branch()
        const step = stepOf(entry, flags)
        const what = 'entry' in step ? step.entry : `${step.from} to ${step.to}`
        return runMerge(flags, {
          announcement: `Reverting ${what} on ${branch.name} on ${target.url}`,
          branch,
          merge: (options) => branch.revert({ ...options, ...step }),
          done: `Reverted ${what}.`,
        })
      }),
    )

function stepOf(entry: string | undefined, { from, to }: RevertFlags): RevertStep {
  if (entry !== undefined && from === undefined && to === undefined) return { entry }
  if (entry === undefined && from !== undefined && to !== undefined) return { from, to }
  throw new UsageError('name an entry of the log, or two checkpoints with --from and --to')
}
