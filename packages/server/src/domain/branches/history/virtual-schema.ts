import { LIMITS } from '@offshoot/contract/limits'
import {
  EMPTY_SCHEMA,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../../rows/columns.js'
import { UNDECIDED } from '../../../rows/merge.js'
import { mergeSchemas } from '../../schemas/merge-schemas.js'
import type { MergeBase, State } from './history.js'

/**
 * Computes the schema of a virtual base: the three-way merge of the schemas of its states. A name on
 * which they disagree is replaced by `UNDECIDED`, which no table or column can have, so that both
 * sides of the merge count as changed. The same goes for a table or column that only one of the states
 * has removed: if just one side of the merge has kept it, that is a conflict.
 */
export function virtualSchema(
  base: MergeBase | undefined,
  schemaIn: (state: State) => StoredSchema,
): StoredSchema {
  if (base === undefined) return EMPTY_SCHEMA
  if (base.kind === 'state') return schemaIn(base.state)
  const left = virtualSchema(base.left, schemaIn)
  const right = virtualSchema(base.right, schemaIn)
  const origin = virtualSchema(base.base, schemaIn)
  const { schema } = mergeSchemas(
    { base: origin, ours: left, theirs: right },
    { limits: LIMITS, ruleOf: () => ({ strategy: 'ours', mode: 'merge' }) },
  )
  const sides = { left: left.tables, right: right.tables, origin: origin.tables }
  const tables = withRemoved(schema.tables, sides).map((table): StoredTable => {
    const columnsOf = (tables: readonly StoredTable[]): readonly StoredColumn[] =>
      tables.find(({ id }) => id === table.id)?.columns ?? []
    const columns = {
      left: columnsOf(left.tables),
      right: columnsOf(right.tables),
      origin: columnsOf(origin.tables),
    }
    // A table that one state has removed is undecided as a whole.
    const hasBoth = [left, right].every(({ tables }) => tables.some(({ id }) => id === table.id))
    const all = hasBoth ? withRemoved(table.columns, columns) : table.columns
    return {
      ...table,
      name: agreedName(table, sides),
      columns: all.map((column) => ({ ...column, name: agreedName(column, columns) })),
    }
  })
  return { ...schema, tables }
}

interface Named {
  readonly id: number
  readonly name: string
}

/** The tables of the states, or the columns of one table in them. */
type Sides<Item extends Named> = Readonly<Record<'left' | 'right' | 'origin', readonly Item[]>>

/** Adds the items of the origin that only one of the states has removed. Their name is undecided. */
function withRemoved<Item extends Named>(merged: readonly Item[], sides: Sides<Item>): Item[] {
  const { left, right, origin } = sides
  const known = new Set(origin.map(({ id }) => id))
  const kept = new Set(merged.map(({ id }) => id))
  const removed = [...left, ...right].filter(({ id }) => known.has(id) && !kept.has(id))
  return [...merged, ...removed.map((item) => ({ ...item, name: UNDECIDED }))]
}

function agreedName<Item extends Named>(merged: Item, sides: Sides<Item>): string {
  const [left, right, origin] = [sides.left, sides.right, sides.origin].map((items) =>
    items.find(({ id }) => id === merged.id),
  )
  if (left === undefined || right === undefined || left.name === right.name) return merged.name
  return left.name === origin?.name || right.name === origin?.name ? merged.name : UNDECIDED
}
