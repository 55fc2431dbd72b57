import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { TestBranches } from '../support/branches.js'
import { createKey } from '../support/people.js'
import type { TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { openShop, type WireService, type WireShop } from '../support/wire-clients.js'

/* Statements whose WITH writes. */

const ITEMS = [
  { id: 'a', name: 'Apple', price: 3, tags: ['x', 'y'] },
  { id: 'b', name: 'Bread', price: 5, tags: [] },
  { id: 'c', name: 'Cake', price: 9, tags: ['null', ''] },
]
const TABLES = {
  items: [
    { name: 'name', type: 'string' },
    { name: 'price', type: 'int' },
    { name: 'tags', type: 'multiple' },
    { name: 'at', type: 'datetime' },
    { name: 'data', type: 'json' },
    { name: 'cost', type: 'decimal', decimal: { precision: 38, scale: 9 } },
  ],
  archive: [
    { name: 'name', type: 'string', unique: true },
    { name: 'price', type: 'int', defaultValue: '7' },
    { name: 'data', type: 'json' },
    { name: 'cost', type: 'decimal', decimal: { precision: 38, scale: 9 } },
  ],
} as const

let shop: WireShop
let service: TestService
let branches: TestBranches
let wire: WireService

beforeAll(async () => {
  shop = await openShop(TABLES, { limits: { sqlRowsMax: 20 } })
  ;({ service, branches, wire } = shop)
  await branches.bulk('main', 'items', ITEMS)
  const client = await service.database.pool.connect()
  try {
    await client.query(`
      create schema plain;
      create table plain.items (id text primary key, name text, price bigint, tags text[], at timestamptz, data jsonb, cost numeric(38, 9));
      create table plain.archive (id text primary key, name text unique, price bigint default 7, data jsonb, cost numeric(38, 9))`)
    for (const { id, name, price, tags } of ITEMS) {
      await client.query('insert into plain.items values ($1, $2, $3, $4)', [id, name, price, tags])
    }
  } finally {
    client.release()
  }
})
afterAll(() => shop?.close())

const CONTENT = [
  'select id, name, price, tags, data::text, cost::text from items order by id',
  'select id, name, price, data::text, cost::text from archive order by id',
]

/** Runs a statement unchanged in PostgreSQL. Returns its rows, and what the tables have then. */
async function plainly(statement: string): Promise<unknown[]> {
  const client = await service.database.pool.connect()
  try {
    await client.query('begin')
    await client.query('set local search_path = plain, pg_catalog')
    const texts = async (text: string) =>
      (await client.query({ text, rowMode: 'array' })).rows.map((row) => row.map(String))
    return [await texts(statement), await texts(CONTENT[0] ?? ''), await texts(CONTENT[1] ?? '')]
  } finally {
    await client.query('rollback')
    client.release()
  }
}

const errorCode = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: { code?: string }) => error.code,
  )

let forks = 0
async function fork(): Promise<string> {
  const name = `w${++forks}`
  await branches.fork(name)
  return name
}

async function run(client: pg.Client, statement: string): Promise<unknown[]> {
  const texts = async (text: string) =>
    (await client.query({ text, rowMode: 'array' })).rows.map((row) => row.map(String))
  return [await texts(statement), await texts(CONTENT[0] ?? ''), await texts(CONTENT[1] ?? '')]
}

const STATEMENTS = [
  // What is moved is there in the end, and is gone from where it was.
  'with moved as (delete from items where price > 4 returning *) insert into archive (id, name, price) select id, name, price from moved returning id, price',
  'with moved as (delete from items returning *) select count(*), sum(price) from moved',
  // Parts that write do so although nothing reads them.
  "with a as (insert into archive (id, name) values ('n', 'N')), b as (update items set price = 0 where id = 'a'), c as (delete from items where id = 'b') select 1",
  // All parts see what was there before, also of tables that a part has written.
  "with x as (insert into items (id, name) values ('d', 'Dip') returning id) select (select count(*) from items), (select id from x)",
  "with x as (insert into items (id, name) values ('d', 'Dip') returning id, name) select id, name from x union all select id, name from items where name in ('Dip', 'Bread') order by id",
  'with x as (update items set price = price + 1 returning id, price) select x.id, x.price, i.price from x join items i using (id) order by id',
  'with x as (delete from items where price > 4 returning id) select i.id, x.id from items i left join x using (id) order by 1',
  "with x as (update items set price = 100 where id = 'a' returning *), y as (update items set price = 200 where price < 6 and id not in (select id from x) returning id, price) select * from y union all select id, price from x order by 1",
  "with x as (insert into items (id, price) values ('z', 1) returning id) delete from items where price < 4 returning id",
  "with x as (insert into items (id, price) values ('z', 1) returning id) update items set price = price + (select count(*) from x) returning id, price",
  // Steps use one another.
  "with a as (insert into archive (id, name) values ('n1', 'N1'), ('n2', 'N2') returning id, price), b as (select id, price * 2 as p from a where id <> 'n1'), c as (insert into items (id, price) select id, p from b returning *) select c.id, c.price, a.price, b.p from a, b, c order by a.id, a.price",
  "with a as (delete from items where id = 'a' returning id, name), b as (insert into items (id, name, price) select id, name || '!', 1 from a returning name) select * from b",
  // Values of all types go from one part to another.
  `with a as (insert into items (id, name, at, data, cost) values ('t', 'quote " '' \\ , {}', '2026-01-31T10:11:12.345Z', 'null', 12345678901234567890.123456789) returning *), b as (select *, null::text as n, 1.5::float8 as f, date '2026-02-01' as d, true as t from a) select id, name, at = timestamptz '2026-01-31T10:11:12.345Z', data::text, data is null, cost, n is null, f, d::text, t, tags is null from b`,
  'with a as (update items set price = price returning id, tags) select id, tags, cardinality(tags) from a order by id',
  "with a as (insert into items (id, data, cost) values ('t', '[1, {\"a\": null}]', 0.10) returning data, cost), b as (insert into archive (id, data, cost) select 't', data, cost from a) select 1",
  // Names of columns, repeated names and no rows.
  'with a(one, two) as (update items set price = 1 returning id, price) select one, two from a order by 1',
  'with a(one) as (update items set price = 1 returning id, price) select one, price from a order by 1',
  "with a as (delete from items where id = 'none' returning *) select count(*), max(price) from a",
  "with a as (delete from items where id = 'none' returning *), b as (update items set price = 1 where id in (select id from a)) select 1",
  // ON CONFLICT.
  "with a as (insert into items (id, price) values ('a', 50), ('q', 60) on conflict (id) do update set price = items.price + excluded.price returning id, price) select a.id, a.price, i.price from a left join items i using (id) order by 1",
  "with a as (insert into items (id) values ('a'), ('q') on conflict do nothing returning id) select id from a",
  "with a as (delete from items where id = 'c' returning *) insert into archive (id, name, price) select 'k', name, price from a on conflict (name) do update set price = (select max(price) from a)",
  // WITH inside of a part, and queries that refer to themselves.
  'with a as (with low as (select id from items where price < 6) update items set price = 0 from low where low.id = items.id returning items.id) select id from a order by 1',
  'with recursive n(i) as (select 1 union all select i + 1 from n where i < 9), d as (delete from items where price in (select i from n) returning id), k as (select count(*) c from n) select d.id, k.c from d, k order by 1',
  'with first as (select id from items order by price limit 1), a as (update items set price = 70 from first where first.id = items.id returning items.id), b as (insert into archive (id) select id from first returning id) select a.id, b.id, first.id from a, b, first',
  // The name of a part hides that of a table.
  "with archive as (delete from items where id = 'a' returning id) select id from archive",
  "with items as (insert into archive (id) values ('s') returning id) select id from items",
  'update items set (price, name) = (price * 2, upper(name)) returning id, price, name',
  "update items i set (price, name) = (select j.price, j.name from items j where j.price > i.price order by j.price limit 1) where id <> 'none'",
]

describe('a statement whose WITH writes', () => {
  it.each(STATEMENTS)('does what PostgreSQL does: %s', async (statement) => {
    const client = await wire.connect(`shop:${await fork()}`)
    const expected = await plainly(statement)
    expect(await run(client, statement)).toEqual(expected)
  })

  it.each(STATEMENTS)('does so in a transaction: %s', async (statement) => {
    const client = await wire.connect(`shop:${await fork()}`)
    const before = await run(client, 'select 1')
    const expected = await plainly(statement)
    await client.query('begin')
    expect(await run(client, statement)).toEqual(expected)
    await client.query('rollback')
    expect(await run(client, 'select 1')).toEqual(before)
  })

  it.each(STATEMENTS)('does so over HTTP: %s', async (statement) => {
    const branch = await fork()
    const ask = async (text: string) => {
      const body = { statement: text, responseType: 'array' }
      const { rows } = expectOk(await branches.call(branch, 'POST', '/sql', body)).body
      return rows.map((row: unknown[]) => row.map((value) => JSON.stringify(value)))
    }
    const client = await wire.connect(`shop:${await fork()}`)
    await run(client, statement)
    await ask(statement)
    const other = await wire.connect(`shop:${branch}`)
    expect(await run(other, 'select 1')).toEqual(await run(client, 'select 1'))
  })

  it('takes parameters, and is described before it runs', async () => {
    const client = await wire.connect(`shop:${await fork()}`)
    const statement = {
      name: 'prepared',
      text: `with a as (insert into archive (id, name, price) values ($1, $2, $3) returning id, price),
        b as (update items set (price, name) = ($4, $2) where id = $5 returning id, price)
        select a.id, a.price + b.price as sum, $6::text as other from a, b`,
    }
    for (const id of ['one', 'two']) {
      const { rows, fields, command } = await client.query({
        ...statement,
        values: [id, `name ${id}`, 4, 5, 'a', 'x'],
      })
      expect(rows).toEqual([{ id, sum: '9', other: 'x' }])
      expect([command, fields.map(({ dataTypeID }) => dataTypeID)]).toEqual([
        'SELECT',
        [25, 20, 25],
      ])
    }
    const branch = await fork()
    const body = {
      statement: `with a as (insert into archive (id, price) values ($1, $2) returning *) select id, price from a`,
      params: ['h', 3],
    }
    const answer = expectOk(await branches.call(branch, 'POST', '/sql', body)).body
    expect(answer).toEqual({
      records: [{ id: 'h', price: 3 }],
      columns: [
        { name: 'id', type: 'text' },
        { name: 'price', type: 'int8' },
      ],
      total: 1,
    })
  })

  it('tells how many records its last part has written', async () => {
    const client = await wire.connect(`shop:${await fork()}`)
    const moved = await client.query(
      'with m as (delete from items where price > 4 returning *) insert into archive (id, name) select id, name from m',
    )
    expect([moved.command, moved.rowCount]).toEqual(['INSERT', 2])
    const updated = await client.query(
      `with d as (delete from archive returning id) update items set price = 1`,
    )
    expect([updated.command, updated.rowCount]).toEqual(['UPDATE', 1])
  })

  it('is refused if two parts change the same record', async () => {
    const client = await wire.connect(`shop:${await fork()}`)
    const before = await run(client, 'select 1')
    for (const statement of [
      "with a as (update items set price = 1 where id = 'a') update items set price = 2",
      "with a as (delete from items where id = 'a') update items set price = 2",
      "with a as (update items set price = 1), b as (delete from items where id = 'b') select 1",
      "with a as (update items set price = 1 where id = 'a') insert into items (id) values ('a') on conflict (id) do update set price = 3",
    ]) {
      await expect(client.query(statement)).rejects.toThrow('cannot change the same record')
    }
    expect(await run(client, 'select 1')).toEqual(before)
  })

  it('does nothing if one of its parts fails', async () => {
    const client = await wire.connect(`shop:${await fork()}`)
    const before = await run(client, 'select 1')
    const failing =
      "with d as (delete from items returning *), i as (insert into archive (id, name) values ('x', 'same')) insert into archive (id, name) values ('y', 'same')"
    expect(await errorCode(client.query(failing))).toBe('23505')
    expect(await run(client, 'select 1')).toEqual(before)
  })

  it('returns no more rows from a part than its limit', async () => {
    const client = await wire.connect(`shop:${await fork()}`)
    const statement = (count: number) =>
      `with a as (select i from generate_series(1, ${count}) i), b as (delete from items where id = 'a') select count(*)::int as n from a`
    expect((await client.query(statement(20))).rows).toEqual([{ n: 20 }])
    const second = await wire.connect(`shop:${await fork()}`)
    await expect(second.query(statement(21))).rejects.toThrow('WITH [a]: returns more than 20 rows')
  })

  it('is a write: a key that only reads cannot run it, nor can a transaction that only reads', async () => {
    const key = await createKey(service, 'reads with', { fields: { scope: { access: 'read' } } })
    const branch = await fork()
    const statement = 'with d as (delete from items returning id) select id from d'
    const before = await run(await wire.connect(`shop:${branch}`), 'select 1')
    const answer = await branches.call(branch, 'POST', '/sql', { statement }, { key })
    expect(answer.status).toBe(403)
    const client = await wire.connect(`shop:${branch}`)
    await client.query('begin read only')
    expect(await errorCode(client.query(statement))).toBe('25006')
    await client.query('rollback')
    await client.query('begin')
    await expect(client.query(`declare c cursor for ${statement}`)).rejects.toThrow(
      'data-modifying statements in WITH',
    )
    await client.query('rollback')
    expect(await run(client, 'select 1')).toEqual(before)
  })

  it('is not explained', async () => {
    const branch = await fork()
    const statement = 'explain with d as (delete from items returning id) select id from d'
    const client = await wire.connect(`shop:${branch}`)
    await expect(client.query(statement)).rejects.toThrow('nor for a statement whose WITH writes')
  })
})
