import { STORAGE_KEY } from '../../postgres/advisory-keys.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/*
 * A snapshot keeps rows as they were, but neither a table that is dropped nor content that is deleted.
 * Whoever copies everything as of one moment holds the storage meanwhile, and whoever would remove some
 * of it for good leaves it for later.
 */

/** Whether storage can be removed in this transaction. If so, nobody gets hold of it before its end. */
export async function mayRemoveStorage(transaction: Queryable): Promise<boolean> {
  const [row] = await transaction.query<{ isFree: boolean }>(sql`
    select pg_try_advisory_xact_lock_shared(${STORAGE_KEY}) as "isFree"`)
  return row?.isFree === true
}

/** Holds the storage for as long as the connection lasts; waits for those who are removing some. */
export async function holdStorage(connection: Queryable): Promise<void> {
  await connection.query(sql`select pg_advisory_lock(${STORAGE_KEY})`)
}
