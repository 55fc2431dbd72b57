import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { enterGate } from '../running/gate.js'
import { createHeap } from './heap-ddl.js'
import type { Layout } from './layout.js'
import type { StoredTable } from './stored-schema.js'

/** Creates the heap of a table on a branch, before the branch writes to the table for the first time. */
export async function ensureHeap(
  database: Database,
  layout: Layout,
  table: StoredTable,
): Promise<void> {
  await runTransaction(
    database,
    async (transaction) => {
      await enterGate(transaction, { gate: layout.gate, alone: true })
      // If another request has created the heap or changed the schema, do nothing: the caller reads the
      // layout again, and calls again if the heap is still missing.
      const [branch] = await transaction.query<{ epoch: number }>(sql`
        select epoch
        from offshoot.branches
        where id = ${layout.branchId} and stamp = ${layout.stamp}
          and not exists (
            select from offshoot.heaps
            where branch_id = ${layout.branchId} and table_id = ${table.id}
          )`)
      if (branch === undefined) return
      await createHeap(transaction, { ...layout, ...branch, table })
      await transaction.query(sql`
        update offshoot.branches
        set stamp = nextval('offshoot.stamps')
        where id = ${layout.branchId}`)
    },
    { isolation: 'read committed' },
  )
}
