import type { Database } from '../postgres/database.js'
import { runTransaction } from '../postgres/run-transaction.js'
import { sql } from '../postgres/sql.js'
import { dropHeap } from './heap-ddl.js'
import { pastName } from './layout.js'

/*
 * Storage that nothing reads any more goes in the background, in small steps, each a transaction of
 * its own. Several processes may do this at once: each takes what no other has in hand.
 */

/** Rows that one step deletes. */
const STEP_ROWS = 1000

/** Drops one heap whose branch is gone, or whose table its branch no longer has. */
export async function collectHeap(database: Database): Promise<boolean> {
  return runTransaction(
    database,
    async (transaction) => {
      const [heap] = await transaction.query<{ id: string }>(sql`
        select h.id
        from offshoot.heaps h
        left join offshoot.branches b on b.id = h.branch_id
        left join offshoot.schemas s on s.id = b.schema_id
        where b.id is null
          or (
            not exists (select from offshoot.branches child where child.parent_id = b.id)
            and not exists (
              select from jsonb_array_elements(s.document -> 'tables') t
              where (t ->> 'id')::bigint = h.table_id
            )
          )
        limit 1
        for update of h skip locked`)
      if (heap === undefined) return false
      await dropHeap(transaction, heap.id)
      return true
    },
    { isolation: 'read committed' },
  )
}

/**
 * Deletes versions that no fork of a branch can see any more: some of them, of one branch that has
 * lost a fork. Says whether there may be more.
 */
export async function collectPast(database: Database): Promise<boolean> {
  return runTransaction(
    database,
    async (transaction) => {
      const [sweep] = await transaction.query<{ branchId: string }>(sql`
        select branch_id as "branchId"
        from offshoot.sweeps
        order by requested_at
        limit 1
        for update skip locked`)
      if (sweep === undefined) return false
      const { branchId } = sweep
      const heaps = await transaction.query<{ id: string }>(sql`
        select id from offshoot.heaps where branch_id = ${branchId} order by id`)
      for (const heap of heaps) {
        const past = pastName(heap.id)
        const deleted = await transaction.query(sql`
          delete from ${past}
          where ctid = any(array(
            select p.ctid
            from ${past} p
            where not exists (
              select from offshoot.branches f
              where f.parent_id = ${branchId}
                and f.fork_epoch >= p.epoch
                and f.fork_epoch < p.until
            )
            limit ${STEP_ROWS}
          ))
          returning 1`)
        if (deleted.length > 0) return true
      }
      await transaction.query(sql`delete from offshoot.sweeps where branch_id = ${branchId}`)
      return true
    },
    { isolation: 'read committed' },
  )
}

/** Deletes answers that are too old to be asked for again. */
export async function collectAnswers(
  database: Database,
  options: { hours: number },
): Promise<boolean> {
  const deleted = await database.query(sql`
    delete from offshoot.idempotency_keys
    where hash = any(array(
      select hash
      from offshoot.idempotency_keys
      where created_at < now() - make_interval(hours => ${options.hours})
      limit ${STEP_ROWS}
      for update skip locked
    ))
    returning 1`)
  return deleted.length > 0
}
