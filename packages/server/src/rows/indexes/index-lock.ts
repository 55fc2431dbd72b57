import { setTimeout as delay } from 'node:timers/promises'
import { INDEX_KEY } from '../../postgres/advisory-keys.js'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'

/*
 * A concurrent index build may take hours, because it waits for all older transactions. A statement that
 * alters the table would wait for the build, and all readers and writers would wait for that statement. So
 * it cancels the build instead. The work stays queued and is repeated from the start.
 */

/** A builder between two statements cannot be cancelled, so cancelling is repeated. */
const STOPS_MAX = 100
const AGAIN_MS = 20

/** Returns SQL that tries to lock the indexes of a heap for the lifetime of the connection. */
export function tryBuilding(heapId: Sql): Sql {
  return sql`pg_try_advisory_lock(${INDEX_KEY}, hashint8(${heapId}))`
}

/** Cancels index builds on a heap, and locks its indexes until the transaction ends. */
export async function stopBuilding(transaction: Queryable, heapId: string): Promise<void> {
  for (let attempt = 1; attempt <= STOPS_MAX; attempt++) {
    const [heap] = await transaction.query<{ isFree: boolean }>(sql`
      select pg_try_advisory_xact_lock(${INDEX_KEY}, hashint8(${heapId}::bigint)) as "isFree"`)
    if (heap?.isFree) return
    await transaction.query(sql`
      select pg_cancel_backend(l.pid)
      from pg_locks l
      join pg_stat_activity a using (pid)
      where l.locktype = 'advisory' and l.granted and l.objsubid = 2
        and l.database = (select oid from pg_database where datname = current_database())
        and l.classid::bigint = ${INDEX_KEY}::bigint
        -- pg_locks shows the key as an unsigned number.
        and l.objid::bigint = hashint8(${heapId}::bigint)::bigint & 4294967295
        and a.usename = current_user`)
    await delay(AGAIN_MS)
  }
}
