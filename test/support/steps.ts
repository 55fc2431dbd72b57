import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import type { Database } from '../../packages/server/src/postgres/database.js'

/**
 * Runs the transactions of a service one by one. It holds all connections of the service, and lends it one for each
 * step. Between two steps, the service holds no lock and has no transaction, so a test can do anything there.
 */
export class Steps {
  readonly #database: Database
  #held: pg.PoolClient[] = []

  private constructor(database: Database) {
    this.#database = database
  }

  /** Takes all connections of a service that does nothing. */
  static async take(database: Database): Promise<Steps> {
    const steps = new Steps(database)
    for (let count = 0; count < database.poolMax; count++) {
      steps.#held.push(await database.acquire())
    }
    return steps
  }

  /**
   * Waits until the service needs a connection, and lends it one until it has finished with it. Returns false if the
   * work has ended before.
   */
  async step(work: Promise<unknown>): Promise<boolean> {
    let hasEnded = false
    const end = () => {
      hasEnded = true
    }
    work.then(end, end)
    while (!hasEnded && !this.#database.isCrowded) await delay(1)
    if (hasEnded) return false
    // The service waits already, so this one comes after it.
    const next = this.#database.acquire()
    this.#held.pop()?.release()
    this.#held.push(await next)
    return true
  }

  /** Returns all connections to the service. */
  end(): void {
    for (const client of this.#held) client.release()
    this.#held = []
  }
}
