import { setTimeout as delay } from 'node:timers/promises'
import type { Random } from '../seeded-random.js'
import { canonical, type Filters, readOwnRows } from './check.js'
import type { Act, Changes, Ledger, Line, Row } from './ledger.js'
import { DATABASE, describeReply, type Endpoint, type Reply, type SendOptions } from './service.js'

/** done: acknowledged. refused: nothing was applied. unknown: all or nothing was applied. */
export type Outcome = 'done' | 'refused' | 'unknown'

/** A period of writing during which a fault occurs. */
export class Round {
  isOver = false
  /** Acknowledged requests. */
  acknowledged = 0
  /** Requests without an answer, or whose answer leaves the outcome open. */
  unknown = 0
  /** Answers that are never allowed, whatever the fault. */
  readonly faults: string[] = []
  /** Error codes of 503 answers, except timeouts: a busy machine exceeds time limits without a fault. */
  readonly codes = new Map<string, number>()

  constructor(
    readonly endpoint: Endpoint,
    /** The service itself ends; otherwise it must answer every request. */
    readonly options: { mayVanish: boolean },
  ) {}

  send(method: string, url: string, options?: SendOptions): Promise<Reply> {
    return this.endpoint.send(method, url, options)
  }

  /** Returns the outcome of a change according to its answer. */
  judge(reply: Reply, what: string): Outcome {
    if (isFine(reply)) {
      this.acknowledged++
      return 'done'
    }
    const code: string = reply.body?.code ?? 'none'
    if (reply.status === 409 && code === 'retry_limit') return 'refused'
    if (reply.status === 503) {
      if (code !== 'timeout') this.codes.set(code, (this.codes.get(code) ?? 0) + 1)
      if (reply.headers['retry-after'] === undefined) this.faults.push(`${what}: no Retry-After`)
      // The code means that nothing was applied.
      if (code === 'storage_full') return 'refused'
    }
    this.unknown++
    const isExpected = reply.status === 503 || (reply.status === 0 && this.options.mayVanish)
    if (!isExpected) {
      this.faults.push(`${what}: got ${describeReply(reply)}`)
    }
    return 'unknown'
  }
}

function isFine(reply: Reply): boolean {
  return reply.status >= 200 && reply.status < 300
}

/** A request that changes records of the first branch. */
export interface Change {
  readonly method: string
  readonly path: string
  readonly options?: SendOptions
  readonly changes: Changes
  readonly adds?: number
  /** Receives the answer that acknowledges the request. */
  onDone?(reply: Reply): void
}

/** A writer that changes a service and records the answers in the ledger. */
export abstract class Writer {
  readonly line: Line
  isRunning = false
  #count = 0

  constructor(
    readonly name: string,
    protected readonly ledger: Ledger,
    protected readonly random: Random,
  ) {
    this.line = ledger.line(name)
  }

  protected abstract step(round: Round): Promise<Outcome>

  /** Runs until the end of the round, or until its records are in an unknown state. */
  async run(round: Round): Promise<void> {
    this.isRunning = true
    while (!round.isOver) {
      const outcome = await this.step(round)
      if (outcome === 'refused') await delay(this.random.below(20))
      if (outcome === 'unknown' && !(await this.lookAgain(round))) break
    }
    this.isRunning = false
  }

  /** Finds out the outcome of the last request, if the service answers. */
  protected async lookAgain(round: Round): Promise<boolean> {
    while (!round.isOver && !round.options.mayVanish) {
      const rows = await readOwnRows(round.endpoint, this.ownFilters())
      if (rows !== undefined && this.line.resolve(rows)) return true
      if (rows !== undefined) return false
      await delay(20)
    }
    return false
  }

  /** Reads the records of the writer. */
  protected ownFilters(): Filters {
    const filter = { id: { $startsWith: `${this.name}-` } }
    return { items: filter, files: filter }
  }

  protected newId(): string {
    return `${this.name}-${String(this.#count++).padStart(6, '0')}`
  }

  protected payload(): string {
    const length = this.random.chance(0.02) ? 20_000 : this.random.below(300)
    return String.fromCharCode(97 + this.random.below(26)).repeat(length)
  }

  protected async change(round: Round, change: Change): Promise<Outcome> {
    const act = this.line.begin(change.changes, change.adds)
    const outcome = await this.sendChange(round, change)
    this.close(act, outcome)
    return outcome
  }

  protected async sendChange(round: Round, change: Change): Promise<Outcome> {
    const { method, path } = change
    const url = `/db/${DATABASE}:main${path}`
    const reply = await round.send(method, url, change.options)
    const outcome = round.judge(reply, `${method} ${path}`)
    if (outcome === 'done') change.onDone?.(reply)
    return outcome
  }

  protected close(act: Act, outcome: Outcome): void {
    if (outcome === 'done') this.line.end(act)
    if (outcome === 'refused') this.line.drop(act)
  }

  /** Deletes the older half of the records if there are too many. */
  protected async forget(round: Round, options: { table: string; most: number }): Promise<Outcome> {
    const { table, most } = options
    const keys = [...this.line.rows.keys()].filter((key) => this.canForget(key))
    if (keys.length <= most) return 'refused'
    const old = keys.sort().slice(0, Math.ceil(keys.length / 2))
    const operations = old.map((key) => ({
      delete: { table, id: key.slice(table.length + 1), failIfMissing: true },
    }))
    return this.change(round, {
      method: 'POST',
      path: '/transaction',
      options: { body: { operations } },
      changes: new Map(old.map((key) => [key, undefined])),
    })
  }

  protected canForget(_key: string): boolean {
    return true
  }
}

export function newRow(values: Readonly<Record<string, unknown>>, version = 0): Row {
  return { values: canonical(values), version }
}

export function valuesOf(row: Row | undefined): Record<string, unknown> {
  return JSON.parse(row?.values ?? '{}')
}
