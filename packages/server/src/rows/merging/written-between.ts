import type { Queryable } from '../../postgres/database.js'
import { join, type Sql, sql } from '../../postgres/sql.js'
import { type HeapAddress, heapName, pastName } from '../layout/layout.js'

/** Heaps that one statement looks at. PostgreSQL locks each table of a statement. */
const STATEMENT_HEAPS = 50

/**
 * Returns whether a branch has written rows after one epoch and until another. Forks must keep the versions of
 * both: a deletion leaves no other trace than the version that it ended. Heaps that were dropped, and
 * layers of heaps, count as written.
 */
export async function isWrittenBetween(
  transaction: Queryable,
  { branchId, after, until }: { branchId: string; after: number; until: number },
): Promise<boolean> {
  const heaps = await transaction.query<HeapAddress & { kind: string }>(sql`
    select database_id as "databaseId", id as "heapId", kind
    from offshoot.heaps
    where branch_id = ${branchId} and until_epoch is null
    order by id`)
  if (heaps.some(({ kind }) => kind !== 'heap')) return true
  const isBetween = (column: Sql) => sql`${column} > ${after} and ${column} <= ${until}`
  for (let start = 0; start < heaps.length; start += STATEMENT_HEAPS) {
    const conditions = heaps.slice(start, start + STATEMENT_HEAPS).map(
      (heap) => sql`
        exists (select from ${heapName(heap)} where ${isBetween(sql`epoch`)})
        or exists (
          select from ${pastName(heap)}
          where until > ${after} and (${isBetween(sql`epoch`)} or until <= ${until})
        )`,
    )
    const [row] = await transaction.query<{ isWritten: boolean }>(sql`
      select ${join(conditions, ' or ')} as "isWritten"`)
    if (row?.isWritten) return true
  }
  return false
}
