import type { Extension } from '../../postgres/extension.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { enclosingObjects, type TableCodec } from '../columns/table-codec.js'
import { heapName, inheritsRows, layoutOf, ownHeap } from '../layout/layout.js'
import type { TableLookup } from '../reading/read-plan.js'
import { indexedVector, wantsIndex } from './heap-indexes.js'

/** A table whose index finds neighbours of a vector. */
export interface VectorIndex {
  readonly table: Sql
  /** The column, by the alias that was asked for. */
  readonly column: Sql
  /** A vector, in the form that the index has. */
  indexed(vector: Sql): Sql
}

/**
 * The index of a vector column on a branch. undefined when there is none that knows all rows: indexes are
 * of the rows that a branch has written itself.
 */
export function findVectorIndex(
  lookup: TableLookup,
  codec: TableCodec,
  options: { column: number; alias: Sql; extension: Extension },
): VectorIndex | undefined {
  const layout = layoutOf(lookup.rows)
  const physical = codec.physical[options.column]
  const heap = ownHeap(layout, codec.table.id)
  if (
    physical === undefined ||
    heap?.columnIds.has(physical.id) !== true ||
    !wantsIndex(physical.column) ||
    enclosingObjects(codec, options.column).length > 0 ||
    inheritsRows(layout, codec.table.id)
  ) {
    return undefined
  }
  return {
    table: heapName(heap.heapId),
    column: sql`${options.alias}.${ident(physical.physicalName)}`,
    indexed: (vector) => indexedVector(vector, options.extension.schema, physical.column),
  }
}
