import type {
  AnySchema,
  Branch,
  LongCallOptions,
  MergeOptions,
  MergeResult,
  RevertStep,
} from '@offshoot/client'

/** What the page does: merge the branch into another one, pull another one, or take back a change of the branch. */
export type BranchChange =
  | { readonly kind: 'merge'; readonly other: string }
  | { readonly kind: 'pull'; readonly other: string }
  | { readonly kind: 'revert'; readonly step: RevertStep }

/** Runs a change, or its dry run. */
export function runChange(
  branch: Branch<AnySchema>,
  change: BranchChange,
  options: MergeOptions & LongCallOptions,
): Promise<MergeResult> {
  switch (change.kind) {
    case 'merge':
      return branch.merge({ into: change.other, ...options })
    case 'pull':
      return branch.pull({ from: change.other, ...options })
    case 'revert':
      return branch.revert({ ...change.step, ...options })
  }
}

/** The words of the page for a change. */
interface ChangeWords {
  /** The names of both sides. `ours` is the branch that changes. */
  readonly sides: { readonly ours: string; readonly theirs: string }
  readonly action: string
  readonly done: string
  readonly nothing: readonly [title: string, explanation: string]
  /** Starts the message about a refusal. */
  readonly refused: string
}

export function wordsOf(change: BranchChange, branch: string): ChangeWords {
  if (change.kind === 'revert') {
    return {
      sides: { ours: branch, theirs: 'the earlier state' },
      action: `Revert on ${branch}`,
      done: `The change of ${branch} is reverted`,
      nothing: ['Nothing to revert', `${branch} has nothing of this change any more.`],
      refused: 'Nothing was reverted.',
    }
  }
  const sides =
    change.kind === 'merge'
      ? { ours: change.other, theirs: branch }
      : { ours: branch, theirs: change.other }
  return {
    sides,
    action: change.kind === 'merge' ? `Merge into ${sides.ours}` : `Pull into ${sides.ours}`,
    done: `${sides.theirs} is merged into ${sides.ours}`,
    nothing: [
      'Nothing to merge',
      `${sides.ours} already has everything that ${sides.theirs} changed.`,
    ],
    refused: 'Nothing was merged.',
  }
}
