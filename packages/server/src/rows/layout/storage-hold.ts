import { STORAGE_KEY } from '../../postgres/advisory-keys.js'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/*
 * A snapshot preserves rows, but not dropped tables or deleted file contents. A backup therefore holds the
 * storage with an advisory lock. While it is held, nothing drops tables or deletes contents. A restore of a
 * database holds it too, because the catalogue does not yet refer to its tables and contents.
 */

/**
 * Returns whether this transaction may remove storage. If so, no backup or restore can hold the storage until it ends.
 */
export async function mayRemoveStorage(transaction: Queryable): Promise<boolean> {
  const [row] = await transaction.query<{ isFree: boolean }>(sql`
    select pg_try_advisory_xact_lock_shared(${STORAGE_KEY}) as "isFree"`)
  return row?.isFree === true
}

/** Holds the storage for the lifetime of the connection. Waits for transactions that remove storage. */
export async function holdStorage(connection: Queryable): Promise<void> {
  await connection.query(sql`select pg_advisory_lock(${STORAGE_KEY})`)
}

/** Ends the hold of a connection at once. Closing the connection ends it a moment later. */
export async function releaseStorage(connection: Queryable): Promise<void> {
  await connection.query(sql`select pg_advisory_unlock(${STORAGE_KEY})`)
}
