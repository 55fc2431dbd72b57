import { LIMITS } from '@offshoot/contract/limits'
import { EMPTY_SCHEMA, type StoredSchema } from '../../../rows/columns.js'
import { mergeSchemas } from '../../schemas/merge-schemas.js'
import type { MergeBase, State } from './history.js'
import { UNDECIDED } from './virtual-row.js'

/**
 * Computes the schema of a virtual base: the three-way merge of the schemas of its states. A name on
 * which they disagree is replaced by `UNDECIDED`, which no table or column can have, so that both
 * sides of the merge count as changed.
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
  const tables = schema.tables.map((table) => {
    const [inLeft, inRight, inOrigin] = [left, right, origin].map(({ tables }) =>
      tables.find(({ id }) => id === table.id),
    )
    const columnsOf = (side: typeof inLeft) => new Map(side?.columns.map((one) => [one.id, one]))
    const [leftColumns, rightColumns, originColumns] = [inLeft, inRight, inOrigin].map(columnsOf)
    const columns = table.columns.map((column) => ({
      ...column,
      name: agreedName(column.name, {
        left: leftColumns?.get(column.id),
        right: rightColumns?.get(column.id),
        origin: originColumns?.get(column.id),
      }),
    }))
    const name = agreedName(table.name, { left: inLeft, right: inRight, origin: inOrigin })
    return { ...table, name, columns }
  })
  return { ...schema, tables }
}

interface Named {
  readonly name: string
}

function agreedName(
  merged: string,
  sides: Readonly<Record<'left' | 'right' | 'origin', Named | undefined>>,
): string {
  const { left, right, origin } = sides
  if (left === undefined || right === undefined || left.name === right.name) return merged
  return left.name === origin?.name || right.name === origin?.name ? merged : UNDECIDED
}
