import { createHash } from 'node:crypto'
import { LIMITS } from '@offshoot/contract/limits'
import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

/*
 * Decimals, dates, times, UUIDs and enums, on a branch and on a fork of it that has written half of the rows itself.
 */

let service: TestService
let main: BranchCall
let fork: BranchCall

const STATES = ['new', 'paid', 'cancelled']

const ORDERS: readonly Column[] = [
  { name: 'price', type: 'decimal', decimal: { precision: 12, scale: 2 } },
  { name: 'day', type: 'date' },
  { name: 'at', type: 'time' },
  { name: 'key', type: 'uuid', unique: true },
  { name: 'state', type: 'enum', enum: { values: STATES } },
]

const key = (digit: number): string => `0190a5c1-7d3e-7cc2-9f0b-00000000000${digit}`

const ROWS: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {
  a: { price: '9.90', day: '2026-01-31', at: '09:30:00', key: key(1), state: 'paid' },
  b: { price: '10.00', day: '2026-02-01', at: '23:59:59.5', key: key(2), state: 'new' },
  c: { price: '-0.01', day: '2025-12-31', at: '00:00:00', key: key(3), state: 'cancelled' },
  d: { price: '9999999999.99', day: '2026-02-28', at: '12:00:00', key: key(4), state: 'new' },
  e: {},
}

beforeAll(async () => {
  service = await createTestService()
  await createTables(service, 'shop', { orders: ORDERS })
  main = branchCall(service, 'shop')
  for (const id of ['a', 'b', 'e']) await put(main, id, ROWS[id] ?? {})
  expectOk(
    await service.call('PUT', `${service.workspace}/db/shop:half`, { body: { from: 'main' } }),
  )
  fork = branchCall(service, 'shop', { branch: 'half' })
  for (const id of ['c', 'd']) {
    await put(main, id, ROWS[id] ?? {})
    await put(fork, id, ROWS[id] ?? {})
  }
})
afterAll(() => service.close())

async function put(call: BranchCall, id: string, body: unknown): Promise<void> {
  expectOk(await call('PUT', `/tables/orders/data/${id}`, { body }))
}

async function query(call: BranchCall, body: object): Promise<Record<string, unknown>[]> {
  const answer = expectOk(await call('POST', '/tables/orders/query', { body }))
  return (answer.body as { records: Record<string, unknown>[] }).records
}

const idsOf = (records: readonly Record<string, unknown>[]) => records.map(({ id }) => id)

/** Returns the columns of a record without its metadata. */
function plain({ id: _, service: __, xata: ___, ...columns }: Record<string, unknown>) {
  return columns
}

const branches: readonly (readonly [string, () => BranchCall])[] = [
  ['a branch', () => main],
  ['a fork', () => fork],
]

describe.each(branches)('on %s', (_name, branch) => {
  it('records have the values as they were written', async () => {
    const records = await query(branch(), { sort: { id: 'asc' } })
    expect(Object.fromEntries(records.map((record) => [record.id, plain(record)]))).toEqual(ROWS)
  })

  it.each([
    [{ price: '9.9' }, ['a']],
    [{ price: 9.9 }, ['a']],
    [{ price: { $gt: 9.9 } }, ['b', 'd']],
    [{ price: { $lt: '0.005' } }, ['c']],
    [{ price: { $any: ['9.90', '-0.010'] } }, ['a', 'c']],
    [{ day: { $ge: '2026-02-01' } }, ['b', 'd']],
    [{ day: '2025-12-31' }, ['c']],
    [{ at: { $lt: '09:30' } }, ['c']],
    [{ at: '23:59:59.500' }, ['b']],
    [{ key: key(4).toUpperCase() }, ['d']],
    [{ state: 'new' }, ['b', 'd']],
    [{ state: { $gt: 'new' } }, ['a', 'c']],
    [{ state: { $le: 'paid' } }, ['a', 'b', 'd']],
    [{ state: { $isNot: 'paid' } }, ['b', 'c', 'd']],
    [{ $notExists: 'state' }, ['e']],
  ])('the filter %j finds %j', async (filter, ids) => {
    expect(idsOf(await query(branch(), { filter, sort: { id: 'asc' } }))).toEqual(ids)
  })

  it.each([
    [{ price: '12,5' }, 'is not a decimal number'],
    [{ price: true }, 'expected a decimal number'],
    [{ day: '2026-02-30' }, 'does not exist'],
    [{ at: '24:00' }, 'does not exist'],
    [{ key: 'a' }, 'is not a UUID'],
    [{ state: 'gone' }, '[gone] is not a value of the enum'],
    [{ state: { $contains: 'n' } }, 'operator [$contains] cannot be used with type [enum]'],
  ])('the filter %j is refused: %s', async (filter, message) => {
    const { status, body } = await branch()('POST', '/tables/orders/query', { body: { filter } })
    expect(status).toBe(400)
    expect((body as { message: string }).message).toContain(message)
  })

  it.each([
    ['price', ['c', 'a', 'b', 'd', 'e']],
    ['day', ['c', 'a', 'b', 'd', 'e']],
    ['at', ['c', 'a', 'd', 'b', 'e']],
    ['key', ['a', 'b', 'c', 'd', 'e']],
    // By the order of the values in the schema.
    ['state', ['b', 'd', 'a', 'c', 'e']],
  ])('sorts by %s, page by page in both directions', async (column, ids) => {
    for (const direction of ['asc', 'desc']) {
      const found: unknown[] = []
      let after: string | undefined
      for (;;) {
        const body =
          after === undefined
            ? { sort: { [column]: direction }, page: { size: 2 } }
            : { page: { after, size: 2 } }
        const answer = expectOk(await branch()('POST', '/tables/orders/query', { body }))
        const { records, meta } = answer.body as {
          records: Record<string, unknown>[]
          meta: { page: { cursor: string; more: boolean } }
        }
        found.push(...idsOf(records))
        if (!meta.page.more) break
        after = meta.page.cursor
      }
      const [withValue, without] = [ids.slice(0, -1), ids.slice(-1)]
      const isTied = column === 'state'
      const expected = direction === 'asc' ? withValue : withValue.toReversed()
      // Records with equal values are in the order of their ids.
      const tied = direction === 'asc' || !isTied ? expected : ['c', 'a', 'b', 'd']
      expect(found).toEqual([...tied, ...without])
    }
  })

  it('summaries are exact, and know the order of an enum', async () => {
    const summaries = {
      sum: { sum: 'price' },
      least: { min: 'price' },
      first: { min: 'day' },
      latest: { max: 'at' },
      lowest: { min: 'state' },
      highest: { max: 'state' },
      average: { average: 'price' },
    }
    const all = expectOk(
      await branch()('POST', '/tables/orders/summarize', { body: { summaries } }),
    )
    expect(all.body).toEqual({
      summaries: [
        {
          sum: '10000000019.88',
          least: '-0.01',
          first: '2025-12-31',
          latest: '23:59:59.5',
          lowest: 'new',
          highest: 'cancelled',
          average: 2_500_000_004.97,
        },
      ],
    })
    const grouped = expectOk(
      await branch()('POST', '/tables/orders/summarize', {
        body: {
          columns: ['state'],
          summaries: { total: { sum: 'price' } },
          sort: [{ state: 'desc' }],
          summariesFilter: { total: { $gt: '-1' } },
        },
      }),
    )
    expect(grouped.body).toEqual({
      summaries: [
        { state: 'cancelled', total: '-0.01' },
        { state: 'paid', total: '9.90' },
        { state: 'new', total: '10000000009.99' },
      ],
    })
  })

  it('aggregations have buckets of days and values', async () => {
    const aggs = {
      months: { dateHistogram: { column: 'day', calendarInterval: 'month' } },
      weeks: { dateHistogram: { column: 'day', interval: '7d' } },
      states: { topValues: { column: 'state', aggs: { total: { sum: { column: 'price' } } } } },
      dearest: { max: { column: 'price' } },
      prices: { numericHistogram: { column: 'price', interval: 10_000_000_000 } },
      keys: { uniqueCount: { column: 'key' } },
    }
    const { body } = expectOk(
      await branch()('POST', '/tables/orders/aggregate', { body: { aggs } }),
    )
    const { aggs: found } = body as { aggs: Record<string, { values: unknown[] }> }
    expect(found.months).toEqual({
      values: [
        { $key: '2025-12-01T00:00:00.000Z', $count: 1 },
        { $key: '2026-01-01T00:00:00.000Z', $count: 1 },
        { $key: '2026-02-01T00:00:00.000Z', $count: 2 },
      ],
    })
    expect(found.weeks?.values).toHaveLength(3)
    // A day is the same one in all time zones.
    for (const timezone of ['+02:00', '-11:00']) {
      const zoned = {
        months: { dateHistogram: { ...aggs.months.dateHistogram, timezone } },
        weeks: { dateHistogram: { ...aggs.weeks.dateHistogram, timezone } },
      }
      const answer = await branch()('POST', '/tables/orders/aggregate', { body: { aggs: zoned } })
      const { months, weeks } = expectOk(answer).body.aggs
      expect({ months, weeks }).toEqual({ months: found.months, weeks: found.weeks })
    }
    expect(found.states).toEqual({
      values: [
        { $key: 'new', $count: 2, total: '10000000009.99' },
        { $key: 'cancelled', $count: 1, total: '-0.01' },
        { $key: 'paid', $count: 1, total: '9.90' },
      ],
    })
    expect(found.dearest).toBe('9999999999.99')
    expect(found.keys).toBe(4)
    expect(found.prices?.values).toHaveLength(2)
  })

  it('SQL reads and writes them', async () => {
    const call = branch()
    const run = async (statement: string, params: unknown[] = []) => {
      const answer = expectOk(await call('POST', '/sql', { body: { statement, params } }))
      return (answer.body as { records: Record<string, unknown>[] }).records
    }
    await run(
      `insert into orders (id, price, day, at, key, state) values ('s', 123456789.12, '2026-03-01', '08:00', $1, 'new')`,
      [key(9)],
    )
    expect(await run(`select price, day, at, key, state from orders where id = 's'`)).toEqual([
      { price: 123_456_789.12, day: '2026-03-01', at: '08:00:00', key: key(9), state: 'new' },
    ])
    await run(`update orders set price = price + 0.88, day = day + 1 where key = $1`, [key(9)])
    expect(plain((await query(call, { filter: { id: 's' } }))[0] ?? {})).toEqual({
      price: '123456790.00',
      day: '2026-03-02',
      at: '08:00:00',
      key: key(9),
      state: 'new',
    })
    const refused = await call('POST', '/sql', {
      body: { statement: `update orders set state = 'gone' where id = 's'` },
    })
    expect([refused.status, refused.body]).toEqual([
      400,
      expect.objectContaining({ message: expect.stringContaining('it has new, paid') }),
    ])
    await run(`delete from orders where id = 's'`)
  })

  it('arithmetic on decimals is exact', async () => {
    const call = branch()
    await put(call, 'sum', { price: '0.10' })
    const update = (price: unknown) =>
      call('PATCH', '/tables/orders/data/sum?columns=price', { body: { price } })
    const outcomes: unknown[] = []
    for (const change of [
      { $increment: 0.2 },
      { $increment: '9999999999.00' },
      { $decrement: '9999999999.00' },
      { $multiply: '3.333' },
      { $divide: 3 },
    ]) {
      outcomes.push((expectOk(await update(change)).body as { price: string }).price)
    }
    // Products and quotients are rounded to the scale of the column.
    expect(outcomes).toEqual(['0.30', '9999999999.30', '0.30', '1.00', '0.33'])
    expect((await update({ $increment: '9999999999.99' })).status).toBe(400)
    expect((await update({ $increment: '0.001' })).status).toBe(400)
    expect((await update({ $divide: '0.0' })).status).toBe(400)
    expect((await query(call, { filter: { id: 'sum' } }))[0]).toMatchObject({ price: '0.33' })
    expectOk(await call('DELETE', '/tables/orders/data/sum'))
  })
})

describe('values', () => {
  it.each([
    ['price', '1.234', 'has more than 2 digits after the decimal point'],
    ['price', '12345678901', 'has more than 10 digits before the decimal point'],
    ['price', 1e300, 'has more than 10 digits before the decimal point'],
    ['price', 0.1 + 0.2, 'has more than 15 digits'],
    ['price', '1e99999', 'has more than 1000 digits'],
    ['price', 'NaN', 'is not a decimal number'],
    ['price', '', 'is not a decimal number'],
    ['price', {}, 'expected a'],
    ['day', '2026-2-1', 'is not a date'],
    ['day', '2025-02-29', 'does not exist'],
    ['day', '0000-01-01', 'years 0001 to 9999'],
    ['day', 20_260_101, 'expected a string'],
    ['at', '9:30', 'is not a time of a day'],
    ['at', '09:30Z', 'is not a time of a day'],
    ['at', '12:60:00', 'is a time that does not exist'],
    ['at', '12:00:00.0000001', 'is finer than a microsecond'],
    ['key', `{${key(1)}}`, 'is not a UUID'],
    ['state', 'NEW', 'is not one of new, paid, cancelled'],
    ['state', 1, 'expected a string'],
  ])('%s %j is refused: %s', async (column, value, message) => {
    const answer = await main('PUT', '/tables/orders/data/refused', { body: { [column]: value } })
    expect(answer.status).toBe(400)
    expect((answer.body as { message: string }).message).toContain(message)
    expect((await main('GET', '/tables/orders/data/refused')).status).toBe(404)
  })

  it.each([
    ['price', 5, '5.00'],
    ['price', -0, '0.00'],
    ['price', '+007.5', '7.50'],
    ['price', '1.5e3', '1500.00'],
    ['price', '150000e-5', '1.50'],
    ['price', '1.000000', '1.00'],
    ['day', '2024-02-29', '2024-02-29'],
    ['day', '9999-12-31', '9999-12-31'],
    ['at', '09:30', '09:30:00'],
    ['at', '23:59:59.999999', '23:59:59.999999'],
    ['at', '01:02:03.500000000', '01:02:03.5'],
    ['at', `01:02:03.5${'0'.repeat(1000)}`, '01:02:03.5'],
    ['price', `1.5${'0'.repeat(900)}`, '1.50'],
    ['key', key(7).toUpperCase(), key(7)],
  ])('%s %j is stored as %j', async (column, value, stored) => {
    await put(main, 'stored', { [column]: value })
    const { body } = expectOk(await main('GET', '/tables/orders/data/stored'))
    expect(plain(body as Record<string, unknown>)).toEqual({ [column]: stored })
    expectOk(await main('DELETE', '/tables/orders/data/stored'))
  })

  it('unique values are the same in any form', async () => {
    const answer = await main('PUT', '/tables/orders/data/twice', {
      body: { key: key(1).toUpperCase() },
    })
    expect([answer.status, answer.body]).toEqual([
      400,
      expect.objectContaining({ code: 'unique_violation' }),
    ])
  })

  it('a bulk insert takes them', async () => {
    const records = Array.from({ length: 100 }, (_, index) => ({
      id: `bulk${index}`,
      price: `${index}.5`,
      day: '2026-05-05',
      state: STATES[index % 3],
    }))
    expectOk(await main('POST', '/tables/orders/bulk', { body: { records } }))
    const found = await query(main, { filter: { day: '2026-05-05' }, sort: { price: 'desc' } })
    expect(found[0]).toMatchObject({ id: 'bulk99', price: '99.50', state: 'new' })
    const operations = records.map(({ id }) => ({ delete: { table: 'orders', id } }))
    expectOk(await main('POST', '/transaction', { body: { operations } }))
  })
})

describe('columns', () => {
  const add = (column: unknown) =>
    main('POST', '/tables/orders/columns', { body: column as Record<string, unknown> })

  it.each([
    [{ name: 'x', type: 'decimal' }, 'field [decimal] is required for type [decimal]'],
    [
      { name: 'x', type: 'decimal', decimal: { precision: 3, scale: 4 } },
      'decimal scale must be a whole number from 0 to the precision, 3',
    ],
    [{ name: 'x', type: 'enum' }, 'field [enum] is required for type [enum]'],
    [{ name: 'x', type: 'enum', enum: { values: ['a', 'a'] } }, 'enum value [a] is listed twice'],
    [{ name: 'x', type: 'int', enum: { values: ['a'] } }, 'type mismatch'],
    [
      { name: 'x', type: 'enum', enum: { values: ['a'] }, notNull: true, defaultValue: 'b' },
      'default value: is not one of a',
    ],
  ])('%j is refused: %s', async (column, message) => {
    const answer = await add(column)
    expect(answer.status).toBe(400)
    expect((answer.body as { message: string }).message).toContain(message)
  })

  it.each([
    [
      'digits',
      (size: number) => ({ type: 'decimal', decimal: { precision: size, scale: 0 } }),
      LIMITS.decimalPrecisionMax,
    ],
    [
      'values',
      (size: number) => ({
        type: 'enum',
        enum: { values: Array.from({ length: size }, (_, index) => `v${index}`) },
      }),
      LIMITS.enumValuesMax,
    ],
    [
      'characters',
      (size: number) => ({ type: 'enum', enum: { values: ['x'.repeat(size)] } }),
      LIMITS.enumValueLengthMax,
    ],
  ])('has at most so many %s', async (name, columnOf, max) => {
    expect((await add({ name, ...columnOf(max + 1) })).status).toBe(400)
    expectOk(await add({ name, ...columnOf(max) }))
    expectOk(await main('DELETE', `/tables/orders/columns/${name}`))
  })
})

it('merges compare their values, whatever form they were written in', async () => {
  const branches = await TestBranches.create(service, 'merged', { orders: ORDERS })
  const { a = {}, b = {} } = ROWS
  await branches.put('main', 'orders', 'a', a)
  await branches.put('main', 'orders', 'b', b)
  await branches.fork('work')
  // The same change on both sides, and a different one.
  await branches.put('main', 'orders', 'a', { ...a, price: '7.50', at: '10:00' })
  await branches.put('work', 'orders', 'a', { ...a, price: 7.5, at: '10:00:00.0' })
  await branches.put('main', 'orders', 'b', { ...b, state: 'paid' })
  await branches.put('work', 'orders', 'b', { ...b, state: 'cancelled', day: '2026-12-24' })
  const { status, body } = await branches.merging('work')
  expect(status).toBe(409)
  expect(body.conflicts).toEqual([
    expect.objectContaining({ table: 'orders', id: 'b', kind: 'bothUpdated' }),
  ])
  await branches.merge('work', { strategy: 'theirs' })
  expect(await branches.read('main', 'orders', ['a', 'b'])).toMatchObject({
    a: { price: '7.50', at: '10:00:00' },
    b: { state: 'cancelled', day: '2026-12-24', price: '10.00' },
  })
})

it('averages of decimals are rounded once, at the end', async () => {
  await createTables(service, 'averages', {
    items: [{ name: 'price', type: 'decimal', decimal: { precision: 12, scale: 2 } }],
  })
  const call = branchCall(service, 'averages')
  const records = ['10.00', '9.99', '-1.00', '100.00'].map((price) => ({ price }))
  expectOk(await call('POST', '/tables/items/bulk', { body: { records } }))
  const summaries = { mean: { average: 'price' } }
  const summarized = await call('POST', '/tables/items/summarize', { body: { summaries } })
  expect(expectOk(summarized).body).toEqual({ summaries: [{ mean: 29.7475 }] })
  const aggs = { mean: { average: { column: 'price' } } }
  const aggregated = await call('POST', '/tables/items/aggregate', { body: { aggs } })
  expect(expectOk(aggregated).body).toMatchObject({ aggs: { mean: 29.7475 } })
})

describe('JSON numbers whose digits a double does not keep', () => {
  const NDJSON = { 'content-type': 'application/x-ndjson' }
  const DECIMAL = 'has more than 15 digits, which a JSON number does not keep; send it as a string'
  const WHOLE = 'expected a whole number, got a fraction'
  let call: BranchCall

  beforeAll(async () => {
    await createTables(service, 'digits', {
      lots: [
        { name: 'price', type: 'decimal', decimal: { precision: 40, scale: 20 } },
        { name: 'count', type: 'int' },
        { name: 'weight', type: 'float' },
        { name: 'note', type: 'text' },
        { name: 'data', type: 'json' },
        { name: 'size', type: 'object', columns: [{ name: 'depth', type: 'int' }] },
      ],
    })
    call = branchCall(service, 'digits')
    expectOk(await call('PUT', '/tables/lots/data/a', { body: { price: '1', count: 1 } }))
  })

  const path = '/tables/lots'
  const paths: [string, (members: string) => ReturnType<BranchCall>][] = [
    ['a new record', (members) => call('POST', `${path}/data`, { body: `{${members}}` })],
    ['a replaced one', (members) => call('PUT', `${path}/data/a`, { body: `{${members}}` })],
    [
      'a long record',
      (members) =>
        call('PUT', `${path}/data/a`, { body: `{${members},"note":"${'x'.repeat(200_000)}"}` }),
    ],
    ['an update', (members) => call('PATCH', `${path}/data/a`, { body: `{${members}}` })],
    ['a merged one', (members) => call('POST', `${path}/data/a`, { body: `{${members}}` })],
    [
      'a bulk insert',
      (members) => call('POST', `${path}/bulk`, { body: `{"records":[{},{${members}}]}` }),
    ],
    [
      'a long bulk insert',
      (members) =>
        call('POST', `${path}/bulk`, {
          body: `{"records":[${'{"count":1},'.repeat(9000)}{${members}}]}`,
        }),
    ],
    [
      'a stream',
      (members) => call('POST', `${path}/bulk`, { body: `{}\n{${members}}`, headers: NDJSON }),
    ],
    [
      'an upsert',
      (members) => call('POST', `${path}/upsert`, { body: `{"records":[{"id":"z",${members}}]}` }),
    ],
    [
      'a stream of upserts',
      (members) =>
        call('POST', `${path}/upsert`, { body: `{"id":"z",${members}}`, headers: NDJSON }),
    ],
    ...['insert', 'update'].map((kind): (typeof paths)[number] => [
      `a transaction with ${kind}`,
      (members) =>
        call('POST', '/transaction', {
          body: `{"operations":[{"${kind}":{"table":"lots",${
            kind === 'insert' ? `"record":{${members}}` : `"id":"a","fields":{${members}}`
          }}}]}`,
        }),
    ]),
  ]

  it.each(paths)('are refused in %s', async (_name, send) => {
    const refused: [string, string][] = [
      ['"price": 12345678901234567.89', `column [price]: ${DECIMAL}`],
      ['"price": 100000000000000000.1', `column [price]: ${DECIMAL}`],
      ['"price": 0.1000000000000000055', `column [price]: ${DECIMAL}`],
      ['"count": 9007199254740990.6', `column [count]: ${WHOLE}`],
      ['"count":1.00000000000000000001', `column [count]: ${WHOLE}`],
      ['"size": {"depth": 7.00000000000000000001}', `column [size.depth]: ${WHOLE}`],
    ]
    for (const [members, message] of refused) {
      const answer = await send(members)
      expect(JSON.stringify(answer.body)).toContain(message)
    }
    expect((await call('GET', `${path}/data/a`)).body).toMatchObject({ count: 1 })
    expect((await call('GET', `${path}/data/z`)).status).toBe(404)
  })

  it.each(paths)('are kept in documents in %s', async (_name, send) => {
    const documents = [
      '{"n": 1.23456789012345678901, "in": [{"m": -0.12345678901234567890123e-5}]}',
      '1.23456789012345678901',
    ]
    for (const document of documents) {
      const sent = await send(`"data": ${document}`)
      expect(sent.status).toBeLessThan(300)
      const statement = 'select count(*)::int as n from lots where data = $1::jsonb'
      const counted = await call('POST', '/sql', { body: { statement, params: [document] } })
      expect(expectOk(counted).body.records).toEqual([{ n: expect.any(Number) }])
      expect(counted.body.records[0].n).toBeGreaterThan(0)
      const clear = `update lots set data = null`
      expectOk(await call('POST', '/sql', { body: { statement: clear } }))
    }
    expectOk(await call('DELETE', `${path}/data`, { body: { filter: { $not: { id: 'a' } } } }))
    expectOk(await call('PUT', `${path}/data/a`, { body: { price: '1', count: 1 } }))
  })

  it('are refused as operands', async () => {
    for (const [column, message] of [
      ['price', DECIMAL],
      ['count', WHOLE],
    ] as const) {
      const body = `{"${column}": {"$increment": 1.00000000000000000001}}`
      expect(await call('PATCH', `${path}/data/a`, { body })).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining(`$increment: ${message}`) },
      })
    }
  })

  it('are compared by all of their digits, or refused, in filters', async () => {
    await createTables(service, 'filtered', {
      lots: [
        { name: 'price', type: 'decimal', decimal: { precision: 40, scale: 20 } },
        { name: 'count', type: 'int' },
        { name: 'weight', type: 'float' },
        { name: 'data', type: 'json' },
      ],
    })
    const call = branchCall(service, 'filtered')
    const max = Number.MAX_SAFE_INTEGER
    const data = [
      '{"n": 9007199254740993}',
      '{"n": 0.12345678901234567891}',
      '1.50000000000000000001',
    ]
    const records = [1, 2, max].map((count, index) => ({
      ...{ id: `r${index}`, count, price: '0.1', weight: 0.1, data: data[index] },
    }))
    expectOk(await call('POST', `${path}/bulk`, { body: { records } }))
    const query = (filter: string, more = '') =>
      call('POST', `${path}/query`, { body: `{"filter": ${filter}, "sort": "id"${more}}` })
    const found: [string, string[]][] = [
      ['{"count": 1.00000000000000000001}', []],
      ['{"count": {"$any": [1.00000000000000000001, 2]}}', ['r1']],
      ['{"count": [0.99999999999999999999, 2]}', ['r1']],
      ['{"count": {"$gt": 0.99999999999999999999}}', ['r0', 'r1', 'r2']],
      ['{"count": {"$not": {"$le": 1.00000000000000000001}}}', ['r1', 'r2']],
      ['{"count": {"$lt": [1.00000000000000000001, -5]}}', ['r0']],
      ['{"$any": [{"count": 1.00000000000000000001}, {"count": 2}]}', ['r1']],
      ['{"count": {"$ge": 9007199254740990.99999999}}', ['r2']],
      ['{"weight": 0.10000000000000000001}', ['r0', 'r1', 'r2']],
      ['{"weight": {"$any": [0.10000000000000000001, 5]}}', ['r0', 'r1', 'r2']],
      ['{"data->n": 9007199254740993}', ['r0']],
      ['{"data->n": {"$any": [9007199254740992, 0.12345678901234567892]}}', []],
      ['{"data->n": {"$any": [9007199254740993, 0.12345678901234567891]}}', ['r0', 'r1']],
      ['{"data": 1.50000000000000000001}', ['r2']],
      ['{"data": {"$is": {"n": 0.12345678901234567891}}}', ['r1']],
    ]
    for (const [filter, ids] of found) {
      const { body } = expectOk(await query(filter))
      expect([filter, body.records.map(({ id }: { id: string }) => id)]).toEqual([filter, ids])
    }
    const page = expectOk(await query(found[4]?.[0] ?? '', ', "page": {"size": 1}')).body
    const { cursor } = page.meta.page
    const next = await call('POST', `${path}/query`, { body: { page: { after: cursor } } })
    expect(expectOk(next).body.records).toMatchObject([{ id: 'r2' }])
    const refused: [string, string][] = [
      ['{"price": 0.10000000000000000001}', `column [price]: ${DECIMAL}`],
      ['{"price": {"$any": ["1", 0.10000000000000000001]}}', `column [price]: ${DECIMAL}`],
      [`{"count": 1.${'0'.repeat(1000)}1}`, 'column [count]: a number has more than 1000 digits'],
      ['{"count": 1.0000000000000001e-2000}', 'a number has more than 1000 digits'],
      ['{"id": 12345678901234567890}', 'column [id]: expected a string'],
      ['{"count": {"$contains": 1.00000000000000000001}}', 'operator [$contains]'],
    ]
    for (const [filter, message] of refused) {
      expect(await query(filter)).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining(message) },
      })
    }
    const list = '{"count": {"$any": [1.00000000000000000001, 2]}}'
    const summarized = `{"filter": ${list}, "summaries": {"n": {"count": "*"}}}`
    const counted = await call('POST', `${path}/summarize`, { body: summarized })
    expect(expectOk(counted).body.summaries).toEqual([{ n: 1 }])
    const aggregated = `{"aggs": {"n": {"count": {"filter": ${list}}}}}`
    const sums = await call('POST', `${path}/aggregate`, { body: aggregated })
    expect(expectOk(sums).body.aggs).toEqual({ n: 1 })
    const body = `{"filter": ${list}, "set": {"weight": 5}}`
    expect(expectOk(await call('PATCH', `${path}/data`, { body })).body).toMatchObject({
      updated: 1,
    })
    const removed = await call('DELETE', `${path}/data`, { body: `{"filter": ${list}}` })
    expect(expectOk(removed).body).toMatchObject({ deleted: 1 })
  })

  it('are exact in SQL', async () => {
    const statement = `insert into lots (id, price) values ('s', 12345678901234567.89)`
    expectOk(await call('POST', '/sql', { body: { statement } }))
    expect((await call('GET', `${path}/data/s`)).body).toMatchObject({
      price: '12345678901234567.89000000000000000000',
    })
  })

  describe('as parameters of SQL', () => {
    const WHOLE_NUMBER = '9007199254740993'
    const FRACTION = '0.12345678901234567891'
    const md5 = (text: string) => createHash('md5').update(text).digest('hex')
    const LENGTHS: readonly [string, number][] = [
      ['a short body', 0],
      ['a body that is parsed in slices', 200_000],
    ]
    const records = async (statement: string, params: string, batched = false) => {
      const body = `{"statement":${JSON.stringify(statement)},"params":${params}}`
      const answer = batched
        ? await call('POST', '/sql/batch', { body: `{"statements":[${body}]}` })
        : await call('POST', '/sql', { body })
      const { results, records: rows } = expectOk(answer).body as Record<string, unknown>
      return batched ? (results as { records: unknown }[])[0]?.records : rows
    }

    it.each(LENGTHS)('are exact in %s', async (_name, length) => {
      for (const batched of [false, true]) {
        const statement = `insert into lots (price, note) values ($1, $2)
          returning price::text, note, $3::jsonb::text as j, $4::numeric[]::text as l, length($5) as n`
        const params = `[${FRACTION}, ${WHOLE_NUMBER}, {"a": ${WHOLE_NUMBER}, "b": [1, ${FRACTION}]},
          [1, ${WHOLE_NUMBER}], "${'x'.repeat(length)}"]`
        expect(await records(statement, params, batched)).toEqual([
          {
            price: FRACTION,
            note: WHOLE_NUMBER,
            j: `{"a": ${WHOLE_NUMBER}, "b": [1, ${FRACTION}]}`,
            l: `{1,${WHOLE_NUMBER}}`,
            n: length,
          },
        ])
      }
    })

    it('are refused where a column cannot have them', async () => {
      const body = `{"statement":"insert into lots (count) values ($1)","params":[${WHOLE_NUMBER}]}`
      expect((await call('POST', '/sql', { body })).status).toBe(400)
    })

    it('are exact in long lists and long documents', async () => {
      const many = Array.from({ length: 20_000 }, (_, index) => `${index}.12345678901234567891`)
      const [row] = (await records(
        'select md5($1::numeric[]::text) as list, md5($2::json::text) as document',
        `[[${many}], {"a": [${many}]}]`,
      )) as unknown[]
      expect(row).toEqual({ list: md5(`{${many}}`), document: md5(`{"a":[${many}]}`) })
    })

    it('are what their types make of them', async () => {
      const statement = 'select $1::int8::text as n, $2::float8 as f, $3::float4[]::text as v'
      expect(
        await records(statement, `[${WHOLE_NUMBER}, 0.1000000000000000055, [${FRACTION}]]`),
      ).toEqual([{ n: WHOLE_NUMBER, f: 0.1, v: '{0.12345679}' }])
    })

    it('differ by them for idempotency keys', async () => {
      const headers = { 'idempotency-key': 'digits' }
      const send = (digits: string) =>
        call('POST', '/sql', {
          body: `{"statement":"insert into lots (price) values ($1)","params":[${digits}]}`,
          headers,
        })
      expectOk(await send('0.1000000000000000055'))
      expectOk(await send('0.1000000000000000055'))
      expect((await send('0.1000000000000000056')).status).toBe(422)
    })
  })

  it('are rounded where columns have doubles', async () => {
    const body = '{"weight": 0.1000000000000000055, "price": "0.1000000000000000055"}'
    expectOk(await call('PUT', `${path}/data/b`, { body }))
    expect((await call('GET', `${path}/data/b`)).body).toMatchObject({
      weight: 0.1,
      price: '0.10000000000000000550',
    })
  })
})
