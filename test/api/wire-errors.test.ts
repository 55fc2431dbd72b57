import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase, type TestDatabase } from '../support/database.js'
import { openShop, type WireShop } from '../support/wire-clients.js'

/* The codes of errors, compared with those of PostgreSQL on plain tables. */

const TABLES = `
  create type mood as enum ('sad', 'ok');
  create table owners (id integer primary key, name text not null unique, n integer, y integer, m mood, unique (n, y));
  create table pets (id serial primary key, owner integer not null references owners, kind text, next integer);
  create table sums (id integer primary key, a integer, b integer generated always as (a + 1) stored);
  create table flags (id serial primary key, b boolean, n integer, s smallint);
  insert into owners values (1, 'Ann', 1, 1, 'ok');
  insert into flags (b, n, s) values (true, 1, 1), ('no', 2, 2), (1 = 1, 3, 3), (null, 4, 4)`

const REFUSED = [
  `insert into owners (id, name) values (5, 'a'), (5, 'b') on conflict (id) do update set name = excluded.name`,
  `insert into owners (id, name) values (5, 'a') on conflict (m) do nothing`,
  `insert into owners (id, name) values (5, 'a') on conflict on constraint nothing do nothing`,
  `update owners set n = 1, n = 2`,
  `insert into owners (id, n, n) values (5, 1, 2)`,
  `select 1 from owners o, pets o`,
  `with q as (select 1), q as (select 2) select 1`,
  `select * from (select 1) as q(a, b)`,
  `insert into pets (owner) values (null)`,
  `insert into pets (kind) values ('cat')`,
  `insert into pets (owner) values (9)`,
  `insert into owners (id, name) values (null, 'x')`,
  `select nextval('nothing_seq')`,
  `create type mood as enum ('x')`,
  `alter type mood add value 'ok'`,
  `alter table owners add constraint owners_name_key check (n > 0)`,
  `update owners set m = 'gone' where id = 0`,
  `insert into flags (b) values (2)`,
  `insert into flags values (7, 1)`,
  `insert into flags (n, b) values (1, null), (2, 0)`,
  `insert into flags (b) select n from flags`,
  `insert into flags (id, b) values (1, true) on conflict (id) do update set b = 1`,
  `update flags set b = 0`,
  `update flags set b = n + 1`,
  `update flags set b = s where id = 0`,
  `update flags set (n, b) = (1, 1)`,
  `update flags set (n, b) = (select 1, 1)`,
  `drop type mood`,
  `alter table owners add column n integer`,
  `alter table owners rename column n to y`,
  `alter table owners rename column nothing to x`,
  `alter table owners drop column nothing`,
  `alter table owners alter column nothing set not null`,
  `alter table owners drop constraint nothing`,
  `alter table owners add column x integer not null`,
  `alter table sums drop column a`,
  `alter table nothing add column x integer`,
  `create table owners (a integer)`,
  `create table others (id integer primary key, a integer default 'abc')`,
  `alter table owners add column x integer default 'abc'`,
  `create table others (id integer primary key, a integer, check (nothing > 0))`,
  `create table others (id integer primary key, a integer constraint c check (a > nothing))`,
  `alter table owners add constraint c check (nothing > 0)`,
  `create table others (id integer primary key, a nothing)`,
  `select 'a'::nothing`,
  `select cast(1 as public.nothing)`,
  `select null::nothing[]`,
  `alter table flags alter column b set not null`,
  `drop table owners`,
]

let shop: WireShop
let plain: TestDatabase
let client: pg.Client
let postgres: pg.PoolClient

beforeAll(async () => {
  shop = await openShop({})
  client = await shop.wire.connect('shop:main')
  await client.query('set offshoot.allow_data_loss = on')
  plain = await createTestDatabase()
  postgres = await plain.pool.connect()
  for (const each of [client, postgres]) await each.query(TABLES)
})
afterAll(async () => {
  postgres?.release()
  await shop?.close()
  await plain?.close()
})

const errorOf = (by: pg.ClientBase, text: string, values: readonly unknown[] = []) =>
  by.query(text, [...values]).then(
    () => undefined,
    (error: pg.DatabaseError) => error,
  )

describe('an error', () => {
  it.each(REFUSED)('has the code of PostgreSQL: %s', async (text) => {
    const expected = await errorOf(postgres, text)
    expect(expected?.code).toMatch(/^[0-9A-Z]{5}$/)
    expect((await errorOf(client, text))?.code).toBe(expected?.code)
  })

  it('says that a whole number is no boolean, as PostgreSQL does', async () => {
    for (const text of ['update flags set b = 0', 'insert into flags (b) select s from flags']) {
      const [found, expected] = await Promise.all(
        [client, postgres].map((each) =>
          each.query(text).then(
            () => undefined,
            ({ code, message }: { code: string; message: string }) => ({ code, message }),
          ),
        ),
      )
      expect(found).toEqual(expected)
      expect(found?.code).toBe('42804')
    }
    await client.query(`insert into flags (b) values (0::boolean), ('yes'), ($1)`, [false])
  })

  it('names the id that must not be null, and refuses one that changes', async () => {
    const text = `insert into owners (id, name) values (null, 'x')`
    expect(await errorOf(client, text)).toMatchObject({
      code: '23502',
      table: 'owners',
      column: 'id',
    })
    await client.query(`insert into owners (id, name) values (7, 'Gus')`)
    for (const [id, code] of [
      [8, '0A000'],
      [null, '23502'],
    ]) {
      const set = 'update owners set id = $1, n = 5 where id = 7'
      expect(await errorOf(client, set, [id])).toMatchObject({ code })
    }
    expect((await client.query('update owners set id = $1 where id = 7', [7])).rowCount).toBe(1)
    expect((await client.query('select n from owners where id = 7')).rows).toEqual([{ n: null }])
    await client.query('delete from owners where id = 7')
  })

  it('says which values of PostgreSQL a column cannot have', async () => {
    await client.query(`create table ranges (id text primary key, at timestamp, zoned timestamptz, day date, f double precision,
      n numeric(10, 2), t time, l text[])`)
    const years = 'in the years 0001 to 9999; BC, later years and infinity are not supported'
    for (const [column, values, code, message] of [
      ['at', ['0044-03-15 BC', '10000-01-01', 'infinity', '-infinity'], '22008', years],
      ['zoned', ['0044-03-15 BC', '12026-01-01 09:30+01', 'infinity'], '22008', years],
      ['day', ['0044-03-15 BC', '10000-01-01', '-infinity'], '22008', years],
      ['f', ['NaN', 'Infinity', '-infinity'], '22003', 'NaN and infinity are out of range'],
      ['n', ['NaN', 'infinity'], '22003', 'NaN and infinity are out of range'],
      ['t', ['24:00'], '22008', 'is a time that does not exist'],
      ['l', ['{a,null}'], '22P02', 'element [1]: expected a string, got null'],
      ['id', ['', 'a b', 'a/b', 'a@b', 'a.b', 'é'], '22P02', 'record id'],
    ] as const) {
      for (const value of values) {
        const text = `insert into ranges (${column}) values ($1)`
        const error = await errorOf(client, text, [value])
        expect([value, error]).toMatchObject([
          value,
          { code, message: expect.stringContaining(message) },
        ])
      }
    }
    await client.query('drop table ranges')
  })

  it('names the column for which a text is no value, if it is only one', async () => {
    await client.query(`create table vals (id serial primary key, d date, u uuid, at timestamptz, n integer);
      create table keys (id serial primary key, u uuid, d date)`)
    const [day, key] = ['table [vals]: column [d]: ', 'table [vals]: column [u]: ']
    const badDay = 'date/time field value out of range: "2024-02-30"'
    const badKey = 'invalid input syntax for type uuid: "x"'
    for (const [text, message, values = []] of [
      [`select * from vals where d = '2024-02-30'`, day + badDay],
      [`select 1 from vals v join keys k on k.d = v.d where '2024-02-30' < v.d`, day + badDay],
      [`select id from vals where n = 1 and D in ('2024-02-28', '2024-02-30')`, day + badDay],
      [`select id from vals where d between '2024-02-30' and now()`, day + badDay],
      [`insert into vals (n, u) values (1, null), (2, 'x')`, key + badKey],
      [`insert into vals values (default, '2024-02-30')`, day + badDay],
      [`update vals set n = 1, u = 'x' where id = 1`, key + badKey],
      [`delete from vals where vals.u <> 'x'`, key + badKey],
      [`with w as (select 1 from vals where u = 'x') select * from w`, key + badKey],
      [`select id from vals where u = $1`, key + badKey, ['x']],
      [`update vals set u = $2 where n = $1`, key + badKey, [1, 'x']],
      // It may be meant for either.
      [`select 1 from vals v, keys k where v.u = 'x' or k.u = 'x'`, badKey],
      [`select 'x'::uuid from vals`, badKey],
    ] as const) {
      const state = message.endsWith(badDay) ? '22008' : '22P02'
      for (let run = 0; run < 2; run++) {
        const found = await errorOf(client, text, [...values])
        expect([text, found?.code, found?.message]).toEqual([text, state, message])
      }
      if (values.length > 0) continue
      const { body } = await shop.branches.call('main', 'POST', '/sql', { statement: text })
      expect([text, body]).toMatchObject([text, { message: `invalid SQL: ${message}` }])
    }
    await client.query('drop table vals, keys')
  })

  it('names the column of records that have no value, and no position inside of an expression', async () => {
    await client.query('create table gaps (id integer primary key, a integer, b integer)')
    await client.query('insert into gaps (id, a) values (1, 1), (2, 1), (3, null)')
    for (const [text, column] of [
      ['alter table gaps alter column b set not null', 'b'],
      ['alter table gaps alter column a set not null', 'a'],
      ['alter table gaps add column c integer not null', 'c'],
    ] as const) {
      expect(await errorOf(client, text)).toMatchObject({ code: '23502', table: 'gaps', column })
    }
    const check = await errorOf(client, 'alter table gaps add constraint c check (nothing > 0)')
    expect(check).toMatchObject({ code: '42703', position: undefined })
    expect(await errorOf(client, `select '1'::money::bit`)).toMatchObject({ code: '0A000' })
    expect(await errorOf(client, `select null::xml`)).toMatchObject({ code: '0A000' })
    await client.query('drop table gaps')
  })

  it('has the code of PostgreSQL for parameters', async () => {
    for (const [text, values] of [
      ['select $2::int', [1, 2]],
      ['select $1::text', ['a\0']],
    ] as const) {
      const expected = await errorOf(postgres, text, values)
      expect([text, (await errorOf(client, text, values))?.code]).toEqual([text, expected?.code])
    }
  })

  it('names the column of a link that must not be null', async () => {
    const own = await errorOf(client, 'insert into pets (owner) values (null)')
    const other = await errorOf(postgres, 'insert into pets (owner) values (null)')
    expect([own?.table, own?.column]).toEqual([other?.table, other?.column])
    const set = 'with p as (select 1) update pets set owner = null where id = (select 1 from p)'
    await client.query('insert into pets (id, owner) values (1, 1)')
    expect(await errorOf(client, set)).toMatchObject({ code: '23502', column: 'owner' })
  })
})
