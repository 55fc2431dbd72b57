import type pg from 'pg'
import { isInDoubt } from './failures.js'

/*
 * Transactions in doubt. The coordinator of a Citus cluster commits a transaction that has changed rows and the catalogue
 * in two phases: it prepares it on the node, commits it itself, and then commits it on the node. If one of the two crashes
 * in between, the node keeps the transaction prepared until Citus finds it, by default within a minute. Meanwhile, the
 * catalogue could tell of a merge whose rows nobody sees, and a client could conclude that its request was not applied. So
 * the function on the nodes refuses to read or write a database with such a transaction. The service then has it ended and
 * starts over. When the coordinator has been restarted, that is done before anything is read.
 */

/** How long a new connection waits for nodes that may not answer. */
const RECOVERY_WAIT_MS = 2_000

/** The state of the coordinator of a cluster after a crash, and the way to mend it. */
export interface Recovery {
  /** When the coordinator was started that has ended its transactions in doubt. */
  recoveredStart?: string
  /** Ends transactions in doubt on a connection of its own. */
  recover(): Promise<void>
}

/** It leaves transactions alone that are in progress. */
export const RECOVER = 'select recover_prepared_transactions()'

/** Ends transactions in doubt, if the coordinator has been restarted since that was done. */
export async function recoverRestarted(client: pg.ClientBase, recovery: Recovery): Promise<void> {
  const { rows } = await client.query<{ start: string }>(
    'select pg_postmaster_start_time()::text as start',
  )
  const start = rows[0]?.start ?? ''
  if (recovery.recoveredStart === start) return
  await client.query(`set statement_timeout = ${RECOVERY_WAIT_MS}`)
  try {
    await client.query(RECOVER)
  } catch {
    // The role may not be allowed to, or a node may not answer. Then Citus does it later.
  } finally {
    await client.query('reset statement_timeout')
  }
  recovery.recoveredStart = start
}

/** Ends transactions in doubt if an error tells of one, so that the next attempt succeeds. Rejects with the error. */
export async function recoverAfter(recovery: Recovery | undefined, error: unknown): Promise<never> {
  if (isInDoubt(error)) await recovery?.recover()
  throw error
}
