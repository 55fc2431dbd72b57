import type { MergeConflict } from '@offshoot/contract/merge-conflicts'
import type { TestBranches } from './branches.js'

/** A decision about a conflict, without its token. */
export interface Decision {
  readonly table: string
  readonly id?: string
  readonly kind?: string
  readonly column?: string
}

/** Adds the tokens of what a dry run shows to decisions. */
export async function reviewed(
  branches: TestBranches,
  decisions: readonly (Decision & Record<string, unknown>)[],
  { action = 'merge' }: { action?: 'merge' | 'pull' } = {},
) {
  const { conflicts, conflictTables } = await branches[action]('dev', { dryRun: true })
  const tokenOf = ({ table, id, kind, column }: Decision): string | undefined => {
    if (id === undefined && kind === undefined) {
      return conflictTables.find(({ name }: { name: string }) => name === table)?.token
    }
    const ofTable = conflicts.filter((conflict: MergeConflict) => conflict.table === table)
    if (id === undefined) {
      return ofTable.find((conflict: MergeConflict) => conflict.column === column)?.token
    }
    return (
      ofTable.find((conflict: MergeConflict) => conflict.id === id)?.token ??
      ofTable.find(({ tokens }: MergeConflict) => tokens?.[id] !== undefined)?.tokens[id]
    )
  }
  return decisions.map((decision) => ({ ...decision, token: tokenOf(decision) ?? 'none' }))
}
