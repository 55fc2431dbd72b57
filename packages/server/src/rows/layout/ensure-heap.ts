import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { enterGate } from '../running/gate.js'
import { createHeap } from './heap-ddl.js'
import type { Layout } from './layout.js'
import type { StoredTable } from './stored-schema.js'

/** Gives a branch its own heap of a table it is about to write to for the first time. */
export async function ensureHeap(
  database: Database,
  layout: Layout,
  table: StoredTable,
): Promise<void> {
  await runTransaction(
    database,
    async (transaction) => {
      await enterGate(transaction, { gate: layout.gate, alone: true })
      // Someone else may have been first, or the schema may have moved on: then the caller looks
      // again, finds what there is now, and comes back if it still has to.
      const [branch] = await transaction.query(sql`
        select id
        from offshoot.branches
        where id = ${layout.branchId} and stamp = ${layout.stamp}
          and not exists (
            select from offshoot.heaps
            where branch_id = ${layout.branchId} and table_id = ${table.id}
          )`)
      if (branch === undefined) return
      await createHeap(transaction, { ...layout, table })
      await transaction.query(sql`
        update offshoot.branches
        set stamp = nextval('offshoot.stamps')
        where id = ${layout.branchId}`)
    },
    { isolation: 'read committed' },
  )
}
