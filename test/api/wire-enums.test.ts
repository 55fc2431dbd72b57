import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { expectOk } from '../support/tables.js'
import { openShop, type WireShop } from '../support/wire-clients.js'

/* Enum types, which are known by their names as long as a column has them. */

let shop: WireShop

beforeAll(async () => {
  shop = await openShop({
    plain: [{ name: 'state', type: 'enum', enum: { values: ['on', 'off'] } }],
  })
})
afterAll(() => shop?.close())

async function fork(name: string): Promise<void> {
  await shop.branches.fork(name)
}
/** A new connection each time: what it knows, it knows from the branch. */
const connect = (branch: string) => shop.wire.connect(`shop:${branch}`)
const rowsOf = async (client: pg.Client, text: string, values?: unknown[]) =>
  (await client.query({ text, rowMode: 'array', ...(values && { values }) })).rows

async function columnOf(branch: string, table: string, column: string) {
  const { body } = expectOk(
    await shop.branches.call(branch, 'GET', `/tables/${table}/columns/${column}`),
  )
  return body
}

const LABELS = `select t.typname, array_agg(e.enumlabel::text order by e.enumsortorder)
  from pg_catalog.pg_type t join pg_catalog.pg_enum e on e.enumtypid = t.oid group by 1 order by 1`

describe('an enum type', () => {
  it('has the order of its values in checks and computed columns, as in queries', async () => {
    await fork('ordered')
    const client = await connect('ordered')
    await client.query(`create type stage as enum ('new', 'paid', 'archived')`)
    await client.query(
      `create table orders (id serial primary key, s stage check (s <= 'paid'),
         is_open boolean generated always as (s < 'paid') stored)`,
    )
    await client.query(`insert into orders (s) values ('new'), ('paid')`)
    await expect(client.query(`insert into orders (s) values ('archived')`)).rejects.toThrow(
      'check',
    )
    expect(await rowsOf(client, `select s, is_open, s < 'paid' from orders order by s`)).toEqual([
      ['new', true, true],
      ['paid', false, false],
    ])
    const check = `select pg_get_constraintdef(oid) from pg_constraint
      where conrelid = 'orders'::regclass and contype = 'c'`
    expect(await rowsOf(client, check)).toEqual([[`CHECK ((s <= 'paid'::stage))`]])
    await client.query(`alter type stage add value 'checked' before 'paid'`)
    await client.query(`insert into orders (s) values ('checked')`)
    expect(await rowsOf(client, `select s from orders where is_open order by s`)).toEqual([
      ['new'],
      ['checked'],
    ])
    await expect(client.query(`alter table orders add check (s <> 'nope')`)).rejects.toThrow(
      'invalid input value for enum',
    )
  })

  it('is known to other connections, has its name in the catalogue, and gets values', async () => {
    await fork('types')
    const first = await connect('types')
    await first.query(`create type mood as enum ('sad', 'happy')`)
    await first.query(
      `create table people (id serial primary key, mood mood not null default 'sad')`,
    )
    await first.query('create table pets (id serial primary key, kind text, mood mood)')
    const second = await connect('types')
    expect(await rowsOf(second, LABELS)).toEqual([
      ['mood', ['sad', 'happy']],
      ['plain_state', ['on', 'off']],
    ])
    expect(
      await rowsOf(
        second,
        `select c.relname, format_type(a.atttypid, a.atttypmod) from pg_attribute a join pg_class c on c.oid = a.attrelid
         where a.attname = 'mood' and c.relkind = 'r' order by 1`,
      ),
    ).toEqual([
      ['people', 'mood'],
      ['pets', 'mood'],
    ])
    await second.query(`alter type mood add value 'ok' after 'sad'`)
    await second.query(`alter type public.mood add value 'bored' before 'sad'`)
    await second.query(`alter type mood add value 'last'`)
    await second.query(`alter type mood add value if not exists 'last'`)
    await expect(second.query(`alter type mood add value 'last'`)).rejects.toThrow('already exists')
    await expect(second.query(`alter type mood add value 'x' before 'y'`)).rejects.toThrow(
      'not found',
    )
    const values = ['bored', 'sad', 'ok', 'happy', 'last']
    expect((await columnOf('types', 'people', 'mood')).enum).toEqual({ values, type: 'mood' })
    expect((await columnOf('types', 'pets', 'mood')).enum).toEqual({ values, type: 'mood' })
    const third = await connect('types')
    await third.query('alter table pets add column other mood')
    await third.query(`insert into pets (mood, other) values ('ok', 'last')`)
    expect(await rowsOf(third, 'select mood, other from pets')).toEqual([['ok', 'last']])
    // The first connection has made it with other values.
    await first.query(`create table more (id serial primary key, mood mood default 'bored'::mood)`)
    expect((await columnOf('types', 'more', 'mood')).enum).toEqual({ values, type: 'mood' })
  })

  it('refuses a value that it does not have, also where no record matches', async () => {
    await fork('assigned')
    const client = await connect('assigned')
    await client.query(`insert into plain (id, state) values ('a', 'on')`)
    const unknown = { code: '22P02', message: expect.stringContaining('it has on, off') }
    const none = `where id = 'nobody'`
    await expect(client.query(`update plain set state = 'up' ${none}`)).rejects.toMatchObject(
      unknown,
    )
    await expect(client.query(`update plain set state = $1 ${none}`, ['up'])).rejects.toMatchObject(
      unknown,
    )
    await expect(
      client.query(`update plain set (state) = row('up') ${none}`),
    ).rejects.toMatchObject(unknown)
    await expect(
      client.query(
        `insert into plain (id, state) values ('b', 'on') on conflict (id) do update set state = 'up'`,
      ),
    ).rejects.toMatchObject(unknown)
    const changed = await client.query(`update plain set state = $1 where id = 'a'`, ['off'])
    expect(changed.rowCount).toBe(1)
    expect(await rowsOf(client, 'select id, state from plain')).toEqual([['a', 'off']])
  })

  it('is what values are cast to, as SQLAlchemy does', async () => {
    await fork('casts')
    const first = await connect('casts')
    await first.query(`create type mood as enum ('sad', 'happy')`)
    await first.query('create table people (id serial primary key, mood mood)')
    const client = await connect('casts')
    await client.query('insert into people (mood) values ($1::mood), ($2::public.mood)', [
      'sad',
      'happy',
    ])
    expect(
      await rowsOf(client, 'select mood from people where mood = $1::mood', ['happy']),
    ).toEqual([['happy']])
    expect(await rowsOf(client, `select 'on'::plain_state`)).toEqual([['on']])
    await expect(client.query(`select 'sad'::other`)).rejects.toThrow(
      'type [other] is not supported',
    )
    await expect(client.query(`select 'sad'::pg_catalog.mood`)).rejects.toThrow('is not supported')
    await expect(client.query('create table t (id text primary key, o other)')).rejects.toThrow(
      'type [other] is not supported: if it is an enum, create it in the same request or connection',
    )
  })

  it('that a column has by itself gets values by the name that the catalogue shows', async () => {
    await fork('own')
    const client = await connect('own')
    await client.query(`alter type plain_state add value 'broken'`)
    expect((await columnOf('own', 'plain', 'state')).enum).toEqual({
      values: ['on', 'off', 'broken'],
    })
  })

  it('is renamed and dropped, but not while a column has it', async () => {
    await fork('dropped')
    const first = await connect('dropped')
    await first.query(`create type mood as enum ('sad', 'happy')`)
    await first.query('create table people (id serial primary key, mood mood)')
    const client = await connect('dropped')
    await client.query('alter type mood rename to feeling')
    await expect(client.query('drop type feeling')).rejects.toThrow(
      'column [mood] of table [people] has it',
    )
    await expect(client.query(`create type feeling as enum ('x')`)).rejects.toThrow(
      'already exists',
    )
    await client.query(`alter table people alter column mood type text`)
    await client.query('drop type feeling')
    await client.query('drop type if exists feeling')
    expect(await rowsOf(client, LABELS)).toEqual([['plain_state', ['on', 'off']]])
    await client.query(`create type feeling as enum ('new')`)
    await client.query('alter table people add column other feeling')
    expect((await columnOf('dropped', 'people', 'other')).enum).toEqual({
      values: ['new'],
      type: 'feeling',
    })
  })

  it('goes with its last column, also for the connection that has made it', async () => {
    await fork('again')
    const client = await connect('again')
    for (let round = 0; round < 2; round++) {
      await client.query(`create type kind as enum ('x')`)
      await client.query('create table kinds (id serial primary key, kind kind)')
      await client.query('begin')
      await client.query('drop table kinds')
      await client.query('commit')
    }
    await client.query(`create type kind as enum ('y')`)
    await expect(client.query(`create type kind as enum ('z')`)).rejects.toThrow('already exists')
  })

  it('goes with the schema to forks and back by merges, and its values are merged', async () => {
    await fork('source')
    const first = await connect('source')
    await first.query(`create type mood as enum ('sad', 'happy')`)
    await first.query('create table people (id serial primary key, mood mood)')
    await shop.branches.fork('child', 'source')
    const child = await connect('child')
    await child.query(`alter type mood add value 'ok'`)
    await child.query(`insert into people (mood) values ('ok')`)
    await first.query(`select * from offshoot.merge('child')`)
    const again = await connect('source')
    expect(await rowsOf(again, 'select mood from people')).toEqual([['ok']])
    expect((await columnOf('source', 'people', 'mood')).enum).toEqual({
      values: ['sad', 'happy', 'ok'],
      type: 'mood',
    })
  })

  it('has one list after a merge if one side adds values and the other a table with it', async () => {
    await fork('wide')
    const first = await connect('wide')
    await first.query(`create type mood as enum ('sad', 'happy')`)
    await first.query('create table a (id serial primary key, e mood)')
    await shop.branches.fork('wide-child', 'wide')
    await first.query('create table b (id serial primary key, e mood)')
    await first.query(`alter type mood add value 'great'`)
    const child = await connect('wide-child')
    await child.query(`alter type mood add value 'bad' before 'sad'`)
    await child.query(`insert into a (e) values ('bad')`)
    await first.query(`select * from offshoot.merge('wide-child')`)
    const again = await connect('wide')
    await again.query('insert into b (e) select e from a')
    await again.query(`insert into b (e) values ('great'), ('happy')`)
    expect(
      await rowsOf(again, `select e from b where e = 'bad'::mood or e > 'happy' order by e`),
    ).toEqual([['bad'], ['great']])
    await child.query(`select * from offshoot.merge('wide')`)
    for (const branch of ['wide', 'wide-child']) {
      for (const table of ['a', 'b']) {
        expect((await columnOf(branch, table, 'e')).enum).toEqual({
          values: ['bad', 'sad', 'happy', 'great'],
          type: 'mood',
        })
      }
    }
  })

  it('is forgotten with the transaction, or from its savepoint on', async () => {
    await fork('undone')
    const client = await connect('undone')
    await client.query(`begin; create type mood as enum ('old'); rollback`)
    await client.query(`create type mood as enum ('new')`)
    await client.query('begin; savepoint s')
    await client.query(`create type other as enum ('old'); alter type mood add value 'old'`)
    await client.query('rollback to s')
    await client.query(`create type other as enum ('new')`)
    await client.query('create table people (id serial primary key, mood mood, other other)')
    await client.query('commit')
    expect(await rowsOf(client, LABELS)).toEqual([
      ['mood', ['new']],
      ['other', ['new']],
      ['plain_state', ['on', 'off']],
    ])
  })

  it('is shown once for columns with the same values, and apart for one that was changed alone', async () => {
    await fork('apart')
    const first = await connect('apart')
    await first.query(`create type mood as enum ('sad', 'happy')`)
    await first.query('create table people (id serial primary key, mood mood, other mood)')
    expectOk(
      await shop.branches.call('apart', 'POST', '/schema/apply', {
        edits: {
          operations: [
            {
              alterColumn: {
                table: 'people',
                column: 'other',
                enum: { values: ['sad', 'happy', 'x'], type: 'mood' },
              },
            },
          ],
        },
      }),
    )
    expect(await rowsOf(await connect('apart'), LABELS)).toEqual([
      ['mood', ['sad', 'happy']],
      ['people_other', ['sad', 'happy', 'x']],
      ['plain_state', ['on', 'off']],
    ])
  })
})
