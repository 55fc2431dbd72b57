import { eachApart } from '../../common/each-apart.js'
import { STORAGE_KEY } from '../../postgres/advisory-keys.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction, setLockWait, type Transaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { enterInstance } from '../gates/gate.js'

/*
 * A snapshot preserves rows, but not dropped tables or deleted file contents. A backup therefore holds the
 * storage with an advisory lock. While it is held, nothing drops tables or deletes contents. A restore of a
 * database holds it too, because the catalogue does not yet refer to its tables and contents.
 */

/** The hold on the storage of the instance, as a connection or a transaction of it sees it. */
export class StorageHold {
  readonly #connection: Queryable

  constructor(connection: Queryable) {
    this.#connection = connection
  }

  /** Holds the storage for the lifetime of the connection. Waits for transactions that remove storage. */
  async take(): Promise<void> {
    await this.#connection.query(sql`select pg_advisory_lock(${STORAGE_KEY})`)
  }

  /** Ends the hold of the connection at once. Closing the connection ends it a moment later. */
  async release(): Promise<void> {
    await this.#connection.query(sql`select pg_advisory_unlock(${STORAGE_KEY})`)
  }

  /** Returns whether the transaction may remove storage. If so, nobody else can hold the storage until it ends. */
  async mayRemove(): Promise<boolean> {
    const [row] = await this.#connection.query<{ isFree: boolean }>(sql`
      select pg_try_advisory_xact_lock_shared(${STORAGE_KEY}) as "isFree"`)
    return row?.isFree === true
  }

  /** Keeps out all transactions that run alone, until the transaction ends. Writers continue. */
  async keepOut(): Promise<void> {
    await enterInstance(this.#connection)
  }
}

/** A transaction that removes storage waits for this long for others that use it. */
const REMOVE_WAIT_MS = 2000

/** Removes storage in a transaction. Returns whether it did: it does nothing while a backup holds the storage. */
export function removeStorage(
  database: Database,
  remove: (transaction: Transaction) => Promise<boolean>,
): Promise<boolean> {
  return runTransaction(
    database,
    async (transaction) => {
      if (!(await new StorageHold(transaction).mayRemove())) return false
      await setLockWait(transaction, REMOVE_WAIT_MS)
      return remove(transaction)
    },
    { isolation: 'read committed' },
  )
}

/** Removes the storage of each item, in a transaction of its own. Returns how many it has removed. */
export async function removeEach<Item>(
  database: Database,
  items: readonly Item[],
  remove: (transaction: Transaction, item: Item) => Promise<boolean>,
): Promise<number> {
  let removed = 0
  await eachApart(items, async (item) => {
    if (await removeStorage(database, (transaction) => remove(transaction, item))) removed++
  })
  return removed
}
