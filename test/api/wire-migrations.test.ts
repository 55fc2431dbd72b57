import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { TestBranches } from '../support/branches.js'
import { createDatabase } from '../support/people.js'
import type { TestService } from '../support/service.js'
import {
  errorCode,
  openShop,
  query,
  type Received,
  type WireService,
  type WireShop,
} from '../support/wire-clients.js'

/* Transactions of PostgreSQL clients that change the schema, as tools for migrations send them. */

let shop: WireShop
let service: TestService
let branches: TestBranches
let wire: WireService

beforeAll(async () => {
  shop = await openShop({
    people: [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int' },
    ],
  })
  ;({ service, branches, wire } = shop)
  await branches.bulk('main', 'people', [
    { id: 'p1', name: 'Ann', age: 41 },
    { id: 'p2', name: 'Bob', age: 17 },
  ])
})
afterAll(() => shop?.close())

async function forkTo(name: string): Promise<pg.Client> {
  await branches.fork(name)
  return wire.connect(`shop:${name}`)
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: { code?: string }) => error.code,
  )

const heldConnections = () => service.app.sqlEngine.connections.state.held

const TABLES = `select table_name from information_schema.tables
  where table_schema = 'public' order by 1`
const tablesOf = async (client: pg.Client) =>
  (await client.query(TABLES)).rows.map((row) => row.table_name)

/** The letter of ReadyForQuery. */
const statusOf = (received: readonly Received[]) => received.at(-1)?.body.toString()

const tagsOf = (received: readonly Received[]) =>
  received.filter(({ type }) => type === 'C').map(({ body }) => body.toString().slice(0, -1))

describe('a transaction that changes the schema', () => {
  it('sees the new schema at once, and others when it is committed', async () => {
    const client = await forkTo('commits')
    const other = await wire.connect('shop:commits')
    await client.query('begin')
    const created = await client.query(
      'create table items (id serial primary key, title text not null, price numeric(10, 2))',
    )
    expect(created.command).toBe('CREATE')
    const inserted = await client.query(
      'insert into items (title, price) values ($1, $2) returning id, price',
      ['Lamp', '12.50'],
    )
    expect(inserted.rows).toEqual([{ id: 1, price: '12.50' }])
    await client.query(`alter table items add column stock integer not null default 3`)
    await client.query('alter table people add column email text')
    await client.query(`update people set email = 'ann@b.co' where id = 'p1'`)
    expect((await client.query('select title, stock from items')).rows).toEqual([
      { title: 'Lamp', stock: 3 },
    ])
    expect(await tablesOf(client)).toEqual(['items', 'people'])
    expect(await codeOf(other.query('select * from items'))).toBe('42P01')
    expect(await tablesOf(other)).toEqual(['people'])
    await client.query('commit')
    expect((await other.query('select title, stock from items')).rows).toEqual([
      { title: 'Lamp', stock: 3 },
    ])
    expect((await other.query('select email from people order by id')).rows).toEqual([
      { email: 'ann@b.co' },
      { email: null },
    ])
    expect(await tablesOf(other)).toEqual(['items', 'people'])
    expect(heldConnections()).toBe(0)
  })

  it('leaves nothing when it is rolled back, or its client goes', async () => {
    const client = await forkTo('rolls-back')
    const leaving = await wire.connect('shop:rolls-back')
    for (const each of [client, leaving]) {
      await each.query('begin')
      await each.query('create table items (id bigint primary key)')
      await each.query('insert into items (id) values (7)')
      await each.query('alter table people drop column name').catch(() => undefined)
      await (each === client ? each.query('rollback') : each.end())
    }
    expect(await codeOf(client.query('select * from items'))).toBe('42P01')
    await client.query('create table items (id bigint primary key)')
    expect((await client.query('select * from items')).rows).toEqual([])
    expect((await client.query('select name from people where id = $1', ['p1'])).rows).toEqual([
      { name: 'Ann' },
    ])
  })

  it('returns to its savepoints, with the schema that it had there', async () => {
    const client = await forkTo('savepoints')
    await client.query('begin')
    await client.query('create table a (id text primary key)')
    await client.query('savepoint one')
    await client.query('create table b (id text primary key)')
    await client.query(`insert into b (id) values ('b1')`)
    await client.query('savepoint two')
    await client.query('alter table b add column note text')
    await client.query('rollback to two')
    expect(await codeOf(client.query('select note from b'))).toBe('42703')
    await client.query('rollback to one')
    expect(await codeOf(client.query('select * from b'))).toBe('42P01')
    await client.query('rollback to one')
    await client.query('alter table a add column note text')
    await client.query('release one')
    await client.query(`insert into a (id, note) values ('a1', 'x')`)
    await client.query('commit')
    expect((await client.query('select * from a')).rows).toEqual([{ id: 'a1', note: 'x' }])
    expect(await tablesOf(client)).toEqual(['a', 'people'])
  })

  it('goes on after a refused change, if it returns to a savepoint', async () => {
    const client = await forkTo('refused')
    await client.query('begin')
    await client.query('create table a (id text primary key)')
    await client.query('savepoint one')
    const refused = `alter table people add column x text, alter column age set not null,
      add constraint old check (age > 20)`
    expect(await codeOf(client.query(refused))).toBe('23514')
    expect(await codeOf(client.query('select 1'))).toBe('25P02')
    await client.query('rollback to one')
    await client.query('commit')
    expect(await codeOf(client.query('select x from people'))).toBe('42703')
    expect(await tablesOf(client)).toEqual(['a', 'people'])
  })

  it('can have read and written before', async () => {
    const client = await forkTo('later')
    await client.query('begin')
    expect((await client.query('select count(*)::int as n from people')).rows).toEqual([{ n: 2 }])
    await client.query(`insert into people (id, age) values ('p3', 3)`)
    await client.query('alter table people add column grown boolean')
    await client.query('update people set grown = age >= 18')
    await client.query('commit')
    expect((await client.query('select id from people where grown')).rows).toEqual([{ id: 'p1' }])
  })

  it('keeps old versions for the forks of its branch', async () => {
    const client = await forkTo('forked')
    await branches.fork('child', 'forked')
    await client.query('begin')
    await client.query('alter table people add column note text')
    await client.query(`update people set age = 1, note = 'x'`)
    await client.query('set offshoot.allow_data_loss = on')
    await client.query('alter table people drop column name')
    await client.query(`update people set age = 2 where id = 'p2'`)
    await client.query('commit')
    expect((await client.query('select id, age::int, note from people order by id')).rows).toEqual([
      { id: 'p1', age: 1, note: 'x' },
      { id: 'p2', age: 2, note: 'x' },
    ])
    const child = await wire.connect('shop:child')
    expect((await child.query('select name, age::int from people order by id')).rows).toEqual([
      { name: 'Ann', age: 41 },
      { name: 'Bob', age: 17 },
    ])
  })

  it('refuses to lose values, unless that is allowed', async () => {
    const client = await forkTo('loses')
    await client.query('begin')
    await client.query(`insert into people (id, name) values ('p3', 'Cy')`)
    await expect(client.query('alter table people drop column name')).rejects.toMatchObject({
      code: '2BP01',
      hint: 'SET offshoot.allow_data_loss = on allows it.',
    })
    await client.query('rollback')
    await client.query('set offshoot.allow_data_loss = on')
    await client.query('begin')
    await client.query('alter table people drop column name')
    await client.query('commit')
    expect(await codeOf(client.query('select name from people'))).toBe('42703')
  })

  it('keeps links, those that it has declared, too', async () => {
    const client = await forkTo('links')
    await client.query('begin')
    await client.query('create table shops (id text primary key)')
    await client.query(`insert into shops (id) values ('s1')`)
    await client.query(
      'create table items (id text primary key, shop text references shops (id) on delete cascade)',
    )
    await client.query(`insert into items (id, shop) values ('i1', 's1')`)
    await client.query('commit')
    await client.query('begin')
    await client.query('alter table items add column note text')
    await client.query(`insert into items (id, shop) values ('i2', 'none')`)
    expect(await codeOf(client.query('commit'))).toBe('23503')
    await client.query('begin')
    await client.query('savepoint one')
    await client.query(`delete from shops where id = 's1'`)
    await client.query('alter table items add column note text')
    expect((await client.query('select id from items')).rows).toEqual([])
    await client.query('rollback to one')
    expect((await client.query('select id from items')).rows).toEqual([{ id: 'i1' }])
    await client.query(`delete from shops where id = 's1'`)
    await client.query('commit')
    expect((await client.query('select id from items')).rows).toEqual([])
  })

  it('has its branch alone: others wait for it, and see the new schema', async () => {
    const client = await forkTo('alone')
    await client.query('begin')
    await client.query('alter table people add column note text')
    const waiting = [
      branches.fork('from-alone', 'alone'),
      branches.bulk('alone', 'people', [{ id: 'p4', note: 'later' }]),
    ]
    await client.query(`update people set note = 'x'`)
    // Longer than an ordinary transaction may keep others waiting.
    await new Promise((resolve) => setTimeout(resolve, 1_500))
    await client.query('commit')
    await Promise.all(waiting)
    const forked = await wire.connect('shop:from-alone')
    expect((await forked.query(`select note from people where id = 'p1'`)).rows).toEqual([
      { note: 'x' },
    ])
    expect((await client.query(`select note from people where id = 'p4'`)).rows).toEqual([
      { note: 'later' },
    ])
  })

  it('conflicts with another one: one of them fails with 40001', async () => {
    const client = await forkTo('conflicts')
    const other = await wire.connect('shop:conflicts')
    for (const each of [client, other]) {
      await each.query('begin')
      await each.query('select id from people')
    }
    const codes = await Promise.all(
      [client, other].map((each, index) =>
        codeOf(
          each
            .query(`alter table people add column n${index} int`)
            .then(() => each.query('commit')),
        ),
      ),
    )
    expect(codes.toSorted()).toEqual(['40001', undefined])
    await Promise.all([client, other].map((each) => each.query('rollback')))
    expect(heldConnections()).toBe(0)
  })

  it('is one with other statements of its message', async () => {
    const client = await forkTo('message')
    const text = `create table items (id text primary key); insert into items (id) values ('a')`
    expect(await codeOf(client.query(`${text}; insert into items (id) values ('a')`))).toBe('23505')
    expect(await tablesOf(client)).toEqual(['people'])
    await client.query(text)
    await client.query('begin')
    await client.query('alter table items add column a text; alter table items add column b text')
    await client.query('alter table items add column c text; commit')
    expect((await client.query('select * from items')).rows).toEqual([
      { id: 'a', a: null, b: null, c: null },
    ])
  })

  it.each(['begin', 'start transaction', 'begin isolation level read committed', 'begin;'])(
    'stays open after a message of %s and changes of the schema',
    async (begin) => {
      const client = await forkTo(`stays-${begin.length}`)
      const raw = await wire.openRaw(`shop:stays-${begin.length}`)
      for (const change of [
        `comment on column people.age is 'x'`,
        'create table a (id text primary key); create index on a (id)',
        'drop table if exists nothing',
        'alter table people add column if not exists age integer',
      ]) {
        raw.send(query(`${begin}; ${change}`))
        expect(statusOf(await raw.until('Z'))).toBe('T')
        raw.send(query('delete from people'), query('rollback'))
        await raw.until('Z')
        expect(statusOf(await raw.until('Z'))).toBe('I')
        expect((await client.query('select id from people')).rowCount).toBe(2)
        expect(await tablesOf(client)).toEqual(['people'])
      }
      raw.send(query(`${begin}; create table people (id text primary key)`))
      const failed = await raw.until('Z')
      expect([errorCode(failed), statusOf(failed)]).toEqual(['42P07', 'E'])
      raw.send(query('commit'))
      expect(tagsOf(await raw.until('Z'))).toEqual(['ROLLBACK'])
      raw.close()
    },
  )

  it('begins and ends where a message of changes of the schema says', async () => {
    const client = await forkTo('edges')
    const raw = await wire.openRaw('shop:edges')
    const sent = async (text: string) => {
      raw.send(query(text))
      const received = await raw.until('Z')
      return [...tagsOf(received), errorCode(received), statusOf(received)]
    }
    const create = (name: string) => `create table ${name} (id text primary key)`
    expect(await sent(`begin; ${create('a')}; rollback`)).toEqual([
      'BEGIN',
      'CREATE TABLE',
      'ROLLBACK',
      undefined,
      'I',
    ])
    expect(await sent(`${create('b')}; begin`)).toEqual(['CREATE TABLE', 'BEGIN', undefined, 'T'])
    expect(await sent('rollback')).toEqual(['ROLLBACK', undefined, 'I'])
    expect(await sent(`${create('c')}; rollback`)).toEqual([
      'CREATE TABLE',
      'ROLLBACK',
      undefined,
      'I',
    ])
    expect(await sent(`${create('d')}; commit and chain`)).toEqual(['CREATE TABLE', '25P01', 'I'])
    expect(await sent(`${create('e')}; savepoint s`)).toEqual(['CREATE TABLE', '25P01', 'I'])
    expect(await sent(`begin read only; ${create('f')}`)).toEqual(['BEGIN', '25006', 'E'])
    expect(await sent('rollback')).toEqual(['ROLLBACK', undefined, 'I'])
    expect(await tablesOf(client)).toEqual(['people'])
    expect(await sent(`begin; ${create('g')}; ${create('h')}; commit`)).toEqual([
      'BEGIN',
      'CREATE TABLE',
      'CREATE TABLE',
      'COMMIT',
      undefined,
      'I',
    ])
    expect(await sent(`${create('i')}; commit`)).toEqual(['CREATE TABLE', 'COMMIT', undefined, 'I'])
    expect(await tablesOf(client)).toEqual(['g', 'h', 'i', 'people'])
    raw.close()
  })

  it('has the changes of a message without BEGIN, each with an answer', async () => {
    const client = await forkTo('answers')
    const created = 'create table a (id text primary key); create table b (id text primary key)'
    const answers = await client.query(`${created}; alter table a add column n integer`)
    const commands = (answers as unknown as { command: string }[]).map(({ command }) => command)
    expect(commands).toEqual(['CREATE', 'CREATE', 'ALTER'])
    const fails = 'create table c (id text primary key); create table a (id text primary key)'
    expect(await codeOf(client.query(fails))).toBe('42P07')
    expect(await tablesOf(client)).toEqual(['a', 'b', 'people'])
  })

  it('goes on when its key has got another workspace or database meanwhile', async () => {
    const client = await forkTo('goeson')
    await client.query('begin')
    await client.query('create table first (note text)')
    await createDatabase(service, 'beside')
    await client.query('create table second (note text)')
    await client.query(`insert into second (note) values ('a')`)
    await client.query('commit')
    expect((await client.query('select note from second')).rows).toEqual([{ note: 'a' }])
  })

  it('needs a key that writes, and is refused if it only reads', async () => {
    const client = await forkTo('reads')
    await client.query('begin read only')
    expect(await codeOf(client.query('create table a (id text primary key)'))).toBe('25006')
    await client.query('rollback')
    expect(await tablesOf(client)).toEqual(['people'])
  })

  it('tells what it has skipped, and what differs, unless notices are not wanted', async () => {
    const client = await forkTo('notices')
    const notices: string[] = []
    client.on('notice', ({ message = '' }) => notices.push(message))
    await client.query('create table if not exists people (id text primary key)')
    await client.query('begin')
    await client.query('drop table if exists nothing')
    await client.query(
      'alter table people add column if not exists age int, drop column if exists x',
    )
    await client.query('create index by_age on people (age)')
    await client.query('commit')
    expect(notices).toEqual([
      'table [people] already exists, skipping',
      'table [nothing] does not exist, skipping',
      'column [age] of table [people] already exists, skipping',
      'column [x] of table [people] does not exist, skipping',
      'index [by_age] is called [people_age_idx]',
    ])
    await client.query('set client_min_messages = warning')
    await client.query('drop table if exists nothing')
    expect(notices).toHaveLength(5)
  })

  it('has the indexes of links that were asked for once, and refuses them twice', async () => {
    const client = await forkTo('link-indexes')
    const indexes = async () =>
      (
        await client.query(`select indexname from pg_indexes where tablename = 'notes' order by 1`)
      ).rows.map(({ indexname }) => indexname)
    await client.query(
      `create table notes (id int primary key, person text references people (id), n int)`,
    )
    expect(await indexes()).toEqual(['notes_pkey'])
    for (const name of ['person', 'n']) {
      const create = `create index notes_${name}_idx on notes (${name})`
      await client.query(create)
      await expect(client.query(create)).rejects.toMatchObject({ code: '42P07' })
      await client.query(create.replace('index', 'index if not exists'))
    }
    expect(await indexes()).toEqual(['notes_n_idx', 'notes_person_idx', 'notes_pkey'])
    const again = 'create index notes_person_idx on notes (person)'
    await client.query(`drop index notes_person_idx; ${again}`)
    await client.query('drop index notes_person_idx')
    expect(await indexes()).toEqual(['notes_n_idx', 'notes_pkey'])
  })

  it('reports what exists with the codes of PostgreSQL, and skips it in a block that says so', async () => {
    const client = await forkTo('existing')
    await client.query(`create type phase as enum ('a', 'b', 'c')`)
    await client.query('create table phases (id serial primary key, phase phase)')
    await client.query(`alter table phases add constraint known check (phase <> 'b')`)
    const cases = [
      [`create type phase as enum ('a')`, '42710'],
      [`alter type phase add value 'a'`, '42710'],
      [`alter table phases add constraint known check (phase <> 'c')`, '42710'],
      ['alter table phases add column phase text', '42701'],
      ['create table phases (id serial primary key)', '42P07'],
    ] as const
    for (const [text, code] of cases) {
      await expect(client.query(text)).rejects.toMatchObject({ code })
      const skipped = `do $$ begin ${text}; exception when duplicate_object then null; end $$`
      expect((await client.query(skipped)).command).toBe('DO')
      expect((await client.query({ text: skipped, name: `block ${text}` })).command).toBe('DO')
    }
  })

  it('has times as PostgreSQL and its dumps write them as defaults', async () => {
    const client = await forkTo('moments')
    const notices: string[] = []
    client.on('notice', ({ message = '' }) => notices.push(message))
    await client.query(
      `create table moments (
        id integer primary key,
        a timestamp default '2024-01-01',
        b timestamptz default '2024-01-01 10:00:00+02',
        c timestamp default '2024-01-01 10:20'::timestamp without time zone,
        d timestamptz default '2024-01-01 10:20:30.123456+0530'::timestamp with time zone,
        e timestamptz default '2024-01-01T00:00:00Z',
        f timestamptz)`,
    )
    await client.query(`alter table moments alter column f set default '2020-02-02 02:02:02-08'`)
    await client.query(
      `alter table moments add column g timestamp not null default '1970-01-01 00:00:00'`,
    )
    const { rows } = await client.query({
      text: 'insert into moments (id) values (1) returning a::text, b::text, c::text, d::text, e::text, f::text, g::text',
      rowMode: 'array',
    })
    expect(rows).toEqual([
      [
        '2024-01-01 00:00:00',
        '2024-01-01 08:00:00+00',
        '2024-01-01 10:20:00',
        '2024-01-01 04:50:30.123456+00',
        '2024-01-01 00:00:00+00',
        '2020-02-02 10:02:02+00',
        '1970-01-01 00:00:00',
      ],
    ])
    expect(notices).toEqual(
      ['2024-01-01', '2024-01-01 10:20', '1970-01-01 00:00:00'].map(
        (text) => `DEFAULT '${text}': a time without an offset is one of UTC`,
      ),
    )
    for (const [text, code] of [
      ['2024-02-30', '22008'],
      ['2024-01-01 25:00', '22008'],
      ['someday', '22007'],
    ]) {
      const change = `alter table moments alter column f set default '${text}'`
      expect(await codeOf(client.query(change))).toBe(code)
    }
  })

  it('goes on after SET CONSTRAINTS, which Django sends before it changes a table', async () => {
    const client = await forkTo('constraints')
    const notices: string[] = []
    client.on('notice', ({ message = '' }) => notices.push(message))
    await client.query('begin')
    await client.query(`insert into people (id) values ('p3')`)
    const { command } = await client.query('SET CONSTRAINTS ALL IMMEDIATE')
    await client.query('SET CONSTRAINTS ALL DEFERRED')
    await client.query('alter table people add column email text')
    await client.query('commit')
    expect([command, notices.length]).toEqual(['SET', 0])
    expect((await client.query(`select email from people where id = 'p3'`)).rowCount).toBe(1)
  })

  it('can repeat changes to types that columns have, as drizzle-kit push does', async () => {
    const client = await forkTo('repeats')
    const notices: string[] = []
    client.on('notice', ({ message = '' }) => notices.push(message))
    await client.query('create table owners (id serial primary key, code varchar(20))')
    await client.query('create table pets (id uuid primary key, owner integer references owners)')
    await client.query('insert into owners (code) values ($1)', ['a'])
    notices.length = 0
    for (const change of [
      'owners alter column id set data type serial',
      'owners alter column id set data type integer',
      'owners alter column id drop identity',
      'owners alter column code set data type varchar(20)',
      'pets alter column id set data type uuid',
      'pets alter column owner set data type integer',
    ]) {
      await client.query(`alter table ${change}`)
    }
    expect(notices).toEqual([
      'DROP IDENTITY: ids are numbered nevertheless',
      'column [id]: the type of ids does not change',
    ])
    expect((await client.query('insert into owners default values returning id')).rows).toEqual([
      { id: 2 },
    ])
    await client.query('insert into pets (owner) values (2)')
    expect(await codeOf(client.query('insert into pets (owner) values (9)'))).toBe('23503')
    expect(await codeOf(client.query('alter table owners alter column id type uuid'))).toBe('0A000')
    expect(await codeOf(client.query('alter table pets alter column id type integer'))).toBe(
      '0A000',
    )
    expect(await codeOf(client.query('alter table owners alter column code drop identity'))).toBe(
      '42601',
    )
    await client.query('alter table owners alter column code drop identity if exists')
    expect(await codeOf(client.query('truncate owners'))).toBe('0A000')
    expect((await client.query('select * from pets')).rowCount).not.toBe(0)
    await client.query('begin')
    await client.query('truncate owners restart identity cascade')
    expect((await client.query('select * from pets')).rowCount).toBe(0)
    await client.query('commit')
    expect((await client.query('select * from pets')).rowCount).toBe(0)
  })

  it('knows the enum types that its connection has created', async () => {
    const client = await forkTo('types')
    await client.query('begin')
    await client.query(`create type state as enum ('new', 'paid')`)
    await client.query(
      `create table orders (id serial primary key, state state not null default 'new')`,
    )
    await client.query('insert into orders default values')
    await client.query('commit')
    await client.query('alter table orders add column before public.state')
    expect((await client.query('select state, before from orders')).rows).toEqual([
      { state: 'new', before: null },
    ])
    expect(await codeOf(client.query(`update orders set state = 'lost'`))).toBeDefined()
    await client.query(`create type unused as enum ('a')`)
    const other = await wire.connect('shop:types')
    await other.query('alter table orders add column c state')
    expect(await codeOf(other.query('alter table orders add column d unused'))).toBe('42704')
  })

  it('appears in the history of the branch, with a migration for each statement, or for neighbours in a message', async () => {
    const client = await forkTo('history')
    const count = async () =>
      (await service.call('POST', '/db/shop:history/schema/history', {})).body.logs.length
    const before = await count()
    await client.query('begin')
    await client.query('create table a (id text primary key)')
    await client.query('create table b (id text primary key)')
    await client.query('commit')
    expect(await count()).toBe(before + 2)
    const change = (name: string) => `alter table ${name} add column note text`
    await client.query(`begin; ${change('a')}; ${change('b')}; commit`)
    expect(await count()).toBe(before + 3)
  })
})
