import { haveSameForm } from '../../rows/columns/conversions.js'
import {
  listOrigins,
  type StoredColumn,
  type StoredSchema,
} from '../../rows/columns/stored-schema.js'
import { RowState } from '../../rows/row-state.js'
import type { BranchState, ReadColumns } from '../branches/branch-state.js'
import { isFilledSince, storedAs, withIds } from '../schemas/round-trips.js'
import type { Base, Bases } from './merge-base.js'

/*
 * A merged column can be that of the target although the merged branch, or the base, has changed its type: the target has
 * changed it back by a revert, has changed it too, or keeps its type by a decision. The values of these states are then
 * converted to the type of the merged column, so that a merge loses none of them.
 */

/** Finds the columns of a state that merged columns share their origin with, but were not made of by a single change. */
export function findReadColumns(state: StoredSchema, merged: StoredSchema): ReadColumns {
  const found = new Map<number, ReadonlyMap<number, StoredColumn>>()
  const tables = new Map(merged.tables.map((table) => [table.id, table]))
  for (const { id, columns } of state.tables) {
    const after = tables.get(id)?.columns ?? []
    const known = new Set(columns.map((column) => column.id))
    const kept = new Set(after.map((column) => column.id))
    const read = after.flatMap((column): [number, StoredColumn][] => {
      const other = known.has(column.id)
        ? columns.find((each) => each.id === column.id && !haveSameOrigins(each, column))
        : columns.find((each) => !kept.has(each.id) && isReadAs(each, column))
      return other === undefined ? [] : [[column.id, other]]
    })
    if (read.length > 0) found.set(id, new Map(read))
  }
  return found
}

/** Returns whether the values of a column of a state have to be converted to those of a merged one, other than by its origins. */
function isReadAs(column: StoredColumn, merged: StoredColumn): boolean {
  const chain = [merged, ...listOrigins(merged)]
  const place = chain.findIndex(({ id }) => id === column.id)
  // Its type was changed and changed back since.
  if (place > 0) return haveSameForm(column, merged) && !isFilledSince(merged, place)
  const origins = new Set([column, ...listOrigins(column)].map(({ id }) => id))
  return chain.some(({ id }) => origins.has(id))
}

/** Returns whether two definitions of a column convert the values of the same columns. */
function haveSameOrigins(one: StoredColumn, other: StoredColumn): boolean {
  const [ids, others] = [one, other].map((column) => listOrigins(column).map(({ id }) => id))
  return String(ids) === String(others)
}

/** Returns a state in which columns are read by the ids and the types of the merged ones. */
export function readColumns(state: BranchState, merged: StoredSchema): BranchState {
  const readAs = findReadColumns(state.schema, merged)
  if (readAs.size === 0) return state
  return {
    ...state,
    rows: new RowState(state.rows).readColumns(readAs),
    schema: withReadIds(state.schema, readAs, merged),
    readAs,
  }
}

/** Returns bases in which columns are read in the same way. */
export function readColumnsOfBases(bases: Bases, merged: StoredSchema): Bases {
  const read = (base: Base): Base => {
    const readAs = findReadColumns(base.schema, merged)
    return {
      ...base,
      states: base.states.map((state) => readColumns(state, merged)),
      schema: readAs.size === 0 ? base.schema : withReadIds(base.schema, readAs, merged),
    }
  }
  return {
    ...bases,
    general: read(bases.general),
    ofTables: new Map([...bases.ofTables].map(([id, base]) => [id, read(base)])),
  }
}

function withReadIds(
  schema: StoredSchema,
  columns: ReadColumns,
  merged: StoredSchema,
): StoredSchema {
  const known = new Map(merged.tables.map((table) => [table.id, table]))
  return {
    ...schema,
    tables: schema.tables.map((table) => {
      const readAs = columns.get(table.id)
      if (readAs === undefined) return table
      const successors = new Map(
        (known.get(table.id)?.columns ?? []).flatMap((column): [number, StoredColumn][] => {
          const read = readAs.get(column.id)
          return read === undefined ? [] : [[read.id, column]]
        }),
      )
      const read = table.columns.map((column): StoredColumn => {
        const successor = successors.get(column.id)
        if (successor === undefined) return column
        const { fill: _, from: __, ...rest } = column
        return { ...rest, ...storedAs(successor) }
      })
      return withIds({ ...table, columns: read }, (id) => successors.get(id)?.id ?? id)
    }),
  }
}
