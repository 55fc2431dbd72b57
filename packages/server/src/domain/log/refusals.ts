import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { type Actor, insertUserEntry } from './entries.js'

/** Refusals of different kinds that are noted between two writes. Further ones are not logged. */
const NOTED_MAX = 1000

/** A refused request of a valid key. */
interface Refusal {
  readonly by: Actor
  /** Undefined: the address names none, so that all workspaces of the key are concerned. */
  readonly workspaces: readonly string[] | undefined
  /** The error code, the route, and the names in the address. */
  readonly details: Readonly<Record<string, string>>
}

/**
 * Refusals that the audit log has. They are counted here and written by the background, so that a client that repeats
 * refused requests does not fill the log.
 */
export class Refusals {
  #noted = new Map<string, { readonly refusal: Refusal; count: number }>()

  note(refusal: Refusal): void {
    const { by, workspaces, details } = refusal
    const key = JSON.stringify([by.keyId, workspaces, details])
    const known = this.#noted.get(key)
    if (known !== undefined) known.count++
    else if (this.#noted.size < NOTED_MAX) this.#noted.set(key, { refusal, count: 1 })
  }

  /** Writes what was noted. An entry stands for equal refusals, and has the id of the first request. */
  async flush(database: Database): Promise<void> {
    if (this.#noted.size === 0) return
    const noted = this.#noted
    this.#noted = new Map()
    await runTransaction(database, async (transaction) => {
      for (const { refusal, count } of noted.values()) {
        const { by, workspaces, details } = refusal
        const entry = { kind: 'refused', workspaces, details: { ...details, count } } as const
        await insertUserEntry(transaction, by, entry)
      }
    })
  }
}
