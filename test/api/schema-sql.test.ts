import { readFileSync } from 'node:fs'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createKey } from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { openWire, type WireService } from '../support/wire-clients.js'

/* Statements of SQL that change the schema of a branch. */

let service: TestService
let wire: WireService
let number = 0
beforeAll(async () => {
  service = await createTestService()
  wire = await openWire(service)
})
afterAll(async () => {
  await wire.close()
  await service.close()
})

type Tables = {
  name: string
  idType?: string
  idBits?: number
  columns: Record<string, unknown>[]
  constraints?: object[]
}[]

async function open() {
  const database = `ddl${++number}`
  const branches = await TestBranches.create(service, database, {})
  const sql = (
    statement: string,
    { branch = 'main', ...fields }: { branch?: string; [field: string]: unknown } = {},
    headers = {},
  ): Promise<Answer> =>
    branches.call(branch, 'POST', '/sql', { statement, ...fields }, { headers }) as never
  const run = async (statement: string, fields = {}) => expectOk(await sql(statement, fields)).body
  const schema = async (branch = 'main') => {
    const { body } = expectOk(await branches.call(branch, 'GET', '')) as {
      body: { schema: { tables: Tables } }
    }
    return body.schema.tables
  }
  const table = async (name: string, branch = 'main') => {
    const found = (await schema(branch)).find((each) => each.name === name)
    if (found === undefined) throw new Error(`table ${name} is missing`)
    return found
  }
  const history = async () => {
    const answer = expectOk(await branches.call('main', 'POST', '/schema/history', {}))
    return (answer.body as { logs: { operations: object[] }[] }).logs
  }
  return { database, branches, sql, run, schema, table, history }
}

const file = (name: string) =>
  readFileSync(new URL(`../fixtures/migrations/${name}.sql`, import.meta.url), 'utf8')

describe('a constraint', () => {
  it('gets another name, of every kind, and holds as before', async () => {
    const { run, sql, table } = await open()
    await run(`
      create table a (id int primary key);
      create table t (id int primary key, n int, m int, u int unique, a int references a,
        constraint old_check check (n > 0), constraint old_unique unique (n, m))`)
    await run('insert into t (id, n, m, u) values (1, 1, 1, 1)')
    const { notices } = await run(`
      alter table t rename column m to second;
      alter table t rename constraint old_check to new_check;
      alter table t rename constraint old_unique to new_unique;
      alter table t rename constraint t_u_key to new_key;
      alter table t rename constraint t_a_fkey to new_link;
      alter table t rename constraint t_pkey to new_id`)
    expect(notices).toEqual(['constraint [t_pkey] keeps its name: it is that of the ids'])
    for (const [values, name] of [
      ['(2, -1, 1, 2, null)', 'new_check'],
      ['(2, 1, 1, 2, null)', 'new_unique'],
      ['(2, 2, 1, 1, null)', 'new_key'],
      ['(2, 2, 1, 2, 5)', 'new_link'],
    ]) {
      const { status, body } = await sql(`insert into t values ${values}`)
      expect([values, status, body.constraint]).toEqual([values, 400, name])
    }
    await run(`
      alter table a add column n int;
      alter table a add constraint short check (n < 5);
      alter table a rename constraint short to shorter`)
    expect((await table('a')).constraints).toEqual([{ name: 'shorter', check: 'n < 5' }])
    // In PostgreSQL, constraints keep the name of the table that they were made with.
    await run('alter table a rename to renamed')
    expect(
      (await run('alter table renamed rename constraint a_pkey to other_pkey')).notices,
    ).toEqual(['constraint [a_pkey] keeps its name: it is that of the ids'])
    expect(await sql('alter table t rename constraint new_check to new_link')).toMatchObject({
      body: { code: 'already_exists' },
    })
    expect(await sql('alter table t rename constraint nothing to other')).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('constraint [nothing] of table [t] not found') },
    })
    expect(
      await sql('alter table t rename n to k; alter table t rename constraint new_check to c'),
    ).toMatchObject({ status: 400 })
  })
})

describe('a type that is not kept as it is', () => {
  it('is refused alone if PostgreSQL has it, and may be an enum otherwise', async () => {
    const { sql } = await open()
    for (const [type, message] of [
      ['bytea', 'invalid SQL: type [bytea] is not supported'],
      ['pg_catalog.xml', 'invalid SQL: type [xml] is not supported'],
      ['interval', 'invalid SQL: type [interval] is not supported'],
      [
        'vector',
        'invalid SQL: vector without a dimension is not supported: write vector(dimension)',
      ],
      [
        'mood',
        'invalid SQL: type [mood] is not supported: if it is an enum, create it in the same request or connection',
      ],
    ]) {
      expect(await sql(`create table t (a ${type})`)).toMatchObject({
        status: 400,
        body: { message },
      })
    }
  })

  it('is told by a notice', async () => {
    const { run } = await open()
    const { notices } = await run(`create table t (
      id int generated always as identity primary key, n int generated always as identity,
      a timestamptz(3), b timestamp(0), c time(6), d json, e real, f varchar(5)[], g jsonb, h double precision)`)
    expect(notices).toEqual([
      'column [id]: GENERATED ALWAYS is BY DEFAULT: values can be given',
      'column [n]: GENERATED ALWAYS is BY DEFAULT: values can be given',
      'column [a]: timestamptz(3) has 6 digits of a second',
      'column [b]: timestamp(0) has 6 digits of a second',
      'column [d]: json is jsonb, without spaces and repeated keys',
      'column [e]: real is double precision',
      'column [f]: the length of elements is not checked',
    ])
    expect(
      (await run('create table u (id int primary key, t int references t on delete restrict)'))
        .notices,
    ).toEqual(['ON DELETE RESTRICT is NO ACTION: links are checked at the end'])
  })
})

describe('a list of texts', () => {
  it('has a default and can be required, in new rows, existing ones and on forks', async () => {
    const { branches, run, sql, table } = await open()
    await run(`create table posts (
      id serial primary key, title text, tags text[] not null default '{}',
      more varchar(20)[] default array['a b', 'c"d']::varchar(20)[])`)
    expect((await table('posts')).columns).toMatchObject([
      { name: 'title' },
      { name: 'tags', type: 'multiple', notNull: true, defaultValue: '[]' },
      { name: 'more', defaultValue: '["a b","c\\"d"]' },
    ])
    const insert = 'insert into posts (title) values ($1) returning tags, more'
    const { records } = (await run(insert, { params: ['x'] })) as { records: object[] }
    expect(records).toEqual([{ tags: [], more: ['a b', 'c"d'] }])
    await branches.fork('fork')
    await run(`alter table posts add column kinds text[] not null default '{k}'`, {
      branch: 'fork',
    })
    await run(`alter table posts alter column tags set default '{t}'`, { branch: 'fork' })
    await run(insert, { params: ['y'], branch: 'fork' })
    const { records: found } = (await run('select title, tags, kinds from posts order by id', {
      branch: 'fork',
    })) as { records: object[] }
    expect(found).toEqual([
      { title: 'x', tags: [], kinds: ['k'] },
      { title: 'y', tags: ['t'], kinds: ['k'] },
    ])
    expect(await sql('insert into posts (tags) values (null)')).toMatchObject({
      body: { message: expect.stringContaining('[tags]') },
    })
    for (const value of [`'a'`, `array['a', null]`, `'{a,NULL}'`]) {
      expect(
        await sql(`create table x (id int primary key, t text[] default ${value})`),
      ).toMatchObject({
        status: 400,
      })
    }
  })
})

describe('create table', () => {
  it('has an entry of the log, which the answer names', async () => {
    const { branches, sql } = await open()
    const made = await sql('create table items (id text primary key)')
    const batch = await branches.call('main', 'POST', '/sql/batch', {
      statements: [
        { statement: 'alter table items add column a int' },
        { statement: 'alter table items add column b int' },
      ],
    })
    const { entries } = expectOk(await branches.call('main', 'GET', '/log?kind=migration')).body
    const named = [batch, made].map(({ headers }) => headers['offshoot-entry'])
    expect(entries.map(({ id }: { id: string }) => id)).toEqual(named)
    const read = await sql('select count(*) from items')
    expect(expectOk(read).headers['offshoot-entry']).toBeUndefined()
  })

  it('maps the types of PostgreSQL to those of columns', async () => {
    const { run, table } = await open()
    await run(`create table everything (
      id text primary key,
      a text, b varchar(10), c varchar, d int, e bigint, f smallint, g real, h double precision,
      i numeric(10, 2), j decimal(5), k boolean, l timestamptz, m timestamp(3), n date, o time,
      p uuid, q json, r jsonb, s text[], t vector(3)
    )`)
    const { columns } = await table('everything')
    expect(Object.fromEntries(columns.map(({ name, type }) => [name, type]))).toEqual({
      ...{ a: 'text', b: 'string', c: 'text', d: 'int', e: 'int', f: 'int', g: 'float' },
      ...{ h: 'float', i: 'decimal', j: 'decimal', k: 'bool', l: 'datetime', m: 'datetime' },
      ...{ n: 'date', o: 'time', p: 'uuid', q: 'json', r: 'json', s: 'multiple', t: 'vector' },
    })
    expect(columns.find(({ name }) => name === 'j')).toMatchObject({
      decimal: { precision: 5, scale: 0 },
    })
  })

  it('makes objects of columns with dotted names, as dumps of branches have them', async () => {
    const { run, table } = await open()
    await run(`create table places (id text primary key, "at.city" text, "at.no" smallint, name text, "at.geo.lat" numeric(8, 5),
      "at.geo.lon" numeric(8, 5), constraint numbered check ("at.no" > 0))`)
    const geo = (name: string) => ({ name, type: 'decimal', decimal: { precision: 8, scale: 5 } })
    const { columns } = await table('places')
    expect(columns).toEqual([
      {
        name: 'at',
        type: 'object',
        columns: [
          { name: 'city', type: 'text' },
          { name: 'no', type: 'int', bits: 16 },
          { name: 'geo', type: 'object', columns: [geo('lat'), geo('lon')] },
        ],
      },
      { name: 'name', type: 'text' },
    ])
    await run(
      `insert into places (id, "at.city", "at.no", "at.geo.lat") values ('a', 'Bern', 3, 46.948)`,
    )
    const { records } = await run('select * from places')
    expect(records).toEqual([
      expect.objectContaining({ 'at.city': 'Bern', 'at.no': 3, 'at.geo.lat': 46.948, name: null }),
    ])
    await expect(run(`alter table places add "at.zip" text`)).rejects.toThrow(
      'column [at.zip] in column [at], which exists',
    )
    await expect(run(`create table t (id text primary key, "a.b" text not null)`)).rejects.toThrow(
      'column [a.b] with a default or a constraint',
    )
  })

  it.each([
    ['id serial primary key', 'int'],
    ['id bigserial primary key', 'int'],
    ['id int generated always as identity primary key', 'int'],
    [
      'id bigint generated by default as identity (start with 1 increment by 1), primary key (id)',
      'int',
    ],
    ['id uuid primary key default gen_random_uuid()', 'uuid'],
    ['id uuid primary key', 'uuid'],
    ['id text primary key', undefined],
    ['id varchar(36) not null, constraint t_pkey primary key (id)', undefined],
  ])('makes the ids of a table with [%s] of type %s', async (id, type) => {
    const { run, table } = await open()
    await run(`create table t (${id}, name text)`)
    expect((await table('t')).idType).toBe(type)
    const { records } = (await run(`insert into t (name) values ('a') returning id`)) as never
    expect(records).toHaveLength(1)
  })

  it('keeps defaults, constraints and the case of quoted names', async () => {
    const { run, table } = await open()
    await run(`create table "Order" (
      id serial primary key,
      "Total" numeric(8, 2) not null default -1.5 check ("Total" > -2),
      code text unique,
      state text not null default 'new'::text,
      flag bool default false,
      "open" boolean default '0',
      shown boolean default 'yes',
      key uuid default gen_random_uuid(),
      at timestamptz default now(),
      day date default current_date,
      low int, high int,
      constraint ordered check (low <= high),
      constraint pair unique (low, high)
    )`)
    const { columns, constraints } = await table('Order')
    expect(columns).toEqual([
      {
        name: 'Total',
        type: 'decimal',
        decimal: { precision: 8, scale: 2 },
        notNull: true,
        defaultValue: '-1.5',
      },
      { name: 'code', type: 'string', unique: true },
      { name: 'state', type: 'text', notNull: true, defaultValue: 'new' },
      { name: 'flag', type: 'bool', defaultValue: 'false' },
      { name: 'open', type: 'bool', defaultValue: 'false' },
      { name: 'shown', type: 'bool', defaultValue: 'true' },
      { name: 'key', type: 'uuid', generate: 'uuid' },
      { name: 'at', type: 'datetime', defaultValue: 'now' },
      { name: 'day', type: 'date', defaultValue: 'now' },
      { name: 'low', type: 'int', bits: 32 },
      { name: 'high', type: 'int', bits: 32 },
    ])
    expect(constraints).toEqual([
      { name: 'Order_Total_check', check: '"Total" > -2' },
      { name: 'ordered', check: 'low <= high' },
      { name: 'pair', unique: ['low', 'high'] },
    ])
  })

  it('takes the time at UTC for the time, as a default of a timestamp', async () => {
    const { run, table } = await open()
    await run(`create table t (id serial primary key,
      a timestamp default timezone('utc'::text, now()) not null,
      b timestamptz default (now() at time zone 'utc'),
      c timestamp default (current_timestamp at time zone 'Etc/UTC'))`)
    await run(`alter table t add column d timestamp,
      alter column d set default timezone('UTC', statement_timestamp())`)
    const withoutZone = { type: 'datetime', withoutZone: true, defaultValue: 'now' }
    expect((await table('t')).columns).toEqual([
      { name: 'a', ...withoutZone, notNull: true },
      { name: 'b', type: 'datetime', defaultValue: 'now' },
      { name: 'c', ...withoutZone },
      { name: 'd', ...withoutZone },
    ])
    await run('insert into t default values')
    const ages =
      'select now() at time zone $1 - a < $2::interval as a, now() - b < $2::interval as b from t'
    expect(await run(ages, { params: ['UTC', '1 hour'] })).toMatchObject({
      records: [{ a: true, b: true }],
    })
  })

  it('gives serial and identity columns the numbers of a sequence', async () => {
    const { run, table } = await open()
    await run(`create table t (id text primary key, a serial unique,
      b int generated by default as identity)`)
    expect((await table('t')).columns).toEqual([
      { name: 'a', type: 'int', bits: 32, notNull: true, unique: true, generate: 'sequence' },
      { name: 'b', type: 'int', bits: 32, notNull: true, generate: 'sequence' },
    ])
    const { records } = (await run(
      `insert into t (id, b) values ('x', default), ('y', 5), ('z', default) returning a, b`,
    )) as { records: object[] }
    expect(records).toEqual([
      { a: 1, b: 6 },
      { a: 2, b: 5 },
      { a: 3, b: 7 },
    ])
  })

  it('says in what the outcome differs from that in PostgreSQL', async () => {
    const { run } = await open()
    const padded = await run('create table padded (code char(3), one char) with (fillfactor = 90)')
    expect(padded.notices).toEqual([
      'CREATE TABLE: WITH [fillfactor] has no effect',
      'table [padded] has no primary key: its records get a column [id] of texts',
      'column [code]: values of char(3) are not padded',
      'column [one]: values of char(1) are not padded',
    ])
    expect(await run('create table t (id varchar(36) primary key)')).toMatchObject({
      records: [],
      columns: [],
      total: 0,
      notices: ['column [id]: the length of ids is not checked'],
    })
  })

  it('follows the extensions that migrations create for what is there without them', async () => {
    const { run, sql, table } = await open()
    const made = await run(`
      create extension if not exists "plpgsql" with schema "pg_catalog";
      create extension if not exists "uuid-ossp";
      create extension pgcrypto with schema public version '1.3' cascade;
      create extension if not exists vector;
      comment on extension vector is 'embeddings';
      create table docs (id uuid primary key default uuid_generate_v4(), key uuid default gen_random_uuid(), place vector(3));
      drop extension if exists hstore`)
    expect(made.notices).toEqual([
      'extension "plpgsql" already exists, skipping',
      'extension [uuid-ossp] is not there: of it, the default uuid_generate_v4() can be used',
      'extension [pgcrypto] is not there: of it, the default gen_random_uuid() can be used',
      'extension [vector] is not there: of it, columns of the type vector(n) can be used',
      'COMMENT ON EXTENSION: was not kept, because only columns have a description',
      'extension "hstore" does not exist, skipping',
    ])
    expect((await table('docs')).columns).toMatchObject([
      { name: 'key', type: 'uuid' },
      { name: 'place', type: 'vector', vector: { dimension: 3 } },
    ])
    for (const statement of [
      'create extension if not exists postgis',
      'drop extension if exists hstore; create extension hstore',
    ]) {
      expect(await sql(statement)).toMatchObject({
        status: 400,
        body: {
          message: expect.stringMatching(/CREATE EXTENSION \[(postgis|hstore)\] is not supp/),
        },
      })
    }
  })

  it('runs the blocks in which migrations skip what exists', async () => {
    const { run, sql, table } = await open()
    const block = (statement: string, conditions = 'WHEN duplicate_object THEN null;') =>
      `DO $$ BEGIN\n ${statement};\nEXCEPTION\n ${conditions}\nEND $$`
    const statements = [
      block(`CREATE TYPE "state" AS ENUM('new', 'sent')`),
      'CREATE TABLE IF NOT EXISTS "a" ("id" serial PRIMARY KEY, "state" "state" DEFAULT \'new\')',
      'CREATE TABLE IF NOT EXISTS "b" ("id" serial PRIMARY KEY, "a_id" integer, "n" integer)',
      block(
        'ALTER TABLE "b" ADD CONSTRAINT "b_a_fk" FOREIGN KEY ("a_id") REFERENCES "public"."a"("id")',
      ),
      block('ALTER TABLE b ADD CONSTRAINT b_n_check CHECK (n > 0)'),
      block('ALTER TABLE b ADD CONSTRAINT b_both UNIQUE (a_id, n)'),
      block(
        'ALTER TABLE b ADD COLUMN m integer',
        'when duplicate_table then null; when duplicate_column then null;',
      ),
      block('create table c (id serial primary key)', 'when duplicate_table then null;'),
    ]
    const file = statements.join(';\n--> statement-breakpoint\n')
    const notices = async () => (await run(file)).notices
    expect(await notices()).toBeUndefined()
    const made = await Promise.all(['a', 'b', 'c'].map((name) => table(name)))
    expect(made[1]?.constraints).toHaveLength(2)
    expect(await notices()).toEqual([
      'type [state] already exists, skipping',
      'table [a] already exists, skipping',
      'table [b] already exists, skipping',
      'constraint [b_a_fk] of table [b] already exists, skipping',
      'constraint [b_n_check] of table [b] already exists, skipping',
      'constraint [b_both] of table [b] already exists, skipping',
      'column [m] of table [b] already exists, skipping',
      'table [c] already exists, skipping',
    ])
    expect(await Promise.all(['a', 'b', 'c'].map((name) => table(name)))).toEqual(made)
    for (const other of [
      'do $$ begin perform 1; end $$',
      block('select 1'),
      block('alter table b add column x int; alter table b add column y int'),
      block('alter table b add column x int', 'when others then null;'),
      `do language sql $$ begin ${statements[1]}; exception when duplicate_table then null; end $$`,
    ]) {
      expect(await sql(other)).toMatchObject({
        status: 400,
        body: { message: expect.stringMatching(/^invalid SQL: DO is not supported: but for one/) },
      })
    }
    expect(await sql(block('alter table b add column x'))).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('syntax error') },
    })
    // Only what exists is skipped.
    expect(await sql(block('alter table nothing add column x int'))).toMatchObject({
      body: { message: expect.stringContaining('nothing') },
    })
    expect(await table('b')).toEqual(made[1])
  })

  it('requires values of columns of types that have no such rule', async () => {
    const { run, sql, table } = await open()
    await run('create table t (id text primary key, tags text[] not null)')
    expect(await sql("insert into t (id) values ('a')")).toMatchObject({ status: 400 })
    await run('alter table t alter column tags drop not null')
    await run("insert into t (id) values ('a')")
    expect((await table('t')).constraints).toBeUndefined()
  })

  it('does nothing if the table exists, only if that is said', async () => {
    const { run, sql, history } = await open()
    await run('create table t (id text primary key)')
    await run('create table if not exists t (id text primary key, a int)')
    expect(await history()).toHaveLength(2)
    expect(await sql('create table t (id text primary key)')).toMatchObject({
      body: { code: 'already_exists' },
    })
  })
})

describe('references', () => {
  it('make columns links whose records must exist', async () => {
    const { run, sql, table } = await open()
    await run(`
      create table author (id serial primary key);
      create table editor (id uuid primary key);
      create table post (
        id serial primary key,
        author_id int not null,
        editor uuid references editor on delete set null,
        parent int references post (id) on delete cascade deferrable initially deferred
      );
      alter table post add constraint post_author_id_fkey
        foreign key (author_id) references author (id) on delete restrict on update cascade`)
    expect(await table('post')).toMatchObject({
      columns: [
        { name: 'author_id', type: 'link', link: { table: 'author', onDelete: 'restrict' } },
        { name: 'editor', type: 'link', link: { table: 'editor', onDelete: 'setNull' } },
        { name: 'parent', type: 'link', link: { table: 'post', onDelete: 'cascade' } },
      ],
      constraints: [{ name: 'post_author_id_not_null', check: 'author_id is not null' }],
    })
    const refused = await sql('insert into post (author_id) values (7)')
    expect(refused).toMatchObject({ status: 400, body: { code: 'link_violation' } })
    await run('insert into author (id) values (7)')
    await run('insert into post (author_id) values (7)')
    expect(await sql('delete from author')).toMatchObject({ body: { code: 'link_violation' } })
    await run('alter table post drop constraint post_author_id_fkey')
    await run('delete from author')
  })

  it('make columns that exist links, with their values and constraints', async () => {
    const { run, sql, table } = await open()
    await run(`
      create table author (id serial primary key);
      create table editor (id uuid primary key);
      create table post (id serial primary key, author_id bigint not null, editor_id uuid, slug text);
      alter table post add constraint post_author_slug unique (author_id, slug);
      create unique index post_editor_id_key on post (editor_id)`)
    const uuid = '0190f3b4-7a5e-7c11-8000-00000000000a'
    await run('insert into author (id) values (7)')
    await run(`insert into editor (id) values ('${uuid}')`)
    await run(`insert into post (author_id, editor_id, slug) values (7, '${uuid}', 'a')`)
    const foreign = 'alter table post add foreign key'
    await run(`${foreign} (author_id) references author (id) on delete cascade`)
    await run(`${foreign} (editor_id) references editor (id)`)
    expect(await table('post')).toMatchObject({
      columns: [
        { name: 'author_id', type: 'link', link: { table: 'author', onDelete: 'cascade' } },
        { name: 'editor_id', type: 'link', link: { table: 'editor', onDelete: 'restrict' } },
        { name: 'slug' },
      ],
    })
    const repeated = await sql(`insert into post (author_id, slug) values (7, 'a')`)
    expect(repeated).toMatchObject({ body: { code: 'unique_violation' } })
    expect(await sql('insert into post (slug) values (null)')).toMatchObject({ status: 400 })
    const broken = await sql(`insert into post (author_id, slug) values (8, 'b')`)
    expect(broken).toMatchObject({ body: { code: 'link_violation' } })
    const { body } = await sql(
      'select p.slug from post p join author a on a.id = p.author_id where p.author_id = 7',
    )
    expect(body).toMatchObject({ records: [{ slug: 'a' }] })
    await run('delete from author')
    expect(await sql('select * from post')).toMatchObject({ body: { records: [] } })
  })

  it('are refused for a column with ids of records that do not exist', async () => {
    const { run, sql, schema } = await open()
    await run(
      'create table a (id serial primary key); create table b (id serial primary key, a int)',
    )
    await run('insert into b (a) values (5)')
    const before = await schema()
    const refused = await sql('alter table b add foreign key (a) references a (id)')
    expect(refused).toMatchObject({
      status: 400,
      body: { problems: [{ kind: 'link', records: 1, samples: [{ value: '5' }] }] },
    })
    expect(await schema()).toEqual(before)
  })

  it('keep the names that they are given, by which they are reported and dropped', async () => {
    const { run, sql, table, branches, database } = await open()
    await run(`
      create table a (id serial primary key);
      create table b (id serial primary key, a int, c int constraint to_c references a);
      alter table b add constraint to_a foreign key (a) references a (id) on delete cascade`)
    const link = { table: 'a', onDelete: 'cascade', constraint: 'to_a' }
    expect(await table('b')).toMatchObject({
      columns: [{ name: 'a', link }, { link: { onDelete: 'restrict', constraint: 'to_c' } }],
    })
    expect(await sql('insert into b (a) values (5)')).toMatchObject({
      body: { code: 'link_violation', table: 'b', column: 'a', constraint: 'to_a' },
    })
    const client = await wire.connect(`${database}:main`)
    const { rows } = await client.query(
      `select conname as name from pg_constraint where conrelid = 'b'::regclass and contype = 'f' order by 1`,
    )
    expect(rows).toEqual([{ name: 'to_a' }, { name: 'to_c' }])
    const fault = await client.query('insert into b (c) values (5)').catch((thrown) => thrown)
    expect(fault).toMatchObject({ code: '23503', constraint: 'to_c' })
    await client.end()
    const taken = await sql('alter table b add constraint to_c foreign key (a) references a (id)')
    expect(taken).toMatchObject({ body: { code: 'already_exists' } })
    await branches.fork('fork')
    await run('alter table b drop constraint to_a', { branch: 'fork' })
    await run('insert into b (a) values (5)', { branch: 'fork' })
    expect(await table('b', 'fork')).toMatchObject({
      columns: [{ name: 'a', link: { table: 'a' } }, { name: 'c' }],
    })
    const { operations } = (await branches.diff('fork', '?against=main')).schema
    expect(operations).toEqual([
      { alterColumn: { table: 'b', column: 'a', link: { onDelete: 'none', constraint: null } } },
    ])
    await run('alter table b add constraint again foreign key (c) references a', {
      branch: 'fork',
    })
    expect(await branches.merge('fork')).toMatchObject({ merged: true })
    expect(await table('b')).toMatchObject({
      columns: [{ link: { table: 'a' } }, { link: { constraint: 'again' } }],
    })
    await run('alter table b rename constraint again to renamed')
    expect(await table('b')).toMatchObject({ columns: [{}, { link: { constraint: 'renamed' } }] })
    const unnamed = { link: { onDelete: 'none', constraint: 'x' } }
    const refused = await branches.call('main', 'PATCH', '/tables/b/columns/c', unnamed)
    expect(refused.body.message).toContain('field [link.constraint] needs [link.onDelete]')
    const usual = { link: { constraint: null } }
    expectOk(await branches.call('main', 'PATCH', '/tables/b/columns/c', usual))
    await run('alter table b drop constraint b_c_fkey')
  })

  it('that are not valid at first are checked at once, which a notice says', async () => {
    const { run, sql, table } = await open()
    await run(
      'create table a (id serial primary key); create table b (id serial primary key, a int)',
    )
    await run('insert into b (a) values (5)')
    const add = `
      alter table b add constraint b_a_fkey foreign key (a) references a (id) not valid;
      alter table b add constraint positive check (a is not null) not valid;
      alter table b validate constraint b_a_fkey, validate constraint positive`
    expect(await sql(add)).toMatchObject({ status: 400, body: { code: 'invalid_schema' } })
    await run('insert into a (id) values (5)')
    expect(await run(add)).toMatchObject({
      notices: ['NOT VALID: existing records are checked nevertheless'],
    })
    expect(await table('b')).toMatchObject({
      columns: [{ name: 'a', link: { table: 'a', onDelete: 'restrict' } }],
    })
    const unknown = await sql('alter table b validate constraint other')
    expect(unknown.body.message).toContain('constraint [other] of table [b] not found')
    await run('alter table b drop constraint b_a_fkey')
    await run('delete from a')
  })

  it('become plain columns with their values if the table that they link to is dropped', async () => {
    const { run, sql, table, schema } = await open()
    const ids = { t: "'one'", i: '7', u: `'${'0190a5d2-0000-7000-8000-000000000001'}'` }
    await run(`
      create table t (id text primary key);
      create table i (id int primary key);
      create table u (id uuid primary key);
      create table l (id int primary key, t text not null references t on delete cascade, i int unique references i,
        u uuid references u on delete set null, other text references t, self int references l,
        constraint positive check (i > 0))`)
    for (const [name, id] of Object.entries(ids)) await run(`insert into ${name} values (${id})`)
    await run(`insert into l values (1, ${ids.t}, ${ids.i}, ${ids.u}, ${ids.t}, 1)`)
    const before = await schema()
    for (const statement of ['drop table t', 'drop table t, i', 'drop table t; drop table i']) {
      expect(await sql(statement, { allowDataLoss: true })).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('table [t]: is linked from [l.t]') },
      })
    }
    expect(await schema()).toEqual(before)
    await run('alter table l drop constraint l_i_fkey; drop table i', { allowDataLoss: true })
    const { notices } = await run(
      'alter table t rename to other; create table t (id int primary key); drop table other, u cascade',
      { allowDataLoss: true },
    )
    expect(notices).toEqual([
      'column [t] of table [l] is no link any more: it keeps the ids of table [other] as values',
      'column [other] of table [l] is no link any more: it keeps the ids of table [other] as values',
      'column [u] of table [l] is no link any more: it keeps the ids of table [u] as values',
    ])
    const { columns, constraints } = await table('l')
    expect(columns).toEqual([
      { name: 't', type: 'string' },
      { name: 'i', type: 'int', bits: 32, unique: true },
      { name: 'u', type: 'uuid' },
      { name: 'other', type: 'string' },
      expect.objectContaining({ name: 'self', type: 'link' }),
    ])
    expect(constraints).toEqual([
      { name: 'l_t_not_null', check: 't is not null' },
      { name: 'positive', check: 'i > 0' },
    ])
    expect((await run('select t, i, u::text, other, self from l')).records).toEqual([
      { t: 'one', i: 7, u: ids.u.slice(1, -1), other: 'one', self: 1 },
    ])
    await run('drop table l', { allowDataLoss: true })
  })

  it.each([
    ['create table t (a int references u (b))', 'REFERENCES u (b)'],
    ['create table t (a uuid references u)', 'REFERENCES from type [uuid] to ids of type [string]'],
    ["create table t (a text default 'x' references u)", 'DEFAULT of column [a]'],
    ['create table t (a text references u on delete set default)', 'ON DELETE SET DEFAULT'],
    ['create table t (a text references u match full)', 'MATCH FULL'],
    ['create table t (a text, b text, foreign key (a, b) references u (id, b))', 'several columns'],
    [
      'alter table u add foreign key (n) references u (id)',
      'REFERENCES from type [int] to ids of type [string]',
    ],
  ])('are refused by name if they cannot be links: %s', async (statement, feature) => {
    const { run, sql, schema } = await open()
    await run('create table u (id text primary key, b text, n int)')
    const before = await schema()
    const answer = await sql(statement)
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_sql' } })
    expect((answer.body as { message: string }).message).toContain(feature)
    expect(await schema()).toEqual(before)
  })
})

describe('alter, rename, drop, index and comment', () => {
  it('changes a type by an expression', async () => {
    const { run, sql, table } = await open()
    await run('create table t (id text primary key, "fullName" text not null, age int)')
    await run(`insert into t (id, "fullName", age) values ('x', 'Ada Lovelace', 36)`)
    await run(
      `alter table t alter column "fullName" type varchar(20) using upper(split_part(t."fullName", ' ', 2))`,
    )
    await run(`alter table t alter column age type text using age::text || ' years'`)
    expect(await run('select "fullName", age from t')).toMatchObject({
      records: [{ fullName: 'LOVELACE', age: '36 years' }],
    })
    expect(await table('t')).toMatchObject({
      columns: [
        { name: 'fullName', type: 'string', notNull: true },
        { name: 'age', type: 'text' },
      ],
    })
    const refused = await sql('alter table t alter column age type int using nothing')
    expect(refused).toMatchObject({ status: 400 })
  })

  it.each([
    ['date', { type: 'date' }, '2024-05-06'],
    ['text', { type: 'text' }, expect.stringContaining('2024-05-06')],
    ['varchar(40)', { type: 'string', maxLength: 40 }, expect.stringContaining('2024-05-06')],
    ['timestamptz', { type: 'datetime' }, expect.stringContaining('2024-05-06')],
  ])('change a timestamp to %s', async (type, definition, value) => {
    const { run, table } = await open()
    await run('create table t (id int primary key, ts timestamp)')
    await run("insert into t values (1, '2024-05-06 00:00:00')")
    await run(`alter table t alter column ts type ${type}`)
    expect((await table('t')).columns).toEqual([{ name: 'ts', ...definition }])
    expect((await run('select ts from t')).records).toEqual([{ ts: value }])
    await run('alter table t alter column ts type timestamp')
    expect((await table('t')).columns).toEqual([
      { name: 'ts', type: 'datetime', withoutZone: true },
    ])
  })

  it('change a timestamp to types that have other values, if there are none', async () => {
    const { run, table, branches } = await open()
    await run('create table t (id int primary key, a timestamp, b timestamp, c timestamp)')
    await run(`alter table t alter column a type time using null, alter column b type bigint using null;
      alter table t alter column c type date, alter column c type timestamp`)
    expect((await table('t')).columns).toEqual([
      { name: 'a', type: 'time' },
      { name: 'b', type: 'int' },
      { name: 'c', type: 'datetime', withoutZone: true },
    ])
    const patch = (changes: object) =>
      branches.call('main', 'PATCH', '/tables/t/columns/c', changes)
    expectOk(await patch({ withoutZone: null }))
    expect((await table('t')).columns[2]).toEqual({ name: 'c', type: 'datetime' })
    expectOk(await patch({ withoutZone: true }))
    expectOk(await patch({ type: 'date', withoutZone: false }))
    expect((await table('t')).columns[2]).toEqual({ name: 'c', type: 'date' })
    expect(await patch({ withoutZone: true })).toMatchObject({ status: 400 })
  })

  it('change columns, constraints and names', async () => {
    const { run, table, history } = await open()
    await run(
      `create table t (id text primary key, a int, b text, c text, d int default 5 not null)`,
    )
    await run(`insert into t (id, a, b) values ('x', 7, '12')`)
    await run(`alter table t
      add column e date, add column if not exists a text, drop column if exists z,
      alter column b type int, alter column c set default 'n', alter d drop default,
      alter column a set not null, alter d drop not null,
      add constraint positive check (a > 0), add constraint pair unique (a, d)`)
    await run('alter table t rename column a to amount')
    await run("comment on column t.amount is 'How many'")
    const { columns, constraints } = await table('t')
    expect(columns).toEqual([
      { name: 'amount', type: 'int', bits: 32, notNull: true, description: 'How many' },
      { name: 'b', type: 'int', bits: 32 },
      { name: 'c', type: 'text', defaultValue: 'n' },
      { name: 'd', type: 'int', bits: 32 },
      { name: 'e', type: 'date' },
    ])
    expect(constraints).toEqual([
      { name: 'positive', check: 'amount > 0' },
      { name: 'pair', unique: ['amount', 'd'] },
    ])
    expect((await history()).length).toBe(5)
    await run('alter table t drop constraint positive, drop constraint if exists gone')
    await run('alter table t rename to "T2"')
    await run('alter table "T2" drop column d', { allowDataLoss: true })
    expect((await table('T2')).constraints).toBeUndefined()
    expect(await run('select amount, b from "T2"')).toMatchObject({
      records: [{ amount: 7, b: 12 }],
    })
  })

  it('make unique indexes rules that are shown as indexes, and others indexes of columns', async () => {
    const { run, sql, table, branches } = await open()
    await run('create table t (id text primary key, a text, b text, c int)')
    await run(`create unique index t_a_key on t (a); create unique index other on t (b, c);
      create index t_b_idx on t (b)`)
    expect(await table('t')).toMatchObject({
      columns: [{ name: 'a', type: 'string', unique: true }, { type: 'string' }, { name: 'c' }],
      constraints: [{ name: 'other', unique: ['b', 'c'], index: true }],
    })
    await run('alter table t rename constraint other to another')
    expect((await table('t')).constraints).toEqual([
      { name: 'another', unique: ['b', 'c'], index: true },
    ])
    const indexes = async () =>
      (
        expectOk(await branches.call('main', 'GET', '/tables/t/indexes')).body as {
          indexes: object[]
        }
      ).indexes
    expect(await indexes()).toMatchObject([
      { column: 'a', origin: 'unique' },
      { column: 'b', origin: 'asked' },
    ])
    await run('drop index t_a_key, another, t_b_idx')
    expect(await indexes()).toEqual([])
    expect((await table('t')).constraints).toBeUndefined()
    expect(await sql('drop index t_b_idx')).toMatchObject({ body: { code: 'index_not_found' } })
    await run('drop index if exists nothing')
  })

  it('of the id and other columns need nothing, which a notice says', async () => {
    const { run, table } = await open()
    const { notices } = await run(
      'create table t (id int primary key, a int, unique (a, id)); create unique index on t (id)',
    )
    expect(notices).toEqual([
      'table [t]: UNIQUE (a, id) was not made: the id is unique by itself',
      'table [t]: UNIQUE (id) was not made: the id is unique by itself',
    ])
    expect((await table('t')).constraints).toBeUndefined()
  })

  it('make no index that the storage cannot have, and say so', async () => {
    const { run, sql, table } = await open()
    await run('create table t (id text primary key, a text, b int)')
    for (const [statement, words] of [
      ['create index t_ab on t (a, b)', 'index [t_ab] was not made: CREATE INDEX: several columns'],
      ['create index on t (a, b)', 'index [t_a_b_idx] was not made'],
      ['create index low on t (lower(a))', 'an expression'],
      ['create index part on t (a) where b > 1', 'WHERE'],
      ['create index gin on t using gin (a)', 'USING gin'],
      ['create index with_b on t (a) include (b)', 'INCLUDE'],
      ['create index classes on t (a text_ops)', 'an operator class'],
      ['create index ids on t (id)', 'index [ids] was not made: column [id] has an index'],
      ['drop index t_ab', 'index [t_ab] was not dropped'],
    ] as const) {
      const { notices } = await run(statement)
      expect(notices).toEqual([expect.stringContaining(words)])
    }
    expect(await table('t')).toMatchObject({
      columns: [{ name: 'a', type: 'text' }, { name: 'b' }],
    })
    for (const statement of [
      'create index on t (a, nothing)',
      'create index on t (lower(nothing))',
      'create index on t (a) where nothing',
      'create index on nothing (a, b)',
    ]) {
      const { status, body } = await sql(statement)
      expect([statement, status]).toEqual([statement, 400])
      expect(body.message).toContain('[nothing]')
    }
  })

  it('keep a primary key of other columns as a rule for them', async () => {
    const { run, sql, table } = await open()
    const one = await run('create table versions (num varchar(32), constraint v primary key (num))')
    expect(one.notices).toContain(
      'table [versions]: PRIMARY KEY (num) is UNIQUE and NOT NULL: the primary key is the column [id]',
    )
    await run('create table locks ("index" serial primary key, "is" int)')
    await run('create table pairs (a int, b int, constraint pairs_pkey primary key (a, b))')
    await run('create table late (a int not null, b text); alter table late add primary key (a)')
    expect(await table('versions')).toMatchObject({
      columns: [{ name: 'num', notNull: true }],
      constraints: [{ name: 'v', unique: ['num'] }],
    })
    expect(await table('locks')).toMatchObject({
      columns: [{ name: 'index', notNull: true, unique: true, generate: 'sequence' }, {}],
    })
    expect(await table('pairs')).toMatchObject({
      columns: [{ notNull: true }, { notNull: true }],
      constraints: [{ name: 'pairs_pkey', unique: ['a', 'b'] }],
    })
    expect(await table('late')).toMatchObject({ columns: [{ notNull: true, unique: true }, {}] })
    await run(`insert into versions (num) values ('1')`)
    expect(await sql(`insert into versions (num) values ('1')`)).toMatchObject({ status: 400 })
    expect(await sql('insert into pairs (a) values (1)')).toMatchObject({ status: 400 })
    await run('alter table versions drop constraint v')
    await run(`insert into versions (num) values ('1')`)
  })

  it('keep the name of a primary key of other columns, also that of PostgreSQL', async () => {
    const { run, sql, table } = await open()
    await run(`create table lines (o int, p text, n int, constraint "lines_pkey" primary key ("o", "p"));
      create table pairs (a int, b int, primary key (a, b));
      create table codes (code text, constraint codes_pkey primary key (code));
      create table own (id text primary key, a int, b int);
      alter table own add constraint own_pkey primary key (a, b)`)
    for (const [name, unique] of [
      ['lines', ['o', 'p']],
      ['pairs', ['a', 'b']],
      ['codes', ['code']],
    ] as const) {
      expect((await table(name)).constraints).toEqual([{ name: `${name}_pkey`, unique }])
    }
    // Here, it is the name of the key of the ids.
    expect((await table('own')).constraints).toEqual([{ name: 'own_a_b_key', unique: ['a', 'b'] }])
    await run(`insert into lines values (1, 'x', 1)`)
    const again = `insert into lines values (1, 'x', 2) on conflict on constraint`
    await run(`${again} lines_pkey do nothing`)
    await run(`${again} lines_pkey do update set n = excluded.n`)
    await run(`insert into lines (id, o, p) values ('i', 2, 'x')`)
    await run(`insert into lines (id, o, p) values ('i', 3, 'x')
      on conflict on constraint lines_id_pkey do nothing`)
    expect((await run('select o, n from lines order by o')).records).toEqual([
      { o: 1, n: 2 },
      { o: 2, n: null },
    ])
    expect(await sql(`insert into lines values (1, 'x', 3)`)).toMatchObject({
      status: 400,
      body: { code: 'unique_violation', constraint: 'lines_pkey', columns: ['o', 'p'] },
    })
    await run(`update lines set n = 1 where n is null;
      alter table lines drop constraint lines_pkey, add constraint lines_pkey primary key (o, n)`)
    expect((await table('lines')).constraints).toEqual([{ name: 'lines_pkey', unique: ['o', 'n'] }])
    await run('alter table lines rename constraint lines_pkey to lines_key')
    expect((await table('lines')).constraints).toMatchObject([{ name: 'lines_key' }])
    // Now it is the name of the key of the ids again.
    await run(`insert into lines (id, o, p, n) values ('i', 3, 'x', 1)
      on conflict on constraint lines_pkey do nothing`)
    await run('alter table pairs drop constraint pairs_pkey')
    expect((await table('pairs')).constraints ?? []).toEqual([])
  })

  it('make tables whose ids only a list of columns has, unless they have a column for them', async () => {
    const { run, sql, table, branches } = await open()
    await run(`create table code (code text primary key, label text);
      create table m (a int, b int, v text, primary key (a, b));
      create table bare (n int);
      create table known (id text primary key, n int)`)
    expect(await table('code')).toMatchObject({ hiddenId: true })
    expect(await table('known')).not.toHaveProperty('hiddenId')
    await run(`insert into code values ('DE', 'Germany'), ('AT', default)`)
    await run(`insert into code select 'IT', 'Italy'`)
    await run(`insert into code values ('FR')`)
    await run(`insert into code (id, code) values ('own', 'NL')`)
    await run(`insert into m values (1, 2, 'x') on conflict (a, b) do nothing`)
    await run('insert into bare values (7)')
    await run(`insert into known values ('k', 3)`)
    expect((await run('select code, label from code order by code')).records).toEqual([
      { code: 'AT', label: null },
      { code: 'DE', label: 'Germany' },
      { code: 'FR', label: null },
      { code: 'IT', label: 'Italy' },
      { code: 'NL', label: null },
    ])
    expect((await run('select a, b, v from m')).records).toEqual([{ a: 1, b: 2, v: 'x' }])
    expect((await run('select id, n from bare')).records).toEqual([
      { id: expect.stringMatching(/^rec_/), n: 7 },
    ])
    expect((await run('select id, n from known')).records).toEqual([{ id: 'k', n: 3 }])
    const refused = await sql(`insert into code values ('c1', 'PL', 'Poland')`)
    expect(refused).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('more expressions than target columns') },
    })
    // Forks, and branches that get the table by a merge, know it, too.
    await branches.fork('dev')
    await run('create table late (a text primary key)', { branch: 'dev' })
    await branches.merge('dev')
    await run(`insert into late values ('x')`)
    expect((await run('select a from late')).records).toEqual([{ a: 'x' }])
  })

  it('refuse ids of `*` as values of a table whose ids only a list of columns has', async () => {
    const { run, sql } = await open()
    await run(`create table code (code text primary key, label text);
      create table archive (code text, label text, note text, at timestamptz default now());
      insert into code values ('DE', 'Germany')`)
    for (const query of [
      'select * from code',
      'table code',
      'select * from (select * from code) c',
      `select c.* from code c union all select '1', '2', '3'`,
    ]) {
      expect(await sql(`insert into archive ${query}`)).toMatchObject({
        status: 400,
        body: { message: expect.stringContaining('list the columns') },
      })
    }
    await run('insert into archive (id, code, label) select id, code, label from code')
    await run('insert into archive select code, label from code')
    await run('insert into archive select * from (select code, label from code) c')
    expect((await run('select code, label from archive')).records).toEqual(
      Array.from({ length: 3 }, () => ({ code: 'DE', label: 'Germany' })),
    )
  })

  it('refuse to lose values, unless that is allowed', async () => {
    const { run, sql, schema } = await open()
    await run('create table t (id text primary key, a int)')
    await run(`insert into t (id, a) values ('x', 7)`)
    for (const statement of ['drop table t', 'alter table t drop column a']) {
      expect(await sql(statement)).toMatchObject({ body: { code: 'data_loss' } })
    }
    await run('alter table t drop column a', { allowDataLoss: true })
    await run('drop table if exists t, gone cascade', { allowDataLoss: true })
    expect(await schema()).toEqual([])
  })
})

describe('statements of one request', () => {
  it('are one migration, and none is applied if one fails', async () => {
    const { run, sql, schema, history } = await open()
    await run(`begin; create table a (id text primary key); create table b (id text primary key);
      alter table a add column x int; alter table a rename x to y; commit`)
    expect(await history()).toHaveLength(2)
    expect(await schema()).toMatchObject([{ name: 'a', columns: [{ name: 'y' }] }, { name: 'b' }])
    const before = await schema()
    for (const last of [
      'create table a (id int primary key)',
      'create function f() returns int language sql as $$ select 1 $$',
      "insert into a (other) values ('x')",
      "insert into c (id) values ('x'), ('x')",
      'select other from c',
      'rollback',
    ]) {
      const answer = await sql(`create table c (id text primary key); ${last}`)
      expect(answer, last).toMatchObject({ status: expect.any(Number) })
      expect(answer.status, last).toBeGreaterThanOrEqual(400)
      expect(answer.status, last).toBeLessThan(500)
    }
    expect(await schema()).toEqual(before)
    expect(await history()).toHaveLength(2)
  })

  it('can be a batch', async () => {
    const { branches, history } = await open()
    const statements = [
      { statement: 'create table a (id text primary key)' },
      { statement: 'alter table a add column b int' },
    ]
    const answer = await branches.call('main', 'POST', '/sql/batch', { statements })
    const result = { records: [], columns: [], total: 0 }
    expect(answer).toMatchObject({ status: 200, body: { results: [result, result] } })
    expect(await history()).toHaveLength(2)
  })

  it('are applied once for one idempotency key', async () => {
    const { sql, history } = await open()
    const headers = { 'idempotency-key': 'k1' }
    const statement = 'create table a (id text primary key)'
    const first = await sql(statement, {}, headers)
    expect(first).toMatchObject({ status: 200 })
    expect(await sql(statement, {}, headers)).toMatchObject({ status: 200, body: first.body })
    expect(await history()).toHaveLength(2)
  })

  it('need a key that writes, and a branch that is not protected', async () => {
    const { branches, sql, schema } = await open()
    const reader = await createKey(service, `reader${number}`, {
      fields: { scope: { access: 'read' } },
    })
    const statement = 'create table a (id text primary key)'
    const options = { key: reader }
    expect(await branches.call('main', 'POST', '/sql', { statement }, options)).toMatchObject({
      status: 403,
      body: { code: 'key_scope' },
    })
    expectOk(await branches.call('main', 'PATCH', '', { protected: true }))
    expect(await sql(statement)).toMatchObject({ body: { code: 'protected_branch' } })
    expect(await schema()).toEqual([])
  })

  it('change one branch, and are merged', async () => {
    const { run, branches, table } = await open()
    await run('create table t (id serial primary key, a int)')
    await branches.fork('dev')
    await run('alter table t add column b numeric(6, 2) not null default 1', { branch: 'dev' })
    expect((await table('t')).columns).toHaveLength(1)
    await branches.merge('dev')
    expect((await table('t')).columns).toHaveLength(2)
  })
})

/** Writes each table as its name, the type of its ids, its columns and its constraints. */
function summarize(tables: Tables): string[] {
  return tables.map(({ name, idType = 'string', idBits = '', columns, constraints = [] }) => {
    const written = columns.map((column) => {
      const { name: _, type, decimal, bits = '', maxLength, ...rest } = column
      const size = maxLength === undefined ? bits : `(${maxLength})`
      const { precision, scale } = (decimal ?? {}) as { precision?: number; scale?: number }
      const options = { ...rest, ...(decimal ? { decimal: [precision, scale] } : {}) }
      const flags = Object.entries(options).map(([key, value]) => `${key}=${JSON.stringify(value)}`)
      return [column.name, `${type}${size}`, ...flags].join(' ')
    })
    return [
      `${name} ${idType}${idBits}`,
      ...written,
      ...constraints.map((c) => JSON.stringify(c)),
    ].join('\n')
  })
}

describe('a file of migrations', () => {
  it.each([
    [
      'Prisma',
      ['prisma-1', 'prisma-2', 'prisma-3'],
      [
        `User int32
email string notNull=true unique=true
name string notNull=true defaultValue="nobody"
role enum enum={"type":"Role","values":["USER","ADMIN"]} notNull=true defaultValue="USER"
balance decimal notNull=true defaultValue="0" decimal=[65,30]
active bool notNull=true defaultValue="true"
tags multiple
profile json notNull=true
createdAt datetime withoutZone=true notNull=true defaultValue="now"
updatedAt datetime withoutZone=true notNull=true
age int32 notNull=true defaultValue="18"`,
        `Login string
token string notNull=true
device string
expiresAt datetime withoutZone=true`,
        `Post int32
title text notNull=true
authorId link link={"table":"User","onDelete":"restrict"}
reviewerId link link={"table":"User","onDelete":"setNull"}
{"name":"Post_authorId_not_null","check":"\\"authorId\\" is not null"}`,
      ],
    ],
    [
      'Drizzle',
      ['drizzle'],
      [
        `invoices uuid
number string(32) notNull=true
status enum enum={"type":"status","values":["draft","sent","paid"]} notNull=true defaultValue="draft"
total decimal notNull=true decimal=[12,2]
due date
sent_at datetime
created_at datetime withoutZone=true notNull=true defaultValue="now"
{"name":"invoices_number_unique","unique":["number"]}
{"name":"total_check","check":"total >= 0"}`,
        `counters int32
value int notNull=true defaultValue="0"
rate float`,
        `lines uuid
invoice_id link link={"table":"invoices","onDelete":"cascade","constraint":"lines_invoice_id_invoices_id_fk"}
position int32 notNull=true generate="sequence"
{"name":"lines_invoice_id_not_null","check":"invoice_id is not null"}`,
      ],
    ],
    [
      'Alembic',
      ['alembic'],
      [
        `alembic_version string
version_num string(32) notNull=true
{"name":"alembic_version_pkc","unique":["version_num"]}`,
        `account int32
title string(50) notNull=true unique=true
description text description="What it is for"
opened_on date
opened_at time
created_at datetime defaultValue="now"
last_transaction_date datetime withoutZone=true
{"name":"account_name_check","check":"title <> ''"}`,
      ],
    ],
    [
      'Django',
      ['django'],
      [
        `shop_product int
sku string(20) notNull=true unique=true
name string(200) notNull=true
price decimal notNull=true decimal=[10,2]
stock int32 notNull=true
weight float
is_public bool notNull=true
data json notNull=true
key uuid notNull=true unique=true
added datetime notNull=true
{"name":"shop_product_stock_check","check":"stock >= 0"}
{"name":"one_name_per_price","unique":["name","price"]}`,
        `shop_item int
amount int32 notNull=true
product_id link link={"table":"shop_product","onDelete":"restrict","constraint":"shop_item_product_id_4e6b2f3a_fk_shop_product_id"}
{"name":"shop_item_product_id_not_null","check":"product_id is not null"}`,
      ],
    ],
  ])('of %s applies as it is', async (_, files, tables) => {
    const { run, schema, history } = await open()
    for (const name of files) await run(file(name))
    expect(summarize(await schema())).toEqual(tables)
    // What Alembic writes between its changes makes two migrations of them.
    const count = files.includes('alembic') ? 2 : files.length
    expect(await history()).toHaveLength(1 + count)
  })
})

describe('statements that change the schema and records', () => {
  const SCRIPT = `
    begin;
    create type state as enum ('new', 'paid');
    create table orders (id serial primary key, state state not null default 'new', total int); -- a comment
    create table versions (id text primary key);
    insert into versions values ('1');
    insert into orders (total) values (5), (7);
    alter table orders add column code text;
    update orders set code = 'A-' || total, state = 'paid'::state where total > 5; -- the last
    commit`

  it('are one transaction', async () => {
    const { run, sql, schema, history } = await open()
    const answer = await run(SCRIPT)
    expect(answer).toMatchObject({ records: [], total: 0 })
    const { records } = await run('select state, total, code from orders order by id')
    expect(records).toEqual([
      { state: 'new', total: 5, code: null },
      { state: 'paid', total: 7, code: 'A-7' },
    ])
    expect(await history()).toHaveLength(3)
    const before = await schema()
    const failed = await sql(`
      alter table orders add column more int;
      update orders set more = 1;
      create table others (id int primary key);
      insert into versions values ('1')`)
    expect([failed.status, failed.body.message]).toEqual([400, expect.stringContaining('versions')])
    expect(await schema()).toEqual(before)
    expect(await history()).toHaveLength(3)
  })

  it('see what those before them have done, as a batch with parameters, too', async () => {
    const { branches, run } = await open()
    const statements = [
      { statement: 'create table notes (id text primary key, n int)' },
      { statement: 'insert into notes values ($1, $2)', params: ['a', 1] },
      { statement: 'select id, n from notes' },
      {
        statement:
          'alter table notes add column m int not null default 3; comment on column notes.m is $$M$$',
      },
      { statement: 'select id, m from notes where n = $1', params: [1] },
    ]
    const { body } = expectOk(await branches.call('main', 'POST', '/sql/batch', { statements }))
    const records = (body as { results: { records: object[] }[] }).results.map(
      (result) => result.records,
    )
    expect(records).toEqual([[], [], [{ id: 'a', n: 1 }], [], [{ id: 'a', m: 3 }]])
    expect((await run('select n from notes')).records).toEqual([{ n: 1 }])
  })

  it('take effect once for an idempotency key', async () => {
    const { sql, run, history } = await open()
    const send = () => sql(SCRIPT, {}, { 'idempotency-key': 'one' })
    const answers = [expectOk(await send()).body, expectOk(await send()).body]
    expect(answers[1]).toEqual(answers[0])
    expect(await history()).toHaveLength(3)
    expect((await run('select id from orders')).records).toHaveLength(2)
  })

  it('apply to a fork without storage, and remove nothing that has values unless that is allowed', async () => {
    const { branches, sql, run } = await open()
    await run(SCRIPT)
    await branches.fork('dev')
    const script = 'update orders set total = total + 1; alter table orders drop column code'
    const refused = await sql(script, { branch: 'dev' })
    expect([refused.status, refused.body.code]).toEqual([409, 'data_loss'])
    await run(script, { branch: 'dev', allowDataLoss: true })
    const read = (branch: string) => run('select * from orders order by id', { branch })
    expect((await read('dev')).records).toMatchObject([{ total: 6 }, { total: 8 }])
    expect((await read('main')).records).toMatchObject([{ total: 5 }, { total: 7, code: 'A-7' }])
  })

  it('are refused with parameters, for keys that only read, and beyond a number', async () => {
    const { branches, sql } = await open()
    const mixed = "create table notes (id text primary key); insert into notes values ('a')"
    const given = await sql(mixed, { params: ['a'] })
    expect(given.body.message).toContain(
      'a statement that changes the schema cannot have parameters',
    )
    const many = (count: number) =>
      `create table notes (id text primary key)${"; insert into notes values ('a')".repeat(count)}`
    const { sqlScriptStatementsMax } = service.services.limits
    expect((await sql(many(sqlScriptStatementsMax))).body.message).toContain(
      `can have at most ${sqlScriptStatementsMax} statements`,
    )
    const key = await createKey(service, `reader-of-scripts${number}`, {
      fields: { scope: { access: 'read' } },
    })
    const refused = await branches.call('main', 'POST', '/sql', { statement: mixed }, { key })
    expect([refused.status, refused.body.code]).toEqual([403, 'key_scope'])
    const nested = await sql(`${mixed}; savepoint a; insert into notes values ('b')`)
    expect([nested.status, nested.body.code]).toEqual([400, 'invalid_sql'])
  })
})

describe('what is not supported', () => {
  it.each([
    ['create table t (id int, a int, primary key (id, a))', 'PRIMARY KEY (id, a)'],
    ['create table t (id int not null, a int primary key)', 'PRIMARY KEY (a)'],
    ['create table t (a int, primary key (a) include (a))', 'PRIMARY KEY: INCLUDE'],
    ['create table t (id date primary key)', 'PRIMARY KEY of type [date]'],
    [
      'create table t (id text primary key default gen_random_uuid())',
      'DEFAULT of the primary key',
    ],
    [
      'create table t (id text primary key default gen_random_uuid()::text)',
      'DEFAULT of the primary key with UUIDs as texts is not supported: declare the column as uuid',
    ],
    ['create table t (id int primary key default 5)', 'DEFAULT of the primary key'],
    [
      'create table t (id int primary key, check (id > 0))',
      'an expression that uses column [id] is not supported',
    ],
    ['alter table u add check (u.id is not null)', 'an expression that uses column [id]'],
    [
      'create table t (id int primary key, a int generated always as (id * 2) stored)',
      'an expression that uses column [id]',
    ],
    [
      'alter table u drop constraint u_pkey',
      'DROP CONSTRAINT [u_pkey], the primary key of table [u] is not supported',
    ],
    ['alter table u drop constraint if exists u_pkey', 'DROP CONSTRAINT [u_pkey]'],
    [
      "create table t (a timestamptz default timezone('Europe/Paris', now()))",
      'DEFAULT with function [timezone]',
    ],
    ["create table t (a date default timezone('utc', now()))", 'DEFAULT with function [timezone]'],
    ["create table t (a text default timezone('utc', now()))", 'DEFAULT with function [timezone]'],
    ['create table t (id int, a int)', 'a column [id] that is not the primary key'],
    [
      'create table t (id int generated always as identity (start with 5) primary key)',
      'IDENTITY with START',
    ],
    ['create table t (a bytea)', 'type [bytea]'],
    ['create table t (a numeric)', 'numeric without precision'],
    ['create table t (a int[])', 'type [int4[]]'],
    ['create table t (a other.thing)', 'type [other.thing]'],
    ['create table t (a mood)', 'type [mood]'],
    ['create table t (a interval)', 'type [interval]'],
    ['create table t (a text collate "C")', 'COLLATE'],
    ['create table t (a int default random())', 'DEFAULT with function [random]'],
    ['create table t (a int default (select 1))', 'DEFAULT with an expression'],
    ['create table t (a int default 1 + 1)', 'DEFAULT with an expression'],
    ["create table t (a timestamptz default 'now')", "DEFAULT with 'now'"],
    ["create table t (a int default '1'::text)", 'DEFAULT with a cast to another type'],
    ['create table t (a int check (a > 0) no inherit)', 'NO INHERIT'],
    ['create table t (a int unique deferrable)', 'DEFERRABLE'],
    ['create table t (a int unique nulls not distinct)', 'NULLS NOT DISTINCT'],
    ['create unique index on u (a) nulls not distinct', 'NULLS NOT DISTINCT'],
    ['create table t (a int, exclude (a with =))', 'EXCLUSION'],
    ['create table t (like u including all)', 'LIKE'],
    ['create table t () inherits (u)', 'INHERITS'],
    ['create table t (a int) partition by range (a)', 'PARTITION BY'],
    ['create table t (a int) tablespace x', 'TABLESPACE'],
    ['create table t (a int) with (user_catalog_table = true)', 'WITH [user_catalog_table]'],
    ['create temp table t (a int)', 'temporary'],
    ['create unlogged table t (a int)', 'UNLOGGED'],
    ['create table s.t (a int)', 'schema [s]'],
    ['create table d.public.t (a int)', 'database [d]'],
    ['create table t as select 1', 'CREATE TABLE AS'],
    ['create view v as select 1', 'CREATE VIEW'],
    ['create function f() returns int language sql as $$ select 1 $$', 'CREATE FUNCTION'],
    ['create trigger t after insert on u execute function f()', 'CREATE TRIGGER'],
    ['create extension postgis', 'CREATE EXTENSION'],
    ['create sequence s start 5', 'SEQUENCE with START'],
    ['create sequence s increment by 2', 'SEQUENCE with INCREMENT'],
    ['alter sequence s restart', 'SEQUENCE with RESTART'],
    ['create schema s', 'CREATE SCHEMA'],
    ['create role r', 'CREATE ROLE'],
    ['create unique index on u (lower(a))', 'an expression'],
    ['create unique index on u (a) where a is null', 'WHERE'],
    ['create unique index on u (a text_ops)', 'an operator class'],
    ['alter table u add primary key using index u_a_key', 'PRIMARY KEY: USING INDEX'],
    [
      'alter table u add column x int, alter x type text using upper(a)',
      'which the same request adds or changes',
    ],
    ['alter table u alter id type uuid', 'ALTER COLUMN of column [id]'],
    ['alter table u drop column id', 'DROP COLUMN of column [id]'],
    ['alter table u rename id to key', 'RENAME COLUMN of column [id]'],
    ['alter table u cluster on x', 'CLUSTER ON'],
    ['alter table u enable row level security', 'ENABLE ROW SECURITY'],
    ['alter table u disable trigger all', 'DISABLE TRIG ALL'],
    ['alter table u set schema x', 'OBJECT'],
    ['alter index i rename to j', 'ALTER INDEX'],
    ['drop view v', 'DROP VIEW'],
    ['drop schema public cascade', 'DROP SCHEMA'],
    ["comment on function f is 'x'", 'COMMENT ON FUNCTION'],
    ["alter type mood rename value 'x' to 'y'", 'ALTER TYPE ... RENAME VALUE'],
  ])('is refused by name, and stores nothing: %s', async (statement, feature) => {
    const { branches, sql, schema } = shared
    const before = await schema()
    const answer = await sql(statement)
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_sql' } })
    const { message } = answer.body as { message: string }
    if (feature !== 'OBJECT') expect(message).toContain(feature)
    expect(message).toContain('is not supported')
    expect(await schema()).toEqual(before)
    const client = await wire.connect(`${branches.database}:main`)
    const error = await client.query(statement).catch((thrown: unknown) => thrown)
    await client.end()
    // No column has this type, and so there is none.
    const isUnknown = feature === 'type [mood]'
    expect(error).toMatchObject({ code: isUnknown ? '42704' : '0A000' })
  })

  let shared: Awaited<ReturnType<typeof open>>
  beforeAll(async () => {
    shared = await open()
    await shared.run('create table u (id text primary key, a text, b text)')
  })

  it.each([
    ['a check with a subquery', 'create table t (a int check (a in (select 1)))'],
    ['a check with a function', 'create table t (a int check (pg_sleep(1) is null))'],
    ['a check without columns', 'create table t (a int, check (1 = 1))'],
    ['a reserved name', 'create table t (service int)'],
    ['a name with a quote', 'create table "a""; drop table u; --" (a int)'],
    ['a name in another script', 'create table "таблица" (a int)'],
    ['an empty name', 'create table "" (a int)'],
    ['a name that is too long', `create table ${'a'.repeat(64)} (a int)`],
    ['a column that is too long', `create table t ("${'A'.repeat(70)}" int)`],
    ['too many columns', `create table t (${range(257, (n) => `c${n} int`)})`],
    ['10,000 columns', `create table t (${range(5_000, (n) => `c${n} int`)})`],
    ['too many tables', range(1_001, (n) => `create table t${n} (id text primary key)`, ';')],
    ['the same column twice', 'create table t (a int, A text)'],
    ['a default of another type', "create table t (a int default 'x')"],
    ['parameters', 'create table t (a int default $1)'],
    ['a table that does not exist', 'alter table nothing add column a int'],
    ['a column that does not exist', 'alter table u drop column nothing'],
    ['two primary keys', 'create table t (id int primary key, primary key (id))'],
    ['a syntax error', 'create table t (a int'],
    ['a missing closing quote', "comment on column u.a is 'x"],
  ])('is refused with nothing stored: %s', async (_, statement) => {
    const { sql, schema } = shared
    const before = await schema()
    const answer = await sql(statement)
    expect(answer.status).toBeGreaterThanOrEqual(400)
    expect(answer.status).toBeLessThan(500)
    expect(await schema()).toEqual(before)
  })
})

function range(count: number, write: (number: number) => string, separator = ', '): string {
  return Array.from({ length: count }, (_, index) => write(index)).join(separator)
}

describe('a client of PostgreSQL', () => {
  it('changes the schema, and is told what was done', async () => {
    const { database, table } = await open()
    const client = await wire.connect(`${database}:main`)
    const tags: string[] = []
    for (const text of [
      'create table t (id serial primary key, a text)',
      'create unique index t_a_key on t (a)',
      'alter table t add column b int',
      "comment on column t.b is 'x'",
      'drop index t_a_key',
    ]) {
      tags.push((await client.query(text)).command)
    }
    expect(tags).toEqual(['CREATE', 'CREATE', 'ALTER', 'COMMENT', 'DROP'])
    const { rows } = await client.query('insert into t (a, b) values ($1, $2) returning id', [
      'x',
      1,
    ])
    expect(rows).toEqual([{ id: 1 }])
    await expect(client.query('drop table t')).rejects.toMatchObject({ code: '2BP01' })
    expect((await table('t')).columns).toHaveLength(2)
    await client.query('set offshoot.allow_data_loss = on')
    await client.query({ text: 'drop table t', name: 'prepared' } as never)
    await expect(client.query('select * from t')).rejects.toMatchObject({ code: '42P01' })
    await client.end()
  })

  it('sends a file of migrations as one text, which is one migration', async () => {
    const { database, schema, history } = await open()
    const client = await wire.connect(`${database}:main`)
    const text = file('django')
    await expect(
      client.query(text.replace('COMMIT;', 'create view v as select 1; COMMIT;')),
    ).rejects.toMatchObject({ code: '0A000' })
    expect(await schema()).toEqual([])
    await client.query(text)
    await client.end()
    expect(await history()).toHaveLength(2)
  })
})
