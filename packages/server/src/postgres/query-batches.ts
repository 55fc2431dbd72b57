import pg from 'pg'
import { runQuery } from './database.js'
import { runPipeline } from './pipeline.js'
import { serverOf } from './server.js'
import type { Sql } from './sql.js'
import { type Call, type Field, type TextRow, toParameter, toQuery } from './statement.js'

interface Waiting {
  readonly call: Call
  resolve(rows: readonly TextRow[]): void
  reject(error: unknown): void
}

/**
 * Runs the queries of one transaction. Those that are asked for at the same time, such as by `allDone`, are sent together,
 * in one round trip. If one of them fails, the later ones are skipped, and all fail with its error.
 */
export class QueryBatches {
  readonly #client: pg.ClientBase
  /** Calls that are sent with the first query. */
  #opening: readonly Call[]
  #waiting: Waiting[] = []
  /** The last query that runs alone. */
  #last: Promise<unknown> = Promise.resolve()

  constructor(client: pg.ClientBase, opening: readonly Call[] = []) {
    this.#client = client
    this.#opening = opening
  }

  async query<Row extends pg.QueryResultRow>(statement: Sql): Promise<Row[]> {
    const { name, text, values } = toQuery(statement)
    if (!serverOf(this.#client).batchesQueries) return this.#runNext<Row>(statement)
    // A text without parameters may have several statements, which take another form of the protocol.
    if (name === undefined && values.length === 0) {
      await this.open()
      return runQuery<Row>(this.#client, statement)
    }
    let fields: readonly Field[] = []
    const rows = await this.#add({
      statement: { text, slots: values.map((_, index) => index) },
      values: values.map(toParameter),
      isUnnamed: name === undefined,
      describeRows(found) {
        fields = found
      },
    })
    return rows.map((row) => toObject<Row>(fields, row))
  }

  /** Runs a query when the one before has ended. */
  #runNext<Row extends pg.QueryResultRow>(statement: Sql): Promise<Row[]> {
    const running = this.#last.then(async () => {
      await this.open()
      return runQuery<Row>(this.#client, statement)
    })
    this.#last = running.catch(() => undefined)
    return running
  }

  /** Sends what is waiting. If that was nothing, sends the opening alone. */
  async open(): Promise<void> {
    this.#flush()
    if (this.#opening.length > 0) await runPipeline(this.#client, this.#takeOpening())
  }

  #takeOpening(): readonly Call[] {
    const opening = this.#opening
    this.#opening = []
    return opening
  }

  #add(call: Call): Promise<readonly TextRow[]> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ call, resolve, reject })
      if (this.#waiting.length === 1) queueMicrotask(() => this.#flush())
    })
  }

  #flush(): void {
    const sent = this.#waiting
    if (sent.length === 0) return
    this.#waiting = []
    const opening = this.#takeOpening()
    const calls = [...opening, ...sent.map(({ call }) => call)]
    runPipeline(this.#client, calls).then(
      (rows) => {
        for (const [index, { resolve }] of sent.entries()) {
          resolve(rows[opening.length + index] ?? [])
        }
      },
      (error: unknown) => {
        for (const { reject } of sent) reject(error)
      },
    )
  }
}

function toObject<Row>(fields: readonly Field[], row: TextRow): Row {
  const entries = fields.map(({ name, dataTypeID }, index) => {
    const text = row[index] ?? null
    return [name, text === null ? null : pg.types.getTypeParser(dataTypeID)(text)]
  })
  return Object.fromEntries(entries) as Row
}
