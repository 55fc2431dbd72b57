import type pg from 'pg'
import type { StatementTracing } from '../../packages/server/src/postgres/database.js'

/** Holds back queries of a service, so that tests can do something else in between. */
export class QueryHold {
  #isHeld: (text: string) => boolean = () => false
  #reached: () => void = () => undefined
  #released: Promise<void> = Promise.resolve()

  /** The tracing of the service whose queries are held back. Only queries of a single text are. */
  readonly tracing: StatementTracing = {
    startCall: () => undefined,
    watch: (client: pg.ClientBase) => {
      const query = client.query.bind(client) as (...parts: unknown[]) => unknown
      Object.assign(client, {
        query: (...parts: readonly unknown[]) => {
          const [first] = parts
          if (typeof first !== 'string' || !this.#isHeld(first)) return query(...parts)
          this.#isHeld = () => false
          this.#reached()
          return this.#released.then(() => query(...parts))
        },
      })
    },
  }

  /** Holds back the next query that meets a condition while `body` runs. */
  async during(isHeld: (text: string) => boolean, start: () => void, body: () => Promise<void>) {
    const reached = new Promise<void>((resolve) => {
      this.#reached = resolve
    })
    let release: () => void = () => undefined
    this.#released = new Promise((resolve) => {
      release = resolve
    })
    this.#isHeld = isHeld
    start()
    await reached
    try {
      await body()
    } finally {
      release()
    }
  }
}
