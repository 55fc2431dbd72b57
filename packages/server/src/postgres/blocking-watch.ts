import type { Database } from './database.js'
import { sql } from './sql.js'

/** How often to look for backends that keep others waiting. */
const LOOK_MS = 1_000

/**
 * Watches backends that can hold locks for long, because somebody else decides when they go on. One statement looks at all
 * of them, and only while there are some.
 */
export class BlockingWatch {
  readonly #database: Database
  readonly #watched = new Map<number, () => void>()
  #timer: NodeJS.Timeout | undefined

  constructor(database: Database) {
    this.#database = database
  }

  /** Calls `tell` each time that another backend is found waiting for a lock of this one. Returns how to stop that. */
  watch(processId: number, tell: () => void): () => void {
    this.#watched.set(processId, tell)
    this.#lookLater()
    return () => this.#watched.delete(processId)
  }

  #lookLater(): void {
    this.#timer ??= setTimeout(() => void this.#look(), LOOK_MS).unref()
  }

  async #look(): Promise<void> {
    const processIds = [...this.#watched.keys()]
    if (processIds.length > 0) {
      const blocking = await this.#database
        .queryAside<{ processId: number }>(sql`
          select distinct b.pid as "processId"
          from pg_stat_activity a, unnest(pg_blocking_pids(a.pid)) b (pid)
          where a.wait_event_type = 'Lock' and b.pid = any(${processIds}::integer[])`)
        // A server that does not answer has other troubles. The next look may succeed.
        .catch(() => [])
      for (const { processId } of blocking) this.#watched.get(processId)?.()
    }
    this.#timer = undefined
    if (this.#watched.size > 0) this.#lookLater()
  }
}
