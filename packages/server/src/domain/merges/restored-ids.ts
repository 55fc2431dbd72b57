import type { Queryable } from '../../postgres/database.js'
import { haveSameForm } from '../../rows/columns/conversions.js'
import {
  listAllColumns,
  listOrigins,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../rows/columns/stored-schema.js'
import type { ReadIds, StoredAs } from '../../rows/layout/layout.js'
import type { BranchState } from '../branches/branch-state.js'
import { isMadeOf } from '../schemas/merge-definitions.js'
import { listObjectIds } from '../schemas/queries.js'
import { SameIds } from '../schemas/same-ids.js'
import { withColumnIds, withUsedIds } from '../schemas/store-constraint.js'

/*
 * A revert brings back tables and columns that the change has removed. Their old ids are in use: heaps still have the rows
 * and values from before the removal, for forks. So they get new ids, under which nothing is stored yet. The schema remembers
 * that the new ids mean the same as the old ones, for merges with branches that have kept the table or column.
 */

interface RestoredStates {
  /** The state before the change, by the new ids. */
  readonly before: BranchState
  readonly after: BranchState
  /** The new ids by the old ones. */
  readonly restored: ReadonlyMap<number, number>
}

/** Gives new ids to the tables and columns that a change has removed and the branch does not have now. */
export async function restoreIds(
  transaction: Queryable,
  states: Record<'before' | 'after' | 'now', BranchState>,
): Promise<RestoredStates> {
  const { after, now } = states
  const before = withSameIdsOf(states.before, after)
  const filled = findFilled({ before, after, now })
  const removed = listRemoved(before.schema, [after.schema, now.schema], filled)
  const columns = [...removed.columns, ...removed.tables.flatMap((table) => table.columns)]
  const old = [
    ...removed.tables.map(({ id }) => id),
    ...listAllColumns(columns).map(({ id }) => id),
  ]
  if (old.length + filled.size === 0) return { before, after, restored: new Map() }
  const ids = old.length === 0 ? [] : await listObjectIds(transaction, old.length)
  const restored = new Map(old.map((id, index) => [id, ids[index] ?? id]))
  const renamed = new Map([...filled, ...restored])
  const columnIds = listAllColumns(removed.columns).map(({ id }) => id)
  const newIds = columnIds.flatMap((id) => restored.get(id) ?? [])
  return {
    before: {
      rows: before.rows,
      schema: renumber(before.schema, renamed),
      storedIds: storedIds(before.schema, renamed),
    },
    after: {
      rows: after.rows,
      // Values of columns that the base has removed are compared as far as they are still stored.
      schema: {
        ...after.schema,
        removedIds: [...(after.schema.removedIds ?? []), ...newIds],
      },
      storedIds: {
        tables: new Map(),
        columns: new Map(
          columnIds.map((id): [number, StoredAs] => [
            restored.get(id) ?? id,
            { id, column: undefined },
          ]),
        ),
      },
    },
    restored,
  }
}

/** Adds to an earlier state of a branch which ids a later one knows to be the same. The branch can have lost it since, by a reset. */
function withSameIdsOf(state: BranchState, { schema: { sameIds } }: BranchState): BranchState {
  if (sameIds === undefined) return state
  const { schema } = state
  return { ...state, schema: { ...schema, sameIds: [...(schema.sameIds ?? []), ...sameIds] } }
}

/**
 * Finds the columns whose records without a value have got one, which has given the columns other ids. Such a change is one of a
 * rule and of values: the column stays when it is taken back, with all that was written to it since. Returns the new ids by the
 * old ones.
 */
function findFilled({
  before,
  after,
  now,
}: Record<'before' | 'after' | 'now', BranchState>): ReadonlyMap<number, number> {
  const filled = new Map<number, number>()
  for (const { id: tableId, columns } of before.schema.tables) {
    const [later = [], latest = []] = [after, now].map(
      ({ schema }) => schema.tables.find(({ id }) => id === tableId)?.columns,
    )
    for (const column of columns) {
      const found = later.find((each) => isFilled(each, column))
      if (found === undefined) continue
      const isKept = latest.some((each) => each.id === found.id || isMadeOf(each, found))
      if (isKept) filled.set(column.id, found.id)
    }
  }
  return filled
}

/** Returns whether a column is another one whose records without a value were given one. */
function isFilled(column: StoredColumn, of: StoredColumn): boolean {
  const chain = [column, ...listOrigins(column)]
  const place = chain.findIndex(({ id }) => id === of.id)
  const isSame = haveSameForm(column, of) && column.link?.tableId === of.link?.tableId
  return isSame && chain.slice(0, Math.max(place, 0)).some(({ fill }) => fill !== undefined)
}

/**
 * Lists the tables, and the columns of other tables, that none of the later schemas has. One that an earlier revert has
 * brought back is there under another id, and so is one that was `filled`.
 */
function listRemoved(
  { tables, sameIds: known = [] }: StoredSchema,
  later: readonly StoredSchema[],
  filled: ReadonlyMap<number, number>,
): { tables: StoredTable[]; columns: StoredColumn[] } {
  const live = new Set(
    later.flatMap((schema) =>
      schema.tables.flatMap(({ id, columns }) => [id, ...columns.map((column) => column.id)]),
    ),
  )
  const same = [...known, ...later.flatMap(({ sameIds = [] }) => sameIds)].filter((ids) =>
    ids.some((id) => live.has(id)),
  )
  const kept = new Set([...live, ...same.flat(), ...filled.keys()])
  return {
    tables: tables.filter(({ id }) => !kept.has(id)),
    columns: tables
      .filter(({ id }) => kept.has(id))
      .flatMap(({ columns }) => columns.filter(({ id }) => !kept.has(id))),
  }
}

function renumber(schema: StoredSchema, restored: ReadonlyMap<number, number>): StoredSchema {
  const idOf = (id: number) => restored.get(id) ?? id
  const column = ({ columns, link, ...rest }: StoredColumn): StoredColumn => ({
    ...withUsedIds(rest, idOf),
    id: idOf(rest.id),
    ...(link && { link: { ...link, tableId: idOf(link.tableId) } }),
    ...(columns && { columns: columns.map(column) }),
  })
  return {
    ...schema,
    tables: schema.tables.map((table) => ({
      ...table,
      id: idOf(table.id),
      columns: table.columns.map(column),
      ...(table.constraints && {
        constraints: table.constraints.map((each) => withColumnIds(each, idOf)),
      }),
    })),
  }
}

function storedIds(schema: StoredSchema, restored: ReadonlyMap<number, number>): ReadIds {
  const columns = schema.tables.flatMap((table) => listAllColumns(table.columns))
  return {
    tables: new Map(
      schema.tables.flatMap(({ id }): [number, number][] => {
        const newId = restored.get(id)
        return newId === undefined ? [] : [[id, newId]]
      }),
    ),
    columns: new Map(
      columns.flatMap((column): [number, StoredAs][] => {
        const newId = restored.get(column.id)
        return newId === undefined ? [] : [[newId, { id: column.id, column }]]
      }),
    ),
  }
}

/**
 * Returns a schema that remembers which tables and columns were brought back. Without their rows and values, they are new
 * ones: they do not have what the old ones had.
 */
export function rememberRestored(
  schema: StoredSchema,
  restored: ReadonlyMap<number, number>,
  {
    idOf,
    hasRows,
  }: {
    /** Returns the id by which a table or column is read. One that was made again since has another id. */
    idOf(id: number): number
    /** Whether the rows of a table were brought back, too. */
    hasRows(tableId: number): boolean
  },
): StoredSchema {
  const live = new Set(
    schema.tables
      .filter(({ id }) => hasRows(idOf(id)))
      .flatMap(({ id, columns }) => [id, ...listAllColumns(columns).map((c) => c.id)]),
  )
  const pairs = [...restored].filter(([, newId]) => live.has(idOf(newId)))
  if (pairs.length === 0) return schema
  const joined = { ...schema, sameIds: [...(schema.sameIds ?? []), ...pairs] }
  const { stored } = new SameIds({ ours: joined, theirs: joined })
  return { ...schema, ...(stored && { sameIds: stored }) }
}
