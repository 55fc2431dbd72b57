import { LIMITS } from '@offshoot/contract/limits'
import {
  EMPTY_SCHEMA,
  type StoredColumn,
  type StoredSchema,
  type StoredTable,
} from '../../../rows/columns/stored-schema.js'
import { UNDECIDED } from '../../../rows/merging/compare-rows.js'
import { listRemovals, type Removal } from '../../schemas/data-loss.js'
import { mergeSchemas, sameTable } from '../../schemas/merge-schemas.js'
import type { MergeBase, State } from './history.js'

/** Gives access to the states that a virtual schema is computed from. */
interface SchemaStates {
  schemaIn(state: State): StoredSchema
  /** Returns whether records were inserted or updated in a table, or in a column, since the origin. */
  isWritten(removal: Removal, since: { origin: MergeBase; kept: MergeBase }): Promise<boolean>
}

/**
 * Computes the schema of a virtual base: the three-way merge of the schemas of its states. A name on
 * which they disagree is replaced by `UNDECIDED`, which no table or column can have, so that both
 * sides of the merge count as changed. The same goes for a table or column that one of the states has
 * removed and the other has changed: if just one side of the merge has kept it, that is a conflict. A
 * table or column that the origin has removed and one of the states has kept is part of the virtual base.
 */
export async function virtualSchema(
  base: MergeBase | undefined,
  states: SchemaStates,
): Promise<StoredSchema> {
  if (base === undefined) return EMPTY_SCHEMA
  if (base.kind === 'state') return states.schemaIn(base.state)
  const left = await virtualSchema(base.left, states)
  const right = await virtualSchema(base.right, states)
  const origin = await virtualSchema(base.base, states)
  const undecided = [
    ...(await changedRemovals({ kept: left, other: right, origin }, base.left, base.base, states)),
    ...(await changedRemovals({ kept: right, other: left, origin }, base.right, base.base, states)),
  ]
  // The strategy removes whatever one of the two has removed. That a merge restores nothing is a rule for
  // branches.
  const { schema } = mergeSchemas(
    { base: origin, ours: withoutRemovals(left), theirs: right },
    { limits: LIMITS, ruleOf: () => ({ strategy: 'theirs', mode: 'merge' }), keepsBoth: true },
  )
  const sides = { left: left.tables, right: right.tables, origin: origin.tables }
  const merged = schema.tables.map((table): StoredTable => {
    const columnsOf = (tables: readonly StoredTable[]): readonly StoredColumn[] =>
      tables.find(({ id }) => id === table.id)?.columns ?? []
    const columns = {
      left: columnsOf(left.tables),
      right: columnsOf(right.tables),
      origin: columnsOf(origin.tables),
    }
    const removed = undecided.flatMap((each) => (each.table.id === table.id && each.columns) || [])
    return {
      ...table,
      name: agreedName(table, sides),
      columns: [
        ...table.columns.map((column) => ({ ...column, name: agreedName(column, columns) })),
        ...removed.map((column) => ({ ...column, name: UNDECIDED })),
      ],
    }
  })
  const removed = undecided.flatMap(({ table, columns }) => (columns === undefined ? table : []))
  const tables = [...merged, ...removed.map((table) => ({ ...table, name: UNDECIDED }))]
  return { ...schema, tables, removedIds: removedFrom(tables, [left, right, schema]) }
}

/** Returns a schema that does not remember its removals, so that a merge adds what it lacks. */
function withoutRemovals({ removedIds: _, ...schema }: StoredSchema): StoredSchema {
  return schema
}

/** Lists the ids that any of the schemas has removed and none of the tables has. */
function removedFrom(tables: readonly StoredTable[], schemas: readonly StoredSchema[]): number[] {
  const known = new Set(tables.flatMap(({ id, columns }) => [id, ...columns.map(({ id }) => id)]))
  const removed = new Set(schemas.flatMap(({ removedIds = [] }) => removedIds))
  return [...removed].filter((id) => !known.has(id))
}

/** Lists the tables and columns of the origin that one schema has changed and the other has removed. */
async function changedRemovals(
  schemas: Readonly<Record<'kept' | 'other' | 'origin', StoredSchema>>,
  kept: MergeBase,
  origin: MergeBase | undefined,
  { isWritten }: SchemaStates,
): Promise<Removal[]> {
  if (origin === undefined) return []
  const since = { origin, kept }
  const changed: Removal[] = []
  for (const { table, columns } of listRemovals(schemas.kept, schemas.other)) {
    const before = schemas.origin.tables.find(({ id }) => id === table.id)
    if (before === undefined) continue
    if (columns === undefined) {
      const removal = { table, columns }
      if (!sameTable(before, table) || (await isWritten(removal, since))) changed.push(removal)
      continue
    }
    for (const column of columns) {
      const previous = before.columns.find(({ id }) => id === column.id)
      if (previous === undefined) continue
      const removal = { table, columns: [column] }
      if (previous.name !== column.name || (await isWritten(removal, since))) changed.push(removal)
    }
  }
  return changed
}

interface Named {
  readonly id: number
  readonly name: string
}

/** The tables of the states, or the columns of one table in them. */
type Sides<Item extends Named> = Readonly<Record<'left' | 'right' | 'origin', readonly Item[]>>

function agreedName<Item extends Named>(merged: Item, sides: Sides<Item>): string {
  const [left, right, origin] = [sides.left, sides.right, sides.origin].map((items) =>
    items.find(({ id }) => id === merged.id),
  )
  if (left === undefined || right === undefined || left.name === right.name) return merged.name
  return left.name === origin?.name || right.name === origin?.name ? merged.name : UNDECIDED
}
