import { readFileSync } from 'node:fs'
import path from 'node:path'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { createTestDatabase } from '../support/database.js'
import {
  message,
  openShop,
  query,
  RawClient,
  type Received,
  type WireShop,
} from '../support/wire-clients.js'

/* Dumps of plain PostgreSQL. */

const fixture = (name: string) =>
  readFileSync(path.join(import.meta.dirname, `../fixtures/${name}.sql`), 'utf8')
/** What `pg_dump` 15 writes for a small shop. */
const DUMP = fixture('shop-dump')
/** What `pg_dump --inserts` writes for tables with defaults of many types. */
const TYPES_DUMP = fixture('types-dump')

let shop: WireShop

beforeAll(async () => {
  shop = await openShop({})
})
afterAll(() => shop?.close())

/** Splits a dump as psql does: at the ends of lines, with the rows that follow a COPY. */
function* statementsOf(dump: string): Generator<{ text: string; rows?: string }> {
  let text = ''
  const lines = dump.split('\n')
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] ?? ''
    if (text === '' && (line === '' || line.startsWith('--'))) continue
    text += `${line}\n`
    if (!line.endsWith(';')) continue
    if (!line.startsWith('COPY')) yield { text }
    else {
      const end = lines.indexOf('\\.', index)
      yield { text, rows: `${lines.slice(index + 1, end).join('\n')}\n` }
      index = end
    }
    text = ''
  }
}

const textOf = ({ type, body }: Received) => `${type} ${body.toString().replaceAll('\0', ' ')}`

async function restore(branch: string, dump = DUMP): Promise<void> {
  const { service, wire } = shop
  const raw = await RawClient.open(wire.port, {
    user: service.workspaceId,
    database: `shop:${branch}`,
    key: service.key,
  })
  for (const { text, rows } of statementsOf(dump)) {
    raw.send(query(text))
    if (rows !== undefined) raw.send(message('d', Buffer.from(rows)), message('c'))
    const answers = await raw.until('Z')
    const failed = answers.filter(({ type }) => type === 'E').map(textOf)
    expect([text, failed]).toEqual([text, []])
  }
  raw.close()
}

const rowsOf = async (client: pg.Client, text: string) =>
  (await client.query({ text, rowMode: 'array' })).rows

describe('a dump of plain PostgreSQL', () => {
  it('is restored without an error, and its numbers go on', async () => {
    await shop.branches.fork('restored')
    await restore('restored')
    const client = await shop.wire.connect('shop:restored')
    expect(
      await rowsOf(
        client,
        'select id, name, email, mood, tags, token, settings, born::text, created_at from customers order by id',
      ),
    ).toEqual([
      [
        1,
        'Ann',
        'ann@b.co',
        'happy',
        ['vip', 'a b'],
        '11111111-1111-4111-8111-111111111111',
        { x: [1, null] },
        '1990-01-31',
        new Date('2026-01-02T03:04:05.678Z'),
      ],
      [
        2,
        'Bob\tB "x" \\',
        null,
        'ok',
        [],
        '22222222-2222-4222-8222-222222222222',
        null,
        null,
        new Date('2026-01-02T03:04:05.678Z'),
      ],
    ])
    expect(await rowsOf(client, 'select sku, price, discount from products order by id')).toEqual([
      ['apple', '1.50', '0.50'],
      ['bread', '3.05', '0.50'],
    ])
    expect(
      await rowsOf(
        client,
        'select order_id, product_id, quantity, paid from order_lines order by 1, 2',
      ),
    ).toEqual([
      ['1', '1', 3, true],
      ['1', '2', 1, null],
      ['3', '2', 2, false],
    ])
    const insert = (text: string) => rowsOf(client, `insert into ${text}`)
    // The third customer was deleted before the dump.
    expect(
      await insert(
        "customers (name, tags) values ('Dan', '{}') returning id, mood, tags, settings",
      ),
    ).toEqual([[4, 'ok', [], { a: 1 }]])
    expect(await insert('orders (customer_id) values (4) returning id, number')).toEqual([
      ['4', 41],
    ])
    expect(await insert("products (sku, price) values ('cake', 2) returning id, discount")).toEqual(
      [['3', '0.50']],
    )
    for (const text of [
      "products (sku, price) values ('apple', 2)",
      "products (sku, price) values ('less', -1)",
      'orders (customer_id) values (99)',
      "customers (name, mood) values ('Eve', 'angry')",
      'order_lines (order_id, product_id) values (1, 1)',
    ]) {
      await expect(insert(text)).rejects.toThrow()
    }
    await client.query('delete from customers where id = 1')
    expect(await rowsOf(client, 'select count(*)::int from order_lines')).toEqual([[0]])
  })
})

describe('a dump with INSERT', () => {
  it('has the same rows in a branch and in plain PostgreSQL', async () => {
    await shop.branches.fork('types')
    await restore('types', TYPES_DUMP)
    const plain = await createTestDatabase()
    for (const { text } of statementsOf(TYPES_DUMP)) {
      // The role that owns the tables is that of the machine where the dump was made.
      if (!/ OWNER TO |set_config/.test(text)) await plain.pool.query(text)
    }
    const client = await shop.wire.connect('shop:types')
    const compare = async () => {
      for (const table of ['parents', 'kids']) {
        const text = `select * from public.${table} order by id`
        const { rows } = await plain.pool.query({ text, rowMode: 'array' })
        expect([table, await rowsOf(client, text)]).toEqual([table, rows])
        expect(rows.length).toBeGreaterThan(2)
      }
    }
    await compare()
    for (const text of [
      `insert into public.parents (d, t, ts, u) values (null, null, null, null)`,
      `insert into public.kids (parent_id, note) values (4, 'new')`,
      `update public.kids set note = 'changed', full_note = default where id = 1`,
      `insert into public.kids (note, full_note) values ('a', default), ('b', default)`,
    ]) {
      await plain.pool.query(text)
      await client.query(text)
    }
    await compare()
    await plain.close()
  })

  it('cannot give values to computed columns', async () => {
    await shop.branches.fork('computed')
    const client = await shop.wire.connect('shop:computed')
    await client.query(
      'create table t (id int primary key, a int, b int generated always as (a * 2) stored, c int)',
    )
    await client.query('insert into t values (1, 2, default, 3), (2, 3, default, 4)')
    await client.query('insert into t values (3, 4)')
    for (const text of [
      'insert into t values (4, 2, 4, 3)',
      'insert into t (id, b) values (4, 5)',
      'insert into t select 4, 2, 4, 3',
      'insert into t values (4, 2, default), (5, 2, 4)',
      'update t set b = 1',
    ]) {
      await expect(client.query(text)).rejects.toMatchObject({ code: '428C9' })
    }
    expect(await rowsOf(client, 'select * from t order by id')).toEqual([
      [1, 2, '4', 3],
      [2, 3, '6', 4],
      [3, 4, '8', null],
    ])
  })
})

describe('pg_dump', () => {
  it('reads the database with system columns, and is told why it cannot run in parallel', async () => {
    const { client } = shop
    const rows = await rowsOf(
      client,
      `select d.tableoid::regclass::text, datname, pg_encoding_to_char(encoding),
        (select count(*)::int from pg_catalog.pg_namespace n where n.tableoid = 'pg_namespace'::regclass and n.nspname = 'public')
      from pg_catalog.pg_database d where datname = current_database()`,
    )
    expect(rows).toEqual([['pg_database', 'shop:main', 'UTF8', 1]])
    await expect(client.query('select pg_catalog.pg_export_snapshot()')).rejects.toMatchObject({
      code: '0A000',
      message: expect.stringContaining('run pg_dump without --jobs'),
    })
  })
})

describe('a link', () => {
  it('is restored as what it was, with the definition that pg_dump reads', async ({ skip }) => {
    const { branches, wire } = shop
    await branches.fork('linking')
    const client = await wire.connect('shop:linking')
    const [[version] = []] = await rowsOf(
      client,
      `select current_setting('server_version_num')::int as number`,
    )
    skip(Number(version) < 180_000, 'has no foreign keys that are not enforced')
    const linkTo = (name: string, onDelete: 'none' | 'restrict' | 'setNull' | 'cascade') =>
      ({ name, type: 'link', link: { table: 'targets', onDelete } }) as const
    const links = [
      linkTo('free', 'none'),
      linkTo('kept', 'restrict'),
      linkTo('emptied', 'setNull'),
      linkTo('gone', 'cascade'),
    ]
    await branches.edit(
      'linking',
      { addTable: { table: 'targets' } },
      { addTable: { table: 'links' } },
      ...links.map((column) => ({ addColumn: { table: 'links', column } })),
    )
    await client.query(`insert into targets (id) values ('t')`)
    await client.query(
      `insert into links (id, free, kept, emptied, gone) values ('a', 'nobody', 't', 't', 't')`,
    )
    const definitions = await rowsOf(
      client,
      `select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'links'::regclass and contype = 'f' order by 1`,
    )
    expect(definitions).toHaveLength(links.length)
    await branches.fork('relinked')
    const other = await wire.connect('shop:relinked')
    await other.query(`
      create table public.targets (id text not null);
      create table public.links (id text not null, free text, kept text, emptied text, gone text)`)
    await other.query(`insert into targets (id) values ('t')`)
    await other.query(
      `insert into links (id, free, kept, emptied, gone) values ('a', 'nobody', 't', 't', 't')`,
    )
    for (const [name, definition] of definitions) {
      await other.query(`alter table only public.links add constraint ${name} ${definition}`)
    }
    const columnsOn = async (branch: string) => {
      const { body } = await branches.call(branch, 'GET', '/tables/links/columns')
      return (body as { columns: object[] }).columns
    }
    expect(await columnsOn('relinked')).toEqual(await columnsOn('linking'))
    expect(
      await rowsOf(
        other,
        `select conname, pg_get_constraintdef(oid) from pg_constraint where conrelid = 'links'::regclass and contype = 'f' order by 1`,
      ),
    ).toEqual(definitions)
    const loosened = other.query(
      'alter table links add constraint x foreign key (kept) references targets not enforced',
    )
    await expect(loosened).rejects.toMatchObject({ code: '0A000' })
    await other.query('update links set free = $1', ['anybody'])
    await expect(other.query('update links set kept = $1', ['nobody'])).rejects.toMatchObject({
      code: '23503',
    })
  })
})

describe('setval', () => {
  it('lets numbers go on, in all forms that clients have, and never back', async () => {
    await shop.branches.fork('numbers')
    const client = await shop.wire.connect('shop:numbers')
    await client.query('create table "Things" (id serial primary key, n serial, name text)')
    const next = async () =>
      (await rowsOf(client, `insert into "Things" (name) values ('x') returning id, n`))[0]
    expect(await rowsOf(client, `select setval('"Things_id_seq"', 10)`)).toEqual([['10']])
    expect(await next()).toEqual([11, 1])
    expect(
      await rowsOf(client, `select setval('public."Things_n_seq"'::regclass, 20, false)`),
    ).toEqual([['20']])
    expect(await next()).toEqual([12, 20])
    const notices: string[] = []
    client.on('notice', ({ message = '' }) => notices.push(message))
    await client.query(`select pg_catalog.setval('"Things_id_seq"', 5, true)`)
    expect(notices).toEqual([
      'sequence [Things_id_seq] goes on after 12: sequences never go back, because all branches use their numbers',
    ])
    expect(await next()).toEqual([13, 21])
    // Django after it has loaded data.
    expect(
      await rowsOf(
        client,
        `SELECT setval(pg_get_serial_sequence('"Things"','id'), coalesce(max("id"), 1) + 100, max("id") IS NOT null) FROM "Things"`,
      ),
    ).toEqual([['113']])
    expect(await next()).toEqual([114, 22])
    const set = 'select setval($1, $2)'
    await expect(client.query(set, ['x', 1])).rejects.toThrow('must be a constant')
    await expect(client.query(`select setval('other_id_seq', 1)`)).rejects.toThrow(
      'sequence [other_id_seq] not found',
    )
    await expect(client.query(`select setval('"Things_id_seq"', 1), 2`)).rejects.toThrow(
      'only column',
    )
    await client.query('begin read only')
    await expect(client.query(`select setval('"Things_id_seq"', 1000)`)).rejects.toMatchObject({
      code: '25006',
    })
    await client.query('rollback')
  })
})

describe.each(['branch', 'fork'])('a foreign key that is deferred on a %s with rows', (kind) => {
  let client: pg.Client
  const count = async () =>
    (await client.query('select count(*)::int as count from kids')).rows[0].count
  const refused = (text: string) =>
    client.query(text).then(
      () => undefined,
      ({ code, constraint }: pg.DatabaseError) => ({ code, constraint }),
    )
  const BROKEN = { code: '23503', constraint: 'kids_parent_id_1a2b_fk_folks_id' }

  beforeAll(async () => {
    await shop.branches.fork(`${kind}-links`)
    client = await shop.wire.connect(`shop:${kind}-links`)
    // As Django writes it.
    await client.query('create table folks (id bigint not null primary key, name text)')
    await client.query('create table kids (id bigint not null primary key, parent_id bigint)')
    await client.query(
      `alter table kids add constraint kids_parent_id_1a2b_fk_folks_id foreign key (parent_id)
      references folks (id) deferrable initially deferred`,
    )
    await client.query('insert into folks (id) values (1)')
    await client.query('insert into kids (id, parent_id) values (1, 1)')
    if (kind === 'branch') return
    await shop.branches.fork(`${kind}-fork`, `${kind}-links`)
    client = await shop.wire.connect(`shop:${kind}-fork`)
  })

  it('lets a transaction write records before those that they link to', async () => {
    await client.query('begin')
    await client.query('insert into kids (id, parent_id) values (2, 2), (3, 3)')
    await client.query('insert into folks (id) values (2), (3)')
    await client.query('commit')
    expect(await count()).toBe(3)
  })

  it('refuses the COMMIT of a broken link by its name, and stores nothing', async () => {
    for (const statement of [
      'insert into kids (id, parent_id) values (4, 9)',
      'update kids set parent_id = 9 where id = 1',
      'delete from folks where id = 1',
    ]) {
      await client.query('begin')
      await client.query('insert into folks (id) values (4)')
      await client.query(statement)
      expect([statement, await refused('commit')]).toEqual([statement, BROKEN])
      const { rows } = await client.query('select id from folks order by id')
      expect([statement, rows.map(({ id }) => id)]).toEqual([statement, ['1', '2', '3']])
      expect(await count()).toBe(3)
    }
  })

  it('is judged by SET CONSTRAINTS ALL IMMEDIATE, as tests and fixtures of Django do', async () => {
    await client.query('begin')
    await client.query('set constraints all deferred')
    await client.query('insert into kids (id, parent_id) values (5, 5)')
    await client.query('savepoint s')
    expect(await refused('set constraints all immediate')).toEqual(BROKEN)
    expect(await refused('select 1')).toMatchObject({ code: '25P02' })
    await client.query('rollback to s')
    await client.query('insert into folks (id) values (5)')
    await client.query('set constraints all immediate')
    await client.query('set constraints all deferred')
    expect(await count()).toBe(4)
    // What was judged before is judged again.
    await client.query('rollback to s')
    expect(await refused('commit')).toEqual(BROKEN)
    expect(await count()).toBe(3)
    await client.query('set constraints all immediate')
  })
})

describe('nextval', () => {
  it('takes the next number of a column, on any branch, and stands for its default', async () => {
    await shop.branches.fork('taken')
    const client = await shop.wire.connect('shop:taken')
    await client.query('create table "Things" (id serial primary key, n serial, name text)')
    const one = async (text: string) => (await rowsOf(client, text))[0]
    expect(await one(`select nextval('"Things_id_seq"')`)).toEqual(['1'])
    expect(
      (await client.query(`select pg_catalog.nextval('public."Things_id_seq"'::regclass) as id`))
        .rows,
    ).toEqual([{ id: '2' }])
    expect(await one(`select nextval(pg_get_serial_sequence('"Things"', 'n'))`)).toEqual(['1'])
    expect(
      await rowsOf(
        client,
        `insert into "Things" (id, name) values (nextval('"Things_id_seq"'), 'a'), (default, 'b') returning id, n`,
      ),
    ).toEqual([
      [3, 2],
      [4, 3],
    ])
    const prepared = { name: 'next', text: `select nextval('"Things_id_seq"')`, rowMode: 'array' }
    expect((await client.query(prepared)).rows).toEqual([['5']])
    expect((await client.query(prepared)).rows).toEqual([['6']])
    const { body } = await shop.branches.call('taken', 'POST', '/sql', {
      statement: `select nextval('"Things_id_seq"')`,
    })
    expect(body).toMatchObject({ records: [{ nextval: 7 }] })
    await client.query('begin')
    expect(await one(`select nextval('"Things_id_seq"')`)).toEqual(['8'])
    await client.query('rollback')
    await shop.branches.fork('taken-too', 'taken')
    const other = await shop.wire.connect('shop:taken-too')
    expect(await rowsOf(other, `select nextval('"Things_id_seq"')`)).toEqual([['9']])
    for (const [text, message] of [
      [
        `select nextval('"Things_id_seq"') from "Things"`,
        'function [nextval] is not supported here',
      ],
      [`update "Things" set n = nextval('"Things_n_seq"')`, 'function [nextval] is not supported'],
      [`select currval('"Things_id_seq"')`, 'RETURNING returns the numbers'],
      ['select lastval()', 'RETURNING returns the numbers'],
    ] as const) {
      await expect(client.query(text)).rejects.toMatchObject({
        code: '0A000',
        message: expect.stringContaining(message),
      })
    }
    await expect(client.query(`select nextval('other_seq')`)).rejects.toThrow('not found')
    await client.query('begin read only')
    await expect(client.query(`select nextval('"Things_id_seq"')`)).rejects.toMatchObject({
      code: '25006',
    })
    await client.query('rollback')
  })
})

describe('a sequence', () => {
  it('shows its last number on every branch, as dumps read it', async () => {
    await shop.branches.fork('shown')
    const client = await shop.wire.connect('shop:shown')
    await client.query('create table counted (id serial primary key, n serial, name text)')
    const state = 'select last_value, is_called from public.counted_id_seq'
    expect(await rowsOf(client, state)).toEqual([['1', false]])
    await client.query(`insert into counted (name) values ('a'), ('b')`)
    await client.query(`insert into counted (id, name) overriding system value values (10, 'c')`)
    await shop.branches.fork('shown-fork', 'shown')
    const fork = await shop.wire.connect('shop:shown-fork')
    expect(await rowsOf(fork, state)).toEqual([['10', true]])
    expect(await rowsOf(fork, 'select * from counted_n_seq')).toEqual([['3', '0', true]])
    expect(
      await rowsOf(
        fork,
        `select seqrelid::regclass::text, d.last_value, is_called
        from pg_catalog.pg_sequence, pg_get_sequence_data(seqrelid) d order by 1`,
      ),
    ).toEqual([
      ['counted_id_seq', '10', true],
      ['counted_n_seq', '3', true],
    ])
    expect(
      await rowsOf(fork, 'select sequencename, last_value from pg_sequences order by 1'),
    ).toEqual([
      ['counted_id_seq', '10'],
      ['counted_n_seq', '3'],
    ])
    await expect(client.query('select last_value from other_seq')).rejects.toMatchObject({
      code: '42P01',
    })
  })
})

describe('a foreign key that is deferred', () => {
  it('is judged at COMMIT, as the migrations of Django need it', async () => {
    await shop.branches.fork('deferred')
    const client = await shop.wire.connect('shop:deferred')
    await client.query(
      'create table parents (id bigint generated by default as identity primary key, name text)',
    )
    await client.query(
      'create table children (id bigint generated by default as identity primary key, parent_id bigint not null)',
    )
    await client.query(
      'alter table children add constraint children_parent_id_fk foreign key (parent_id) references parents (id) deferrable initially deferred',
    )
    await client.query('begin')
    await client.query('insert into children (id, parent_id) values (1, 7)')
    await client.query(`insert into parents (id, name) values (7, 'p')`)
    await client.query('commit')
    await client.query('begin')
    await client.query('set constraints all deferred')
    await client.query('insert into children (id, parent_id) values (2, 8)')
    await expect(client.query('commit')).rejects.toMatchObject({ code: '23503' })
    expect(await rowsOf(client, 'select id, parent_id from children')).toEqual([['1', '7']])
    await client.query('begin')
    await client.query('delete from parents where id = 7')
    await client.query('delete from children where parent_id = 7')
    await client.query('commit')
    expect(await rowsOf(client, 'select count(*)::int from parents')).toEqual([[0]])
  })
})
