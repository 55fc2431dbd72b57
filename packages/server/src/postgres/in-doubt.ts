import type pg from 'pg'

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

/** It leaves transactions alone that are in progress. */
export const RECOVER = 'select recover_prepared_transactions()'

/** Ends transactions in doubt. */
export class Recovery {
  /** Runs a statement on a connection of its own. */
  readonly #runAside: (text: string) => Promise<unknown>
  /** When the coordinator was started that has ended its transactions in doubt. */
  #recoveredStart: string | undefined
  #running: Promise<unknown> | undefined

  constructor(runAside: (text: string) => Promise<unknown>) {
    this.#runAside = runAside
  }

  /** Does so on a new connection, if the coordinator has been restarted since that was done. */
  async afterRestart(client: pg.ClientBase): Promise<void> {
    const { rows } = await client.query<{ start: string }>(
      'select pg_postmaster_start_time()::text as start',
    )
    const start = rows[0]?.start ?? ''
    if (this.#recoveredStart === start) return
    await client.query(`set statement_timeout = ${RECOVERY_WAIT_MS}`)
    try {
      await client.query(RECOVER)
    } catch {
      // The role may not be allowed to, or a node may not answer. Then Citus does it later.
    } finally {
      await client.query('reset statement_timeout')
    }
    this.#recoveredStart = start
  }

  async run(): Promise<void> {
    this.#running ??= this.#runAside(RECOVER)
      .catch(() => undefined)
      .finally(() => {
        this.#running = undefined
      })
    await this.#running
  }
}
