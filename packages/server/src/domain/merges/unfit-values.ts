import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import {
  listOrigins,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'
import type { BranchState, ReadColumns } from '../branches/branch-state.js'
import { pairColumns } from '../schemas/alter-column.js'
import type { SchemaConflict, TableRule } from '../schemas/merge-schemas.js'
import { type Bases, baseOfTable, tableOf } from './merge-base.js'
import { findReadColumns } from './read-columns.js'

/*
 * One side may have changed the type of a column, and the other one its values. The values of both sides must convert to
 * the merged definition. Values of the same type, and those that are required or unique, are checked with the outcome. Ids
 * of new records must have the merged size.
 */

/** Finds columns with values, on one of the sides, that do not convert to the merged definition. */
export async function findUnfit(
  transaction: Queryable,
  options: {
    ours: BranchState
    theirs: BranchState
    merged: StoredSchema
    bases: Bases
    ruleOf(tableId: number): TableRule
    limits: Limits
  },
): Promise<SchemaConflict[]> {
  const { ours, theirs, bases, ruleOf } = options
  const conflicts: SchemaConflict[] = []
  const tables = new Map(options.merged.tables.map((table) => [table.id, table]))
  const checkSide = async (
    state: BranchState,
    other: BranchState,
    { name, modes }: { name: string; modes: readonly string[] },
  ) => {
    const readAs = findReadColumns(state.schema, options.merged)
    const readRows = new RowState(state.rows).readColumns(readAs)
    for (const before of state.schema.tables) {
      const after = tables.get(before.id)
      const { mode } = ruleOf(before.id)
      if (after === undefined || !modes.includes(mode)) continue
      const isMerged = mode === 'merge' && tableOf(other, before) !== undefined
      const base = isMerged ? singleBase(bases, before) : undefined
      const checked = { ...options, state, name, before, after, base, other, readAs, readRows }
      conflicts.push(...(await checkTable(transaction, checked)))
    }
  }
  await checkSide(ours, theirs, { name: 'the target', modes: ['merge', 'schema'] })
  await checkSide(theirs, ours, { name: 'the merged branch', modes: ['merge'] })
  return conflicts
}

/** Returns the base of a table, unless it has several states, or is that of a bulk load. */
function singleBase(bases: Bases, table: StoredTable): BranchState | undefined {
  const { states, loaded } = baseOfTable(bases, table.id)
  return states.length === 1 && loaded === undefined ? states[0] : undefined
}

async function checkTable(
  transaction: Queryable,
  options: {
    state: BranchState
    name: string
    before: StoredTable
    after: StoredTable
    base: BranchState | undefined
    other: BranchState
    /** The columns that are read in place of merged ones, and the rows in which they are. */
    readAs: ReadColumns
    readRows: BranchRows
    limits: Limits
  },
): Promise<SchemaConflict[]> {
  const { state, name, before, after, base, other, limits } = options
  const known = base && tableOf(base, before)?.columns
  const conflicts: SchemaConflict[] = []
  const readAs = options.readAs.get(after.id) ?? new Map<number, StoredColumn>()
  const converted = after.columns.flatMap((column): [number, StoredColumn][] => {
    const read = readAs.get(column.id)
    return read === undefined ? [] : [[read.id, column]]
  })
  const isConverted = new Set(converted.map(([id]) => id))
  const successors = new Map([...pairColumns(before.columns, after.columns), ...converted])
  const merged = base && { base: base.rows, other: other.rows }
  const ofIds = { table: after, before, merged, limits }
  for (const { records, more, samples } of await new RowState(state.rows).findIdProblems(
    transaction,
    ofIds,
  )) {
    const ids = samples.map(({ id }) => `[${id}]`).join(', ')
    const count = more ? `more than ${records}` : records
    const [words, does] =
      records === 1 ? ['the id of 1 record', 'does'] : [`ids of ${count} records`, 'do']
    conflicts.push({
      ...{ id: after.id, table: after.name, takes: [], records },
      message: `${words} of ${name} ${does} not fit into ${after.idBits} bits: ${ids}; widen the ids, or delete these records first`,
    })
  }
  for (const column of before.columns) {
    const successor = successors.get(column.id)
    if (successor === undefined || successor.id === column.id) continue
    // Rules of values are judged by the outcome.
    const { notNull: _, unique: __, onDelete: ___, ...unruled } = successor
    // The base must have the value itself, and not one that it is converted from.
    const isOfBase = (own: StoredColumn) =>
      known?.some(({ id, fill }) => id === own.id && fill === own.fill) === true
    const isRead = isConverted.has(column.id)
    const isKnown = isOfBase(column) || (isRead && listOrigins(column).some(isOfBase))
    const rows = isRead ? options.readRows : state.rows
    // Rows can still have values of the merged column from the time before the side has decided against it.
    const restricted = new RowState(rows).ofTable(before)
    const problems = await new RowState(restricted).findProblems(transaction, {
      table: before,
      before: column,
      column: unruled,
      merged: base && isKnown ? { base: base.rows, other: other.rows } : undefined,
      limits,
    })
    for (const { records, more, samples, kind } of problems) {
      const ids = samples.map(({ id }) => `[${id}]`).join(', ')
      const count = more ? `more than ${records}` : records
      const values = records === 1 ? 'the value of 1 record' : `values of ${count} records`
      const [does, are, it] = records === 1 ? ['does', 'is', 'it'] : ['do', 'are', 'them']
      const what =
        kind === 'conversion'
          ? `${does} not convert to [${successor.type}]${stepsBetween(column, successor)}`
          : `${are} not among those that the merged column can have`
      conflicts.push({
        id: column.id,
        table: after.name,
        column: successor.name,
        message: `${values} of ${name} ${what}: ${ids}; change ${it} first`,
        takes: [],
        records,
      })
    }
  }
  return conflicts
}

/** Names the types that values are converted to on the way to that of another column. */
function stepsBetween(column: StoredColumn, successor: StoredColumn): string {
  const origins = listOrigins(successor)
  const place = origins.findIndex(({ id }) => id === column.id)
  const types = origins.slice(0, Math.max(place, 0)).reverse()
  return types.length === 0
    ? ''
    : ` by way of ${types.map(({ type }) => `[${type}]`).join(' and ')}`
}
