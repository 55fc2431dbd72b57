import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { listOrigins, type StoredSchema } from '../../rows/columns/stored-schema.js'
import { Difference } from '../../rows/merging/difference.js'
import type { BranchState } from '../branches/branch-state.js'
import { listRemovals, type Removal } from '../schemas/data-loss.js'
import type { TableRule } from '../schemas/merge-schemas.js'
import { firstOf } from '../schemas/round-trips.js'
import { type Base, stateOf } from './merge-base.js'

interface Sides {
  readonly ours: BranchState
  readonly theirs: BranchState
}

export interface Contested {
  /** The number of inserted and updated records, by the id of the removed table or column. */
  readonly changedRecords: ReadonlyMap<number, number>
  /** Digests of these records, by the same ids. */
  readonly digests: ReadonlyMap<number, string>
  /** Ids of tables from which records were deleted. The removal loses nothing of them. */
  readonly deletedFrom: ReadonlySet<number>
}

/**
 * Counts, for each table and column that exactly one side has removed, the records that the other side has
 * changed there since the base.
 */
export async function countContested(
  transaction: Queryable,
  options: Sides & {
    readonly baseSchema: StoredSchema
    baseOf(tableId: number): Base
    ruleOf(tableId: number): TableRule
    readonly limits: Limits
  },
): Promise<Contested> {
  const { ours, theirs, baseSchema, ruleOf } = options
  const counts = new Map<number, number>()
  const digests = new Map<number, string>()
  const deletedFrom = new Set<number>()
  const countOn = async (state: BranchState, removals: readonly Removal[]) => {
    for (const removal of removals) {
      const { table, columns } = removal
      const targets = columns ?? [table]
      for (const [index, { id }] of targets.entries()) {
        const compared = columns === undefined ? table.columns : columns.slice(index, index + 1)
        const { states, rowOf } = options.baseOf(table.id)
        const difference = new Difference({
          table: { ...table, columns: compared },
          form: { limits: options.limits, jsonAsText: false },
          base: { states: states.map((before) => stateOf(before, table)), rowOf },
          after: { rows: state.rows, table },
          // Inserted records without a value in a removed column lose nothing.
          inserted: columns === undefined ? 'all' : 'withValues',
        })
        const { inserted, updated, deleted } = await difference.count(transaction)
        const written = inserted + updated
        counts.set(id, written)
        digests.set(id, written === 0 ? '' : await difference.digestWritten(transaction))
        if (deleted > 0) deletedFrom.add(table.id)
      }
    }
  }
  const isMerged = ({ table }: Removal) => ruleOf(table.id).mode !== 'skip'
  // With the mode `schema`, records of the merged branch are not merged, so they lose nothing.
  const areRowsMerged = ({ table }: Removal) => ruleOf(table.id).mode === 'merge'
  const sides = { ours: ours.schema, theirs: theirs.schema }
  const keptHere = contested(baseSchema, { kept: sides.ours, other: sides.theirs })
  // The target stays as it is where both contain a removal. The merged branch would lose what it has kept.
  const settled = sides.ours.removedIds
  const keptThere = contested(baseSchema, { kept: sides.theirs, other: sides.ours, settled })
  await countOn(ours, keptHere.filter(isMerged))
  await countOn(theirs, keptThere.filter(areRowsMerged))
  return { changedRecords: counts, digests, deletedFrom }
}

/**
 * Lists the tables and columns that one schema still has and the other has removed: those of the base, and
 * the `settled` ones, whose removal the base contains and the first schema has been decided against.
 */
function contested(
  base: StoredSchema,
  {
    kept,
    other,
    settled = [],
  }: Record<'kept' | 'other', StoredSchema> & {
    settled?: readonly number[] | undefined
  },
): Removal[] {
  const baseTables = new Map(base.tables.map((table) => [table.id, table]))
  return listRemovals(kept, other).flatMap(({ table, columns }): Removal[] => {
    const before = baseTables.get(table.id)
    if (columns === undefined) {
      return before === undefined && !settled.includes(table.id) ? [] : [{ table, columns }]
    }
    // A column that the base has changed the type of can be back since.
    const inBase = (before?.columns ?? []).flatMap((column) => [column, ...listOrigins(column)])
    const known = new Set([...inBase.map(({ id }) => id), ...settled])
    // A column whose type was changed and changed back is still the one of the base.
    const knownFirst = new Set((before?.columns ?? []).map((column) => firstOf(column).id))
    const there = other.tables.find(({ id }) => id === table.id)?.columns ?? []
    const leftFirst = new Set(there.map((column) => firstOf(column).id))
    const removed = columns.filter((column) => {
      const first = firstOf(column).id
      return known.has(column.id) || (knownFirst.has(first) && !leftFirst.has(first))
    })
    return removed.length === 0 ? [] : [{ table, columns: removed }]
  })
}
