import {
  PROBLEM_COUNT_MAX,
  PROBLEM_RECORDS_MAX,
  PROBLEM_VALUE_LENGTH_MAX,
} from '@offshoot/contract/column-problems'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import type { Answer } from '../support/service.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/*
 * Changes of columns that have values: on a branch, on a fork that inherits the values, and in merges.
 */

let service: TestService
let count = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

type Rows = Readonly<Record<string, Readonly<Record<string, unknown>>>>

/** A database with one table `items`, whose rows are on the branch `main`. */
async function items(columns: readonly Column[], rows: Rows = {}): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `alter${++count}`, { items: columns })
  for (const [id, values] of Object.entries(rows)) await branches.put('main', 'items', id, values)
  return branches
}

function alter(
  branches: TestBranches,
  column: string,
  changes: Readonly<Record<string, unknown>>,
  branch = 'main',
): Promise<Answer> {
  return branches.call(branch, 'PATCH', `/tables/items/columns/${column}`, changes)
}

async function altered(
  branches: TestBranches,
  column: string,
  changes: Readonly<Record<string, unknown>>,
  branch = 'main',
): Promise<void> {
  expectOk(await alter(branches, column, changes, branch))
}

async function definition(branches: TestBranches, column: string, branch = 'main') {
  const answer = await branches.call(branch, 'GET', `/tables/items/columns/${column}`)
  return expectOk(answer).body
}

/** Returns the values of a column by the ids of records. */
async function valuesOf(branches: TestBranches, column: string, branch = 'main') {
  const body = { columns: [column], page: { size: 100 } }
  const answer = expectOk(await branches.call(branch, 'POST', '/tables/items/query', body))
  const records = answer.body.records as Record<string, unknown>[]
  return Object.fromEntries(records.map((record) => [record.id, record[column] ?? null]))
}

const n: Column = { name: 'n', type: 'string' }

describe('a change of the type', () => {
  const at = '2026-01-31T09:30:00.000Z'
  const uuid = '0190a5c1-7d3e-7cc2-9f0b-2a6f1c3d4e5f'
  const cases: readonly [
    Column,
    Record<string, unknown>,
    readonly unknown[],
    readonly unknown[],
  ][] = [
    [n, { type: 'int' }, ['1', '-20', '9007199254740991', '0'], [1, -20, 9007199254740991, 0]],
    [
      n,
      { type: 'float' },
      ['1.50', '-2000', '0', '1e+20', '-1.5e-07', '0.1', '2E3'],
      [1.5, -2000, 0, 1e20, -1.5e-7, 0.1, 2000],
    ],
    [n, { type: 'bool' }, ['true', 'false'], [true, false]],
    [n, { type: 'date' }, ['2024-02-29'], ['2024-02-29']],
    [n, { type: 'time' }, ['09:30', '23:59:59.50'], ['09:30:00', '23:59:59.5']],
    [
      n,
      { type: 'datetime' },
      ['2026-01-31T10:30:00+01:00', '2026-01-31', '2026-01-31T09:30:00.000500Z'],
      [at, '2026-01-31T00:00:00.000Z', '2026-01-31T09:30:00.000500Z'],
    ],
    [n, { type: 'uuid' }, [uuid, uuid.toUpperCase()], [uuid, uuid]],
    [n, { type: 'email' }, ['ada@example.com'], ['ada@example.com']],
    [n, { type: 'text' }, ['any'], ['any']],
    [n, { type: 'multiple' }, ['any'], [['any']]],
    [n, { type: 'enum', enum: { values: ['a', "o'b"] } }, ['a', "o'b"], ['a', "o'b"]],
    [
      n,
      { type: 'decimal', decimal: { precision: 5, scale: 2 } },
      ['1.50', '-999.99', '2', '0.5', '7.000'],
      ['1.50', '-999.99', '2.00', '0.50', '7.00'],
    ],
    [{ name: 'n', type: 'int' }, { type: 'string' }, [1, -20], ['1', '-20']],
    [{ name: 'n', type: 'int' }, { type: 'float' }, [1], [1]],
    [{ name: 'n', type: 'int' }, { type: 'bool' }, [0, 1], [false, true]],
    [{ name: 'n', type: 'int' }, { type: 'json' }, [7], [7]],
    [{ name: 'n', type: 'float' }, { type: 'int' }, [3, -4], [3, -4]],
    [{ name: 'n', type: 'float' }, { type: 'string' }, [0.1], ['0.1']],
    [
      { name: 'n', type: 'float' },
      { type: 'decimal', decimal: { precision: 5, scale: 2 } },
      [0.1],
      ['0.10'],
    ],
    [{ name: 'n', type: 'bool' }, { type: 'int' }, [true, false], [1, 0]],
    [{ name: 'n', type: 'bool' }, { type: 'string' }, [true], ['true']],
    [{ name: 'n', type: 'datetime' }, { type: 'string' }, [at], [at]],
    [{ name: 'n', type: 'datetime' }, { type: 'date' }, ['2026-01-31T00:00:00Z'], ['2026-01-31']],
    [
      { name: 'n', type: 'date' },
      { type: 'datetime' },
      ['2026-01-31'],
      ['2026-01-31T00:00:00.000Z'],
    ],
    [{ name: 'n', type: 'uuid' }, { type: 'string' }, [uuid], [uuid]],
    [{ name: 'n', type: 'multiple' }, { type: 'json' }, [['a', 'b']], [['a', 'b']]],
    [{ name: 'n', type: 'json' }, { type: 'text' }, [{ a: 1 }], ['{"a": 1}']],
    [
      { name: 'n', type: 'decimal', decimal: { precision: 5, scale: 2 } },
      { decimal: { precision: 6, scale: 3 } },
      ['1.50'],
      ['1.500'],
    ],
  ]

  it.each(cases)('of %j by %j converts the values', async (column, changes, from, to) => {
    const rows = from.map((value, index) => [`r${index}`, { n: value }] as const)
    const branches = await items([column], { ...Object.fromEntries(rows), none: {} })
    await branches.fork('fork')
    await branches.put('fork', 'items', 'own', { n: from[0] })
    const expected = { ...Object.fromEntries(to.map((v, index) => [`r${index}`, v])), none: null }
    // The fork inherits its values; `main` has them itself.
    for (const branch of ['fork', 'main']) {
      await altered(branches, 'n', changes, branch)
      const own = branch === 'fork' ? { own: to[0] } : {}
      expect(await valuesOf(branches, 'n', branch)).toEqual({ ...expected, ...own })
      expect(await definition(branches, 'n', branch)).toMatchObject(changes)
    }
  })

  it('is not seen by forks made before it, and by those made after it', async () => {
    const branches = await items([n], { a: { n: '1' }, b: { n: '2' } })
    await branches.fork('before')
    await altered(branches, 'n', { type: 'int' })
    await branches.fork('after')
    await branches.put('main', 'items', 'a', { n: 10 })
    expect(await valuesOf(branches, 'n', 'before')).toEqual({ a: '1', b: '2' })
    expect(await valuesOf(branches, 'n', 'after')).toEqual({ a: 1, b: 2 })
    expect(await valuesOf(branches, 'n')).toEqual({ a: 10, b: 2 })
    await branches.put('before', 'items', 'b', { n: 'not a number' })
    expect(await valuesOf(branches, 'n', 'before')).toEqual({ a: '1', b: 'not a number' })
    expect(await valuesOf(branches, 'n')).toEqual({ a: 10, b: 2 })
  })

  it('leaves filters, sorts, aggregations and SQL working on inherited values', async () => {
    const branches = await items([n], { a: { n: '10' }, b: { n: '9' }, c: {} })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, 'fork')
    const query = async (body: object) =>
      expectOk(await branches.call('fork', 'POST', '/tables/items/query', body)).body.records.map(
        ({ id }: { id: string }) => id,
      )
    expect(await query({ filter: { n: { $gt: 9 } } })).toEqual(['a'])
    expect(await query({ sort: { n: 'asc' } })).toEqual(['b', 'a', 'c'])
    const body = { statement: 'select sum(n) as total from items' }
    const total = expectOk(await branches.call('fork', 'POST', '/sql', body)).body.records
    expect(Number(total[0].total)).toBe(19)
    await branches.patch('fork', 'items', 'a', { n: { $increment: 1 } })
    expect(await valuesOf(branches, 'n', 'fork')).toEqual({ a: 11, b: 9, c: null })
  })

  it('can be followed by others', async () => {
    const branches = await items([n], { a: { n: '1' } })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, 'fork')
    await altered(branches, 'n', { type: 'float', name: 'f' }, 'fork')
    await branches.put('fork', 'items', 'b', { f: 1.5 })
    expect(await valuesOf(branches, 'f', 'fork')).toEqual({ a: 1, b: 1.5 })
    await altered(branches, 'f', { type: 'string' }, 'fork')
    expect(await valuesOf(branches, 'f', 'fork')).toEqual({ a: '1', b: '1.5' })
  })

  it.each([
    [n, { type: 'int' }, ['', '1.5', '1e400', 'x', '9007199254740992', ' 1', '0x10']],
    [n, { type: 'int' }, ['01234', '00', '-01', '1e3', '1.0', '+1', '-0', '1 ', '1_000']],
    [n, { type: 'float' }, ['01.5', '+1.5', '00', '.5', '5.', 'NaN', '1e999']],
    // A float has fewer digits.
    [n, { type: 'float' }, ['0.12345678901234567', '12345678901234567890']],
    [n, { type: 'date' }, ['2026-02-29', '0000-01-01', '31.1.2026']],
    [n, { type: 'time' }, ['24:00:00', '9:30:00', '9:30', '09:30:00.', '09:30:00.1234567']],
    [
      n,
      { type: 'datetime' },
      ['2026-01-31T09:30:00', '2026-13-01T00:00:00.000Z', '9999-12-31T23:00:00-02:00'],
    ],
    [n, { type: 'uuid' }, ['0190a5c17d3e7cc29f0b2a6f1c3d4e5f', `{${uuid}}`]],
    [n, { type: 'bool' }, ['yes', 'TRUE']],
    [n, { type: 'email' }, ['ada', `${'a'.repeat(250)}@example.com`]],
    [n, { type: 'enum', enum: { values: ['a'] } }, ['A']],
    [n, { type: 'decimal', decimal: { precision: 3, scale: 1 } }, ['1.25', '100', '1e2']],
    [
      n,
      { type: 'decimal', decimal: { precision: 5, scale: 1 } },
      ['01.5', '+1', '-0.0', '1e1', '.5'],
    ],
    [{ name: 'n', type: 'float' } as Column, { type: 'int' }, [1.5, 1e300]],
    [{ name: 'n', type: 'datetime' } as Column, { type: 'date' }, ['2026-01-31T09:30:00Z']],
    [{ name: 'n', type: 'text' } as Column, { type: 'string' }, ['x'.repeat(2049)]],
  ])('of %j by %j is refused if a value does not convert', async (column, changes, values) => {
    const branches = await items([column])
    for (const [index, value] of values.entries()) {
      await branches.put('main', 'items', `r${index}`, { n: value })
    }
    const dryRun = expectOk(await alter(branches, 'n', { ...changes, dryRun: true })).body
    const samples = dryRun.problems.flatMap((problem: { samples: unknown[] }) => problem.samples)
    expect(samples.map(({ id }: { id: string }) => id).sort()).toEqual(
      values.map((_, index) => `r${index}`),
    )
    const answer = await alter(branches, 'n', changes)
    expect(answer.status).toBe(400)
    expect(answer.body.code).toBe('invalid_schema')
    expect(answer.body.problems).toEqual(dryRun.problems)
    expect(answer.body.message).toContain('table [items]: column [n]: ')
    expect(await definition(branches, 'n')).toEqual(column)
  })

  it.each<readonly [Partial<Column> & { type: Column['type'] }, readonly unknown[]]>([
    [{ type: 'int' }, [0, -1, Number.MAX_SAFE_INTEGER, Number.MIN_SAFE_INTEGER]],
    [
      { type: 'float' },
      [0, -0, 0.1, 1 / 3, 1e15, 1e21, 123456789012345680, 1e-5, 1e-7, -1.7e299, 1e-299],
    ],
    [{ type: 'decimal', decimal: { precision: 9, scale: 3 } }, ['0', '-0.001', '1', '123456.5']],
    [{ type: 'bool' }, [true, false]],
    [{ type: 'date' }, ['0001-01-01', '2024-02-29', '9999-12-31']],
    [{ type: 'time' }, ['00:00', '23:59:59.999999', '09:30:00.100']],
    [
      { type: 'datetime' },
      ['0001-01-01T00:00:00Z', '9999-12-31T23:59:59.999999Z', '2026-01-31t10:30:00.5+01:00'],
    ],
    [{ type: 'uuid' }, [uuid.toUpperCase()]],
    [{ type: 'enum', enum: { values: ['a'] } }, ['a']],
  ])('to text and back leaves all values of %j', async (definition, values) => {
    const records = Object.fromEntries(values.map((value, index) => [`r${index}`, { n: value }]))
    const branches = await items([{ name: 'n', ...definition }], records)
    const before = await valuesOf(branches, 'n')
    await altered(branches, 'n', { type: 'text' })
    await altered(branches, 'n', definition)
    expect(await valuesOf(branches, 'n')).toEqual(before)
  })

  it('lists times as answers have them', async () => {
    const at = '2026-11-19T20:43:32.720Z'
    const branches = await items([{ name: 'n', type: 'datetime' }], { a: { n: at } })
    const { problems } = expectOk(await alter(branches, 'n', { type: 'date', dryRun: true })).body
    expect(problems).toMatchObject([{ kind: 'conversion', samples: [{ id: 'a', value: at }] }])
    const twice = await items([{ name: 'n', type: 'datetime' }], { a: { n: at }, b: { n: at } })
    const found = expectOk(await alter(twice, 'n', { unique: true, dryRun: true })).body
    expect(found.problems).toMatchObject([{ kind: 'unique', samples: [{ value: at }, {}] }])
  })

  it('lists the first records and the beginning of their values', async () => {
    const branches = await items([{ name: 'n', type: 'text' }])
    const long = 'x'.repeat(PROBLEM_VALUE_LENGTH_MAX + 1)
    const records = Array.from({ length: PROBLEM_RECORDS_MAX + 1 }, (_, index) => ({
      id: `r${String(index).padStart(2, '0')}`,
      n: long,
    }))
    await branches.bulk('main', 'items', records)
    const { problems } = expectOk(await alter(branches, 'n', { type: 'int', dryRun: true })).body
    expect(problems).toEqual([
      {
        table: 'items',
        column: 'n',
        kind: 'conversion',
        records: PROBLEM_RECORDS_MAX + 1,
        samples: records
          .slice(0, PROBLEM_RECORDS_MAX)
          .map(({ id }) => ({ id, value: long.slice(0, PROBLEM_VALUE_LENGTH_MAX) })),
        message: `table [items]: column [n]: ${PROBLEM_RECORDS_MAX + 1} records have a value that does not convert to [int]`,
      },
    ])
  })

  it.each([
    [{ type: 'link' }, 'field [link] is required'],
    [{ type: 'file' }, 'cannot be changed from type [string] to [file]'],
    [{ type: 'enum' }, 'field [enum] is required'],
    [{ type: 'int', enum: { values: ['a'] } }, 'is not valid for field [enum]'],
    [{ notNull: true, fillNulls: true }, 'no default value'],
    [{ type: 'int', defaultValue: 'x' }, 'default value'],
    [{ name: 'id' }, 'name is reserved'],
    [{ unique: true, defaultValue: 'x' }, 'a unique column cannot have a default value'],
  ])('%j is refused and names the column', async (changes, message) => {
    const branches = await items([n], {})
    const answer = await alter(branches, 'n', changes)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain('table [items]: column [')
    expect(answer.body.message).toContain(message)
  })

  it('refuses unknown columns, and changes of nothing', async () => {
    const branches = await items([n])
    expect((await alter(branches, 'm', { type: 'int' })).status).toBe(404)
    expect((await alter(branches, 'n', {})).status).toBe(400)
    expect((await alter(branches, 'n', { size: 1 })).status).toBe(400)
  })
})

it('counts the records of a problem up to a number', async () => {
  const branches = await items([n, { name: 'm', type: 'int' }])
  const ids = Array.from({ length: PROBLEM_COUNT_MAX + 1 }, (_, index) => `r${10_000 + index}`)
  const records = ids.map((id) => ({ id, m: 1 }))
  for (const part of [records.slice(0, 5000), records.slice(5000)]) {
    await branches.bulk('main', 'items', part)
  }
  const samples = ids.slice(0, PROBLEM_RECORDS_MAX).map((id) => ({ id }))
  const required = { kind: 'notNull', samples, ...{ records: PROBLEM_COUNT_MAX, more: true } }
  const message = `table [items]: column [n]: more than ${PROBLEM_COUNT_MAX} records have no value`
  const preview = expectOk(await alter(branches, 'n', { notNull: true, dryRun: true }))
  expect(preview.body.problems).toMatchObject([{ ...required, message }])
  const unique = expectOk(await alter(branches, 'm', { unique: true, dryRun: true }))
  expect(unique.body.problems).toMatchObject([{ records: PROBLEM_COUNT_MAX, more: true }])
  const rule = { check: 'm > 1', dryRun: true }
  const checked = await branches.call('main', 'PUT', '/tables/items/constraints/c', rule)
  expect(expectOk(checked).body.problems).toMatchObject([{ ...required, kind: 'check' }])
  await branches.remove('main', 'items', 'r10000')
  const exact = expectOk(await alter(branches, 'n', { notNull: true, dryRun: true }))
  expect(exact.body.problems).toMatchObject([{ records: PROBLEM_COUNT_MAX }])
  expect(exact.body.problems[0]).not.toHaveProperty('more')
})

describe('notNull', () => {
  it('is refused with the records that have no value', async () => {
    const branches = await items([n], { a: { n: '1' }, b: {}, c: {} })
    const answer = await alter(branches, 'n', { notNull: true })
    expect(answer.status).toBe(400)
    expect(answer.body.problems).toMatchObject([
      { kind: 'notNull', records: 2, samples: [{ id: 'b' }, { id: 'c' }] },
    ])
  })

  it('fills records with the default value only if asked', async () => {
    const branches = await items([n], { a: { n: '1' }, b: {} })
    await branches.fork('fork')
    const changes = { notNull: true, defaultValue: 'none' }
    expect((await alter(branches, 'n', changes, 'fork')).status).toBe(400)
    await altered(branches, 'n', { ...changes, fillNulls: true }, 'fork')
    expect(await valuesOf(branches, 'n', 'fork')).toEqual({ a: '1', b: 'none' })
    expect(await valuesOf(branches, 'n')).toEqual({ a: '1', b: null })
    await altered(branches, 'n', { ...changes, fillNulls: true })
    expect(await valuesOf(branches, 'n')).toEqual({ a: '1', b: 'none' })
    const refused = await branches.call('main', 'PUT', '/tables/items/data/x', { n: null })
    expect(refused.status).toBe(400)
  })

  it('can be removed', async () => {
    const branches = await items([{ ...n, notNull: true }], { a: { n: '1' } })
    await altered(branches, 'n', { notNull: false })
    await branches.put('main', 'items', 'a', {})
    expect(await definition(branches, 'n')).toEqual(n)
  })
})

describe('unique', () => {
  it('is refused with the records that have the same value', async () => {
    const branches = await items([n], { a: { n: '1' }, b: { n: '2' }, c: { n: '1' }, d: {}, e: {} })
    const answer = await alter(branches, 'n', { unique: true })
    expect(answer.status).toBe(400)
    expect(answer.body.problems).toMatchObject([
      {
        kind: 'unique',
        records: 2,
        samples: [
          { id: 'a', value: '1' },
          { id: 'c', value: '1' },
        ],
      },
    ])
  })

  it.each(['main', 'fork'])('can be set and removed on %s', async (branch) => {
    const branches = await items([n], { a: { n: '1' } })
    await branches.fork('fork')
    await branches.put(branch, 'items', 'b', { n: '2' })
    const put = (value: string) =>
      branches.call(branch, 'PUT', '/tables/items/data/x', { n: value })
    for (let round = 0; round < 2; round++) {
      await altered(branches, 'n', { unique: true }, branch)
      expect((await put('1')).body.code).toBe('unique_violation')
      expect((await put('2')).body.code).toBe('unique_violation')
      await altered(branches, 'n', { unique: false }, branch)
      expectOk(await put('1'))
      expectOk(await put('2'))
      await branches.remove(branch, 'items', 'x')
    }
  })

  it('compares converted values', async () => {
    const branches = await items([n], { a: { n: '1' }, b: { n: '1.0' } })
    const changes = { type: 'decimal', decimal: { precision: 5, scale: 2 }, unique: true }
    const answer = await alter(branches, 'n', changes)
    expect(answer.body.problems).toMatchObject([{ kind: 'unique', records: 2 }])
    await branches.put('main', 'items', 'b', { n: '2' })
    await branches.fork('fork')
    await altered(branches, 'n', changes, 'fork')
    const taken = await branches.call('fork', 'PUT', '/tables/items/data/x', { n: 2 })
    expect(taken.body.code).toBe('unique_violation')
  })
})

describe('other changes', () => {
  it('set and remove a default value and a description, and rename', async () => {
    const branches = await items([n])
    await altered(branches, 'n', { defaultValue: 'x', description: 'A note.', name: 'm' })
    expect(await definition(branches, 'm')).toEqual({
      ...{ name: 'm', type: 'string', defaultValue: 'x', description: 'A note.' },
    })
    await branches.put('main', 'items', 'a', {})
    expect(await valuesOf(branches, 'm')).toEqual({ a: 'x' })
    await altered(branches, 'm', { defaultValue: null, description: null })
    expect(await definition(branches, 'm')).toEqual({ name: 'm', type: 'string' })
  })

  it('add, order and remove values of an enum', async () => {
    const column: Column = { name: 'n', type: 'enum', enum: { values: ['a', 'b'] } }
    const branches = await items([column], { one: { n: 'b' } })
    await altered(branches, 'n', { enum: { values: ['c', 'b', 'a'] } })
    await branches.put('main', 'items', 'two', { n: 'c' })
    const answer = await alter(branches, 'n', { enum: { values: ['a', 'c'] } })
    expect(answer.body.problems).toMatchObject([
      { kind: 'limit', records: 1, samples: [{ id: 'one', value: 'b' }] },
    ])
    await branches.put('main', 'items', 'three', { n: 'c' })
    const both = await alter(branches, 'n', { enum: { values: ['a'] } })
    expect(both.body.problems).toEqual([
      {
        ...{ table: 'items', column: 'n', kind: 'limit', records: 3 },
        samples: [
          { id: 'one', value: 'b' },
          { id: 'three', value: 'c' },
          { id: 'two', value: 'c' },
        ],
        values: [
          { value: 'c', records: 2 },
          { value: 'b', records: 1 },
        ],
        message:
          'table [items]: column [n]: 3 records have a value that the column could not have ([c]: 2, [b]: 1)',
      },
    ])
    await altered(branches, 'n', { enum: { values: ['b', 'c'] } })
  })

  it('are one migration each, which another branch can be given', async () => {
    const branches = await items([n], { a: { n: '1' } })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int', notNull: true, description: 'A number.' })
    const history = await branches.call('main', 'POST', '/schema/history', {})
    const [migration] = expectOk(history).body.logs
    expect(migration.operations).toEqual([
      {
        alterColumn: {
          ...{ table: 'items', column: 'n', type: 'int', notNull: true },
          description: 'A number.',
        },
      },
    ])
    const { createdAt: _, ...pushed } = migration
    expectOk(await branches.call('fork', 'POST', '/schema/push', { migrations: [pushed] }))
    expect(await valuesOf(branches, 'n', 'fork')).toEqual({ a: 1 })
  })

  it('are refused on a protected branch', async () => {
    const branches = await items([n])
    expectOk(await branches.call('main', 'PATCH', '', { protected: true }))
    expect((await alter(branches, 'n', { type: 'int' })).body.code).toBe('protected_branch')
  })
})

describe('a merge', () => {
  const merge = (branches: TestBranches, from: string, into = 'main', body: object = {}) =>
    branches.merging(from, { into, ...body })

  it.each([
    ['the merged branch', 'fork', 'main'],
    ['the target', 'main', 'fork'],
  ])('converts the values of both sides to the type that %s has', async (_name, changed, other) => {
    const branches = await items([n], { a: { n: '1' }, b: { n: '2' }, c: { n: '3' }, d: {} })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, changed)
    await branches.put(changed, 'items', 'a', { n: 10 })
    await branches.put(changed, 'items', 'e', { n: 5 })
    await branches.put(other, 'items', 'b', { n: '20' })
    await branches.put(other, 'items', 'f', { n: '6' })
    expectOk(await merge(branches, 'fork'))
    const merged = { a: 10, b: 20, c: 3, d: null, e: 5, f: 6 }
    expect(await valuesOf(branches, 'n')).toEqual(merged)
    expect(await definition(branches, 'n')).toEqual({ name: 'n', type: 'int' })
    // The other way, nothing is left to do.
    expectOk(await merge(branches, 'main', 'fork'))
    expect(await valuesOf(branches, 'n', 'fork')).toEqual(merged)
    expect(await definition(branches, 'n', 'fork')).toEqual({ name: 'n', type: 'int' })
  })

  it.each([
    ['fork', 'main'],
    ['main', 'fork'],
  ])('refuses values that do not convert, with the type changed on %s', async (changed, other) => {
    const branches = await items([n], { a: { n: '1' } })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, changed)
    await branches.put(other, 'items', 'b', { n: 'two' })
    const answer = await merge(branches, 'fork')
    expect(answer.status).toBe(409)
    expect(answer.body.conflicts).toMatchObject([
      { kind: 'schema', table: 'items', column: 'n', records: 1 },
    ])
    expect(answer.body.conflicts[0].message).toContain('[b]')
    await branches.put(other, 'items', 'b', { n: '2' })
    expectOk(await merge(branches, 'fork'))
    expect(await valuesOf(branches, 'n')).toEqual({ a: 1, b: 2 })
  })

  it.each([
    ['fork', 'main'],
    ['main', 'fork'],
  ])('takes what %s made of values that do not convert', async (changed, other) => {
    const more: Column = { name: 'more', type: 'int' }
    const branches = await items([n, more], {
      a: { n: '1' },
      b: { n: 'two' },
      c: { n: 'three' },
      d: { n: 'four' },
      e: { n: 'five' },
    })
    await branches.fork('fork')
    await branches.put(changed, 'items', 'b', { n: '2' })
    await branches.remove(changed, 'items', 'c')
    await branches.put(changed, 'items', 'd', { n: null })
    await branches.remove(changed, 'items', 'e')
    await altered(branches, 'n', { type: 'int' }, changed)
    await branches.put(changed, 'items', 'b', { n: 22 })
    await branches.patch(other, 'items', 'b', { more: 7 })
    // A record that one side has deleted and the other has changed may keep its value.
    await branches.patch(other, 'items', 'e', { more: 5 })
    const answer = await merge(branches, 'fork')
    expect(answer.body.conflicts).toMatchObject([
      { kind: 'schema', table: 'items', column: 'n', records: 1 },
      { kind: other === 'main' ? 'deletedThere' : 'deletedHere', id: 'e' },
    ])
    expect(answer.body.conflicts[0].message).toContain('[e]')
    await branches.remove(other, 'items', 'e')
    expectOk(await merge(branches, 'fork'))
    expect(await valuesOf(branches, 'n')).toEqual({ a: 1, b: 22, d: null })
    expect(await valuesOf(branches, 'more')).toEqual({ a: null, b: 7, d: null })
    expectOk(await merge(branches, 'main', 'fork'))
    expect(await valuesOf(branches, 'n', 'fork')).toEqual({ a: 1, b: 22, d: null })
  })

  it('reports a value that both sides have changed', async () => {
    const branches = await items([n], { a: { n: '1' } })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, 'fork')
    await branches.put('fork', 'items', 'a', { n: 2 })
    await branches.put('main', 'items', 'a', { n: '3' })
    const answer = await merge(branches, 'fork')
    expect(answer.body.conflicts).toMatchObject([
      { kind: 'bothUpdated', id: 'a', columns: { n: { base: 1, ours: 3, theirs: 2 } } },
    ])
    expectOk(await merge(branches, 'fork', 'main', { strategy: 'theirs' }))
    expect(await valuesOf(branches, 'n')).toEqual({ a: 2 })
  })

  it('takes the same change of both sides as one', async () => {
    const branches = await items([n], { a: { n: '1' }, b: { n: '2' } })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, 'fork')
    await altered(branches, 'n', { type: 'int' })
    await branches.put('fork', 'items', 'a', { n: 10 })
    await branches.put('main', 'items', 'b', { n: 20 })
    expectOk(await merge(branches, 'fork'))
    expect(await valuesOf(branches, 'n')).toEqual({ a: 10, b: 20 })
  })

  it('reports different changes of the type', async () => {
    const branches = await items([n], { a: { n: '1' } })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, 'fork')
    await altered(branches, 'n', { type: 'float' })
    const answer = await merge(branches, 'fork')
    expect(answer.body.conflicts).toMatchObject([{ kind: 'schema', column: 'n' }])
    const theirs = { strategy: 'theirs', allowDataLoss: true }
    expectOk(await merge(branches, 'fork', 'main', theirs))
    expect(await definition(branches, 'n')).toEqual({ name: 'n', type: 'int' })
  })

  it('combines changes of different rules, and reports changes of the same one', async () => {
    const branches = await items([n], { a: { n: '1' } })
    await branches.fork('fork')
    await altered(branches, 'n', { notNull: true, defaultValue: 'x' }, 'fork')
    await altered(branches, 'n', { description: 'A note.' })
    expectOk(await merge(branches, 'fork'))
    const merged = { ...n, notNull: true, defaultValue: 'x', description: 'A note.' }
    expect(await definition(branches, 'n')).toEqual(merged)
    await altered(branches, 'n', { defaultValue: 'y' })
    await altered(branches, 'n', { defaultValue: 'z' }, 'fork')
    const answer = await merge(branches, 'fork')
    expect(answer.body.conflicts).toMatchObject([{ kind: 'schema', column: 'n' }])
    expectOk(await merge(branches, 'fork', 'main', { strategy: 'theirs' }))
    expect(await definition(branches, 'n')).toEqual({ ...merged, defaultValue: 'z' })
  })

  it('checks the records of the target by rules that are new to it', async () => {
    const branches = await items([n], { a: { n: '1' }, b: { n: '2' } })
    await branches.fork('fork')
    await altered(branches, 'n', { unique: true, notNull: true }, 'fork')
    await branches.put('main', 'items', 'b', { n: '1' })
    await branches.put('main', 'items', 'c', {})
    const answer = await merge(branches, 'fork')
    expect(answer.body.conflicts).toMatchObject([
      { kind: 'notUnique', column: 'n', ids: ['a', 'b'] },
      { kind: 'notNull', column: 'n', ids: ['c'] },
    ])
    await branches.put('main', 'items', 'b', { n: '2' })
    await branches.put('main', 'items', 'c', { n: '3' })
    expectOk(await merge(branches, 'fork'))
    const taken = await branches.call('main', 'PUT', '/tables/items/data/x', { n: '3' })
    expect(taken.body.code).toBe('unique_violation')
  })

  it('reports a removal on one side and a change of the type on the other', async () => {
    for (const [removed, changed] of [
      ['main', 'fork'],
      ['fork', 'main'],
    ] as const) {
      const branches = await items([n], { a: { n: '1' } })
      await branches.fork('fork')
      await altered(branches, 'n', { type: 'int' }, changed)
      await branches.edit(removed, { removeColumn: { table: 'items', column: 'n' } })
      const answer = await merge(branches, 'fork')
      expect(answer.body.conflicts).toMatchObject([{ kind: 'schema', column: 'n' }])
    }
  })

  it('shows only records in a difference whose values have changed', async () => {
    const branches = await items([n], { a: { n: '1' }, b: { n: '2' } })
    await branches.fork('fork')
    await altered(branches, 'n', { type: 'int' }, 'fork')
    await branches.put('fork', 'items', 'a', { n: 10 })
    const body = await branches.diff('fork', '?against=main')
    expect(JSON.stringify(body)).toContain('alterColumn')
    expect(JSON.stringify(body)).not.toContain('"id":"b"')
  })
})
