import { setTimeout as delay } from 'node:timers/promises'
import { INDEX_KEY } from '../../postgres/advisory-keys.js'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'

/*
 * An index is made or dropped beside readers and writers, which may take hours: it waits for everyone
 * who was there before it. Whoever changes the table itself would wait behind it, and all others behind
 * him. So he stops it; it stays written down as work, and is done again from the start.
 */

/** Between two statements there is nothing to stop; then it takes another attempt. */
const STOPS_MAX = 100
const AGAIN_MS = 20

/** Whether nobody else is at the indexes of a heap. If so, nobody will be as long as the connection is. */
export function tryBuilding(heapId: Sql): Sql {
  return sql`pg_try_advisory_lock(${INDEX_KEY}, hashint8(${heapId}))`
}

/** Stops whoever is at the indexes of a heap, and keeps others from it until the transaction ends. */
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
        -- It is kept without a sign.
        and l.objid::bigint = hashint8(${heapId}::bigint)::bigint & 4294967295
        and a.usename = current_user`)
    await delay(AGAIN_MS)
  }
}
