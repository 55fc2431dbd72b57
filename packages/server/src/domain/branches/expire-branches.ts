import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { collected } from '../../telemetry/events.js'
import { endExpiredBranch } from './delete-branch.js'
import { listExpiredBranches } from './queries.js'

/** Branches per transaction. A small number keeps the locks of a transaction short. */
const BATCH = 10

/**
 * Deletes expired branches and returns their number. Processes can run it concurrently. A branch that cannot be
 * deleted does not keep the others; its failure is thrown at the end.
 */
export async function deleteExpiredBranches(database: Database): Promise<number> {
  const failures = new Map<string, unknown>()
  let total = 0
  for (;;) {
    const { found, deleted } = await runTransaction(
      database,
      (transaction) => deleteSome(transaction, failures),
      // After waiting for a row lock, PostgreSQL must evaluate the expiry on the newest row version.
      { isolation: 'read committed' },
    )
    collected.add('branch', deleted)
    total += deleted
    if (found === BATCH) continue
    for (const failure of failures.values()) throw failure
    return total
  }
}

async function deleteSome(
  transaction: Queryable,
  failures: Map<string, unknown>,
): Promise<{ found: number; deleted: number }> {
  const branches = await listExpiredBranches(transaction, {
    limit: BATCH,
    exceptIds: [...failures.keys()],
  })
  let deleted = 0
  for (const branch of branches) {
    await transaction.query(sql`savepoint branch`)
    try {
      await endExpiredBranch(transaction, branch)
      deleted++
    } catch (error) {
      failures.set(branch.branchId, error)
      await transaction.query(sql`rollback to savepoint branch`)
    }
    await transaction.query(sql`release savepoint branch`)
  }
  return { found: branches.length, deleted }
}
