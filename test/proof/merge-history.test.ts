import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { runBackground } from '../../packages/server/src/background.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { FOLDS_ALWAYS, foldBranches } from '../support/folding.js'
import { createDatabase } from '../support/people.js'
import { EXPLORES, SEED, STEPS, STEPS_TIMEOUT_MS } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { branchCall, expectOk } from '../support/tables.js'
import {
  type HistoryBranch,
  type HistoryColumn,
  type HistoryTable,
  type Row,
  type Strategy,
  type Tables,
  type Value,
  valueIn,
  WriteHistory,
} from '../support/write-history.js'

/*
 * Simulates months of a team: a few branches write to the same cells, edit the schema, merge and pull in
 * all directions, are reset, deleted and forked again under the same names. Every result must match the
 * definition of a merge. A normal run repeats histories that are known to be right. With OFFSHOOT_TEST_STEPS, the
 * number of steps, or OFFSHOOT_TEST_SEED, it explores others.
 */

type Step =
  | 'write'
  | 'undo'
  | 'fork'
  | 'feature'
  | 'cross'
  | 'retract'
  | 'contest'
  | 'twin'
  | 'merge'
  | 'reset'
  | 'remove'
  | 'collect'
  | 'edit'
  | 'create'
  | 'resend'
  | 'difference'

/** The size of a simulated database, and how often each step is taken. */
interface Team {
  readonly ids: readonly string[]
  readonly values: readonly Value[]
  readonly tablesMax: number
  readonly columnsMax: number
  readonly branchesMax: number
  readonly steps: Readonly<Record<Step, number>>
}

const TABLE_NAMES = ['ants', 'bees', 'cats', 'dogs']
const COLUMN_NAMES = ['one', 'two', 'three', 'four', 'five']
const CREATED_MAX = 4
/** Values of a unique column are fewer than records that could have them, so they collide. */
const UNIQUE_VALUES: readonly Value[] = ['a', 'b', 'c']
/** States of a record to which it may return. */
const FORMER_MAX = 4

/** Many kinds of writes and schema edits. */
const WIDE: Team = {
  ids: ['r1', 'r2', 'r3'],
  values: ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', null],
  tablesMax: 2,
  columnsMax: 3,
  branchesMax: 6,
  steps: {
    write: 38,
    undo: 4,
    fork: 8,
    feature: 3,
    cross: 2,
    retract: 2,
    contest: 3,
    twin: 4,
    merge: 36,
    reset: 5,
    remove: 5,
    collect: 4,
    edit: 8,
    create: 4,
    resend: 3,
    difference: 4,
  },
}

/**
 * Few cells and branches, so that merges meet again and again. Features are merged into several branches, then
 * deleted or reset, and undone on one of them: the histories with several bases.
 */
const NARROW: Team = {
  ids: ['r1', 'r2'],
  values: ['a', 'b', 'c'],
  tablesMax: 1,
  columnsMax: 1,
  branchesMax: 5,
  steps: {
    write: 12,
    undo: 22,
    fork: 6,
    feature: 12,
    cross: 12,
    retract: 6,
    contest: 0,
    twin: 0,
    merge: 30,
    reset: 3,
    remove: 6,
    collect: 4,
    edit: 0,
    create: 6,
    resend: 4,
    difference: 4,
  },
}

/** Tables and columns are removed on some branches while others write to them. */
const EDITING: Team = {
  ids: ['r1', 'r2'],
  values: ['a', 'b', 'c'],
  tablesMax: 3,
  columnsMax: 2,
  branchesMax: 4,
  steps: {
    write: 24,
    undo: 4,
    fork: 8,
    feature: 8,
    cross: 2,
    retract: 2,
    contest: 16,
    twin: 14,
    merge: 34,
    reset: 3,
    remove: 4,
    collect: 4,
    edit: 20,
    create: 4,
    resend: 3,
    difference: 4,
  },
}
const TEAMS = [WIDE, NARROW, EDITING] as const

let service: TestService

beforeAll(async () => {
  service = await createTestService()
})
afterAll(async () => {
  await service.close()
})

/** A request with an idempotency key. */
interface Creation {
  readonly branch: HistoryBranch
  /** Changes with each reset of the branch. */
  readonly life: object
  readonly table: number
  readonly columns: readonly HistoryColumn[]
  readonly key: string
  readonly values: Row
  readonly id: string
}

/** The part of a stored schema that the model knows. */
interface StoredTable {
  readonly id: number
  readonly name: string
  readonly columns: readonly { id: number; name: string; unique?: boolean; notNull?: boolean }[]
}

class Run {
  readonly model = new WriteHistory('main')
  readonly log: string[] = []
  merges = 0
  open = 0
  #names = 0
  #keys = 0
  readonly #lives = new Map<HistoryBranch, object>()
  #creations: Creation[] = []
  /** By record: the states that it had on any branch. Without a row, it did not exist. */
  readonly #former = new Map<string, { readonly row: Row | undefined }[]>()
  /** The version of each row. Branches share rows until one of them changes them. */
  readonly #versions = new WeakMap<Row, number>()

  constructor(
    readonly database: string,
    readonly random: Random,
    readonly team: Team,
  ) {}

  async start(): Promise<void> {
    await createDatabase(service, this.database)
    const main = this.random.pick(this.branches())
    await this.addTable(main)
    for (let count = 0; count < 2; count++) await this.addColumn(main, this.#anyTable(main))
  }

  async step(): Promise<void> {
    const { steps } = this.team
    const names = Object.keys(steps) as Step[]
    const name = this.random.weighted(names.map((each) => [steps[each], each] as const))
    await this[name]()
    const probability = FOLDS_ALWAYS ? 1 : 0.1
    await foldBranches(service, { databaseName: this.database, random: this.random, probability })
  }

  branches(): HistoryBranch[] {
    return [...this.model.branches.values()]
  }

  call(
    branch: { name: string },
    method: string,
    path: string,
    body?: unknown,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<Answer> {
    const call = branchCall(service, this.database, { branch: branch.name })
    return call(method, path, body === undefined ? { headers } : { body, headers })
  }

  #anyTable(branch: HistoryBranch): HistoryTable {
    return this.random.pick([...branch.tables.values()])
  }

  #values(columns: readonly HistoryColumn[]): Row {
    const values = columns.map(({ id, unique, notNull }) => {
      const possible = unique ? UNIQUE_VALUES : this.team.values
      const allowed = possible.filter((value) => value !== null || !notNull)
      return [id, this.random.pick(allowed)] as const
    })
    return new Map(values)
  }

  /** Values for an existing record are those of some columns; a new one has all that must have a value. */
  #someValues(table: HistoryTable, before: Row | undefined): Row {
    const some = this.random.some(table.columns)
    const required = table.columns.filter(({ notNull }) => notNull && before === undefined)
    return this.#values([...new Set([...some, ...required])])
  }

  async write(branch = this.random.pick(this.branches()), given?: string): Promise<void> {
    if (branch.tables.size === 0) return this.addTable(branch)
    const table = this.#anyTable(branch)
    const id = given ?? this.random.pick([...new Set([...this.team.ids, ...table.rows.keys()])])
    const before = table.rows.get(id)
    if (before !== undefined && this.random.chance(0.25)) return this.#delete(branch, table, id)
    await this.#put(branch, table, id, this.#someValues(table, before))
  }

  /** Gives a record a state that it had before, on this branch or another one. */
  async undo(
    branch = this.random.pick(this.branches()),
    id = this.random.pick(this.team.ids),
  ): Promise<void> {
    if (branch.tables.size === 0) return this.addTable(branch)
    const table = this.#anyTable(branch)
    const before = table.rows.get(id)
    const known = this.#former.get(`${table.id}/${id}`) ?? []
    const former = known.filter(({ row }) => row !== before)
    if (former.length === 0) return this.write(branch)
    await this.#restore(branch, table, id, this.random.pick(former).row)
  }

  /** Gives a record a state that it had before. Undefined: it did not exist. */
  async #restore(
    branch: HistoryBranch,
    table: HistoryTable,
    id: string,
    row: Row | undefined,
  ): Promise<void> {
    if (row === undefined) return this.#delete(branch, table, id)
    const values = table.columns.flatMap((column) => {
      const value = valueIn(row, column.id)
      return value === null && column.notNull ? [] : [[column.id, value] as const]
    })
    const required = table.columns.filter(({ notNull }) => notNull)
    const isWhole = required.every((column) => valueIn(row, column.id) !== null)
    if (table.rows.has(id) || isWhole) await this.#put(branch, table, id, new Map(values))
  }

  #rememberFormer(table: HistoryTable, id: string): void {
    const known = this.#former.get(`${table.id}/${id}`) ?? []
    const states = [...known, { row: table.rows.get(id) }]
    this.#former.set(`${table.id}/${id}`, states.slice(-FORMER_MAX))
  }

  async #delete(branch: HistoryBranch, table: HistoryTable, id: string): Promise<void> {
    this.log.push(`delete ${table.name} ${id} on ${branch.name}`)
    expectOk(await this.call(branch, 'DELETE', `/tables/${table.name}/data/${id}`))
    this.#rememberFormer(table, id)
    this.model.delete(branch, table, id)
  }

  async #put(branch: HistoryBranch, table: HistoryTable, id: string, values: Row): Promise<void> {
    const path = `/tables/${table.name}/data/${id}`
    const before = table.rows.get(id)
    this.log.push(`put ${table.name} ${id} on ${branch.name} ${JSON.stringify([...values])}`)
    const stale = this.#versionOf(before) - 1
    if (stale >= 0 && this.random.chance(0.3)) {
      const answer = await this.call(branch, 'PATCH', `${path}?ifVersion=${stale}`, {})
      expect(answer.status, `version ${stale} of ${id} is stale`).toBe(422)
    }
    const answer = await this.call(branch, 'POST', path, named(table, values))
    if (this.#isTaken(table, id, values)) expect(answer.status).toBe(400)
    else {
      expectOk(answer)
      this.#rememberFormer(table, id)
      this.#store(branch, table, id, values)
    }
  }

  /** Writes a record to the model. A new one has version 0. */
  #store(branch: HistoryBranch, table: HistoryTable, id: string, values: Row): void {
    const version = this.#versionOf(table.rows.get(id)) + 1
    this.model.put(branch, table, id, values)
    this.#versions.set(branch.tables.get(table.id)?.rows.get(id) as Row, version)
  }

  /** Returns the version of a row, or -1 if there is none. */
  #versionOf(row: Row | undefined): number {
    return (row && this.#versions.get(row)) ?? -1
  }

  #isTaken({ columns, rows }: HistoryTable, id: string, values: Row): boolean {
    return columns.some((column) => {
      const value = column.unique ? valueIn(values, column.id) : null
      return (
        value !== null &&
        [...rows].some(([other, row]) => other !== id && valueIn(row, column.id) === value)
      )
    })
  }

  /** Creates a record under an idempotency key, or repeats such a request. */
  async create(): Promise<void> {
    if (this.#creations.length > 0 && this.random.chance(0.6)) return this.repeat()
    await this.#create(this.random.pick(this.branches()))
  }

  /** Creates a record under an idempotency key, removes it by a reset or a deletion, and repeats the request. */
  async resend(): Promise<void> {
    const branch = this.random.pick(this.branches())
    const creation = await this.#create(branch)
    if (creation === undefined) return
    if (this.random.chance(0.5)) return this.reset(branch)
    await this.#delete(branch, branch.tables.get(creation.table) as HistoryTable, creation.id)
    await this.repeat(creation)
  }

  async #create(branch: HistoryBranch): Promise<Creation | undefined> {
    if (branch.tables.size === 0) {
      await this.addTable(branch)
      return undefined
    }
    const table = this.#anyTable(branch)
    if (table.rows.size >= this.team.ids.length + CREATED_MAX) return undefined
    const values = this.#someValues(table, undefined)
    const key = `key${++this.#keys}`
    return this.#send({ branch, table: table.id, columns: table.columns, key, values, id: '' })
  }

  async repeat(creation = this.random.pick(this.#creations)): Promise<void> {
    const { branch, id, life } = creation
    const table = branch.tables.get(creation.table)
    if (
      !this.#exists(branch) ||
      JSON.stringify(table?.columns) !== JSON.stringify(creation.columns)
    ) {
      this.#creations = this.#creations.filter((each) => each !== creation)
      return
    }
    if (life !== this.#lifeOf(branch)) {
      await this.#send(creation)
      return
    }
    const answer = await this.#request(creation)
    if (table?.rows.has(id)) {
      expect([answer.status, answer.body.id], JSON.stringify(answer.body)).toEqual([201, id])
    } else {
      expect([answer.status, answer.body.code]).toEqual([409, 'idempotency_outdated'])
    }
    await this.compareBranch(branch)
  }

  /** Sends a request that the branch has not executed. Returns undefined if it must be refused. */
  async #send(creation: Omit<Creation, 'life'>): Promise<Creation | undefined> {
    const { branch, values } = creation
    const table = branch.tables.get(creation.table) as HistoryTable
    const answer = await this.#request(creation)
    if (this.#isTaken(table, '', values)) {
      expect(answer.status, JSON.stringify(answer.body)).toBe(400)
      return undefined
    }
    const { id } = expectOk(answer).body
    expect(table.rows.has(id)).toBe(false)
    this.#store(branch, table, id, values)
    this.#creations = this.#creations.filter(({ key }) => key !== creation.key)
    const sent = { ...creation, life: this.#lifeOf(branch), id }
    this.#creations.push(sent)
    return sent
  }

  #request({ branch, table: tableId, key, values }: Omit<Creation, 'life'>): Promise<Answer> {
    const table = branch.tables.get(tableId) as HistoryTable
    this.log.push(
      `create ${table.name} on ${branch.name} under ${key} ${JSON.stringify([...values])}`,
    )
    return this.call(branch, 'POST', `/tables/${table.name}/data`, named(table, values), {
      'idempotency-key': key,
    })
  }

  #lifeOf(branch: HistoryBranch): object {
    const life = this.#lives.get(branch) ?? {}
    this.#lives.set(branch, life)
    return life
  }

  async edit(branch = this.random.pick(this.branches())): Promise<void> {
    if (branch.tables.size === 0) return this.addTable(branch)
    const table = this.#anyTable(branch)
    const column = table.columns.length === 0 ? undefined : this.random.pick(table.columns)
    const action = this.random.weighted<() => Promise<unknown>>([
      [3, () => this.addTable(branch)],
      [3, () => this.removeTable(branch, table)],
      [4, () => this.addColumn(branch, table)],
      [4, async () => column && this.removeColumn(branch, table, column)],
      [3, async () => column && this.renameColumn(branch, table, column)],
    ])
    await action()
  }

  async addTable(branch: HistoryBranch, given?: string): Promise<void> {
    const names = [...branch.tables.values()].map(({ name }) => name)
    if (given === undefined && names.length >= this.team.tablesMax) return
    const name = given ?? this.random.pick(TABLE_NAMES.filter((each) => !names.includes(each)))
    this.log.push(`add ${name} on ${branch.name}`)
    expectOk(await this.call(branch, 'PUT', `/tables/${name}`))
    const { id } = (await this.stored(branch)).find((each) => each.name === name) as StoredTable
    this.model.addTable(branch, { id, name })
  }

  async removeTable(branch: HistoryBranch, table: HistoryTable): Promise<void> {
    if (branch.tables.size < 2) return
    this.log.push(`remove ${table.name} on ${branch.name}`)
    expectOk(await this.call(branch, 'DELETE', `/tables/${table.name}`))
    this.model.removeTable(branch, table)
  }

  async addColumn(branch: HistoryBranch, table: HistoryTable, given?: string): Promise<void> {
    if (given === undefined && table.columns.length >= this.team.columnsMax) return
    const names = table.columns.map((column) => column.name)
    const name = given ?? this.random.pick(COLUMN_NAMES.filter((each) => !names.includes(each)))
    const unique = this.random.chance(0.15)
    const notNull = table.rows.size === 0 && this.random.chance(0.15)
    const rules = { ...(unique ? { unique } : {}), ...(notNull ? { notNull } : {}) }
    this.log.push(`add ${table.name}.${name} on ${branch.name} ${JSON.stringify(rules)}`)
    const body = { name, type: 'string', ...rules }
    expectOk(await this.call(branch, 'POST', `/tables/${table.name}/columns`, body))
    const stored = (await this.stored(branch)).find(({ id }) => id === table.id)
    const { id } = stored?.columns.find((each) => each.name === name) ?? { id: 0 }
    this.model.addColumn(branch, table, { id, name, unique, notNull })
  }

  async removeColumn(
    branch: HistoryBranch,
    table: HistoryTable,
    column: HistoryColumn,
  ): Promise<void> {
    this.log.push(`remove ${table.name}.${column.name} on ${branch.name}`)
    const path = `/tables/${table.name}/columns/${column.name}`
    expectOk(await this.call(branch, 'DELETE', path))
    this.model.removeColumn(branch, table, column)
  }

  async renameColumn(
    branch: HistoryBranch,
    table: HistoryTable,
    column: HistoryColumn,
  ): Promise<void> {
    const names = table.columns.map((each) => each.name)
    const free = COLUMN_NAMES.filter((each) => !names.includes(each))
    if (free.length === 0) return
    const name = this.random.pick(free)
    this.log.push(`rename ${table.name}.${column.name} to ${name} on ${branch.name}`)
    const path = `/tables/${table.name}/columns/${column.name}`
    expectOk(await this.call(branch, 'PATCH', path, { name }))
    this.model.renameColumn(branch, table, { column, name })
  }

  async fork(): Promise<void> {
    await this.#fork()
  }

  /** Works on a new branch, merges it into several others and often gives it up. */
  async feature(): Promise<void> {
    const feature = await this.#fork()
    if (feature === undefined) return
    await this.#change(feature)
    for (const into of this.random.some(this.branches(), 0.6)) {
      if (into !== feature) await this.merge(feature, into)
    }
    if (this.random.chance(0.5)) await this.remove(feature)
    else if (this.random.chance(0.3)) await this.reset(feature)
  }

  /**
   * Merges two features into two branches, which gives them several bases, and merges what one of the two has undone
   * into the other.
   */
  async cross(): Promise<void> {
    while (this.model.branches.size > this.team.branchesMax - 2) await this.remove()
    const [left, right] = [this.random.pick(this.branches()), this.random.pick(this.branches())]
    const ids = this.team.ids.slice(0, 2)
    const features: HistoryBranch[] = []
    // No feature contains the other: both are forked first.
    for (const id of ids) {
      const feature = await this.#fork(this.random.pick([left, right]))
      if (feature === undefined) continue
      await this.write(feature, id)
      features.push(feature)
    }
    for (const feature of features) {
      for (const into of [left, right]) await this.merge(feature, into, 'theirs')
    }
    const isGivenUp = this.random.chance(0.5)
    for (const feature of features) if (isGivenUp) await this.remove(feature)
    await this.undo(right, this.random.pick(ids))
    await this.merge(right, left)
  }

  /** Removes a table or column on one branch, writes to it on another, and merges the two repeatedly. */
  async contest(): Promise<void> {
    const left = this.random.pick(this.branches())
    const others = this.branches().filter((branch) => branch !== left)
    const right = others.length === 0 ? await this.#fork(left) : this.random.pick(others)
    const shared = [...left.tables.values()].filter(({ id }) => right?.tables.has(id))
    if (right === undefined || shared.length === 0) return
    const table = this.random.pick(shared)
    const kept = right.tables.get(table.id) as HistoryTable
    const columns = table.columns.filter(({ id }) => kept.columns.some((own) => own.id === id))
    if (columns.length === 0 || this.random.chance(0.3)) await this.removeTable(left, table)
    else await this.removeColumn(left, table, this.random.pick(columns))
    const id = this.random.pick(this.team.ids)
    if (this.random.chance(0.8)) await this.#put(right, kept, id, this.#values(kept.columns))
    await this.merge(left, right)
    for (let count = 0; count < 2; count++) {
      await this.write(this.random.pick([left, right]))
      if (this.random.chance(0.5)) await this.merge(left, right)
      else await this.merge(right, left)
    }
  }

  /** Adds a table or column of the same name on two branches, writes to both, and merges them repeatedly. */
  async twin(): Promise<void> {
    const left = this.random.pick(this.branches())
    const others = this.branches().filter((branch) => branch !== left)
    const right = others.length === 0 ? await this.#fork(left) : this.random.pick(others)
    if (right === undefined) return
    const pair = [left, right]
    const shared = [...left.tables.values()].filter(({ id }) => right.tables.has(id))
    const isTable = shared.length === 0 || this.random.chance(0.3)
    const items = (branch: HistoryBranch): readonly { name: string }[] =>
      isTable ? [...branch.tables.values()] : (branch.tables.get(table?.id ?? 0)?.columns ?? [])
    const table = isTable ? undefined : this.random.pick(shared)
    const names = isTable ? TABLE_NAMES : COLUMN_NAMES
    const free = names.filter((name) => pair.flatMap(items).every((each) => each.name !== name))
    if (free.length === 0) return
    const name = this.random.pick(free)
    for (const branch of pair) {
      const own = table && branch.tables.get(table.id)
      if (own === undefined) await this.addTable(branch, name)
      else await this.addColumn(branch, own, name)
      await this.write(branch)
      if (this.random.chance(0.3)) await this.edit(branch)
    }
    for (let count = 0; count < 3; count++) {
      const [from, into] = this.random.chance(0.5) ? [left, right] : [right, left]
      await this.merge(from, into)
      await this.#change(this.random.pick(pair))
      if (this.random.chance(0.3)) await this.merge(this.random.pick(pair))
    }
  }

  /** Hands a change over to another branch, takes it back, and merges what is left: nothing. */
  async retract(): Promise<void> {
    const source = this.random.pick(this.branches())
    const feature = await this.#fork(source)
    if (feature === undefined) return
    const before = feature.tables
    await this.write(feature)
    if (this.random.chance(0.5)) await this.#fork(feature)
    else await this.merge(feature)
    if (!this.#exists(feature)) return
    for (const [tableId, { rows }] of before) {
      for (const id of new Set([...rows.keys(), ...this.team.ids])) {
        const table = feature.tables.get(tableId)
        if (table === undefined || rows.get(id) === table.rows.get(id)) continue
        await this.#restore(feature, table, id, rows.get(id))
      }
    }
    if (this.#exists(source)) await this.merge(feature, source)
  }

  #exists(branch: HistoryBranch): boolean {
    return this.model.branches.get(branch.name) === branch
  }

  #change(branch: HistoryBranch): Promise<void> {
    const { edit, write } = this.team.steps
    return this.random.chance(edit / (edit + write)) ? this.edit(branch) : this.write(branch)
  }

  async #fork(given?: HistoryBranch): Promise<HistoryBranch | undefined> {
    if (this.model.branches.size >= this.team.branchesMax) {
      await this.remove()
      return undefined
    }
    const source = given ?? this.random.pick(this.branches())
    // Names of deleted branches are used again.
    const free = Array.from({ length: this.#names }, (_, index) => `b${index + 1}`).filter(
      (each) => !this.model.branches.has(each),
    )
    const isNew = free.length === 0 || this.random.chance(0.5)
    const name = isNew ? `b${++this.#names}` : this.random.pick(free)
    this.log.push(`fork ${name} from ${source.name}`)
    expectOk(await this.call({ name }, 'PUT', '', { from: source.name }))
    this.model.fork(source, name)
    return this.model.branches.get(name)
  }

  async remove(given?: HistoryBranch): Promise<void> {
    const others = this.branches().filter(({ name }) => name !== 'main')
    if (given === undefined && others.length < 2) return this.fork()
    const branch = given ?? this.random.pick(others)
    this.log.push(`remove ${branch.name}`)
    expectOk(await this.call(branch, 'DELETE', ''))
    this.model.branches.delete(branch.name)
  }

  async reset(branch = this.random.pick(this.branches())): Promise<void> {
    const others = this.branches().filter((other) => other !== branch)
    // Without a target, a reset goes to the source. With one, it also resets `main`.
    const source = this.random.chance(0.5) ? this.#sourceOf(branch) : undefined
    const to = source ?? (others.length === 0 ? undefined : this.random.pick(others))
    if (to === undefined) return
    this.log.push(`reset ${branch.name} to ${to.name}`)
    const body = source === undefined ? { to: to.name } : undefined
    expectOk(await this.call(branch, 'POST', '/reset', body))
    this.model.reset(branch, to)
    this.#lives.set(branch, {})
    // A client that does not know of the reset may repeat its requests.
    const known = this.#creations.filter((creation) => creation.branch === branch)
    for (const creation of known) await this.repeat(creation)
  }

  #sourceOf({ source }: HistoryBranch): HistoryBranch | undefined {
    return source !== undefined && this.#exists(source) ? source : undefined
  }

  async collect(): Promise<void> {
    this.log.push('collect')
    await runBackground(service)
  }

  async merge(
    from = this.random.pick(this.branches()),
    into = this.random.pick(this.branches()),
    given?: Strategy,
  ): Promise<void> {
    if (from === into) return
    // A branch can have taken two columns that became the same elsewhere. The definition says nothing of it.
    if (!this.model.areIdsPlain(from, into)) return
    const chosen = this.random.weighted<Strategy>([
      [3, 'fail'],
      [2, 'ours'],
      [2, 'theirs'],
    ])
    const strategy = given ?? chosen
    const isPull = this.random.chance(0.5)
    this.log.push(`${isPull ? 'pull' : 'merge'} ${from.name} into ${into.name} (${strategy})`)
    const outcome = this.model.outcome(from, into, strategy)
    const rules = { strategy, allowDataLoss: true }
    const request = (options: object) =>
      isPull
        ? this.call(into, 'POST', '/pull', { from: from.name, ...rules, ...options })
        : this.call(from, 'POST', '/merge', { into: into.name, ...rules, ...options })
    const before = await this.traces()
    const preview = this.random.chance(0.3) ? await request({ dryRun: true }) : undefined
    if (preview !== undefined) expect(await this.traces()).toEqual(before)
    const answer = await request({})
    const tables = await this.tables(into)
    this.merges++
    const isOpen = outcome.isSchemaOpen || outcome.openRows.size > 0
    if (isOpen) this.open++
    const mayConflict = isOpen || outcome.fadedRows.size > 0
    const isConflict = outcome.conflicts.length > 0 && !outcome.isSchemaOpen
    const said = JSON.stringify({
      status: answer.status,
      body: answer.body,
      conflicts: outcome.conflicts,
      open: [...outcome.openRows],
      faded: [...outcome.fadedRows],
      isSchemaOpen: outcome.isSchemaOpen,
    })
    if (preview !== undefined) {
      const { conflictCount } = expectOk(preview).body
      expect(conflictCount, said).toBe(answer.status === 409 ? answer.body.conflictCount : 0)
    }
    if (answer.status === 409) {
      expect(answer.body.code, said).toBe('merge_conflict')
      expect(isConflict || mayConflict, said).toBe(true)
      expect(show(tables), said).toEqual(show(into.tables))
      expect(await this.traces(), said).toEqual(before)
      return
    }
    expect(answer.status, said).toBe(200)
    expect(isConflict, said).toBe(false)
    if (!outcome.isSchemaOpen) {
      expect(show(tables, outcome.openRows), said).toEqual(show(outcome.tables, outcome.openRows))
    }
    const isContained = this.model.contains(into, from)
    if (isContained) expect(answer.body.merged, `${said}: nothing to merge`).toBe(false)
    if (!answer.body.merged) {
      expect(this.model.isWithoutTrace(from, into), `${said}: not recorded`).toBe(true)
      expect(show(tables), said).toEqual(show(into.tables))
      expect(await this.traces(), said).toEqual(before)
      return
    }
    const rowsBefore = into.tables
    this.model.merge(from, into, keepRows(into.tables, tables))
    this.#countChanges(rowsBefore, into.tables)
  }

  /** Counts the versions of the rows that a merge has changed. */
  #countChanges(before: Tables, after: Tables): void {
    for (const [tableId, { rows }] of after) {
      for (const [id, row] of rows) {
        if (this.#versions.has(row)) continue
        this.#versions.set(row, this.#versionOf(before.get(tableId)?.rows.get(id)) + 1)
      }
    }
  }

  /** Returns what the catalogue keeps of the history. A request without an effect must not change it. */
  async traces(): Promise<unknown> {
    return service.database.query(sql`
      select count(*)::integer as branches, sum(b.epoch)::integer as epochs,
        (select count(*)::integer from offshoot.merges m
          join offshoot.branches i on i.id = m.into_branch_id
          where i.database_id = d.id) as merges
      from offshoot.databases d
      join offshoot.branches b on b.database_id = d.id
      where d.name = ${this.database}
      group by d.id`)
  }

  /** Compares the difference of a branch with the writes that its source does not have. */
  async difference(): Promise<void> {
    const branch = this.random.pick(this.branches())
    const source = this.#sourceOf(branch)
    if (source === undefined) return
    const expected = this.model.changes(branch, source)
    if (expected === undefined) return
    this.log.push(`difference of ${branch.name}`)
    const { body } = expectOk(await this.call(branch, 'GET', '/diff'))
    const counts = new Map<string, unknown>(
      body.tables.map(({ name, inserted, updated, deleted }: Record<string, unknown>) => {
        return [name, { inserted, updated, deleted }]
      }),
    )
    for (const [id, changes] of expected) {
      const name = branch.tables.get(id)?.name ?? ''
      const found = counts.get(name) ?? { inserted: 0, updated: 0, deleted: 0 }
      expect(found, `difference of ${name}: ${JSON.stringify(body)}`).toEqual(changes)
    }
  }

  async stored(branch: HistoryBranch): Promise<readonly StoredTable[]> {
    const [row] = await service.database.query<{ tables: StoredTable[] }>(sql`
      select s.document -> 'tables' as tables
      from offshoot.branches b
      join offshoot.databases d on d.id = b.database_id
      join offshoot.schemas s on s.id = b.schema_id
      where d.name = ${this.database} and b.name = ${branch.name} and b.deleted_at is null`)
    return row?.tables ?? []
  }

  /** Reads a branch from the service, and compares the versions of its records. */
  async tables(branch: HistoryBranch): Promise<Tables> {
    const tables = new Map<number, HistoryTable>()
    for (const { id, name, columns } of await this.stored(branch)) {
      const known = columns.map((column) => ({
        id: column.id,
        name: column.name,
        unique: column.unique ?? false,
        notNull: column.notNull ?? false,
      }))
      const answer = await this.call(branch, 'POST', `/tables/${name}/query`, { columns: ['*'] })
      const { records } = expectOk(answer).body
      const rows = new Map<string, Row>(
        records.map((record: Record<string, Value>) => [
          record.id,
          new Map(known.map((column) => [column.id, record[column.name] ?? null])),
        ]),
      )
      tables.set(id, { id, name, columns: known, rows })
    }
    return tables
  }

  async compare(): Promise<void> {
    for (const branch of this.branches()) await this.compareBranch(branch)
  }

  async compareBranch(branch: HistoryBranch): Promise<void> {
    expect(show(await this.tables(branch)), branch.name).toEqual(show(branch.tables))
    await this.compareVersions(branch)
  }

  async compareVersions(branch: HistoryBranch): Promise<void> {
    for (const table of branch.tables.values()) {
      const answer = await this.call(branch, 'POST', `/tables/${table.name}/query`, {})
      for (const { id, service: metadata } of expectOk(answer).body.records) {
        const text = `version of ${id} in ${table.name} on ${branch.name}`
        expect(metadata.version, text).toBe(this.#versionOf(table.rows.get(id)))
      }
    }
  }
}

/** Returns values by the names of their columns. */
function named({ columns }: HistoryTable, values: Row): Record<string, Value> {
  return Object.fromEntries(
    columns.flatMap(({ id, name }) => {
      const value = values.get(id)
      return value === undefined ? [] : [[name, value]]
    }),
  )
}

/** Returns the tables of a merge. Rows that it has not changed stay the same objects. */
function keepRows(before: Tables, after: Tables): Tables {
  const kept = [...after].map(([id, table]) => {
    const rows = [...table.rows].map(([row, values]) => {
      const known = before.get(id)?.rows.get(row)
      const isSame =
        known !== undefined &&
        table.columns.every((column) => valueIn(known, column.id) === valueIn(values, column.id))
      return [row, isSame ? known : values] as const
    })
    return [id, { ...table, rows: new Map(rows) }] as const
  })
  return new Map(kept)
}

/** Returns tables in a form to compare. */
function show(tables: Tables, without: ReadonlySet<string> = new Set()): unknown {
  const sorted = [...tables.values()].sort((left, right) => left.id - right.id)
  return sorted.map(({ id, name, columns, rows }) => ({
    name,
    columns: Object.fromEntries(columns.map((column) => [column.id, column.name])),
    rows: Object.fromEntries(
      [...rows].flatMap(([row, values]) =>
        without.has(`${id}/${row}`)
          ? []
          : [[row, columns.map((column) => [column.id, valueIn(values, column.id)]).sort()]],
      ),
    ),
  }))
}

/** A seed repeats the whole run. */
const teamOf = (seed: number): Team => TEAMS[seed % TEAMS.length] ?? WIDE

const RUN_STEPS = 60
/**
 * The histories of a normal run: at least one for each team, and with requests that are repeated after a reset and after
 * a deletion.
 */
const FIXED_SEEDS = [2, 3, 4, 7]
const RUNS = Math.max(1, Math.round(STEPS / RUN_STEPS))
const SEEDS = EXPLORES ? Array.from({ length: RUNS }, (_, number) => SEED + number) : FIXED_SEEDS

describe('merging over a long history', () => {
  test(
    `leaves what its definition says (seed ${SEEDS[0]})`,
    async () => {
      let merges = 0
      let open = 0
      for (const [number, seed] of SEEDS.entries()) {
        const run = new Run(`months-${number}`, new Random(seed), teamOf(seed))
        let step = 0
        try {
          await run.start()
          while (step < RUN_STEPS) {
            step++
            await run.step()
            if (step % 5 === 0) await run.compare()
          }
        } catch (error) {
          const place = `seed ${seed}, step ${step} (${number * RUN_STEPS + step} in all)`
          throw new Error(`${place}, after\n${run.log.join('\n')}\n${String(error)}`, {
            cause: error,
          })
        }
        merges += run.merges
        open += run.open
      }
      // If the definition leaves too many merges undecided, the test proves nothing.
      if (merges >= 100) expect(open / merges).toBeLessThan(0.2)
    },
    STEPS_TIMEOUT_MS,
  )
})
