import { PROBLEM_RECORDS_MAX } from '@offshoot/contract/column-problems'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

/* Columns whose values are calculated anew by an expression: on a branch, and on a fork that inherits its rows. */

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService({ limits: { automaticCheckpointsMax: 20 } })
})
afterAll(() => service.close())

const COLUMNS: readonly Column[] = [
  { name: 'price', type: 'string' },
  { name: 'count', type: 'int' },
]

const CENTS = { type: 'int', using: `replace(price, '.', '')::bigint * coalesce(count, 1)` }
const FIRST = { price: '1.50', count: 2 }
const SECOND = { price: '0.99' }

describe.each(['main', 'fork', 'fork of a fork'])('a change with an expression, on %s', (place) => {
  const branch = place.replaceAll(' ', '-')
  const alter = (branches: TestBranches, changes: object, column = 'price', on = branch) =>
    branches.call(on, 'PATCH', `/tables/items/columns/${column}`, changes)

  /** Two rows that forks inherit, one of which the last fork has changed, and one that is deleted there. */
  async function open(columns = COLUMNS) {
    const branches = await TestBranches.create(service, `using${++number}`, { items: columns })
    await branches.put('main', 'items', 'a', FIRST)
    await branches.put('main', 'items', 'b', { price: 'old' })
    await branches.put('main', 'items', 'c', { price: 'no number' })
    await branches.put('main', 'items', 'd', {})
    if (branch !== 'main') await branches.fork('fork')
    if (branch === 'fork-of-a-fork') await branches.fork(branch, 'fork')
    await branches.put(branch, 'items', 'b', SECOND)
    await branches.remove(branch, 'items', 'c')
    return branches
  }

  it('gives each record its value, with the record of the same version', async () => {
    const branches = await open()
    const before = await branches.record(branch, 'items', 'a')
    expectOk(await alter(branches, CENTS))
    expect(await branches.read(branch, 'items', ['a', 'b', 'c', 'd'])).toEqual({
      a: { price: 300, count: 2 },
      b: { price: 99 },
      d: {},
    })
    const after = await branches.record(branch, 'items', 'a')
    expect(after.service ?? after.xata).toEqual(before.service ?? before.xata)
    const query = { filter: { price: { $gt: 100 } }, columns: ['id'] }
    const found = await branches.call(branch, 'POST', '/tables/items/query', query)
    expect(expectOk(found).body.records).toMatchObject([{ id: 'a' }])
    await branches.patch(branch, 'items', 'a', { price: 7 })
    await branches.remove(branch, 'items', 'b')
    expect(await branches.read(branch, 'items', ['a', 'b'])).toEqual({ a: { price: 7, count: 2 } })
    // Forks made after the change inherit it, and those made before it do not have it.
    await branches.fork('later', branch)
    expect(await branches.read('later', 'items', ['a'])).toEqual({ a: { price: 7, count: 2 } })
    if (branch !== 'main') {
      expect(await branches.read('main', 'items', ['a', 'c'])).toEqual({
        a: FIRST,
        c: { price: 'no number' },
      })
    }
  })

  it('is refused with the records that the expression fails for, and changes nothing', async () => {
    const branches = await open()
    await branches.put(branch, 'items', 'e', { price: 'five' })
    const message = 'table [items]: column [price]: the expression fails for 1 record'
    const samples = [{ id: 'e', value: 'five' }]
    const problems = [{ kind: 'expression', records: 1, samples, message }]
    const dryRun = await alter(branches, { ...CENTS, dryRun: true })
    expect(dryRun).toMatchObject({ status: 200, body: { problems } })
    const changed = await alter(branches, CENTS)
    expect(changed).toMatchObject({ status: 400, body: { code: 'invalid_schema', problems } })
    expect(await branches.read(branch, 'items', ['a', 'e'])).toEqual({
      a: FIRST,
      e: { price: 'five' },
    })
  })

  it('lists the first records that the expression fails for, among others', async () => {
    const branches = await open()
    const records = Array.from({ length: 3 * PROBLEM_RECORDS_MAX }, (_, index) => ({
      id: `n${1000 + index}`,
      price: index % 2 === 0 ? '1' : 'one',
    }))
    await branches.bulk(branch, 'items', records)
    const { problems } = expectOk(await alter(branches, { ...CENTS, dryRun: true })).body
    const failing = records.filter(({ price }) => price === 'one').slice(0, PROBLEM_RECORDS_MAX)
    expect(problems).toMatchObject([
      {
        kind: 'expression',
        records: PROBLEM_RECORDS_MAX,
        samples: failing.map(({ id }) => ({ id, value: 'one' })),
        message: `table [items]: column [price]: the expression fails for at least ${PROBLEM_RECORDS_MAX} records`,
      },
    ])
  })

  it('is refused with the records whose new value the column cannot have', async () => {
    const branches = await open()
    const long = { type: 'string', using: 'rpad(price, 3000)' }
    const limit = [
      {
        kind: 'limit',
        records: 2,
        samples: [
          { id: 'a', value: '1.50' },
          { id: 'b', value: '0.99' },
        ],
      },
    ]
    const dryRun = await alter(branches, { ...long, dryRun: true })
    expect(expectOk(dryRun).body).toMatchObject({ problems: limit })
    expect(await alter(branches, long)).toMatchObject({ status: 400, body: { problems: limit } })
    const sized = [
      { type: 'string', maxLength: 5, using: 'rpad(price, 6)' },
      { type: 'text', maxLength: 5, using: 'rpad(price, 6)' },
      { type: 'int', bits: 16, using: 'char_length(price) * 10000' },
      { type: 'string', unique: true, using: `rpad(price, 1400, 'ü')` },
    ]
    for (const changes of sized) {
      const tried = await alter(branches, { ...changes, dryRun: true })
      expect(expectOk(tried).body).toMatchObject({ problems: limit })
      expect(await alter(branches, changes)).toMatchObject({
        status: 400,
        body: { problems: limit },
      })
    }
    const same = { type: 'int', unique: true, using: 'char_length(price)' }
    expect(await alter(branches, same)).toMatchObject({
      status: 400,
      body: { problems: [{ kind: 'unique', records: 2 }] },
    })
    const required = { type: 'int', notNull: true, using: 'char_length(price)' }
    expect(await alter(branches, required)).toMatchObject({
      status: 400,
      body: { problems: [{ kind: 'notNull', records: 1, samples: [{ id: 'd' }] }] },
    })
    expect(await branches.read(branch, 'items', ['a'])).toEqual({ a: FIRST })
  })

  it('takes the constraints of the column along', async () => {
    const branches = await open()
    const constraint = (name: string, rule: object) =>
      branches.call(branch, 'PUT', `/tables/items/constraints/${name}`, rule)
    expectOk(await constraint('once', { unique: ['price', 'count'] }))
    expectOk(await constraint('known', { check: 'price is not null or count is null' }))
    expectOk(await alter(branches, CENTS))
    const put = (values: object) => branches.call(branch, 'PUT', '/tables/items/data/e', values)
    expect((await put({ price: 300, count: 2 })).body).toMatchObject({ constraint: 'once' })
    expect((await put({ count: 2 })).body).toMatchObject({ constraint: 'known' })
    expectOk(await put({ price: 300, count: 3 }))
    await constraint('small', { check: 'price < 1000' })
    expect(await alter(branches, { type: 'int', using: 'price * 100' })).toMatchObject({
      status: 400,
      body: { code: 'constraint_violated', constraint: 'small' },
    })
    expect(await branches.read(branch, 'items', ['a'])).toEqual({ a: { price: 300, count: 2 } })
  })

  it('is refused with what its values break, which the dry run has found', async () => {
    const columns: Column[] = [
      { name: 'price', type: 'int' },
      { name: 'count', type: 'int' },
      { name: 'text', type: 'string' },
      { name: 'ratio', type: 'float', computed: '100.0 / (price - 3)' },
    ]
    const branches = await TestBranches.create(service, `using${++number}`, { items: columns })
    const rows = { a: { price: 12, count: 1, text: '1' }, b: { price: 22, count: 1, text: '1.0' } }
    for (const [id, values] of Object.entries(rows)) await branches.put('main', 'items', id, values)
    if (branch !== 'main') await branches.fork('fork')
    if (branch === 'fork-of-a-fork') await branches.fork(branch, 'fork')
    await branches.put(branch, 'items', 'c', { price: 32, count: 2, text: '2.0' })
    for (const [name, rule] of Object.entries({
      large: { check: 'price > 10' },
      once: { unique: ['price', 'count'] },
      single: { unique: ['price'] },
      pair: { unique: ['text', 'count'] },
    })) {
      expectOk(await branches.call(branch, 'PUT', `/tables/items/constraints/${name}`, rule))
    }
    for (const [column, changes, status, expected] of [
      ['price', { using: 'price - 5' }, 'constraint_violated', [['check', ['a']]]],
      [
        'price',
        { using: '20 + count' },
        'constraint_violated',
        [
          ['unique', ['a', 'b']],
          ['unique', ['a', 'b']],
        ],
      ],
      [
        'price',
        { using: 'price - 9' },
        'constraint_violated',
        [
          ['check', ['a']],
          ['expression', ['a']],
        ],
      ],
      ['price', { type: 'float', using: 'price * 10' }, undefined, []],
      ['text', { type: 'float' }, 'constraint_violated', [['unique', ['a', 'b']]]],
      ['text', { type: 'int' }, 'invalid_schema', [['conversion', ['b', 'c']]]],
    ] as const) {
      const dryRun = expectOk(await alter(branches, { ...changes, dryRun: true }, column)).body
      const found = dryRun.problems as { kind: string; samples: { id: string }[] }[]
      const what = JSON.stringify(changes)
      expect(
        found.map(({ kind, samples }) => [kind, samples.map(({ id }) => id)]),
        what,
      ).toEqual(expected)
      if (status === undefined) continue
      const refused = await alter(branches, changes, column)
      expect(refused, what).toMatchObject({ status: 400, body: { code: status } })
      // The first rule that is broken ends the change.
      expect(refused.body.problems, what).toEqual(found.slice(0, 1))
    }
    expectOk(await branches.call(branch, 'DELETE', '/tables/items/constraints/large'))
    const zero = { using: 'price - 9' }
    const dryRun = expectOk(await alter(branches, { ...zero, dryRun: true })).body
    expect(dryRun.problems).toMatchObject([
      { column: 'ratio', kind: 'expression', samples: [{ id: 'a' }] },
    ])
    expect(await alter(branches, zero)).toMatchObject({
      status: 400,
      body: { code: 'invalid_schema', problems: dryRun.problems },
    })
    expectOk(
      await branches.call(branch, 'PUT', '/tables/items/constraints/long', {
        check: 'length(text) > 0',
      }),
    )
    const asFloat = { type: 'float' }
    expectOk(await branches.call(branch, 'DELETE', '/tables/items/constraints/pair'))
    const impossible = await alter(branches, asFloat, 'text')
    expect(impossible).toMatchObject({ status: 400, body: { code: 'invalid_schema' } })
    const tried = await alter(branches, { ...asFloat, dryRun: true }, 'text')
    expect([tried.status, tried.body.message]).toEqual([400, impossible.body.message])
  })

  it.each([
    [{ using: 'nothing + 1' }, 'column "nothing" does not exist'],
    [{ using: '(select 1)' }, 'subqueries'],
    [{ using: 'count = ' }, 'field [using]'],
    [{ type: 'int', using: `'x' || price` }, ''],
    [{ type: 'datetime', using: 'now()' }, ''],
    [{ type: 'json', using: 'price' }, 'field [using]: is not possible for type [json]'],
    [{ notNull: true, fillNulls: true, defaultValue: 'x', using: 'price' }, 'fillNulls'],
  ])('is refused if it is not an expression of the type: %o', async (changes, message) => {
    const branches = await open()
    const answer = await alter(branches, changes)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
    expect(await branches.read(branch, 'items', ['a'])).toEqual({ a: FIRST })
  })
})

it('takes functions whose result depends on settings, which are always the same', async () => {
  const branches = await TestBranches.create(service, `using${++number}`, {
    items: [
      { name: 'day', type: 'string' },
      { name: 'price', type: 'string' },
      { name: 'moment', type: 'datetime' },
      { name: 'local', type: 'datetime', withoutZone: true },
      { name: 'code', type: 'string' },
    ],
  })
  await branches.put('main', 'items', 'a', {
    ...{ day: '31/01/2026', price: '1.234,50', code: 'a' },
    ...{ moment: '2026-07-01T23:30:00Z', local: '2026-07-01T23:30:00Z' },
  })
  const alter = (column: string, changes: object) =>
    branches.call('main', 'PATCH', `/tables/items/columns/${column}`, changes)
  for (const check of [`to_date(day, 'DD/MM/YYYY') > '2020-01-01'`, `concat(day, code) <> ''`]) {
    const path = '/tables/items/constraints/stored'
    expect(await branches.call('main', 'PUT', path, { check })).toMatchObject({
      ...{ status: 400, body: { message: expect.stringContaining('more than the record') } },
    })
  }
  const decimal = { type: 'decimal', decimal: { precision: 10, scale: 2 } }
  const number_ = `replace(replace(price, '.', ''), ',', '.')::numeric`
  const statement = `alter table items
    alter column code type text using concat_ws('-', code, array_to_string(array[code, day], '/')),
    alter column local type text using to_char(local at time zone 'UTC' at time zone 'Europe/Zurich', 'HH24:MI')`
  const answer = await branches.call('main', 'POST', '/sql', { statement })
  expectOk(answer)
  expectOk(await alter('day', { type: 'date', using: `to_date(day, 'DD/MM/YYYY')` }))
  expectOk(await alter('price', { ...decimal, using: number_ }))
  expectOk(
    await alter('moment', {
      type: 'string',
      using: `(moment at time zone 'Europe/Zurich')::date::text`,
    }),
  )
  expect(await branches.read('main', 'items', ['a'])).toEqual({
    a: {
      day: '2026-01-31',
      price: '1234.50',
      moment: '2026-07-02',
      local: '01:30',
      code: 'a-a/31/01/2026',
    },
  })
  for (const using of ['random()::text', 'current_date::text', 'gen_random_uuid()::text']) {
    expect(await alter('code', { using })).toMatchObject({
      ...{ status: 400, body: { message: expect.stringContaining('the time or on chance') } },
    })
  }
})

it('makes values of an enum, and lists the records whose value it does not have', async () => {
  const branches = await TestBranches.create(service, `using${++number}`, {
    items: [
      { name: 's', type: 'string' },
      { name: 't', type: 'string' },
    ],
  })
  await branches.put('main', 'items', 'a', { s: 'A', t: 'x' })
  await branches.put('main', 'items', 'b', { s: 'B' })
  await branches.put('main', 'items', 'c', { s: 'C', t: 'z' })
  const alter = (column: string, changes: object) =>
    branches.call('main', 'PATCH', `/tables/items/columns/${column}`, changes)
  const states = { type: 'enum', enum: { values: ['active', 'closed'] } }
  const refused = await alter('s', { ...states, using: `case s when 'A' then 'active' else s end` })
  expect(refused.body).toMatchObject({
    code: 'invalid_schema',
    problems: [{ kind: 'limit', records: 2, samples: [{ id: 'b' }, { id: 'c' }] }],
  })
  expectOk(
    await alter('s', { ...states, using: `case s when 'A' then 'active' else 'closed' end` }),
  )
  const define = `create type kind as enum ('y', 'x');
    alter table items alter column t type kind using (case when t = 'x' then t else 'y' end)::kind`
  const answer = await branches.call('main', 'POST', '/sql', { statement: define })
  expectOk(answer)
  expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({
    a: { s: 'active', t: 'x' },
    b: { s: 'closed', t: 'y' },
    c: { s: 'closed', t: 'y' },
  })
  expectOk(await alter('s', { using: `case when s < 'closed' then 'closed' else 'active' end` }))
  expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { s: 'closed' } })
})

describe('a merge', () => {
  const alter = (branches: TestBranches, branch: string) =>
    branches.call(branch, 'PATCH', '/tables/items/columns/price', CENTS)

  async function open() {
    const branches = await TestBranches.create(service, `using${++number}`, { items: COLUMNS })
    await branches.put('main', 'items', 'a', FIRST)
    await branches.put('main', 'items', 'b', SECOND)
    await branches.fork('fork')
    return branches
  }

  it('brings the new values, and the changes of other columns', async () => {
    const branches = await open()
    expectOk(await alter(branches, 'fork'))
    await branches.patch('main', 'items', 'a', { count: 5 })
    expectOk(await branches.merging('fork'))
    expect(await branches.read('main', 'items', ['a', 'b'])).toEqual({
      a: { price: 300, count: 5 },
      b: { price: 99 },
    })
  })

  it('brings the new values to a fork that has changed other columns', async () => {
    const branches = await open()
    await branches.patch('fork', 'items', 'a', { count: 5 })
    await branches.call('main', 'POST', '/checkpoints', { name: 'before' })
    expectOk(await alter(branches, 'main'))
    await branches.fork('other', 'main', { at: 'before' })
    expect(await branches.read('other', 'items', ['a', 'b'])).toEqual({ a: FIRST, b: SECOND })
    expectOk(await branches.pulling('fork'))
    const merged = { a: { price: 300, count: 5 }, b: { price: 99 } }
    expect(await branches.read('fork', 'items', ['a', 'b'])).toEqual(merged)
    expect(await branches.merge('fork')).toMatchObject({ merged: true })
    expect(await branches.read('main', 'items', ['a', 'b'])).toEqual(merged)
  })

  it.each(['fork', 'main'])(
    'reports values that others have changed, if %s did it',
    async (one) => {
      const branches = await open()
      expectOk(await alter(branches, one))
      const other = one === 'fork' ? 'main' : 'fork'
      await branches.patch(other, 'items', 'b', { price: '2.00' })
      const answer = await branches.merging('fork', { allowDataLoss: true })
      expect(answer.status).toBe(409)
      const [conflict] = answer.body.conflicts
      expect(conflict).toMatchObject({
        ...{ kind: 'schema', column: 'price', records: 1 },
        message: expect.stringContaining('its values were made anew by an expression'),
      })
      // The side that has the new values can be taken.
      const strategy = one === 'fork' ? 'theirs' : 'ours'
      if (one === 'fork') {
        const refused = await branches.merging('fork', { strategy })
        expect(refused.body).toMatchObject({ code: 'data_loss' })
      }
      expectOk(await branches.merging('fork', { strategy, allowDataLoss: true }))
      expect(await branches.read('main', 'items', ['a', 'b'])).toEqual({
        a: { price: 300, count: 2 },
        b: { price: 99 },
      })
    },
  )

  it('leaves the column of the target as it is, if its side is taken', async () => {
    const branches = await open()
    expectOk(await alter(branches, 'fork'))
    await branches.patch('main', 'items', 'b', { price: '2.00' })
    await branches.patch('fork', 'items', 'a', { count: 5 })
    const dryRun = await branches.merging('fork', { allowDataLoss: true, dryRun: true })
    expect(dryRun.body.conflicts).toMatchObject([{ kind: 'schema', column: 'price', records: 1 }])
    expectOk(await branches.merging('fork', { strategy: 'ours', allowDataLoss: true }))
    const merged = { a: { ...FIRST, count: 5 }, b: { price: '2.00' } }
    expect(await branches.read('main', 'items', ['a', 'b'])).toEqual(merged)
    // A later merge does not bring the other column again.
    await branches.patch('fork', 'items', 'a', { count: 6 })
    expectOk(await branches.merging('fork', { allowDataLoss: true }))
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { ...FIRST, count: 6 } })
  })

  it('loses nothing if it is done again, or taken back, before others write', async () => {
    const branches = await open()
    expectOk(await alter(branches, 'fork'))
    const path = '/tables/items/columns/price'
    expectOk(await branches.call('fork', 'PATCH', path, { using: 'price * 2' }))
    await branches.merge('fork')
    expect(await branches.read('main', 'items', ['b'])).toEqual({ b: { price: 198 } })
    const change = () => branches.call('main', 'PATCH', path, { using: 'price + 1' })
    const { entry } = expectOk(await change()).body
    expectOk(await branches.call('main', 'POST', '/revert', { entry }))
    expect(await branches.read('main', 'items', ['b'])).toEqual({ b: { price: 198 } })
    // A value that was written since is lost with the column that has it.
    const later = expectOk(await change()).body
    await branches.patch('main', 'items', 'a', { price: 7 })
    const revert = { entry: later.entry, strategy: 'theirs' }
    const refused = await branches.call('main', 'POST', '/revert', revert)
    expect(refused.body).toMatchObject({ code: 'data_loss' })
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { price: 7 } })
  })

  it.each([
    [20, 200],
    [21, 409],
  ])('knows the values that %i expressions have replaced', async (count, status) => {
    const branches = await open()
    const path = '/tables/items/columns/price'
    for (let number = 0; number < count; number++) {
      expectOk(await branches.call('fork', 'PATCH', path, { using: `price || '${number % 10}'` }))
    }
    const answer = await branches.merging('fork')
    expect(answer.status).toBe(status)
    if (status !== 200) expect(answer.body.code).toBe('data_loss')
  })

  it('loses the values of the target if it merges the schema without rows', async () => {
    const branches = await open()
    expectOk(await alter(branches, 'fork'))
    const schemaOnly = { tables: { items: { mode: 'schema' } } }
    const refused = await branches.merging('fork', schemaOnly)
    expect(refused.body).toMatchObject({
      code: 'data_loss',
      dataLoss: [{ table: 'items', column: 'price', records: 2 }],
    })
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: FIRST })
  })

  it('takes the same change of both sides as one', async () => {
    const branches = await open()
    expectOk(await alter(branches, 'fork'))
    expectOk(await alter(branches, 'main'))
    await branches.put('fork', 'items', 'c', { price: 1 })
    expect(await branches.merge('fork')).toMatchObject({ merged: true })
    expect(await branches.read('main', 'items', ['a', 'b', 'c'])).toEqual({
      a: { price: 300, count: 2 },
      b: { price: 99 },
      c: { price: 1 },
    })
  })

  it('can be done by the migration, which another branch is given', async () => {
    const branches = await open()
    const operation = { alterColumn: { table: 'items', column: 'price', ...CENTS } }
    await branches.edit('fork', operation as never)
    const { body } = await branches.call('fork', 'POST', '/schema/history', {})
    expect(body.logs[0].operations).toEqual([operation])
    await branches.edit('main', operation as never)
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { price: 300, count: 2 } })
  })
})
