import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { SHOWN_VALUE_LENGTH_MAX } from '../../packages/contract/src/limits.js'
import type { TestBranches } from '../support/branches.js'
import { openShop, type WireShop } from '../support/wire-clients.js'

/* Errors about unique keys name the record that was to get taken values: of sets, of SQL, and of clients of PostgreSQL. */

const SEATS = [
  { name: 'code', type: 'string', unique: true },
  { name: 'hall', type: 'string' },
  { name: 'at', type: 'datetime' },
  { name: 'wide', type: 'bool' },
  { name: 'number', type: 'int' },
] as const

let shop: WireShop
let branches: TestBranches
beforeAll(async () => {
  shop = await openShop({ seats: SEATS, free: [{ name: 'code', type: 'string' }] })
  branches = shop.branches
  for (const branch of ['root']) await branches.fork(branch)
  const path = '/tables/seats/constraints/place'
  const unique = { unique: ['hall', 'at', 'wide'] }
  for (const branch of ['main', 'root']) {
    expect(await branches.call(branch, 'PUT', path, unique)).toMatchObject({ status: 200 })
    await branches.bulk(branch, 'seats', [
      { id: 'a', code: 'A', hall: 'x', at: '2026-01-01T00:00:00Z', wide: true, number: 1 },
      { id: 'b', code: 'B', hall: 'y', at: '2026-01-01T00:00:00Z', wide: true, number: 2 },
      { id: 'c', code: 'C', hall: 'z', at: '2026-01-02T00:00:00Z', wide: true, number: 3 },
    ])
  }
  await branches.fork('fork', 'root')
})
afterAll(() => shop?.close())

const CODE = { code: 'unique_violation', table: 'seats', column: 'code' }
const PLACE = {
  code: 'unique_violation',
  table: 'seats',
  columns: ['hall', 'at', 'wide'],
  constraint: 'place',
}

describe.each(['main', 'root', 'fork'])('a taken value on %s', (branch) => {
  let client: pg.Client
  beforeAll(async () => {
    client = await shop.wire.connect(`shop:${branch}`)
    // A row of the fork itself.
    await branches.patch(branch, 'seats', 'c', { number: 4 })
  })

  const set = (filter: object, values: object) =>
    branches.call(branch, 'PATCH', '/tables/seats/data', { filter, set: values })
  const sql = (statement: string, params: readonly unknown[] = []) =>
    branches.call(branch, 'POST', '/sql', { statement, params })
  const refused = (text: string, values: unknown[] = []) =>
    client.query(text, values).then(
      () => undefined,
      (error: pg.DatabaseError) => error,
    )

  it.each([
    ['of a record outside of the set', { number: { $ge: 2 } }, { code: 'A' }, CODE, 'b', ['A']],
    ['of another record of the set', { number: { $ge: 1 } }, { code: 'N' }, CODE, 'a', ['N']],
    [
      'of a constraint, in some of its columns',
      { number: 2 },
      { hall: 'x' },
      PLACE,
      'b',
      ['x', expect.stringContaining('2026-01-01'), 't'],
    ],
    [
      'of a constraint, within the set',
      { number: { $ge: 2 } },
      { hall: 'n', at: '2026-02-02T00:00:00Z' },
      PLACE,
      'b',
      ['n', expect.stringContaining('2026-02-02'), 't'],
    ],
  ])('is named with the record of a set: %s', async (_, filter, values, rule, record, shown) => {
    const answer = await set(filter, values)
    expect(answer).toMatchObject({ status: 400, body: { ...rule, record } })
    expect(answer.body.values).toEqual(shown)
  })

  it('does not blame the record of a set that has the value already', async () => {
    const answer = await set({ number: { $le: 2 } }, { code: 'A' })
    expect(answer).toMatchObject({ status: 400, body: { ...CODE, record: 'b' } })
  })

  it('is named if arithmetic on a set makes it', async () => {
    const path = '/tables/seats/constraints/numbered'
    const put = await branches.call(branch, 'PUT', path, { unique: ['number', 'wide'] })
    expect(put).toMatchObject({ status: 200 })
    const answer = await set({ code: 'A' }, { number: { $increment: 1 } })
    expect(answer).toMatchObject({
      status: 400,
      body: { code: 'unique_violation', constraint: 'numbered', record: 'a', values: ['2', 't'] },
    })
    expect(await branches.call(branch, 'DELETE', path)).toMatchObject({ status: 200 })
  })

  const STATEMENTS: [string, string, object, string, unknown[]][] = [
    [
      'an insert',
      "insert into seats (id, code) values ('n', 'N'), ('o', 'A'), ('p', 'P')",
      CODE,
      'o',
      ['A'],
    ],
    [
      'an insert with the same value twice',
      "insert into seats (id, code) values ('n', 'N'), ('o', 'N')",
      CODE,
      'o',
      ['N'],
    ],
    [
      'an insert of a query',
      "insert into seats (id, code) select 'new-' || id, code from seats where code = 'B'",
      CODE,
      'new-b',
      ['B'],
    ],
    [
      'an insert of an id',
      "insert into seats (id) values ('n'), ('a')",
      { ...CODE, column: 'id' },
      'a',
      ['a'],
    ],
    [
      'an insert for a constraint',
      "insert into seats (id, hall, at, wide) values ('n', 'n', now(), true), ('o', 'x', '2026-01-01T01:00:00+01', true)",
      PLACE,
      'o',
      ['x', expect.stringContaining('2026-01-01 00:00'), 't'],
    ],
    ['an update', "update seats set code = 'A' where id in ('b', 'a')", CODE, 'b', ['A']],
    [
      'an update of some columns of a constraint',
      "update seats set hall = 'x' where id in ('a', 'b')",
      PLACE,
      'b',
      ['x', expect.stringContaining('2026-01-01'), 't'],
    ],
    [
      'an upsert by another column',
      "insert into seats (id, code) values ('b', 'A') on conflict (id) do update set code = excluded.code",
      CODE,
      'b',
      ['A'],
    ],
    [
      'an insert that leaves out records by another column',
      "insert into seats (id, code) values ('n', 'A') on conflict (id) do nothing",
      CODE,
      'n',
      ['A'],
    ],
    [
      'a part of WITH',
      "with n as (insert into seats (id, code) values ('n', 'A') returning id) select * from n",
      CODE,
      'n',
      ['A'],
    ],
  ]

  it.each(STATEMENTS)('is named for %s by SQL', async (_, statement, rule, record, shown) => {
    const answer = await sql(statement)
    expect(answer).toMatchObject({ status: 400, body: { ...rule, record } })
    expect(answer.body.values).toEqual(shown)
  })

  it.each(STATEMENTS)(
    'is named for %s by a client of PostgreSQL, also in a transaction',
    async (_, statement, rule, record, shown) => {
      const { columns, column } = rule as { columns?: string[]; column?: string }
      const key = `Key (${(columns ?? [column]).join(', ')})=(`
      await client.query("set time zone 'Asia/Kolkata'")
      for (const begin of ['', 'begin']) {
        await client.query(begin)
        const error = await refused(statement)
        if (begin !== '') await client.query('rollback')
        expect(error).toMatchObject({ code: '23505', table: 'seats' })
        expect(error?.detail).toContain(key)
        expect(error?.detail).toContain(`The record that was to get it is [${record}].`)
        if (shown.length === 1)
          expect(error?.detail).toContain(`${key}${shown[0]}) already exists.`)
      }
    },
  )

  it('is named for a record that the transaction itself has written', async () => {
    await client.query('begin')
    await client.query("insert into seats (id, code) values ('n', 'N')")
    await client.query('savepoint one')
    const error = await refused("insert into seats (id, code) values ('o', 'O'), ('p', 'N')")
    expect(error?.detail).toBe(
      'Key (code)=(N) already exists. The record that was to get it is [p].',
    )
    await client.query('rollback to one')
    const again = await refused("update seats set code = 'N' where id in ('a')")
    expect(again?.detail).toBe(
      'Key (code)=(N) already exists. The record that was to get it is [a].',
    )
    await client.query('rollback')
  })

  it('is named for a statement of a batch', async () => {
    const statements = [
      { statement: "insert into free (code) values ('x')" },
      { statement: "insert into seats (id, code) values ('n', 'A')" },
    ]
    const answer = await branches.call(branch, 'POST', '/sql/batch', { statements })
    expect(answer).toMatchObject({ status: 400, body: { ...CODE, record: 'n', values: ['A'] } })
  })

  it('is named for thousands of records', async () => {
    const answer = await sql(
      "insert into seats (id, code) select 'r-' || n, case n when 2345 then 'C' else 'c-' || n end from generate_series(1, 3000) n",
    )
    expect(answer).toMatchObject({
      status: 400,
      body: { ...CODE, record: 'r-2345', values: ['C'] },
    })
  })

  it('is cut if it is long', async () => {
    for (const length of [SHOWN_VALUE_LENGTH_MAX, SHOWN_VALUE_LENGTH_MAX + 1]) {
      const text = '😀'.repeat(1) + 'x'.repeat(length - 2)
      const answer = await sql('insert into seats (id, code) values ($1, $3), ($2, $3)', [
        'l',
        'm',
        text,
      ])
      const whole = length === SHOWN_VALUE_LENGTH_MAX
      const shown = whole ? text : `${text.slice(0, SHOWN_VALUE_LENGTH_MAX)}…`
      expect(answer).toMatchObject({ status: 400, body: { record: 'm', values: [shown] } })
    }
  })

  it('names each record of a bulk upsert', async () => {
    const records = [
      { id: 'u1', code: 'U' },
      { id: 'u2', code: 'A' },
      { id: 'b', hall: 'x' },
    ]
    const { body } = await branches.call(branch, 'POST', '/tables/seats/upsert', { records })
    expect(body.results).toMatchObject([
      { id: 'u1', outcome: 'inserted' },
      { id: 'u2', outcome: 'failed', error: CODE },
      { id: 'b', outcome: 'failed', error: PLACE },
    ])
    await branches.remove(branch, 'seats', 'u1')
  })
})
