import type { Extension } from '../../postgres/extension.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { heapName, inheritsRows, layoutOf, ownHeap, ownLayer } from '../layout/layout.js'
import type { TableLookup } from '../reading/read-plan.js'
import { indexedVector, wantsIndex } from './heap-indexes.js'

/** A vector index that can answer nearest-neighbour queries. */
interface VectorIndex {
  readonly table: Sql
  /** The indexed column, qualified with the requested alias. */
  readonly column: Sql
  /** Casts a vector to the type that the index uses. */
  indexed(vector: Sql): Sql
}

/**
 * Returns the index of a vector column on a branch, or undefined if there is none that covers all rows. An
 * index covers only rows that the branch has written itself.
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
    codec.enclosingObjects(options.column).length > 0 ||
    inheritsRows(layout, codec.table.id) ||
    ownLayer(layout, codec.table.id) !== undefined
  ) {
    return undefined
  }
  return {
    table: heapName(heap),
    column: sql`${options.alias}.${ident(physical.physicalName)}`,
    indexed: (vector) => indexedVector(vector, options.extension.schema, physical.column),
  }
}
