import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const BOOKINGS = [
  { name: 'room', type: 'string' },
  { name: 'day', type: 'date' },
  { name: 'price', type: 'int' },
  { name: 'paid', type: 'int' },
] as const
const UNIQUE = { unique: ['room', 'day'] }
const CHECK = { check: 'paid <= price' }
const TAKEN = {
  code: 'unique_violation',
  table: 'bookings',
  columns: ['room', 'day'],
  constraint: 'once',
}
const FAILED = {
  code: 'check_violation',
  table: 'bookings',
  columns: ['paid', 'price'],
  constraint: 'covered',
}

/** A database with two constraints and a booking on `main`. */
async function open() {
  const branches = await TestBranches.create(service, `constraints${++number}`, {
    bookings: BOOKINGS,
  })
  const put = (path: string, body: unknown, branch = 'main') =>
    branches.call(branch, 'PUT', path, body)
  expect(await put('/tables/bookings/constraints/once', UNIQUE)).toMatchObject({ status: 200 })
  expect(await put('/tables/bookings/constraints/covered', CHECK)).toMatchObject({ status: 200 })
  await branches.put('main', 'bookings', 'a', { room: 'r', day: '2026-01-01', price: 5, paid: 5 })
  return { branches, put }
}

const TAKEN_VALUES = { room: 'r', day: '2026-01-01' }
const FAILED_VALUES = { room: 'x', price: 1, paid: 2 }

it('a check searches the letters of texts, and other values as texts', async () => {
  const branches = await TestBranches.create(service, `constraints${++number}`, {
    users: [
      { name: 'email', type: 'email' },
      { name: 'name', type: 'text' },
      { name: 'key', type: 'uuid' },
      { name: 'n', type: 'int' },
    ],
  })
  const checks = {
    domain: `lower(email) like '%@example.org'`,
    letters: `upper(trim(name)) ~ '^[A-ZÄÖÜ ]+$'`,
    key: `key::text like '0%'`,
    n: `n::text not like '%13%'`,
    joined: `trim(name || ' ' || coalesce(email, '')) <> ''`,
    replaced: `replace(lower(trim(name)), ' ', '-') <> 'a-b'`,
    price: `replace(replace(email, '.', ''), '@', '.') not like '%..%'`,
  }
  for (const [name, check] of Object.entries(checks)) {
    const path = `/tables/users/constraints/${name}`
    expect(await branches.call('main', 'PUT', path, { check })).toMatchObject({ status: 200 })
  }
  const key = '0190f3a0-0000-7000-8000-000000000000'
  const kept = { email: 'A@Example.ORG', name: ' Änne B ', key, n: 31 }
  await branches.put('main', 'users', 'a', kept)
  const broken = { domain: { email: 'a@b.com' }, letters: { name: 'A1' }, n: { n: 1131 } }
  for (const [constraint, values] of Object.entries(broken)) {
    const answer = await branches.call('main', 'PATCH', '/tables/users/data/a', values)
    expect(answer).toMatchObject({ status: 400, body: { constraint } })
  }
})

it('a time without a zone is calculated with as such', async () => {
  const branches = await TestBranches.create(service, `constraints${++number}`, {
    events: [
      { name: 'at', type: 'datetime', withoutZone: true },
      { name: 'hour', type: 'int', computed: 'extract(hour from at)' },
      { name: 'day', type: 'date', computed: 'at::date' },
      { name: 'next', type: 'datetime', computed: `date_trunc('day', at) + interval '1 day'` },
      { name: 'same', type: 'datetime', computed: 'coalesce(at, at)' },
      { name: 'moment', type: 'datetime' },
    ],
  })
  const put = (name: string, check: string) =>
    branches.call('main', 'PUT', `/tables/events/constraints/${name}`, { check })
  expectOk(await put('recent', `at > timestamp '2020-01-01'`))
  expectOk(await put('early', `extract(hour from at) < 12 and at::date < '2030-01-01'`))
  expect(await put('zoned', 'extract(hour from moment) < 12')).toMatchObject({ status: 400 })
  await branches.put('main', 'events', 'a', { at: '2026-05-01T10:20:30Z' })
  expect(await branches.read('main', 'events', ['a'])).toMatchObject({
    a: {
      ...{ hour: 10, day: '2026-05-01', next: '2026-05-02T00:00:00.000Z' },
      same: '2026-05-01T10:20:30.000Z',
    },
  })
  const late = await branches.call('main', 'PUT', '/tables/events/data/b', {
    at: '2026-05-01T12:00:00Z',
  })
  expect(late).toMatchObject({ status: 400, body: { constraint: 'early' } })
  const found = await branches.call('main', 'POST', '/sql', {
    statement: `select hour, next > at as is_later from events where same = at`,
  })
  expect(expectOk(found).body.records).toEqual([{ hour: 10, is_later: true }])
})

const STATES = ['new', 'paid', 'archived']
const stateColumn = (values: readonly string[]) =>
  ({ name: 's', type: 'enum', enum: { values } }) as Column

/** A check and a computed column over an enum whose values have another order than that of letters. */
async function openStates() {
  const branches = await TestBranches.create(service, `constraints${++number}`, {
    orders: [
      stateColumn(STATES),
      { name: 'open', type: 'bool', computed: `s < 'paid'` },
      { name: 'note', type: 'text' },
    ],
  })
  const put = (path: string, body: unknown, branch = 'main') =>
    branches.call(branch, 'PUT', `/tables/orders/${path}`, body)
  const alter = (changes: object, branch = 'main', column = 's') =>
    branches.call(branch, 'PATCH', `/tables/orders/columns/${column}`, changes)
  expectOk(await put('constraints/known', { check: `s <= 'paid' or s is null` }))
  return { branches, put, alter }
}

it('values of an enum are compared by their order, like in SQL', async () => {
  const { branches, put } = await openStates()
  for (const s of ['new', 'paid']) await branches.put('main', 'orders', s, { s })
  expect(await put('data/archived', { s: 'archived' })).toMatchObject({
    status: 400,
    body: { code: 'check_violation', constraint: 'known' },
  })
  expect(await branches.read('main', 'orders', ['new', 'paid'])).toMatchObject({
    new: { open: true },
    paid: { open: false },
  })
  const filter = { filter: { open: true }, columns: ['id'] }
  const found = await branches.call('main', 'POST', '/tables/orders/query', filter)
  expect(expectOk(found).body.records).toMatchObject([{ id: 'new' }])
  const unknown = { status: 400, body: { message: /invalid input value for enum s: "nope"/ } }
  for (const check of [`s <> 'nope'`, `s in ('new', 'nope')`, `coalesce(s, 'new') < 'nope'`]) {
    const { status, body } = await put('constraints/other', { check })
    expect({ check, status, message: body.message }).toMatchObject({
      ...{ check, status: unknown.status },
      message: expect.stringMatching(unknown.body.message),
    })
  }
  expectOk(
    await put('constraints/mid', {
      check: `s between 'new' and 'archived' and s = any(array['new', 'paid'])`,
    }),
  )
  const sql = `alter table orders add constraint sql_order check (s > 'archived')`
  const refused = await branches.call('main', 'POST', '/sql', { statement: sql })
  expect(refused.body).toMatchObject({ code: 'constraint_violated', records: ['new', 'paid'] })
})

it.each(['main', 'fork'])('checks follow the order of an enum that changes on %s', async (on) => {
  const { branches, put, alter } = await openStates()
  for (const s of ['new', 'paid']) await branches.put('main', 'orders', s, { s })
  if (on === 'fork') await branches.fork('fork')
  // A value in between is known, and one in front of the limit.
  const values = ['draft', 'new', 'checked', 'paid', 'archived']
  expectOk(await alter({ enum: { values } }, on))
  for (const s of ['draft', 'checked']) expectOk(await put(`data/${s}`, { s }, on))
  expect(await put('data/b', { s: 'archived' }, on)).toMatchObject({ status: 400 })
  expect(await branches.read(on, 'orders', values)).toMatchObject({
    draft: { open: true },
    checked: { open: true },
    paid: { open: false },
  })
  const reordered = { enum: { values: ['draft', 'paid', 'new', 'checked', 'archived'] } }
  const breaking = ['checked', 'new']
  expect(await alter(reordered, on)).toMatchObject({
    status: 400,
    body: { code: 'constraint_violated', constraint: 'known', records: breaking },
  })
  const preview = await alter({ ...reordered, dryRun: true }, on)
  expect(preview.body.problems).toMatchObject([{ constraint: 'known', records: 2 }])
  const without = await alter({ enum: { values: ['draft', 'new', 'checked', 'archived'] } }, on)
  expect(without).toMatchObject({ status: 400, body: { code: 'invalid_schema' } })
  expect(without.body.message).toContain('its value [paid] is used by constraint [known]')
  if (on === 'fork') {
    await branches.merge('fork')
    expectOk(await put('data/c', { s: 'checked' }))
    expect(await put('data/b', { s: 'archived' })).toMatchObject({ status: 400 })
  }
})

it('a column that becomes an enum, or none any more, is compared accordingly', async () => {
  const { branches, put, alter } = await openStates()
  await branches.put('main', 'orders', 'new', { s: 'new' })
  expectOk(await alter({ type: 'string' }))
  // As letters, everything from a to p is less.
  expectOk(await put('data/b', { s: 'archived' }))
  expect(await branches.read('main', 'orders', ['b'])).toMatchObject({ b: { open: true } })
  const back = { type: 'enum', enum: { values: STATES } }
  expect(await alter(back)).toMatchObject({ status: 400, body: { records: ['b'] } })
  await branches.remove('main', 'orders', 'b')
  expectOk(await alter(back))
  expect(await put('data/b', { s: 'archived' })).toMatchObject({ status: 400 })
  expect(await alter({ type: 'enum', enum: { values: ['a'] } }, 'main', 'note')).toMatchObject({
    status: 200,
  })
})

it('a merge is refused if one side removes a value of an enum that a check of the other one names', async () => {
  const { branches, put, alter } = await openStates()
  await branches.fork('fork')
  expectOk(await alter({ enum: { values: ['new', 'paid'] } }, 'fork'))
  expectOk(await put('constraints/last', { check: `s is distinct from 'archived'` }))
  const answer = await branches.merging('fork')
  expect(answer.body.conflicts).toMatchObject([
    {
      table: 'orders',
      message: expect.stringContaining('[archived] is used by constraint [last]'),
    },
  ])
})

describe.each(['main', 'fork'])('a preview of constraints on %s', (branch) => {
  it('lists the first records that do not allow them, and their number', async () => {
    const branches = await TestBranches.create(service, `constraints${++number}`, {
      bookings: BOOKINGS,
    })
    const ids = Array.from({ length: 25 }, (_, index) => `r${String(index).padStart(2, '0')}`)
    const booked = { room: 'r', day: '2026-01-01', price: 1, paid: 2 }
    await branches.bulk(
      'main',
      'bookings',
      ids.map((id) => ({ id, ...booked })),
    )
    if (branch === 'fork') await branches.fork('fork')
    await branches.patch(branch, 'bookings', 'r01', { room: 's', paid: 0 })
    const broken = ids.filter((id) => id !== 'r01')
    const samples = broken.slice(0, 20).map((id) => ({ id }))
    const once = { table: 'bookings', constraint: 'once', kind: 'unique', records: 24, samples }
    const covered = { ...once, constraint: 'covered', kind: 'check' }
    const path = '/tables/bookings/constraints'
    const tried = await branches.call(branch, 'PUT', `${path}/once`, { ...UNIQUE, dryRun: true })
    expect(tried).toMatchObject({
      status: 200,
      body: { constraint: { name: 'once', ...UNIQUE }, problems: [once] },
    })
    const refused = await branches.call(branch, 'PUT', `${path}/covered`, CHECK)
    expect(refused).toMatchObject({ status: 400, body: { problems: [covered] } })
    const add = [
      { name: 'once', ...UNIQUE },
      { name: 'covered', ...CHECK },
      { name: 'divides', check: '1 / (paid - 2) < 1' },
      { name: 'fine', check: 'price >= 0' },
    ].map((constraint) => ({ addConstraint: { table: 'bookings', constraint } }))
    const divides = { ...once, constraint: 'divides', kind: 'expression', records: 20 }
    const preview = await branches.call(branch, 'POST', '/schema/preview', {
      edits: { operations: add },
    })
    expect(preview).toMatchObject({ status: 200, body: { problems: [once, covered, divides] } })
    const columns = [
      { name: 'share', type: 'int', computed: '1 / (paid - 2)' },
      { name: 'owner', type: 'string', notNull: true },
      { name: 'number', type: 'int', generate: 'sequence' },
      { name: 'next', type: 'int', computed: '1 / (number - 1)' },
    ].map((column) => ({ addColumn: { table: 'bookings', column } }))
    const added = await branches.call(branch, 'POST', '/schema/preview', {
      edits: { operations: columns },
    })
    const all = { records: 25, samples: ids.slice(0, 20).map((id) => ({ id })) }
    expect(added.body.problems).toMatchObject([{ column: 'owner', kind: 'notNull', ...all }])
    const computed = await branches.call(branch, 'POST', '/schema/preview', {
      edits: { operations: columns.slice(0, 1) },
    })
    const failing = { column: 'share', kind: 'expression', records: 20, samples }
    expect(computed.body.problems).toMatchObject([failing])
    await branches.remove(branch, 'bookings', ...broken)
    for (const dryRun of [true, false]) {
      const allowed = await branches.call(branch, 'PUT', `${path}/once`, { ...UNIQUE, dryRun })
      expect(allowed).toMatchObject({ status: 200 })
      const { body } = await branches.call(branch, 'GET', '')
      expect(body.schema.tables[0].constraints ?? []).toHaveLength(dryRun ? 0 : 1)
    }
  })
})

describe.each(['main', 'fork'])('the constraints of a table on %s', (branch) => {
  let branches: TestBranches
  let send: (method: string, path: string, body?: unknown, headers?: object) => Promise<never>
  beforeAll(async () => {
    branches = (await open()).branches
    if (branch === 'fork') await branches.fork('fork')
    send = (async (method: string, path: string, body?: unknown, headers = {}) =>
      branches.call(branch, method, path, body, { headers })) as never
    await branches.put(branch, 'bookings', 'b', {
      room: 's',
      day: '2026-01-01',
      price: 5,
      paid: 1,
    })
  })

  it.each([
    ['unique', TAKEN_VALUES, TAKEN],
    ['check', FAILED_VALUES, FAILED],
  ])('refuse a single write that violates the %s', async (_, values, fields) => {
    const path = '/tables/bookings/data'
    expect(await send('POST', path, values)).toMatchObject({ status: 400, body: fields })
    const replaced = await send('PUT', `${path}/new`, values)
    expect(replaced).toMatchObject({ status: 400, body: { ...fields, record: 'new' } })
    const updated = await send('PATCH', `${path}/b`, values)
    expect(updated).toMatchObject({ status: 400, body: { ...fields, record: 'b' } })
    expect(await branches.read(branch, 'bookings', ['new'])).toEqual({})
  })

  it('regard columns that an update does not name', async () => {
    expect(await send('PATCH', '/tables/bookings/data/b', { room: 'r' })).toMatchObject({
      status: 400,
      body: TAKEN,
    })
    expect(await send('PATCH', '/tables/bookings/data/b', { paid: 6 })).toMatchObject({
      status: 400,
      body: FAILED,
    })
    const more = { paid: { $increment: 6 } }
    expect(await send('PATCH', '/tables/bookings/data/b', more)).toMatchObject({
      status: 400,
      body: FAILED,
    })
    // The row of the fork counts, not the one that it inherits.
    await branches.patch(branch, 'bookings', 'a', { price: 20 })
    await branches.patch(branch, 'bookings', 'a', { paid: 20 })
    await branches.patch(branch, 'bookings', 'a', { paid: 5, price: 5 })
  })

  it('judge an upsert of one record by the values that it has then', async () => {
    const KNOWN = { check: 'room is not null or day is not null' }
    const path = '/tables/bookings/constraints/known'
    expect(await send('PUT', path, KNOWN)).toMatchObject({ status: 200 })
    const record = '/tables/bookings/data/b'
    expect(await send('POST', record, { price: 6 })).toMatchObject({ status: 200 })
    const upsert = { update: { table: 'bookings', id: 'b', fields: { price: 7 }, upsert: true } }
    const sent = await send('POST', '/transaction', { operations: [upsert] })
    expect(sent).toMatchObject({ status: 200 })
    expect(await branches.record(branch, 'bookings', 'b')).toMatchObject({ room: 's', price: 7 })
    const missing = await send('POST', '/tables/bookings/data/none', { price: 7 })
    expect(missing).toMatchObject({ status: 400, body: { constraint: 'known' } })
    const taken = await send('PUT', `${record}?createOnly=true`, { price: 7 })
    expect(taken).toMatchObject({ status: 422, body: { code: 'already_exists' } })
    expect(await send('DELETE', path)).toMatchObject({ status: 200 })
  })

  it('ignore records without a value', async () => {
    await branches.put(branch, 'bookings', 'n1', { room: 'r', price: 1 })
    await branches.put(branch, 'bookings', 'n2', { room: 'r', paid: 1 })
    await branches.remove(branch, 'bookings', 'n1', 'n2')
  })

  it('name each record of a bulk insert', async () => {
    const records = [{ room: 'n', day: '2026-01-01' }, TAKEN_VALUES, FAILED_VALUES]
    const answer = await send('POST', '/tables/bookings/bulk', { records })
    expect(answer).toMatchObject({ status: 400, body: { code: expect.any(String) } })
    expect((answer as { body: { errors: unknown[] } }).body.errors).toEqual(
      expect.arrayContaining([
        expect.objectContaining({ index: 1, ...TAKEN }),
        expect.objectContaining({ index: 2, ...FAILED }),
      ]),
    )
    const twice = { room: 't', day: '2026-01-01' }
    const repeated = await send('POST', '/tables/bookings/bulk', { records: [twice, twice] })
    expect(repeated).toMatchObject({ status: 400, body: { errors: [{ index: 1, ...TAKEN }] } })
  })

  it.each(['', '?mode=partial', '?existing=replace', '?existing=skip'])(
    'name the line of a stream%s',
    async (mode) => {
      const lines = [{ room: `l${mode}`, day: '2026-01-01' }, FAILED_VALUES, TAKEN_VALUES]
      for (const [position, fields] of [
        [1, FAILED],
        [2, TAKEN],
      ] as const) {
        const body = `${JSON.stringify(lines[0])}\n${JSON.stringify(lines[position])}\n`
        const answer = await send('POST', `/tables/bookings/bulk${mode}`, body, {
          'content-type': 'application/x-ndjson',
        })
        const isPartial = mode === '?mode=partial'
        expect((answer as { body: { errors: unknown[] } }).body.errors).toEqual([
          expect.objectContaining({ line: 2, ...fields }),
          ...(isPartial && position === 2 ? [expect.anything()] : []).slice(1),
        ])
        const { body: found } = (await send('POST', '/tables/bookings/query', {
          filter: { room: `l${mode}` },
        })) as { body: { records: { id: string }[] } }
        expect(found.records.length).toBe(isPartial ? 1 : 0)
        await branches.remove(branch, 'bookings', ...found.records.map(({ id }) => id))
      }
    },
  )

  it('are what ON CONFLICT names, by their columns or their names', async () => {
    const insert = (end: string, values = "('z', 'r', '2026-01-01', 7), ('y', 'y', null, 7)") =>
      send('POST', '/sql', {
        statement: `insert into bookings (id, room, day, price) values ${values} ${end}`,
      }) as Promise<{ status: number; body: { records: unknown; total: number; message: string } }>
    const update = 'do update set price = bookings.price + excluded.price returning id, price'
    const changed = await insert(`on conflict (day, room) ${update}`)
    expect(changed.body.records).toEqual([
      { id: 'a', price: 12 },
      { id: 'y', price: 7 },
    ])
    const named = await insert(
      `on conflict on constraint once ${update}`,
      "('z', 'r', '2026-01-01', 1)",
    )
    expect(named.body.records).toEqual([{ id: 'a', price: 13 }])
    for (const target of ['(room, day)', 'on constraint once', '']) {
      const nothing = await insert(
        `on conflict ${target} do nothing`,
        "('z', 'r', '2026-01-01', 1)",
      )
      expect([target, nothing]).toMatchObject([target, { status: 200, body: { total: 0 } }])
    }
    const both = "('v', 'v', '2026-01-01', 1), ('w', 'v', '2026-01-01', 2)"
    expect((await insert('on conflict (room, day) do nothing', both)).body.total).toBe(1)
    for (const target of ['(room)', 'on constraint covered', '(room, day, price)']) {
      const refused = await insert(`on conflict ${target} do nothing`)
      expect([refused.status, refused.body.message]).toEqual([
        400,
        expect.stringContaining('ON CONFLICT'),
      ])
    }
    await branches.remove(branch, 'bookings', 'v', 'y')
    await branches.patch(branch, 'bookings', 'a', { price: 5 })
  })

  it('find the records of an upsert by the name of a unique constraint', async () => {
    const values = { room: 'r', day: '2026-01-01' }
    const records = [
      { ...values, price: 6 },
      { ...values, price: 7 },
      { room: 'u', day: '2026-01-01' },
      { room: 'u' },
      { ...values, id: 'other' },
    ]
    const answer = (await send('POST', '/tables/bookings/upsert', { records, by: 'once' })) as {
      body: { results: { id?: string; outcome: string; error?: { message: string } }[] }
    }
    const { results } = answer.body
    expect(results.map(({ outcome }) => outcome)).toEqual([
      'updated',
      'updated',
      'inserted',
      'failed',
      'failed',
    ])
    expect(results[0]?.id).toBe('a')
    expect(results[3]?.error?.message).toContain('column [day]: a value is required')
    expect(results[4]?.error?.message).toContain('has the id [a]')
    expect(await branches.read(branch, 'bookings', ['a'])).toMatchObject({ a: { price: 7 } })
    expect(await send('POST', '/tables/bookings/upsert', { records, by: 'covered' })).toMatchObject(
      {
        status: 400,
      },
    )
    await branches.remove(branch, 'bookings', results[2]?.id ?? '')
    await branches.patch(branch, 'bookings', 'a', { price: 5 })
  })

  it('are kept by transactions and SQL', async () => {
    for (const [values, fields] of [
      [TAKEN_VALUES, TAKEN],
      [FAILED_VALUES, FAILED],
    ]) {
      const insert = { table: 'bookings', record: values }
      const answer = await send('POST', '/transaction', { operations: [{ insert }] })
      expect(answer).toMatchObject({ status: 400, body: { errors: [{ index: 0, ...fields }] } })
    }
    for (const [statement, fields] of [
      ["insert into bookings (room, day) values ('r', '2026-01-01')", TAKEN],
      ["update bookings set room = 'r' where id = 'b'", TAKEN],
      ['update bookings set paid = price + 1', FAILED],
    ]) {
      const answer = await send('POST', '/sql', { statement })
      expect([statement, answer]).toMatchObject([statement, { status: 400, body: fields }])
    }
  })
})

it('a check names the record that fails it, of a set and in SQL, on a branch and a fork', async () => {
  const { branches } = await open()
  await branches.put('main', 'bookings', 'low', { room: 's', price: 1, paid: 0 })
  await branches.fork('fork')
  for (const branch of ['main', 'fork']) {
    const set = { filter: { price: { $le: 5 } }, set: { paid: 3 } }
    const ofSet = await branches.call(branch, 'PATCH', '/tables/bookings/data', set)
    expect(ofSet).toMatchObject({ status: 400, body: { ...FAILED, record: 'low' } })
    const statement = "update bookings set paid = 2 where id = 'low'"
    const ofSql = await branches.call(branch, 'POST', '/sql', { statement })
    expect(ofSql).toMatchObject({ status: 400, body: { ...FAILED, record: 'low' } })
  }
})

describe('a constraint', () => {
  it('is a part of the schema, and follows the names of its columns', async () => {
    const { branches } = await open()
    await branches.edit('main', {
      renameColumn: { table: 'bookings', oldName: 'price', newName: 'Cost' },
    })
    const { body } = await branches.call('main', 'GET', '')
    expect(body.schema.tables[0].constraints).toEqual([
      { name: 'once', unique: ['room', 'day'] },
      { name: 'covered', check: 'paid <= "Cost"' },
    ])
    const compared = await branches.call('main', 'POST', '/schema/compare', { schema: body.schema })
    expect(compared.body.edits.operations).toEqual([])
    const { constraints: _, ...table } = body.schema.tables[0]
    const unaware = await branches.call('main', 'POST', '/schema/compare', {
      schema: { tables: [table] },
    })
    expect(unaware.body.edits.operations).toEqual([])
    const without = await branches.call('main', 'POST', '/schema/compare', {
      schema: { tables: [{ ...table, constraints: [] }] },
    })
    expect(without.body.edits.operations).toEqual([
      { removeConstraint: { table: 'bookings', constraint: 'once' } },
      { removeConstraint: { table: 'bookings', constraint: 'covered' } },
    ])
  })

  it('can be removed, and is replaced by another one of its name', async () => {
    const { branches, put } = await open()
    const path = '/tables/bookings/constraints'
    expect(await put(`${path}/covered`, { check: 'price >= 0' })).toMatchObject({ status: 200 })
    await branches.put('main', 'bookings', 'b', { price: 1, paid: 2 })
    expect(await put('/tables/bookings/data/c', { price: -1 })).toMatchObject({
      status: 400,
      body: { code: 'check_violation', columns: ['price'] },
    })
    for (const name of ['once', 'covered']) {
      expect(await branches.call('main', 'DELETE', `${path}/${name}`)).toMatchObject({
        status: 200,
      })
    }
    await branches.put('main', 'bookings', 'c', { ...TAKEN_VALUES, price: -1 })
    expect(await branches.call('main', 'DELETE', `${path}/once`)).toMatchObject({
      status: 404,
      body: { code: 'constraint_not_found' },
    })
  })

  it('is not added while records violate it, which are listed', async () => {
    const { branches, put } = await open()
    await branches.fork('dev')
    await branches.call('dev', 'DELETE', '/tables/bookings/constraints/once')
    await branches.put('dev', 'bookings', 'z', TAKEN_VALUES)
    await branches.put('dev', 'bookings', 'y', { price: -7 })
    expect(await put('/tables/bookings/constraints/once', UNIQUE, 'dev')).toMatchObject({
      status: 400,
      body: { code: 'constraint_violated', constraint: 'once', records: ['a', 'z'] },
    })
    const positive = { check: 'price > 0' }
    expect(await put('/tables/bookings/constraints/positive', positive, 'dev')).toMatchObject({
      status: 400,
      body: { code: 'constraint_violated', records: ['y'] },
    })
    await branches.remove('dev', 'bookings', 'y', 'z')
    expect(await put('/tables/bookings/constraints/once', UNIQUE, 'dev')).toMatchObject({
      status: 200,
    })
  })

  it.each([
    [{ unique: ['room', 'nowhere'] }, 'column [nowhere]: column not found'],
    [{ check: 'now() > day' }, 'depends on more than the record'],
    [{ check: 'room' }, 'constraint [x]: a condition has type boolean, and not text'],
    [{ check: 'price + 1' }, 'constraint [x]: a condition has type boolean, and not bigint'],
    [{ check: 'length(price) > 1' }, 'constraint [x]: function length(bigint) does not exist'],
    [
      { check: 'upper(price) > room' },
      ': a function or an operator for texts gets a value of type',
    ],
    [{ check: "price > 'abc1'" }, 'constraint [x]: invalid input syntax for type bigint: "abc1"'],
    [{ check: 'nowhere > 1' }, 'column "nowhere" does not exist'],
    [{ check: '(select 1) = price' }, 'cannot have subqueries'],
    [{ check: '1 = 1' }, 'uses no column'],
    [{ unique: ['room'], check: 'price > 1' }, 'exactly one of [unique] and [check]'],
    [{ index: true }, 'exactly one of [unique] and [check]'],
    [{ check: 'price > 1', index: true }, '[index] is for [unique] only'],
  ])('is refused if it is invalid: %j', async (body, message) => {
    const { put } = await open()
    const answer = await put('/tables/bookings/constraints/x', body)
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain(message)
  })

  it('can be shown as an index, and stays one if a request does not name it', async () => {
    const { branches, put } = await open()
    const set = (rule: object) => put('/tables/bookings/constraints/x', rule)
    const shown = async () => {
      const { body } = expectOk(await branches.call('main', 'GET', ''))
      const { constraints } = body.schema.tables[0]
      return constraints.find(({ name }: { name: string }) => name === 'x')
    }
    const rule = { unique: ['room', 'paid'], index: true }
    expectOk(await set({ ...rule, dryRun: true }))
    expect(await shown()).toBeUndefined()
    expectOk(await set(rule))
    expect(await shown()).toEqual({ name: 'x', ...rule })
    expectOk(await set({ unique: ['room', 'paid'] }))
    expect(await shown()).toEqual({ name: 'x', ...rule })
    expectOk(await set({ unique: ['room', 'paid'], index: false }))
    expect(await shown()).toEqual({ name: 'x', unique: ['room', 'paid'] })
  })

  it('can use functions of numbers and patterns', async () => {
    const { branches, put } = await open()
    const create = `create table measures (
      id text primary key, n int check (mod(n, 5) = 0), v float,
      d numeric(1000, 10) check (sqrt(d) < 10 and div(d, 1) < 100 and ln(d) > 0),
      t text check (t similar to '[a-z]{2}-[0-9]+' and t not similar to 'x%'),
      root float generated always as (sqrt(power(v, 2) + v) + exp(ln(v))) stored)`
    const sql = (statement: string) => branches.call('main', 'POST', '/sql', { statement })
    expect((await sql(create)).status).toBe(200)
    expect(
      (await put('/tables/measures/constraints/even', { check: 'mod(n, 2) = 0' })).status,
    ).toBe(200)
    await branches.put('main', 'measures', 'a', { n: 10, v: 1, d: '1.5', t: 'ab-12' })
    expect(await branches.record('main', 'measures', 'a')).toMatchObject({
      root: Math.SQRT2 + 1,
    })
    for (const values of [{ n: 15 }, { n: 2 }, { d: 101 }, { d: 0 }, { t: 'ab-' }, { t: 'xb-1' }]) {
      expect(await put('/tables/measures/data/b', values)).toMatchObject({
        status: 400,
        body: { code: 'check_violation', columns: [Object.keys(values)[0]] },
      })
    }
  })

  it('keeps its columns from being removed', async () => {
    const { branches } = await open()
    const answer = await branches.call('main', 'DELETE', '/tables/bookings/columns/day')
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_schema' } })
    expect(answer.body.message).toContain('is used by constraint [once]')
  })
})

describe('a merge', () => {
  it('is refused if its outcome violates constraints, and can be settled by other values', async () => {
    const { branches } = await open()
    await branches.fork('dev')
    await branches.put('main', 'bookings', 'm', { room: 'm', day: '2026-02-02' })
    await branches.put('dev', 'bookings', 'd', { room: 'm', day: '2026-02-02' })
    await branches.patch('main', 'bookings', 'a', { price: 5, paid: 1 })
    await branches.patch('main', 'bookings', 'a', { price: 2 })
    await branches.patch('dev', 'bookings', 'a', { room: 'q' })
    const [unique] = (await branches.merge('dev', { dryRun: true })).conflicts
    expect(unique).toMatchObject({
      kind: 'notUnique',
      table: 'bookings',
      constraint: 'once',
      ids: ['d', 'm'],
      value: { room: 'm', day: '2026-02-02' },
    })
    expect(await branches.merging('dev')).toMatchObject({
      status: 409,
      body: { code: 'merge_conflict', conflictCount: 1 },
    })
    const resolution = {
      table: 'bookings',
      id: 'd',
      columns: { room: { value: 'n' } },
      token: unique.tokens.d,
    }
    expect(await branches.merge('dev', { resolutions: [resolution] })).toMatchObject({
      merged: true,
    })
    expect(await branches.read('main', 'bookings', ['d'])).toEqual({
      d: { room: 'n', day: '2026-02-02' },
    })
  })

  it('finds records that fail a check with the columns of both sides', async () => {
    const { branches } = await open()
    await branches.fork('dev')
    await branches.patch('main', 'bookings', 'a', { price: 5, paid: 1 })
    await branches.patch('main', 'bookings', 'a', { price: 3 })
    await branches.patch('dev', 'bookings', 'a', { paid: 4 })
    // Both changed `paid`; with theirs, the record has paid 4 of 3.
    const options = { strategy: 'theirs', dryRun: true }
    const { conflicts } = await branches.merge('dev', options)
    expect(conflicts).toMatchObject([
      { kind: 'check', constraint: 'covered', table: 'bookings', ids: ['a'], records: 1 },
    ])
    expect((await branches.merging('dev', { strategy: 'theirs' })).status).toBe(409)
    expect(await branches.merge('dev', { strategy: 'ours' })).toMatchObject({ conflictCount: 0 })
  })

  it('checks all records of the target if it brings a constraint', async () => {
    const { branches, put } = await open()
    await branches.fork('dev')
    const positive = { check: 'price > 0' }
    expect(await put('/tables/bookings/constraints/positive', positive, 'dev')).toMatchObject({
      status: 200,
    })
    await branches.put('main', 'bookings', 'n', { price: -1 })
    expect((await branches.merge('dev', { dryRun: true })).conflicts).toMatchObject([
      { kind: 'check', constraint: 'positive', ids: ['n'] },
    ])
    await branches.remove('main', 'bookings', 'n')
    expect(await branches.merge('dev')).toMatchObject({
      merged: true,
      schema: { operations: [{ addConstraint: { table: 'bookings' } }] },
    })
    expect((await put('/tables/bookings/data/n', { price: -1 })).status).toBe(400)
  })

  it('brings a unique constraint together with the records that keep it', async () => {
    const { branches, put } = await open()
    await branches.put('main', 'bookings', 'b', { room: 's', price: 7 })
    await branches.put('main', 'bookings', 'c', { room: 't', price: 7 })
    await branches.fork('dev')
    await branches.patch('dev', 'bookings', 'c', { price: 8 })
    expect(await put('/tables/bookings/constraints/p', { unique: ['price'] }, 'dev')).toMatchObject(
      { status: 200 },
    )
    expect(await branches.merge('dev')).toMatchObject({ merged: true })
    expect((await put('/tables/bookings/data/d', { price: 8 })).status).toBe(400)
    await branches.put('main', 'bookings', 'd', { price: 9 })
  })

  it('moves unique values between records that a check requires to have one', async () => {
    const { branches, put } = await open()
    await put('/tables/bookings/constraints/full', {
      check: 'room is not null and day is not null',
    })
    await branches.put('main', 'bookings', 'b', { room: 's', day: '2026-01-01' })
    await branches.fork('dev')
    await branches.patch('dev', 'bookings', 'b', { room: 'tmp' })
    await branches.patch('dev', 'bookings', 'a', { room: 's' })
    await branches.patch('dev', 'bookings', 'b', { room: 'r' })
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(await branches.read('main', 'bookings', ['a', 'b'])).toMatchObject({
      a: { room: 's' },
      b: { room: 'r' },
    })
  })

  it('merges constraints by name', async () => {
    const { branches, put } = await open()
    await branches.fork('dev')
    await put('/tables/bookings/constraints/p', { check: 'price > -9' })
    await put('/tables/bookings/constraints/p', { check: 'price > -8' }, 'dev')
    await put('/tables/bookings/constraints/q', { check: 'paid > -9' })
    await put('/tables/bookings/constraints/q', { check: 'paid > -9' }, 'dev')
    await branches.call('dev', 'DELETE', '/tables/bookings/constraints/once')
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([
      {
        kind: 'schema',
        constraint: 'p',
        ours: { name: 'p', check: 'price > -9' },
        theirs: { name: 'p', check: 'price > -8' },
        takes: ['ours', 'theirs'],
      },
    ])
    const { token } = conflicts[0]
    const resolution = { table: 'bookings', kind: 'schema', constraint: 'p', take: 'theirs', token }
    expect(await branches.merge('dev', { resolutions: [resolution] })).toMatchObject({
      merged: true,
    })
    const { body } = await branches.call('main', 'GET', '')
    expect(body.schema.tables[0].constraints).toEqual([
      { name: 'covered', check: 'paid <= price' },
      { name: 'p', check: 'price > -8' },
      { name: 'q', check: 'paid > -9' },
    ])
    await branches.put('main', 'bookings', 'b', TAKEN_VALUES)
  })

  it.each(['dev', 'main'])(
    'finds values that %s has removed from an enum and the other side uses',
    async (remover) => {
      const branches = await TestBranches.create(service, `constraints${++number}`, {
        jobs: [
          { name: 'state', type: 'enum', enum: { values: ['new', 'old', 'done'] } },
          { name: 'cost', type: 'decimal', decimal: { precision: 6, scale: 2 } },
        ],
      })
      await branches.put('main', 'jobs', 'a', { state: 'new', cost: '1.00' })
      await branches.fork('dev')
      const alter = (column: string, change: object) =>
        branches.edit(remover, { alterColumn: { table: 'jobs', column, ...change } })
      await alter('state', { enum: { values: ['new', 'done'] } })
      const user = remover === 'dev' ? 'main' : 'dev'
      await branches.put(user, 'jobs', 'b', { state: 'old' })
      await branches.put(user, 'jobs', 'c', { state: 'done' })
      await branches.patch(user, 'jobs', 'a', { state: 'old' })
      const { conflicts } = await branches.merge('dev', { dryRun: true })
      expect(conflicts).toMatchObject([
        { kind: 'limit', table: 'jobs', column: 'state', ids: ['a', 'b'], records: 2 },
      ])
      for (const strategy of ['ours', 'theirs']) {
        expect((await branches.merging('dev', { strategy })).status).toBe(409)
      }
      const settle = (id: string, value: string) => ({
        table: 'jobs',
        id,
        columns: { state: { value } },
        token: conflicts[0].tokens[id],
      })
      const refused = await branches.merging('dev', {
        resolutions: [settle('a', 'old'), settle('b', 'new')],
      })
      expect(refused.status).toBe(400)
      const resolutions = [settle('a', 'done'), settle('b', 'new')]
      expect(await branches.merge('dev', { resolutions })).toMatchObject({ merged: true })
      expect(await branches.read('main', 'jobs', ['a', 'b', 'c'])).toMatchObject({
        a: { state: 'done' },
        b: { state: 'new' },
        c: { state: 'done' },
      })
    },
  )

  it('that takes back the removal of a column is settled by values for new records', async () => {
    const { branches, put } = await open()
    await branches.edit('main', {
      addColumn: { table: 'bookings', column: { name: 'by', type: 'string' } },
    })
    await branches.patch('main', 'bookings', 'a', { by: 'us' })
    await branches.edit('main', {
      alterColumn: { table: 'bookings', column: 'by', notNull: true },
    })
    await put('/tables/bookings/constraints/known', { check: "by <> ''" })
    await branches.call('main', 'POST', '/checkpoints', { name: 'before' })
    await branches.edit('main', { removeConstraint: { table: 'bookings', constraint: 'known' } })
    await branches.edit('main', { removeColumn: { table: 'bookings', column: 'by' } })
    await branches.call('main', 'POST', '/checkpoints', { name: 'after' })
    await branches.put('main', 'bookings', 'b', { room: 's' })
    const revert = (options: object) =>
      branches.call('main', 'POST', '/revert', { from: 'before', to: 'after', ...options })
    const { body } = await revert({ dryRun: true })
    expect(body.conflicts).toMatchObject([{ kind: 'notNull', column: 'by', ids: ['b'] }])
    const columns = { by: { value: 'them' } }
    const resolution = { table: 'bookings', id: 'b', columns, token: body.conflicts[0].tokens.b }
    expect(await revert({ resolutions: [resolution] })).toMatchObject({ status: 200 })
    expect(await branches.read('main', 'bookings', ['a', 'b'])).toMatchObject({
      a: { by: 'us' },
      b: { by: 'them' },
    })
    expect((await put('/tables/bookings/data/c', { by: '' })).status).toBe(400)
  })

  it('is refused if it removes a column that a constraint of the other side uses', async () => {
    const { branches, put } = await open()
    await branches.fork('dev')
    await put('/tables/bookings/constraints/p', { unique: ['price'] })
    await branches.call('dev', 'DELETE', '/tables/bookings/constraints/covered')
    await branches.edit('dev', { removeColumn: { table: 'bookings', column: 'price' } })
    expect((await branches.merge('dev', { dryRun: true })).conflicts).toMatchObject([
      { kind: 'schema', constraint: 'p', takes: ['ours', 'theirs'] },
    ])
  })
})
