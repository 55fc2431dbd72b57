import type { Column } from '@offshoot/contract/schema'
import type { Random } from '../seeded-random.js'
import type { Answer } from '../service.js'
import type { BranchCall } from '../tables.js'
import { type History, MISSING, type Observed, type Read, type Write } from './history.js'

const columns: readonly Column[] = [
  { name: 'value', type: 'string' },
  { name: 'balance', type: 'int' },
  { name: 'log', type: 'multiple' },
]
/** Two tables, because reads of one table and of several use different code. */
export const SERIAL_TABLES = { left: columns, right: columns }

/** Few keys, so that transactions conflict. */
const ACCOUNTS = ['left/a', 'left/b', 'right/c', 'right/d']
const BALANCE = 1000
/** A version that no record has. */
const NEVER = 1_000_000

type Operation = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** Concurrent clients with transactions on a few records, which record what they see. */
export class Workload {
  readonly #history: Observed[] = []
  readonly #violations: string[] = []
  /** The acknowledged log entries of each record. */
  readonly #appended = new Map<string, string[]>()
  readonly #forks = new Map<string, string>()
  #count = 0

  constructor(
    private readonly options: {
      readonly random: Random
      /** The branch through each process. */
      readonly at: readonly ((branch: string) => BranchCall)[]
    },
  ) {}

  get history(): History {
    return this.#history
  }

  /** Faults that can be detected without the whole history. */
  get violations(): readonly string[] {
    return this.#violations
  }

  async prepare(): Promise<void> {
    const operations = ACCOUNTS.map((key) =>
      insert(key, { value: `start ${key}`, balance: BALANCE }),
    )
    await this.transact('start', operations)
  }

  /** Runs the clients, each with the given number of transactions. */
  async run(clients: number, transactions: number): Promise<void> {
    await Promise.all(
      Array.from({ length: clients }, async () => {
        for (let number = 0; number < transactions; number++) await this.#step()
      }),
    )
  }

  /** Checks that need the whole history. */
  async finish(): Promise<void> {
    const { results } = (await this.#send('main', ACCOUNTS.map(get))).body
    for (const [position, key] of ACCOUNTS.entries()) {
      const log = new Set<string>(results[position].columns.log ?? [])
      const lost = (this.#appended.get(key) ?? []).filter((entry) => !log.has(entry))
      if (lost.length > 0) this.#violations.push(`${key} has lost ${lost.join(', ')}`)
    }
    for (const [branch, seen] of this.#forks) {
      const now = JSON.stringify((await this.#send(branch, ACCOUNTS.map(get))).body.results)
      if (now !== seen) this.#violations.push(`fork ${branch} has changed: ${seen}, now ${now}`)
    }
  }

  #step(): Promise<unknown> {
    const { random } = this.options
    const id = `t${++this.#count}`
    const [one = '', two = '', ...others] = this.#shuffled(ACCOUNTS)
    const rest = others.map(get)
    return random.weighted<() => Promise<unknown>>([
      [4, () => this.#readAll(id)],
      [2, () => this.transact(id, [get(one), get(two)])],
      [1, () => this.#readOne(id, one)],
      [3, () => this.transact(id, [get(one), update(two, `${id}.0`)])],
      [2, () => this.transact(id, [get(one), get(two), update(one, `${id}.0`)])],
      [2, () => this.transact(id, [update(one, `${id}.0`), get(two), ...rest])],
      [2, () => this.transact(id, transfer(id, one, two, 1 + random.below(50)))],
      [1, () => this.transact(id, [update(one, `${id}.0`), get(two), update(one, `${id}.1`)])],
      [1, () => this.#abort(id, one, two)],
      [2, () => this.#append(id, one, two)],
      [2, () => this.#claim(id)],
      [0.3, () => this.#fork(id)],
    ])()
  }

  async #readAll(id: string): Promise<void> {
    const answer = await this.transact(id, this.#shuffled(ACCOUNTS).map(get))
    if (answer.status === 200) this.#checkSum(id, answer)
  }

  /** Transfers keep the sum of all balances constant. */
  #checkSum(id: string, { body }: Answer): void {
    const balances: number[] = body.results.map(
      ({ columns }: { columns: { balance: number } }) => columns.balance,
    )
    const sum = balances.reduce((total, balance) => total + balance, 0)
    if (sum !== ACCOUNTS.length * BALANCE) this.#violations.push(`${id} saw a sum of ${sum}`)
  }

  /** Reading a single record is a transaction, too. */
  async #readOne(id: string, key: string): Promise<void> {
    const [table, recordId] = key.split('/')
    const answer = await this.#call('main')('GET', `/tables/${table}/data/${recordId}`)
    const reads = answer.status === 200 ? [readOf(key, answer.body)] : []
    this.#history.push({ id, outcome: 'committed', reads, writes: [] })
  }

  /** Fails in its second half, so its first half must not be visible. */
  async #abort(id: string, one: string, two: string): Promise<void> {
    const [table, recordId] = two.split('/')
    const fields = { value: `${id}.1` }
    const impossible = { update: { table, id: recordId, fields, ifVersion: NEVER } }
    const answer = await this.transact(id, [update(one, `${id}.0`), impossible])
    if (answer.status === 200) this.#violations.push(`${id} should have been refused`)
  }

  /** Reads the log in one transaction and writes it in another, if its version is unchanged. */
  async #append(id: string, key: string, other: string): Promise<void> {
    const [table, recordId] = key.split('/')
    const before = await this.transact(`${id}r`, [get(key)])
    if (before.status !== 200) return
    const { log = [], service } = before.body.results[0].columns
    const fields = { value: `${id}.0`, log: [...log, id] }
    const answer = await this.transact(id, [
      { update: { table, id: recordId, fields, ifVersion: service.version, columns: ['*'] } },
      get(other),
    ])
    if (answer.status !== 200) return
    const appended = this.#appended.get(key) ?? []
    appended.push(id)
    this.#appended.set(key, appended)
  }

  /** Inserts one of two records after checking for the other (write skew). */
  #claim(id: string): Promise<Answer> {
    const round = Math.floor(this.#count / 12)
    const [mine = '', theirs = ''] = this.#shuffled([`left/m${round}`, `right/m${round}`])
    return this.transact(id, [get(theirs), insert(mine, { value: `${id}.0` })])
  }

  /** Forks the branch, and reads one consistent state in the fork. */
  async #fork(id: string): Promise<void> {
    const created = await this.#call(id)('PUT', '', { body: { from: 'main' } })
    if (created.status !== 201) return
    const answer = await this.transact(id, ACCOUNTS.map(get), id)
    if (answer.status !== 200) return
    this.#checkSum(id, answer)
    this.#forks.set(id, JSON.stringify(answer.body.results))
  }

  async transact(id: string, operations: readonly Operation[], branch = 'main'): Promise<Answer> {
    const answer = await this.#send(branch, operations)
    const outcome = OUTCOMES.get(answer.status) ?? 'unknown'
    if (outcome === 'unknown') this.#violations.push(`${id}: ${JSON.stringify(answer.body)}`)
    this.#history.push({ id, outcome, ...observed(operations, answer) })
    return answer
  }

  #send(branch: string, operations: readonly Operation[]): Promise<Answer> {
    return this.#call(branch)('POST', '/transaction', { body: { operations } })
  }

  #call(branch: string): BranchCall {
    return this.options.random.pick(this.options.at)(branch)
  }

  #shuffled<Item>(items: readonly Item[]): Item[] {
    const rest = [...items]
    return items.flatMap(() => rest.splice(this.options.random.below(rest.length), 1))
  }
}

/** Refused by its condition, or after too many attempts; nothing was applied in either case. */
const OUTCOMES: ReadonlyMap<number, Observed['outcome']> = new Map([
  [200, 'committed'],
  [400, 'aborted'],
  [409, 'aborted'],
])

export function get(key: string): Operation {
  const [table, id] = key.split('/')
  return { get: { table, id, columns: ['*'] } }
}

export function update(key: string, value: string, fields: object = {}): Operation {
  const [table, id] = key.split('/')
  return { update: { table, id, fields: { value, ...fields }, columns: ['*'] } }
}

function insert(key: string, fields: object): Operation {
  const [table, id] = key.split('/')
  return { insert: { table, record: { id, ...fields }, createOnly: true, columns: ['*'] } }
}

function transfer(id: string, from: string, to: string, amount: number): Operation[] {
  return [
    update(from, `${id}.0`, { balance: { $decrement: amount } }),
    update(to, `${id}.1`, { balance: { $increment: amount } }),
  ]
}

interface Returned {
  readonly service?: { readonly version: number }
  readonly value?: string
}

function readOf(key: string, { service, value }: Returned): Read {
  return { key, version: service?.version ?? MISSING, value }
}

/** Returns the reads and writes of the operations according to the answer. */
function observed(
  operations: readonly Operation[],
  answer: Answer,
): { reads: Read[]; writes: Write[] } {
  const reads: Read[] = []
  const writes: Write[] = []
  for (const [index, operation] of operations.entries()) {
    const returned: Returned | undefined = answer.body?.results?.[index]?.columns
    const [kind = '', parts = {}] = Object.entries(operation)[0] ?? []
    const record = (parts.record ?? parts.fields ?? {}) as { id?: string; value?: string }
    const key = `${parts.table}/${parts.id ?? record.id}`
    if (kind !== 'get') {
      writes.push({ key, version: returned?.service?.version, value: record.value ?? '' })
    } else if (returned !== undefined && !writes.some((write) => write.key === key)) {
      reads.push(readOf(key, returned))
    }
  }
  return { reads, writes }
}
