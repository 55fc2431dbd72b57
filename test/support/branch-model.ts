import { expect } from 'vitest'
import { sweepBranch } from '../../packages/server/src/domain/branches/sweep-branch.js'
import { collectHeap } from '../../packages/server/src/rows/branches.js'
import { createDatabase } from './people.js'
import type { TestService } from './service.js'
import { type BranchCall, branchCall, expectOk } from './tables.js'
import { withoutTimes } from './transaction-model.js'

/*
 * A naive model of branches, in which a fork copies everything. Every step runs on the model and on the
 * service, which copies nothing; then all records of all branches are compared.
 */

interface ModelColumn {
  readonly unique: boolean
  /** Default of a column that must not be null; null if the column has none. */
  readonly fallback: number | null
}
interface ModelTable {
  readonly columns: Map<string, ModelColumn>
  readonly records: Map<string, ModelRecord>
}
interface ModelRecord {
  readonly version: number
  readonly values: Map<string, number>
}
interface ModelBranch {
  readonly call: BranchCall
  readonly tables: Map<string, ModelTable>
}
type Values = Record<string, number | null>

const IDS = ['a', 'b', 'c', 'd', 'e']
const NAMES = ['n', 'u', 'x', 'y', 'z']
const TABLES = ['items', 'extras']
const BRANCHES_MAX = 6

/** Returns a generator of pseudo-random numbers (mulberry32). */
export function randomNumbers(seed: number): () => number {
  let state = seed
  return () => {
    state = (state + 0x6d2b79f5) | 0
    let mixed = Math.imul(state ^ (state >>> 15), state | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }
}

function copyTables(tables: ModelBranch['tables'], withRecords: boolean): ModelBranch['tables'] {
  return new Map(
    [...tables].map(([name, { columns, records }]) => [
      name,
      {
        columns: new Map(columns),
        records: new Map(
          (withRecords ? [...records] : []).map(([id, { values, ...record }]) => [
            id,
            { ...record, values: new Map(values) },
          ]),
        ),
      },
    ]),
  )
}

export class BranchModel {
  readonly #service: TestService
  readonly #database: string
  readonly #random: () => number
  readonly #branches = new Map<string, ModelBranch>()
  /** The steps so far, newest last, for the message of a failure. */
  readonly log: string[] = []
  #count = 0

  constructor(service: TestService, options: { database: string; seed: number }) {
    this.#service = service
    this.#database = options.database
    this.#random = randomNumbers(options.seed)
  }

  async start(): Promise<void> {
    await createDatabase(this.#service, this.#database)
    const call = branchCall(this.#service, this.#database)
    const main: ModelBranch = { call, tables: new Map() }
    this.#branches.set('main', main)
    for (const table of TABLES) await this.#addTable(main, 'main', table)
  }

  async step(): Promise<void> {
    const [name, branch] = this.#pick([...this.#branches]) as [string, ModelBranch]
    const table = this.#pick(TABLES) as string
    const chance = this.#random()
    if (chance < 0.1) await this.#fork(name, branch)
    else if (chance < 0.13) await this.#deleteBranch(name, branch)
    else if (chance < 0.25) await this.#editColumns(name, branch, table)
    else if (chance < 0.27) await this.#replaceTable(name, branch, table)
    else if (chance < 0.3) await this.#collect()
    else await this.#write(name, branch, table)
    await this.expectEverything()
  }

  async expectEverything(): Promise<void> {
    for (const [name, { call, tables }] of this.#branches) {
      const keys = [...tables].flatMap(([table, { records }]) =>
        [...new Set([...IDS, ...records.keys()])].map((id) => ({ table, id })),
      )
      const operations = keys.map((key) => ({ get: { ...key, columns: ['*'] } }))
      const { body } = expectOk(await call('POST', '/transaction', { body: { operations } }))
      const expected = keys.map(({ table, id }) => {
        const record = tables.get(table)?.records.get(id)
        const columns = record && {
          id,
          ...Object.fromEntries(record.values),
          service: { version: record.version },
        }
        return { table, id, columns: columns ?? {} }
      })
      const results = withoutTimes(body.results) as { columns: object }[]
      const found = results.map(({ columns }, index) => ({ ...keys[index], columns }))
      expect({ branch: name, found }).toEqual({ branch: name, found: expected })
    }
  }

  #pick<Item>(items: readonly Item[]): Item | undefined {
    return items[Math.floor(this.#random() * items.length)]
  }

  #note(text: string): void {
    this.log.push(text)
  }

  async #addTable(branch: ModelBranch, name: string, table: string): Promise<void> {
    this.#note(`${name}: add table ${table}`)
    expectOk(await branch.call('PUT', `/tables/${table}`))
    branch.tables.set(table, { columns: new Map(), records: new Map() })
    await this.#addColumn(branch, table, 'n', { unique: false, fallback: null })
    await this.#addColumn(branch, table, 'u', { unique: true, fallback: null })
  }

  async #replaceTable(name: string, branch: ModelBranch, table: string): Promise<void> {
    this.#note(`${name}: drop table ${table}`)
    expectOk(await branch.call('DELETE', `/tables/${table}`))
    await this.#addTable(branch, name, table)
  }

  async #fork(from: string, source: ModelBranch): Promise<void> {
    if (this.#branches.size === BRANCHES_MAX) return
    const name = `b${++this.#count}`
    const data = this.#random() > 0.15
    this.#note(`${name}: fork of ${from}${data ? '' : ' without data'}`)
    const call = branchCall(this.#service, this.#database, { branch: name })
    expectOk(await call('PUT', '', { body: { from, data } }))
    this.#branches.set(name, { call, tables: copyTables(source.tables, data) })
  }

  async #deleteBranch(name: string, branch: ModelBranch): Promise<void> {
    if (name === 'main') return
    this.#note(`${name}: deleted`)
    expectOk(await branch.call('DELETE', ''))
    this.#branches.delete(name)
  }

  /** Runs background work, which must not change anything visible. */
  async #collect(): Promise<void> {
    this.#note('collect')
    const { database } = this.#service
    while ((await collectHeap(database)) || (await sweepBranch(database)));
  }

  async #editColumns(name: string, branch: ModelBranch, table: string): Promise<void> {
    const { columns, records } = branch.tables.get(table) as ModelTable
    const column = this.#pick(NAMES) as string
    if (!columns.has(column)) {
      const kind = this.#random()
      const definition = { unique: kind < 0.3, fallback: kind > 0.7 ? 7 : null }
      this.#note(`${name}: add ${table}.${column} ${JSON.stringify(definition)}`)
      await this.#addColumn(branch, table, column, definition)
      return
    }
    if (this.#random() < 0.5) {
      this.#note(`${name}: drop ${table}.${column}`)
      expectOk(await branch.call('DELETE', `/tables/${table}/columns/${column}`))
      columns.delete(column)
      for (const { values } of records.values()) values.delete(column)
      return
    }
    const other = this.#pick(NAMES) as string
    if (columns.has(other)) return
    this.#note(`${name}: rename ${table}.${column} to ${other}`)
    const path = `/tables/${table}/columns/${column}`
    expectOk(await branch.call('PATCH', path, { body: { name: other } }))
    columns.set(other, columns.get(column) as ModelColumn)
    columns.delete(column)
    for (const { values } of records.values()) {
      const value = values.get(column)
      values.delete(column)
      if (value !== undefined) values.set(other, value)
    }
  }

  async #addColumn(
    branch: ModelBranch,
    table: string,
    name: string,
    { unique, fallback }: ModelColumn,
  ): Promise<void> {
    const model = branch.tables.get(table) as ModelTable
    const body = {
      name,
      type: 'int',
      ...(unique ? { unique } : {}),
      ...(fallback === null ? {} : { notNull: true, defaultValue: String(fallback) }),
    }
    expectOk(await branch.call('POST', `/tables/${table}/columns`, { body }))
    model.columns.set(name, { unique, fallback })
    if (fallback === null) return
    for (const { values } of model.records.values()) values.set(name, fallback)
  }

  #randomValues({ columns }: ModelTable): Values {
    const values: Values = {}
    for (const [name, { fallback }] of columns) {
      const chance = this.#random()
      if (chance < 0.4) continue
      values[name] = chance > 0.9 && fallback === null ? null : Math.floor(this.#random() * 4)
    }
    return values
  }

  #isTaken(table: ModelTable, id: string, values: ReadonlyMap<string, number>): boolean {
    return [...table.columns].some(
      ([name, { unique }]) =>
        unique &&
        values.has(name) &&
        [...table.records].some(
          ([other, record]) => other !== id && record.values.get(name) === values.get(name),
        ),
    )
  }

  /** The values of a whole record. */
  #whole({ columns }: ModelTable, values: Values): Map<string, number> {
    const whole = new Map<string, number>()
    for (const [name, { fallback }] of columns) {
      const value = name in values ? values[name] : fallback
      if (value !== null && value !== undefined) whole.set(name, value)
    }
    return whole
  }

  #changed(before: ReadonlyMap<string, number>, values: Values): Map<string, number> {
    const changed = new Map(before)
    for (const [name, value] of Object.entries(values)) {
      if (value === null) changed.delete(name)
      else changed.set(name, value)
    }
    return changed
  }

  async #write(branchName: string, branch: ModelBranch, tableName: string): Promise<void> {
    const table = branch.tables.get(tableName) as ModelTable
    const id = this.#pick(IDS) as string
    const values = this.#randomValues(table)
    const present = table.records.get(id)
    const path = `/tables/${tableName}/data/${id}`
    const kind = this.#pick(['put', 'create', 'patch', 'upsert', 'delete', 'bulk', 'sum']) as string
    this.#note(`${branchName}: ${kind} ${tableName}.${id} ${JSON.stringify(values)}`)
    /** Stores a record. Returns the expected status, which is 400 if a unique value is taken. */
    const store = (next: Map<string, number>, status: number): number => {
      if (this.#isTaken(table, id, next)) return 400
      table.records.set(id, { version: (present?.version ?? -1) + 1, values: next })
      return status
    }
    switch (kind) {
      case 'put': {
        const { status } = await branch.call('PUT', path, { body: values })
        const whole = this.#whole(table, values)
        const expected = present === undefined ? store(whole, 201) : store(whole, 200)
        expect(status).toBe(expected)
        break
      }
      case 'create': {
        const { status } = await branch.call('PUT', `${path}?createOnly=true`, { body: values })
        expect(status).toBe(present ? 422 : store(this.#whole(table, values), 201))
        break
      }
      case 'patch': {
        const version = present?.version
        const others = [0, 1, version ?? 2]
        const ifVersion = this.#random() < 0.3 ? this.#pick(others) : undefined
        const query = ifVersion === undefined ? '' : `?ifVersion=${ifVersion}`
        const { status } = await branch.call('PATCH', `${path}${query}`, { body: values })
        if (present === undefined) expect(status).toBe(404)
        else if (ifVersion !== undefined && ifVersion !== version) expect(status).toBe(422)
        else {
          const next = this.#changed(present.values, values)
          expect(status).toBe(store(next, 200))
        }
        break
      }
      case 'upsert': {
        const { status } = await branch.call('POST', path, { body: values })
        const expected =
          present === undefined
            ? store(this.#whole(table, values), 201)
            : store(this.#changed(present.values, values), 200)
        expect(status).toBe(expected)
        break
      }
      case 'delete': {
        const { status } = await branch.call('DELETE', path)
        expect(status).toBe(present === undefined ? 404 : 204)
        table.records.delete(id)
        break
      }
      case 'sum': {
        const column = this.#pick([...table.columns.keys()])
        if (column === undefined) break
        const body = { [column]: { $increment: 10 } }
        const { status } = await branch.call('PATCH', path, { body })
        const old = present?.values.get(column)
        if (present === undefined) expect(status).toBe(404)
        else if (old === undefined) expect(status).toBe(400)
        else {
          const next = new Map(present.values).set(column, old + 10)
          expect(status).toBe(store(next, 200))
        }
        break
      }
      case 'bulk':
        await this.#bulk(branch, tableName, table)
        break
    }
  }

  async #bulk(branch: ModelBranch, tableName: string, table: ModelTable): Promise<void> {
    const rows = Array.from({ length: 1 + Math.floor(this.#random() * 3) }, () => ({
      id: this.#pick(IDS) as string,
      values: this.#randomValues(table),
    }))
    const records = rows.map(({ id, values }) => ({ id, ...values }))
    const { status } = await branch.call('POST', `/tables/${tableName}/bulk`, { body: { records } })
    const after: ModelTable = { columns: table.columns, records: new Map(table.records) }
    for (const { id, values } of rows) {
      const whole = this.#whole(table, values)
      if (after.records.has(id) || this.#isTaken(after, id, whole)) {
        expect(status).toBe(400)
        return
      }
      after.records.set(id, { version: 0, values: whole })
    }
    expect(status).toBe(200)
    for (const [id, record] of after.records) table.records.set(id, record)
  }
}
