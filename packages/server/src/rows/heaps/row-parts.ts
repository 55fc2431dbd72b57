import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { tablesOf } from '../layout/heap-sizes.js'
import type { Heap } from '../layout/layout.js'

/** Pages of a heap whose rows one statement of a long change writes. It takes about a second. */
const PART_PAGES = 2048

/**
 * Divides the rows of a heap `h` that exist now, so that the progress of a long change can be told. A row that a change moves to a
 * later part is changed again, so this is only for changes that have the same effect then.
 */
export async function divideRows(transaction: Queryable, heap: Heap): Promise<Sql[]> {
  const { server } = transaction
  const [bytes = 0] = await server.sizeTables(transaction, [tablesOf(heap)[0]], 'rows')
  const [{ size } = { size: 1 }] = await transaction.query<{ size: number }>(sql`
    select current_setting('block_size')::integer as size`)
  const pages = Math.ceil(bytes / size)
  const place = (page: number) => sql`${`(${Math.min(page, pages)},0)`}::tid`
  return Array.from({ length: Math.ceil(pages / PART_PAGES) }, (_, part) => {
    const start = part * PART_PAGES
    return sql`h.ctid >= ${place(start)} and h.ctid < ${place(start + PART_PAGES)}`
  })
}
