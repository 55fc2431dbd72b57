import type { Column } from '@offshoot/contract/schema'
import fc from 'fast-check'
import { expect } from 'vitest'
import { addTables, type BranchCall, expectOk, GENERATED_ID } from './tables.js'
import { takenFields } from './taken.js'

/*
 * A naive model of transactions: operations run one by one on maps, and the first failure undoes all. Unique values are
 * looked at when all have run.
 * The service groups operations; its results must be the same.
 */

export const MODEL_TABLES: Readonly<Record<string, readonly Column[]>> = {
  plain: [
    { name: 'n', type: 'int' },
    { name: 's', type: 'string' },
    { name: 'ref', type: 'link', link: { table: 'coupled' } },
  ],
  coupled: [
    { name: 'u', type: 'int', unique: true },
    { name: 'n', type: 'int' },
    { name: 'ref', type: 'link', link: { table: 'plain' } },
  ],
}

const COLUMNS: Readonly<Record<string, readonly string[]>> = {
  plain: ['n', 's', 'ref'],
  coupled: ['u', 'n', 'ref'],
}
/** The table that the link of each table refers to. */
const TARGETS: Readonly<Record<string, string>> = { plain: 'coupled', coupled: 'plain' }

type Value = number | string | null | { readonly $increment: number }
type Values = Readonly<Record<string, Value>>

interface ModelRecord {
  readonly version: number
  readonly values: Values
}
/** By table and id. */
type ModelState = Readonly<Record<string, Readonly<Record<string, ModelRecord>>>>

/** A state without records. */
export const EMPTY_STATE: ModelState = { plain: {}, coupled: {} }

interface Fields {
  readonly table: string
  readonly id?: string
  readonly record?: Values & { readonly id?: string }
  readonly fields?: Values
  readonly createOnly?: boolean
  readonly ifVersion?: number
  readonly upsert?: boolean
  readonly failIfMissing?: boolean
  readonly columns?: readonly string[]
}
type Kind = 'insert' | 'update' | 'delete' | 'get'
type ModelOperation = Readonly<Partial<Record<Kind, Fields>>>

class Refused extends Error {}

const IDS = ['a', 'b', 'c', 'd']

/** Records in both tables that link to each other. */
const INITIAL_RECORDS: ModelState = {
  plain: {
    a: { version: 0, values: { n: 1, s: 'one', ref: 'a' } },
    b: { version: 0, values: { n: 2, ref: 'c' } },
  },
  coupled: {
    a: { version: 0, values: { u: 0, n: 10, ref: 'b' } },
    b: { version: 0, values: { u: 1, n: 20, ref: 'a' } },
    c: { version: 0, values: { n: 30 } },
  },
}

function sometimes<Type>(
  arbitrary: fc.Arbitrary<Type>,
  weight = 1,
): fc.Arbitrary<Type | undefined> {
  return fc.oneof({ weight: 3, arbitrary: fc.constant(undefined) }, { weight, arbitrary })
}

const id = fc.constantFrom(...IDS)
const table = fc.constantFrom('plain', 'coupled')

const columnsOf = (name: string) =>
  sometimes(
    fc.constantFrom(
      ['*'],
      ['n'],
      ['id', 'n'],
      ['ref'],
      ['ref.n'],
      ['*', 'ref.ref.n'],
      ['service.version', name === 'plain' ? 's' : 'u'],
    ),
    2,
  )

const value = (column: string, withArithmetic: boolean): fc.Arbitrary<Value> => {
  if (column === 'ref') return fc.constantFrom(...IDS, null)
  if (column === 's') return fc.constantFrom('x', 'y', null)
  const numbers = column === 'u' ? fc.constantFrom(0, 1, 2, 3, null) : fc.constantFrom(1, 2, null)
  return withArithmetic ? fc.oneof(numbers, fc.constantFrom({ $increment: 1 })) : numbers
}

const valuesOf = (name: string, withArithmetic: boolean): fc.Arbitrary<Values> =>
  fc
    .record(
      Object.fromEntries(
        (COLUMNS[name] ?? []).map((column) => [column, sometimes(value(column, withArithmetic))]),
      ),
    )
    .map(withoutUndefined)

type Defined<Type> = { [Key in keyof Type]: Exclude<Type[Key], undefined> }

function withoutUndefined<Type extends object>(object: Type): Defined<Type> {
  return Object.fromEntries(
    Object.entries(object).filter(([, entry]) => entry !== undefined),
  ) as Defined<Type>
}

const version = sometimes(fc.constantFrom(0, 1, 2))

function operationOn(name: string): fc.Arbitrary<ModelOperation> {
  const common = { table: fc.constant(name), columns: columnsOf(name) }
  const insert = fc
    .record({
      ...common,
      key: fc.oneof({ weight: 4, arbitrary: id }, { weight: 1, arbitrary: fc.constant(undefined) }),
      values: valuesOf(name, false),
      createOnly: sometimes(fc.boolean()),
      ifVersion: version,
    })
    .map(({ key, values, ifVersion, ...rest }) => ({
      insert: withoutUndefined({
        ...rest,
        record: withoutUndefined({ id: key, ...values }),
        ifVersion: key === undefined ? undefined : ifVersion,
      }),
    }))
  const update = fc
    .record({
      ...common,
      id,
      fields: valuesOf(name, true),
      ifVersion: version,
      upsert: sometimes(fc.boolean(), 2),
    })
    .map((fields) => ({ update: withoutUndefined(fields) }))
  const remove = fc
    .record({ ...common, id, failIfMissing: sometimes(fc.boolean()) })
    .map((fields) => ({ delete: withoutUndefined(fields) }))
  const get = fc.record({ ...common, id }).map((fields) => ({ get: withoutUndefined(fields) }))
  return fc.oneof(insert, update, remove, get) as fc.Arbitrary<ModelOperation>
}

export const modelOperations: fc.Arbitrary<readonly ModelOperation[]> = fc.array(
  table.chain(operationOn),
  { minLength: 1, maxLength: 14 },
)

interface ModelOutcome {
  readonly state: ModelState
  readonly results?: readonly object[]
  readonly fault?: { readonly index: number; readonly message: string }
}

/** Runs operations on the model; `generatedIds` are the ids that the service generated. */
function runModel(
  before: ModelState,
  operations: readonly ModelOperation[],
  generatedIds: ReadonlyMap<number, string>,
): ModelOutcome {
  const run = new ModelRun(before, generatedIds)
  const results: object[] = []
  for (const [index, operation] of operations.entries()) {
    try {
      results.push(run.apply(operation, index))
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      return { state: before, fault: { index, message: error.message } }
    }
  }
  const broken = findRepeated(run.state, operations, generatedIds)
  return broken === undefined ? { state: run.state, results } : { state: before, fault: broken }
}

/** Unique values are looked at when all operations have run. The last one that has written such a record is at fault. */
function findRepeated(
  { coupled = {} }: ModelState,
  operations: readonly ModelOperation[],
  generatedIds: ReadonlyMap<number, string>,
): ModelOutcome['fault'] {
  const holders = (u: Value | undefined) =>
    Object.values(coupled).filter(({ values }) => typeof u === 'number' && values.u === u)
  const index = operations.findLastIndex(({ insert, update }, position) => {
    const { table: name, id: key, record } = insert ?? update ?? { table: '' }
    const written = insert === undefined ? key : keyOf(record?.id, position, generatedIds)
    return name === 'coupled' && holders(coupled[written ?? '']?.values.u).length > 1
  })
  return index === -1 ? undefined : { index, message: 'table [coupled]: column [u]: is not unique' }
}

/** Returns the id of a record that the operation at a position inserts. */
function keyOf(
  given: string | undefined,
  position: number,
  generatedIds: ReadonlyMap<number, string>,
): string {
  return given ?? generatedIds.get(position) ?? `generated ${position}`
}

class ModelRun {
  readonly state: Record<string, Record<string, ModelRecord>>

  constructor(
    before: ModelState,
    private readonly generatedIds: ReadonlyMap<number, string>,
  ) {
    this.state = Object.fromEntries(
      Object.entries(before).map(([name, records]) => [name, { ...records }]),
    )
  }

  apply(operation: ModelOperation, index: number): object {
    const [kind] = Object.keys(operation) as [Kind]
    const fields = operation[kind] as Fields
    switch (kind) {
      case 'insert':
        return this.insert(fields, index)
      case 'update':
        return this.update(fields)
      case 'delete':
        return this.remove(fields)
      case 'get':
        return { operation: 'get', columns: this.columns(fields, fields.id ?? '', true) }
    }
  }

  private insert(fields: Fields, index: number): object {
    const { id: given, ...values } = fields.record ?? {}
    const key = keyOf(given, index, this.generatedIds)
    const present = this.find(fields.table, key)
    if (present !== undefined && fields.createOnly) {
      throw new Refused(`table [${fields.table}]: record [${key}] already exists`)
    }
    this.requireVersion(fields, key, present)
    const version = this.nextVersion(fields.table, key)
    this.write(fields.table, key, { version, values })
    return this.written('insert', fields, key)
  }

  private update(fields: Fields): object {
    const { table: name, id: key = '', upsert } = fields
    const present = this.find(name, key)
    const changes = fields.fields ?? {}
    if (present === undefined) {
      if (!upsert) throw new Refused(`table [${name}]: record [${key}] not found`)
      const faults = Object.entries(changes)
        .filter(([, entry]) => typeof entry === 'object' && entry !== null)
        .map(([column]) => `column [${column}]: expected a whole number, got an object`)
      if (faults.length > 0) throw new Refused(`table [${name}]: ${faults.join('; ')}`)
      this.write(name, key, { version: this.nextVersion(name, key), values: changes })
      return this.written('update', fields, key)
    }
    this.requireVersion(fields, key, present)
    const values: Record<string, Value> = { ...present.values }
    for (const [column, entry] of Object.entries(changes)) {
      if (typeof entry !== 'object' || entry === null) {
        values[column] = entry
        continue
      }
      const old = present.values[column]
      if (typeof old !== 'number') {
        throw new Refused(
          `table [${name}]: record [${key}]: column [${column}]: has no value to calculate with`,
        )
      }
      values[column] = old + entry.$increment
    }
    this.write(name, key, { version: this.nextVersion(name, key), values })
    return this.written('update', fields, key)
  }

  private remove(fields: Fields): object {
    const { table: name, id: key = '' } = fields
    const present = this.find(name, key)
    if (present === undefined && fields.failIfMissing) {
      throw new Refused(`table [${name}]: no rows deleted`)
    }
    const columns = fields.columns && { columns: this.columns(fields, key, false) }
    delete this.state[name]?.[key]
    return { operation: 'delete', rows: present === undefined ? 0 : 1, ...columns }
  }

  private written(kind: Kind, fields: Fields, key: string): object {
    const columns = fields.columns && { columns: this.columns(fields, key, false) }
    return { operation: kind, rows: 1, id: key, ...columns }
  }

  /** A record that is created again starts at 0 again. */
  private nextVersion(name: string, key: string): number {
    return (this.find(name, key)?.version ?? -1) + 1
  }

  private find(name: string, key: string): ModelRecord | undefined {
    return this.state[name]?.[key]
  }

  private requireVersion(fields: Fields, key: string, present: ModelRecord | undefined): void {
    const { ifVersion, table: name } = fields
    if (ifVersion === undefined || present === undefined || present.version === ifVersion) return
    throw new Refused(`table [${name}]: record [${key}]: version condition not met`)
  }

  private write(name: string, key: string, record: ModelRecord): void {
    const records = this.state[name]
    if (records !== undefined) records[key] = record
  }

  private columns(fields: Fields, key: string, isGet: boolean): object {
    const record = this.find(fields.table, key)
    if (record === undefined) return {}
    const { columns } = fields
    if (columns === undefined) return isGet ? { id: key, service: { version: record.version } } : {}
    return this.select(fields.table, key, columns, false)
  }

  private select(
    name: string,
    key: string,
    columns: readonly string[],
    isExpanded: boolean,
  ): object {
    const record = this.find(name, key) as ModelRecord
    const selected: Record<string, unknown> = {}
    const isWhole = columns.includes('*')
    if (isExpanded || isWhole || columns.includes('id')) selected.id = key
    if (isExpanded || isWhole || columns.includes('service.version')) {
      selected.service = { version: record.version }
    }
    const inner = columns.flatMap((path) =>
      path === 'ref' ? ['*'] : path.startsWith('ref.') ? [path.slice('ref.'.length)] : [],
    )
    for (const column of COLUMNS[name] ?? []) {
      const entry = record.values[column] ?? null
      if (entry === null || !(isWhole || columns.includes(column) || inner.length > 0)) continue
      if (column !== 'ref') {
        if (isWhole || columns.includes(column)) selected[column] = entry
      } else if (inner.length === 0) {
        selected.ref = { id: entry }
      } else if (this.find(TARGETS[name] ?? '', String(entry)) !== undefined) {
        selected.ref = this.select(TARGETS[name] ?? '', String(entry), inner, true)
      }
    }
    return selected
  }
}

/** Removes times, which the model does not have. */
function withoutTimes(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutTimes)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value)
      .filter(([key]) => key !== 'createdAt' && key !== 'updatedAt')
      .map(([key, entry]) => [key, withoutTimes(entry)]),
  )
}

/** Runs operations on the service and the model, and compares the results. */
export async function expectSameAsModel(
  call: BranchCall,
  before: ModelState,
  operations: readonly ModelOperation[],
): Promise<ModelState> {
  const answer = await call('POST', '/transaction', { body: { operations } })
  const generated = new Map<number, string>()
  for (const [index, result] of (answer.body.results ?? []).entries()) {
    if (operations[index]?.insert && operations[index].insert.record?.id === undefined) {
      expect(result.id).toMatch(GENERATED_ID)
      generated.set(index, result.id)
    }
  }
  const expected = runModel(before, operations, generated)
  if (expected.fault === undefined) {
    expect({ status: answer.status, results: withoutTimes(answer.body.results) }).toEqual({
      status: 200,
      results: expected.results,
    })
  } else {
    expect({ status: answer.status, errors: answer.body.errors }).toEqual({
      status: 400,
      errors: [{ ...expected.fault, ...takenFields(expected.fault.message) }],
    })
  }
  await expectState(call, expected.state)
  return expected.state
}

/** Reads all records that may exist. */
export async function expectState(call: BranchCall, state: ModelState): Promise<void> {
  const keys = Object.entries(state).flatMap(([name, records]) =>
    [...new Set([...IDS, ...Object.keys(records)])].map((key) => ({ name, key })),
  )
  const operations = keys.map(({ name, key }) => ({
    get: { table: name, id: key, columns: ['*'] },
  }))
  const { body } = expectOk(await call('POST', '/transaction', { body: { operations } }))
  const gets = runModel(state, operations, new Map())
  expect(withoutTimes(body.results)).toEqual(gets.results)
}

/** Creates the tables again if their content is unknown. */
export async function recreateTables(call: BranchCall): Promise<void> {
  const operations = [
    ...Object.keys(MODEL_TABLES).map((name) => ({ removeTable: { table: name } })),
    ...addTables(MODEL_TABLES),
  ]
  const body = { operations, allowDataLoss: true }
  expectOk(await call('POST', '/schema/update', { body }))
}

/** Deletes all records and inserts some that link to each other. */
export async function startOver(call: BranchCall, before: ModelState): Promise<ModelState> {
  const operations = [
    ...Object.entries(before).flatMap(([name, records]) =>
      Object.keys(records).map((key) => ({ delete: { table: name, id: key } })),
    ),
    ...Object.entries(INITIAL_RECORDS).flatMap(([name, records]) =>
      Object.entries(records).map(([key, { values }]) => ({
        insert: { table: name, record: { id: key, ...values } },
      })),
    ),
  ]
  expectOk(await call('POST', '/transaction', { body: { operations } }))
  return runModel(before, operations, new Map()).state
}
