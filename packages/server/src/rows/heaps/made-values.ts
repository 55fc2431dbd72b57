import type { ColumnGenerator } from '@offshoot/contract/schema'
import { uuidV7 } from '../../common/ids.js'
import { raw, type Sql, sql } from '../../postgres/sql.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import type { StoredColumn, StoredTable } from '../columns/stored-schema.js'
import { type HeapAddress, heapName } from '../layout/layout.js'

/** The generators that can give values to existing rows. Nobody knows which user has created them. */
export type RowGenerator = Exclude<ColumnGenerator, 'user'>

/** The value that an update of the rows `h` of a heap gives to a column. */
export interface MadeValue {
  readonly value: Sql
  /** What the update needs besides the rows, and how it is joined. */
  readonly from?: Sql
  readonly condition?: Sql
}

/** The time and the version of a UUID of version 7, as a text. */
const UUID_START_LENGTH = 15

/**
 * Returns a UUID of version 7 for the row `h`. Its other digits are those of a hash of a random text and the id, because a
 * cluster refuses updates with volatile functions.
 */
function newUuid(): Sql {
  const random = uuidV7()
  const hash = sql`md5(${random}::text || h.id)`
  return sql`(${random.slice(0, UUID_START_LENGTH)}::text || substr(${hash}, 1, 3)
    || '-a' || substr(${hash}, 4, 3) || '-' || substr(${hash}, 7, 12))`
}

export interface GeneratedColumn {
  readonly table: StoredTable
  readonly column: StoredColumn
}

/** Returns the generated value of a row, as records that are created later get it. */
export function generatedValue(
  by: RowGenerator,
  { heap, table, column: { type } }: GeneratedColumn & { readonly heap: HeapAddress },
): MadeValue {
  switch (by) {
    case 'uuid':
      return { value: type === 'uuid' ? sql`${newUuid()}::uuid` : newUuid() }
    case 'updatedAt':
      if (type === 'datetime') return { value: sql`h.updated_at` }
      return {
        value: sql`(h.updated_at at time zone 'UTC')::${raw(COLUMN_TYPE_ENTRIES[type].sqlType)}`,
      }
    case 'sequence': {
      const id = table.idType === 'int' ? sql`id::bigint` : sql`id`
      const from = sql`
        from (
          select id, row_number() over (order by created_at, ${id}) as number
          from ${heapName(heap)}
          where not deleted
        ) n`
      return { value: sql`n.number`, from, condition: sql`n.id = h.id` }
    }
  }
}
