import type { Queryable } from '../../../postgres/database.js'
import { sql } from '../../../postgres/sql.js'
import { StoredBranch } from '../../../rows/stored-branch.js'
import { type Contained, isIn, type State } from './history.js'
import type { StoredHistory } from './queries.js'

/** Unwritten states that are followed. A longer chain counts as new, which only adds to the history. */
const FOLLOWED_MAX = 32

/**
 * Returns whether the target contains all states of the merged branch that others may contain too. `contained`
 * has the states that the target contains. With a table id, merges that left out the table are ignored.
 */
export async function isUpToDate(
  transaction: Queryable,
  options: {
    history: StoredHistory
    /** The merged state. */
    from: State
    contained: Contained
    tableId: number | undefined
  },
): Promise<boolean> {
  const { history, contained, tableId } = options
  const { branchId, epoch } = options.from
  let left = FOLLOWED_MAX
  const waiting: State[] = []
  /** Adds the states of other branches that a branch has got after an epoch and until another. */
  const follow = (branch: string, after: number, until: number) => {
    const parent = history.forks.find((fork) => fork.branchId === branch)?.parent
    if (after === 0 && parent !== undefined) waiting.push(parent)
    for (const { into, from, leftOut } of history.merges) {
      if (into.branchId !== branch || into.epoch <= after || into.epoch > until) continue
      if (tableId === undefined || !leftOut.includes(tableId)) waiting.push(from)
    }
    // A branch without a parent was not forked from anything that the target could contain.
    return after > 0 || parent !== undefined
  }
  /**
   * Returns whether a branch has changed between two epochs. With a merge in between, rows do not tell: one that
   * was merged and deleted leaves nothing behind, and the deletion is a change of the merged state.
   */
  const isChanged = async (branch: string, after: number, until: number) =>
    history.merges.some(
      ({ into, leftOut }) =>
        into.branchId === branch &&
        into.epoch > after &&
        into.epoch <= until &&
        (tableId === undefined || !leftOut.includes(tableId)),
    ) || (await isChangedBetween(transaction, { branchId: branch, after, until }))
  const known = contained.get(branchId) ?? 0
  if (!follow(branchId, known, epoch)) return false
  // Nobody can tell epochs apart that no fork reads.
  const forked = Math.min(history.forkedEpochs.get(branchId) ?? 0, epoch)
  if (forked > known && (await isChanged(branchId, known, forked))) return false
  for (let state = waiting.pop(); state !== undefined; state = waiting.pop()) {
    if (isIn(contained, state)) continue
    const after = contained.get(state.branchId) ?? 0
    if (--left < 0 || !follow(state.branchId, after, state.epoch)) return false
    if (await isChanged(state.branchId, after, state.epoch)) return false
  }
  return true
}

/** Returns whether a branch has edited its schema or written rows between two epochs that were forked. */
async function isChangedBetween(
  transaction: Queryable,
  between: { branchId: string; after: number; until: number },
): Promise<boolean> {
  const { branchId, after, until } = between
  const schemaAt = (epoch: number) => sql`(
      select f.fork_schema_id
      from offshoot.branches f
      where f.parent_id = b.id and f.fork_epoch = ${epoch}
      order by f.id
      limit 1
    )`
  const [schema] = await transaction.query<{ isSame: boolean | null }>(sql`
    select ${after === 0 ? sql`b.fork_schema_id` : schemaAt(after)} = ${schemaAt(until)} as "isSame"
    from offshoot.branches b
    where b.id = ${branchId}`)
  return (
    schema?.isSame !== true ||
    (await new StoredBranch(transaction, branchId).isWrittenBetween(after, until))
  )
}
