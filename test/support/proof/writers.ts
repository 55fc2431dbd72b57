import { Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import { Random } from '../seeded-random.js'
import { type Filters, sha256Of } from './check.js'
import type { Row } from './ledger.js'
import { DATABASE, describeReply } from './service.js'
import { type Change, newRow, type Outcome, type Round, valuesOf, Writer } from './writer.js'

const ROWS_MAX = 250

interface Item {
  readonly id: string
  readonly value: number
  readonly payload: string
}

function itemChanges(items: readonly Item[]): Map<string, Row | undefined> {
  return new Map(items.map(({ id, ...values }) => [`items/${id}`, newRow(values)]))
}

/** Sends requests with an idempotency key, and repeats unanswered ones with the same key. */
abstract class RepeatingWriter extends Writer {
  #unanswered: Change | undefined
  #repeated = 0

  /** Requests repeated after an unknown outcome. */
  get repeated(): number {
    return this.#repeated
  }

  /** Returns a request that inserts records. */
  protected abstract insertion(): Change

  /** Returns a request that deletes all records; undefined while there are few. */
  protected abstract deletion(round: Round): Promise<Outcome> | undefined

  protected async step(round: Round): Promise<Outcome> {
    if (this.#unanswered !== undefined) return this.#repeat(round, this.#unanswered)
    const deletion = this.deletion(round)
    if (deletion !== undefined) return deletion
    const change = this.#withKey(this.insertion())
    const outcome = await this.change(round, change)
    if (outcome === 'unknown') this.#unanswered = change
    return outcome
  }

  /**
   * The first attempt may have applied everything or nothing; after the second, everything must be
   * applied.
   */
  async #repeat(round: Round, change: Change): Promise<Outcome> {
    const [first = ''] = change.changes.keys()
    const isThere = this.line.rows.has(first)
    const outcome = isThere
      ? await this.sendChange(round, change)
      : await this.change(round, change)
    if (outcome === 'done') {
      this.#unanswered = undefined
      this.#repeated++
    }
    return outcome
  }

  #withKey(change: Change): Change {
    const [first = ''] = change.changes.keys()
    const headers = { 'idempotency-key': `${this.name}-${first}` }
    return { ...change, options: { ...change.options, headers } }
  }

  protected newItem(): Item {
    return {
      id: this.newId(),
      value: this.random.below(1_000_000),
      payload: this.payload(),
    }
  }
}

/** Inserts records in bulk. */
export class BulkWriter extends RepeatingWriter {
  protected insertion(): Change {
    const items = Array.from({ length: 1 + this.random.below(60) }, () => this.newItem())
    return {
      method: 'POST',
      path: '/tables/items/bulk',
      options: { body: { records: items } },
      changes: itemChanges(items),
    }
  }

  protected deletion(round: Round): Promise<Outcome> | undefined {
    if (this.line.rows.size <= ROWS_MAX) return undefined
    return this.forget(round, { table: 'items', most: 0 })
  }
}

/** Inserts records of two tables in one transaction. */
export class PairWriter extends RepeatingWriter {
  protected insertion(): Change {
    const items = Array.from({ length: 1 + this.random.below(5) }, () => this.newItem())
    const files = items.map(({ id, value }) => ({ id, label: `label ${value}` }))
    const operations = [
      ...items.map((record) => ({ insert: { table: 'items', record, createOnly: true } })),
      ...files.map((record) => ({ insert: { table: 'files', record, createOnly: true } })),
    ]
    const labels = files.map(({ id, label }) => [`files/${id}`, newRow({ label })] as const)
    return {
      method: 'POST',
      path: '/transaction',
      options: { body: { operations } },
      changes: new Map([...itemChanges(items), ...labels]),
    }
  }

  protected deletion(round: Round): Promise<Outcome> | undefined {
    const keys = [...this.line.rows.keys()]
    if (keys.length <= ROWS_MAX / 2) return undefined
    const operations = keys.map((key) => {
      const [table, id] = key.split('/')
      return { delete: { table, id, failIfMissing: true } }
    })
    return this.change(round, {
      method: 'POST',
      path: '/transaction',
      options: { body: { operations } },
      changes: new Map(keys.map((key) => [key, undefined])),
    })
  }
}

/** Long enough that the service starts to write before the stream ends. */
const LONG_PAYLOAD = 60_000

/** Streams records line by line, as one long transaction. */
export class StreamWriter extends Writer {
  protected async step(round: Round): Promise<Outcome> {
    if (this.line.rows.size > 2 * ROWS_MAX) return this.forget(round, { table: 'items', most: 0 })
    const isLong = this.random.chance(0.1)
    const items = Array.from({ length: 20 + this.random.below(isLong ? 40 : 200) }, () => ({
      id: this.newId(),
      value: this.random.below(1_000_000),
      payload: isLong ? 'x'.repeat(LONG_PAYLOAD) : this.payload(),
    }))
    const parts = 1 + this.random.below(5)
    async function* lines() {
      const size = Math.ceil(items.length / parts)
      for (let start = 0; start < items.length; start += size) {
        const part = items.slice(start, start + size)
        yield `${part.map((item) => JSON.stringify(item)).join('\n')}\n`
        await delay(10)
      }
    }
    return this.change(round, {
      method: 'POST',
      path: '/tables/items/bulk',
      options: {
        body: Readable.from(lines()),
        headers: { 'content-type': 'application/x-ndjson' },
      },
      changes: itemChanges(items),
    })
  }
}

const ACCOUNTS = 4
const ACCOUNTS_SUM = ACCOUNTS * 1000

/** Transfers amounts between accounts with a log record, and adds to a shared total. */
export class TransferWriter extends Writer {
  accounts(): string[] {
    return Array.from({ length: ACCOUNTS }, (_, index) => `${this.name}-account-${index}`)
  }

  protected async step(round: Round): Promise<Outcome> {
    if (this.line.rows.size === 0) return this.#open(round)
    if (this.line.rows.size > ROWS_MAX) return this.forget(round, { table: 'items', most: 0 })
    const [from = '', to = ''] = [...this.accounts()].sort(() => this.random.next() - 0.5)
    const amount = 1 + this.random.below(50)
    const notes = Array.from({ length: 1 + this.random.below(4) }, () => ({
      id: this.newId(),
      value: amount,
    }))
    const changes = new Map<string, Row | undefined>([
      this.#moved(from, -amount),
      this.#moved(to, amount),
      ...notes.map(({ id, ...values }) => [`items/${id}`, newRow(values)] as const),
    ])
    const operations = [
      { update: { table: 'items', id: from, fields: { value: { $decrement: amount } } } },
      ...notes.map((record) => ({ insert: { table: 'items', record, createOnly: true } })),
      { update: { table: 'items', id: 'total', fields: { value: { $increment: 1 } } } },
      { update: { table: 'items', id: to, fields: { value: { $increment: amount } } } },
    ]
    const options = { body: { operations } }
    return this.change(round, { method: 'POST', path: '/transaction', options, changes, adds: 1 })
  }

  #open(round: Round): Promise<Outcome> {
    const items = this.accounts().map((id) => ({ id, value: ACCOUNTS_SUM / ACCOUNTS, payload: '' }))
    return this.change(round, {
      method: 'POST',
      path: '/tables/items/bulk',
      options: { body: { records: items } },
      changes: itemChanges(items),
    })
  }

  #moved(id: string, amount: number): [string, Row] {
    const key = `items/${id}`
    const row = this.line.rows.get(key)
    const values = valuesOf(row)
    const version = (row?.version ?? 0) + 1
    return [key, newRow({ ...values, value: (values.value as number) + amount }, version)]
  }

  protected override canForget(key: string): boolean {
    return !key.includes('-account-')
  }
}

/** Creates, updates, replaces and deletes single records, with `ifVersion`. */
export class RecordWriter extends Writer {
  protected async step(round: Round): Promise<Outcome> {
    const { rows } = this.line
    const keys = [...rows.keys()]
    const values = { value: this.random.below(1_000_000), payload: this.payload() }
    if (keys.length < 20) {
      const id = this.newId()
      return this.#one(round, { method: 'PUT', id, query: '?createOnly=true', values })
    }
    const key = this.random.pick(keys)
    const row = rows.get(key)
    const id = key.slice('items/'.length)
    const query = `?ifVersion=${row?.version}`
    const version = (row?.version ?? 0) + 1
    return this.random.weighted<() => Promise<Outcome>>([
      [4, () => this.#one(round, { method: 'PATCH', id, query, values, version })],
      [3, () => this.#one(round, { method: 'PUT', id, query, values, version })],
      [2, () => this.#one(round, { method: 'POST', id, query: '', values, version })],
      [2, () => this.#delete(round, id)],
    ])()
  }

  #one(
    round: Round,
    options: { method: string; id: string; query: string; values: object; version?: number },
  ): Promise<Outcome> {
    const { method, id, query, values } = options
    return this.change(round, {
      method,
      path: `/tables/items/data/${id}${query}`,
      options: { body: values },
      changes: new Map([[`items/${id}`, newRow({ ...values }, options.version)]]),
    })
  }

  #delete(round: Round, id: string): Promise<Outcome> {
    return this.change(round, {
      method: 'DELETE',
      path: `/tables/items/data/${id}`,
      changes: new Map([[`items/${id}`, undefined]]),
    })
  }
}

const CREATED_MAX = 40

/** Creates records with generated ids; such requests share a transaction with others. */
export class CreateWriter extends Writer {
  /** Acknowledged ids by key. */
  readonly #ids = new Map<string, string>()

  protected async step(round: Round): Promise<Outcome> {
    const [oldest] = this.#ids
    if (oldest !== undefined && this.#ids.size > CREATED_MAX) return this.#delete(round, ...oldest)
    const payload = this.newId()
    const values = { value: this.random.below(1_000_000), payload }
    const key = `items/${payload}`
    return this.change(round, {
      method: 'POST',
      path: '/tables/items/data',
      options: { body: values },
      changes: new Map([[key, newRow(values)]]),
      onDone: ({ body }) => void this.#ids.set(key, body.id),
    })
  }

  #delete(round: Round, key: string, id: string): Promise<Outcome> {
    // The id is not needed again, whatever the outcome.
    this.#ids.delete(key)
    return this.change(round, {
      method: 'DELETE',
      path: `/tables/items/data/${id}`,
      changes: new Map([[key, undefined]]),
    })
  }

  protected override ownFilters(): Filters {
    return { ...super.ownFilters(), items: { payload: { $startsWith: `${this.name}-` } } }
  }
}

const CONTENTS = 10
const FILES_MAX = 12

/** Uploads and deletes files, some of them with equal content. */
export class FileWriter extends Writer {
  /** Contents that all writers of files choose from, so that records of several writers share one. */
  static readonly contents = Array.from({ length: CONTENTS }, (_, index) =>
    contentOf(new Random(index), 1 + index * 3000),
  )

  protected async step(round: Round): Promise<Outcome> {
    const { rows } = this.line
    const keys = [...rows.keys()]
    if (keys.length < FILES_MAX / 2) return this.#insert(round)
    if (keys.length > FILES_MAX) return this.#deleteRecord(round, this.random.pick(keys))
    return this.random.weighted<() => Promise<Outcome>>([
      [5, () => this.#upload(round, this.random.pick(keys))],
      [2, () => this.#insert(round)],
      [1, () => this.#deleteRecord(round, this.random.pick(keys))],
      [1, () => this.#deleteFile(round, this.random.pick(keys))],
    ])()
  }

  #content(): Buffer {
    if (this.random.chance(0.5)) return this.random.pick(FileWriter.contents)
    return contentOf(this.random, this.random.chance(0.1) ? 400_000 : 1 + this.random.below(30_000))
  }

  #insert(round: Round): Promise<Outcome> {
    const content = this.#content()
    const [id, label] = [this.newId(), `label ${this.random.below(100)}`]
    const file = { name: 'a.bin', base64Content: content.toString('base64') }
    return this.change(round, {
      method: 'POST',
      path: '/tables/files/bulk',
      options: { body: { records: [{ id, label, content: file }] } },
      changes: new Map([[`files/${id}`, newRow({ label, content: sha256Of(content) })]]),
    })
  }

  #upload(round: Round, key: string): Promise<Outcome> {
    const content = this.#content()
    return this.#changeFile(round, key, {
      method: 'PUT',
      hash: sha256Of(content),
      options: { body: content, headers: { 'content-type': 'application/octet-stream' } },
    })
  }

  async #deleteFile(round: Round, key: string): Promise<Outcome> {
    if (valuesOf(this.line.rows.get(key)).content === undefined) return 'refused'
    return this.#changeFile(round, key, { method: 'DELETE', hash: undefined, options: {} })
  }

  #changeFile(
    round: Round,
    key: string,
    change: { method: string; hash: string | undefined; options: Change['options'] & object },
  ): Promise<Outcome> {
    const row = this.line.rows.get(key)
    const { label } = valuesOf(row)
    const values = { label, content: change.hash }
    return this.change(round, {
      method: change.method,
      path: `/tables/files/data/${key.slice('files/'.length)}/column/content/file`,
      options: change.options,
      changes: new Map([[key, newRow(values, (row?.version ?? 0) + 1)]]),
    })
  }

  #deleteRecord(round: Round, key: string): Promise<Outcome> {
    return this.change(round, {
      method: 'DELETE',
      path: `/tables/files/data/${key.slice('files/'.length)}`,
      changes: new Map([[key, undefined]]),
    })
  }
}

function contentOf(random: Random, size: number): Buffer {
  const bytes = Buffer.alloc(size)
  for (let index = 0; index + 4 <= size; index += 4)
    bytes.writeUInt32LE(random.below(2 ** 32), index)
  return bytes
}

/** Reads at one moment, and checks invariants that all transactions preserve. */
export class Observer {
  reads = 0

  constructor(readonly writers: readonly TransferWriter[]) {}

  async run(round: Round): Promise<void> {
    while (!round.isOver) {
      for (const writer of this.writers) await this.#look(round, writer)
      await delay(5)
    }
  }

  async #look(round: Round, writer: TransferWriter): Promise<void> {
    const operations = writer
      .accounts()
      .map((id) => ({ get: { table: 'items', id, columns: ['value'] } }))
    const url = `/db/${DATABASE}:main/transaction`
    const reply = await round.send('POST', url, { body: { operations } })
    if (reply.status === 503 || (reply.status === 0 && round.options.mayVanish)) {
      await delay(20)
      return
    }
    if (reply.status !== 200) {
      round.faults.push(`reading accounts: got ${describeReply(reply)}`)
      return
    }
    const values: (number | undefined)[] = reply.body.results.map(
      (result: { columns: { value?: number } }) => result.columns.value,
    )
    const sum = values.reduce<number>((sum, value) => sum + (value ?? 0), 0)
    this.reads++
    if (sum !== ACCOUNTS_SUM && values.some((value) => value !== undefined)) {
      round.faults.push(`${writer.name}: the accounts hold ${sum} at one moment`)
    }
  }
}
