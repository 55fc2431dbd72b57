import type pg from 'pg'
import type { StatementTracing } from '../../packages/server/src/postgres/database.js'

/** Holds back queries of a service, so that tests can do something else in between. */
export class QueryHold {
  #isHeld: (text: string) => boolean = () => false
  #reached: () => void = () => undefined
  #released: Promise<void> = Promise.resolve()

  /** The tracing of the service whose queries are held back. A batch is known by its first text. */
  readonly tracing: StatementTracing = {
    startCall: () => undefined,
    watch: (client: pg.ClientBase) => {
      const query = client.query.bind(client) as (...parts: unknown[]) => unknown
      Object.assign(client, {
        query: (...parts: readonly unknown[]) => {
          const text = firstText(parts[0])
          if (text === undefined || !this.#isHeld(text)) return query(...parts)
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

function firstText(query: unknown): string | undefined {
  if (typeof query === 'string') return query
  return (query as { readonly statements?: readonly string[] }).statements?.[0]
}
