import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'

/*
 * Unique keys and checks are looked at when a transaction ends, so that the order of its operations does not matter.
 */

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const SEATS = [
  { name: 'code', type: 'string', unique: true },
  { name: 'row', type: 'int' },
  { name: 'place', type: 'int' },
] as const
const GUESTS = [
  { name: 'name', type: 'string', unique: true },
  { name: 'seat', type: 'link', link: { table: 'seats', onDelete: 'cascade' } },
] as const

const update = (id: string, fields: object, table = 'seats') => ({ update: { table, id, fields } })
const insert = (record: object, table = 'seats') => ({ insert: { table, record } })
const remove = (id: string, table = 'seats') => ({ delete: { table, id } })

describe.each(['main', 'main with a fork', 'a fork'])('a transaction on %s', (kind) => {
  let branches: TestBranches
  let branch: string
  const run = (operations: readonly object[]) =>
    branches.call(branch, 'POST', '/transaction', { operations })
  const codes = async (of = branch) => {
    const { body } = await branches.call(of, 'POST', '/tables/seats/query', { columns: ['*'] })
    return Object.fromEntries(
      body.records.map(({ id, code }: { id: string; code: string }) => [id, code]),
    )
  }

  beforeAll(async () => {
    const name = `atend${++number}`
    branches = await TestBranches.create(service, name, { seats: SEATS, guests: GUESTS })
    branch = kind === 'a fork' ? 'fork' : 'main'
    for (const [constraint, body] of [
      ['once', { unique: ['row', 'place'] }],
      ['both', { check: '(row is null) = (place is null)' }],
    ] as const) {
      const path = `/tables/seats/constraints/${constraint}`
      expect((await branches.call('main', 'PUT', path, body)).status).toBe(200)
    }
    await branches.put('main', 'seats', 'a', { code: 'A', row: 1, place: 1 })
    await branches.put('main', 'seats', 'b', { code: 'B', row: 1, place: 2 })
    if (kind !== 'main') await branches.fork('fork')
  })

  it('exchanges unique values', async () => {
    const answer = await run([
      update('a', { code: 'B', place: 2 }),
      update('b', { code: 'A', place: 1 }),
    ])
    expect(answer).toMatchObject({ status: 200, body: { results: [{ rows: 1 }, { rows: 1 }] } })
    expect(await codes()).toEqual({ a: 'B', b: 'A' })
    expect((await branches.call(branch, 'GET', '/tables/seats/data/a')).body).toMatchObject({
      code: 'B',
      place: 2,
      service: { version: 1 },
    })
    await run([update('a', { code: 'A', place: 1 }), update('b', { code: 'B', place: 2 })])
    expect(await codes()).toEqual({ a: 'A', b: 'B' })
    if (kind === 'main with a fork') expect(await codes('fork')).toEqual({ a: 'A', b: 'B' })
  })

  it('moves a value from a record that it deletes, before or after', async () => {
    const moved = insert({ id: 'c', code: 'A' })
    expect(await run([moved, remove('a')])).toMatchObject({ status: 200 })
    expect(await codes()).toEqual({ b: 'B', c: 'A' })
    const back = insert({ id: 'a', code: 'A', row: 1, place: 1 })
    expect(await run([remove('c'), back])).toMatchObject({ status: 200 })
    expect(await codes()).toEqual({ a: 'A', b: 'B' })
    if (kind === 'main with a fork') expect(await codes('fork')).toEqual({ a: 'A', b: 'B' })
  })

  it('breaks rules on its way, and reads what it has written', async () => {
    const read = { columns: ['code', 'row'] }
    const answer = await run([
      insert({ id: 'd', code: 'A' }),
      { update: { table: 'seats', id: 'd', fields: { code: 'D', row: 3 }, ...read } },
      { get: { table: 'seats', id: 'd', ...read } },
      { update: { table: 'seats', id: 'd', fields: { place: 3 }, ifVersion: 1 } },
    ])
    expect(answer).toMatchObject({ status: 200 })
    expect(answer.body.results[2].columns).toEqual({ code: 'D', row: 3 })
    expect((await branches.call(branch, 'GET', '/tables/seats/data/d')).body).toMatchObject({
      code: 'D',
      row: 3,
      place: 3,
      service: { version: 2 },
    })
    expect(await run([remove('d')])).toMatchObject({ status: 200 })
  })

  it.each([
    [
      'a unique column',
      [insert({ id: 'e', code: 'A' }), update('e', { code: 'B' })],
      { code: 'unique_violation', table: 'seats', column: 'code' },
    ],
    [
      'a unique constraint',
      [insert({ id: 'e', code: 'A' }), update('e', { code: 'E', row: 1, place: 2 })],
      { code: 'unique_violation', constraint: 'once', columns: ['row', 'place'] },
    ],
    [
      'a check',
      [insert({ id: 'e', code: 'A' }), update('e', { code: 'E', row: 9 })],
      { code: 'check_violation', constraint: 'both' },
    ],
    [
      'a value that two of its records have',
      [insert({ id: 'e', code: 'A' }), update('e', { code: 'F' }), insert({ id: 'e2', code: 'F' })],
      { code: 'unique_violation', table: 'seats', column: 'code' },
    ],
  ])('is refused as a whole if it ends with %s broken', async (what, operations, fields) => {
    const answer = await run(operations)
    expect(answer).toMatchObject({ status: 400, body: { code: 'transaction_failed' } })
    const index = what.startsWith('a value') ? expect.any(Number) : 1
    expect(answer.body.errors).toMatchObject([{ index, ...fields }])
    expect(await codes()).toEqual({ a: 'A', b: 'B' })
  })

  it('counts statements of SQL as one transaction, and the rows of a statement as one change', async () => {
    const sql = (statements: readonly string[]) =>
      branches.call(branch, 'POST', '/sql/batch', {
        statements: statements.map((statement) => ({ statement })),
      })
    const exchanged = await branches.call(branch, 'POST', '/sql', {
      statement: "update seats set code = case code when 'A' then 'B' else 'A' end",
    })
    expect(exchanged).toMatchObject({ status: 200 })
    expect(await codes()).toEqual({ a: 'B', b: 'A' })
    const batch = await sql([
      "update seats set code = 'A' where id = 'a'",
      "update seats set code = 'B' where id = 'b' returning id, code",
    ])
    expect(batch).toMatchObject({ status: 200 })
    expect(await codes()).toEqual({ a: 'A', b: 'B' })
    const moved = await sql([
      "insert into seats (id, code) values ('s', 'A')",
      "update seats set code = 'S' where code = 'A' and id = 's'",
      "delete from seats where code = 'S'",
    ])
    expect(moved).toMatchObject({ status: 200 })
    const refused = await sql([
      "insert into seats (id, code) values ('s', 'A')",
      "update seats set row = 7 where id = 's'",
    ])
    expect(refused.status).toBe(400)
    expect(await codes()).toEqual({ a: 'A', b: 'B' })
  })

  it('moves unique numbers of a set by arithmetic', async () => {
    const move = (by: number) =>
      branches.call(branch, 'PATCH', '/tables/seats/data', {
        all: true,
        set: { place: { $increment: by } },
      })
    for (const by of [1, -1]) {
      expect(await move(by)).toMatchObject({ status: 200, body: { updated: 2 } })
    }
    expect(await branches.read(branch, 'seats', ['a', 'b'])).toMatchObject({
      a: { place: 1 },
      b: { place: 2 },
    })
  })

  it('gives a value to another record than one that a deletion removes', async () => {
    await branches.put(branch, 'guests', 'g', { name: 'Ada', seat: 'b' })
    const again = insert({ id: 'h', name: 'Ada' }, 'guests')
    expect(await run([remove('b'), again])).toMatchObject({ status: 200 })
    expect(await branches.read(branch, 'guests', ['g', 'h'])).toEqual({ h: { name: 'Ada' } })
    expect(await codes()).toEqual({ a: 'A' })
    const left = sql`select relname from pg_class where relname like 'heap_draft%'`
    expect(await service.database.query(left)).toEqual([])
  })
})

describe.each(['main', 'fork'])('an upsert on %s', (branch) => {
  const PATH = '/tables/seats/upsert'

  async function open() {
    const branches = await TestBranches.create(service, `atend${++number}`, { seats: SEATS })
    const once = await branches.call('main', 'PUT', '/tables/seats/constraints/once', {
      unique: ['row', 'place'],
    })
    expect(once.status).toBe(200)
    await branches.put('main', 'seats', 'a', { code: 'A', row: 1, place: 1 })
    await branches.put('main', 'seats', 'b', { code: 'B', row: 1, place: 2 })
    if (branch === 'fork') await branches.fork('fork')
    const outcomes = async (by: string, records: readonly object[]) => {
      const { body } = await branches.call(branch, 'POST', PATH, { by, records })
      return body.results.map(({ outcome }: { outcome: string }) => outcome)
    }
    return { branches, outcomes, read: () => branches.read(branch, 'seats', ['a', 'b', 'c']) }
  }
  const SWAP = [
    { id: 'a', code: 'B' },
    { id: 'b', code: 'A' },
    { id: 'c', code: 'C' },
  ]
  const SWAPPED = {
    a: { code: 'B', row: 1, place: 1 },
    b: { code: 'A', row: 1, place: 2 },
    c: { code: 'C' },
  }

  it('exchanges the values of a unique column', async () => {
    const { outcomes, read } = await open()
    expect(await outcomes('id', SWAP)).toEqual(['updated', 'updated', 'inserted'])
    expect(await read()).toEqual(SWAPPED)
  })

  it('exchanges them in a stream', async () => {
    const { branches, read } = await open()
    const lines = SWAP.map((record) => JSON.stringify(record)).join('\n')
    const headers = { 'content-type': 'application/x-ndjson' }
    const sent = await branches.call(branch, 'POST', `${PATH}?by=id`, lines, { headers })
    expect(sent).toMatchObject({ status: 200, body: { inserted: 1, updated: 2 } })
    expect(await read()).toEqual(SWAPPED)
  })

  it('exchanges the values of a unique constraint, of records found by a unique column', async () => {
    const { outcomes, read } = await open()
    const moved = [
      { code: 'A', row: 1, place: 2 },
      { code: 'B', row: 1, place: 1 },
    ]
    expect(await outcomes('code', moved)).toEqual(['updated', 'updated'])
    expect(await read()).toEqual({
      a: { code: 'A', row: 1, place: 2 },
      b: { code: 'B', row: 1, place: 1 },
    })
  })

  it('exchanges values though other records are refused, for whatever reason', async () => {
    const { branches, read } = await open()
    const path = '/tables/seats/constraints/positive'
    expect((await branches.call(branch, 'PUT', path, { check: 'place > 0' })).status).toBe(200)
    await branches.put(branch, 'seats', 'd', { code: 'D', row: 4, place: 4 })
    const others = [
      [{ id: 'z', place: -1 }, 'check_violation'],
      [{ id: 'z', place: 'x' }, undefined],
      [{ id: 'z', code: 'D' }, 'unique_violation'],
      [{ id: 'z', row: 4, place: 4 }, 'unique_violation'],
      [{ id: 'z', code: 'B' }, 'unique_violation'],
      [{ id: 'd', row: 1, place: 1 }, 'unique_violation'],
    ] as const
    const outcomes = async (records: readonly object[]) => {
      const { body } = await branches.call(branch, 'POST', PATH, { records })
      return body.results.map(
        ({ outcome, error }: { outcome: string; error?: { code?: string } }) =>
          error ? error.code : outcome,
      )
    }
    for (const [other, code] of others) {
      expect([other, await outcomes([...SWAP.slice(0, 2), other])]).toEqual([
        other,
        ['updated', 'updated', code],
      ])
      const back = [
        { id: 'a', code: 'A' },
        { id: 'b', code: 'B' },
      ]
      const isContested = 'code' in other && other.code === 'B'
      if (isContested) expect(await outcomes(back)).toEqual(['updated', 'updated'])
      else expect(await outcomes([other, ...back])).toEqual([code, 'updated', 'updated'])
    }
    // Many records that each take values of others, and links to them.
    const many = Array.from({ length: 30 }, (_, index) => ({
      id: `m${index}`,
      row: 1,
      place: 1 + (index % 2),
    }))
    expect(await outcomes([...many, ...SWAP])).toEqual([
      ...many.map(() => 'unique_violation'),
      ...['updated', 'updated', 'inserted'],
    ])
    expect(await read()).toEqual(SWAPPED)
  })

  it('moves the values of many records by one, up and down', async () => {
    const { branches, outcomes } = await open()
    const seats = (by: number) =>
      Array.from({ length: 150 }, (_, n) => ({
        ...{ id: `s${n}`, code: `C${n + by}`, row: 2, place: n + by },
      }))
    const all = (outcome: string) => seats(0).map(() => outcome)
    expect(await outcomes('id', seats(0))).toEqual(all('inserted'))
    for (const by of [1, 0]) {
      expect(await outcomes('id', seats(by))).toEqual(all('updated'))
      const last = { code: `C${149 + by}`, row: 2, place: 149 + by }
      expect(await branches.read(branch, 'seats', ['s149'])).toEqual({ s149: last })
    }
  })

  it('refuses those that wait for values which another record keeps, and no others', async () => {
    const { outcomes } = await open()
    const seats = Array.from({ length: 30 }, (_, n) => ({
      ...{ id: `s${n}`, code: `C${n}`, row: 2, place: n },
    }))
    expect(await outcomes('id', seats)).toEqual(seats.map(() => 'inserted'))
    for (const turned of [false, true]) {
      const moved = seats.map((seat, n) => {
        const exchanged = n === 25 ? 26 : 25
        if (n < 10) return { ...seat, place: n + 1 }
        if (n < 20) return { ...seat, code: `C${n + 1}` }
        return n === 25 || n === 26 ? { ...seat, code: `C${exchanged}` } : seat
      })
      const expected = moved.map((_, n) =>
        n < 20 ? 'failed' : n === 25 || n === 26 ? 'updated' : 'unchanged',
      )
      // One keeps the place that the tenth would get, and one the code of the twentieth, so none of these can move.
      const order = <Item>(items: Item[]) => (turned ? items.toReversed() : items)
      expect(await outcomes('id', order(moved))).toEqual(order(expected))
      const back = seats.slice(25, 27)
      expect(await outcomes('id', back)).toEqual(['updated', 'updated'])
    }
  })

  it('judges each record by itself, if all together break a rule', async () => {
    const { outcomes, read } = await open()
    const records = [
      { id: 'a', code: 'B' },
      { id: 'c', code: 'B' },
      { id: 'b', place: 3 },
    ]
    expect(await outcomes('id', records)).toEqual(['failed', 'failed', 'updated'])
    expect(await read()).toEqual({
      a: { code: 'A', row: 1, place: 1 },
      b: { code: 'B', row: 1, place: 3 },
    })
  })
})
