import { randomBytes } from 'node:crypto'
import { Kysely, PostgresDialect } from 'kysely'
import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Session } from '../../packages/server/src/data/session/session.js'
import { Database } from '../../packages/server/src/postgres/database.js'
import {
  collectShapes,
  SHAPES_PER_DATABASE_MAX,
  ShapeDatabases,
} from '../../packages/server/src/shapes/shape-databases.js'
import type { TestBranches } from '../support/branches.js'
import type { TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import {
  bind,
  describeStatement,
  errorCode,
  execute,
  openShop,
  parse,
  query,
  sync,
  type WireService,
  type WireShop,
} from '../support/wire-clients.js'

/* The catalogue that clients of PostgreSQL see: pg_catalog and information_schema of a branch. */

let shop: WireShop
let service: TestService
let branches: TestBranches
let wire: WireService
let client: pg.Client

beforeAll(async () => {
  shop = await openShop(
    {
      teams: [{ name: 'name', type: 'string', notNull: true, defaultValue: "o'clock" }],
      people: [
        { name: 'name', type: 'string', description: "what it's called" },
        { name: 'email', type: 'email', unique: true },
        { name: 'age', type: 'int' },
        { name: 'score', type: 'float', defaultValue: '1.5' },
        { name: 'active', type: 'bool' },
        { name: 'at', type: 'datetime', notNull: true, defaultValue: 'now' },
        { name: 'tags', type: 'multiple' },
        { name: 'doc', type: 'json' },
        { name: 'team', type: 'link', link: { table: 'teams' } },
        { name: 'level', type: 'enum', enum: { values: ['low', "it's high"] } },
        { name: 'price', type: 'decimal', decimal: { precision: 10, scale: 2 } },
        { name: 'day', type: 'date' },
        { name: 'address', type: 'object', columns: [{ name: 'city', type: 'string' }] },
        { name: 'photo', type: 'file' },
        { name: 'ctid', type: 'string' },
        { name: 'Upper Case'.replace(' ', '_'), type: 'vector', vector: { dimension: 3 } },
      ],
    },
    {
      fill: async (branches) => {
        for (const constraint of [
          { name: 'adult', check: 'age >= 18' },
          { name: 'one', unique: ['name', 'day'] },
        ]) {
          await branches.edit('main', { addConstraint: { table: 'people', constraint } })
        }
      },
    },
  )
  ;({ service, branches, wire, client } = shop)
})
afterAll(() => shop?.close())

const rowsOf = async (text: string, values?: unknown[], by = client) =>
  (await by.query(text, values)).rows

/** As the method `columnInfo` of Knex. */
const COLUMN_INFO = `select * from information_schema.columns
  where table_name = $1 and table_catalog = current_database() and table_schema = current_schema()`

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: { code?: string }) => error.code,
  )

/** Runs a statement as the owner of the server. */
async function asAdministrator<Row extends pg.QueryResultRow>(text: string): Promise<Row[]> {
  const administrator = new pg.Client({ connectionString: service.url })
  await administrator.connect()
  try {
    return (await administrator.query<Row>(text)).rows
  } finally {
    await administrator.end()
  }
}

const findInstance = async (): Promise<string> => {
  const [row] = await asAdministrator<{ id: string }>('select id from offshoot_work.identity')
  return row?.id ?? ''
}

/** Lists the shapes and templates of the instance. */
const listShapes = async (): Promise<string[]> => {
  const rows = await asAdministrator<{ name: string }>(
    `select datname as name from pg_database
    where starts_with(datname, 'offshoot_${await findInstance()}_shape_') order by 1`,
  )
  return rows.map(({ name }) => name)
}

describe('a name with that of the database', () => {
  it('is looked up, as TypeORM does', async () => {
    const { rows } = await client.query(`
      select (quote_ident(table_catalog) || '.' || quote_ident(table_schema) || '.' || quote_ident(table_name))::regclass::text as name
      from information_schema.columns where column_name = 'id' order by 1 limit 1`)
    expect(rows).toHaveLength(1)
  })
})

describe('a cursor on the catalogue', () => {
  it('has rows until its transaction ends, as pandas needs it', async () => {
    await client.query('begin')
    await client.query(
      'declare c no scroll cursor for select relname, null as nothing from pg_catalog.pg_class where relkind = $1'.replace(
        '$1',
        `'r'`,
      ),
    )
    const { rows } = await client.query('fetch 1 from c')
    expect(rows).toEqual([{ relname: expect.any(String), nothing: null }])
    await expect(client.query('declare c cursor for select 1')).rejects.toMatchObject({
      code: '42P03',
    })
    await client.query('rollback')
    await client.query('begin')
    await client.query('declare c cursor for select relname from pg_catalog.pg_class')
    await client.query('commit')
    await expect(client.query('fetch 1 from c')).rejects.toMatchObject({ code: '34000' })
    await client.query('declare c cursor with hold for select relname from pg_catalog.pg_class')
    expect((await client.query('fetch 2 from c')).rows).toHaveLength(2)
    await client.query('close c')
    await expect(
      client.query('declare d cursor for select relname from pg_catalog.pg_class'),
    ).rejects.toMatchObject({ code: '25P01' })
  })
})

describe('the catalogue of a branch', () => {
  it('shows all that information_schema has about columns', async () => {
    const rows = await rowsOf(COLUMN_INFO, ['people'])
    expect(rows.map(({ column_name }) => column_name)).toContain('email')
    expect(rows.find(({ column_name }) => column_name === 'email')).toMatchObject({
      table_catalog: 'shop:main',
      data_type: 'text',
      character_maximum_length: null,
      character_octet_length: 1_073_741_824,
    })
  })

  it('has its tables and columns, as information_schema shows them', async () => {
    expect(
      await rowsOf(
        `select column_name, data_type, is_nullable, column_default from information_schema.columns
        where table_catalog = current_database() and table_schema = $1 and table_name = 'people'
        order by ordinal_position`,
        ['public'],
      ),
    ).toEqual(
      [
        ['id', 'text', 'NO', expect.stringContaining('gen_random_uuid()')],
        ['name', 'text', 'YES', null],
        ['email', 'text', 'YES', null],
        ['age', 'bigint', 'YES', null],
        ['score', 'double precision', 'YES', `'1.5'::double precision`],
        ['active', 'boolean', 'YES', null],
        ['at', 'timestamp with time zone', 'NO', 'now()'],
        ['tags', 'ARRAY', 'YES', null],
        ['doc', 'jsonb', 'YES', null],
        ['team', 'text', 'YES', null],
        ['level', 'USER-DEFINED', 'YES', null],
        ['price', 'numeric', 'YES', null],
        ['day', 'date', 'YES', null],
        ['address.city', 'text', 'YES', null],
        ['photo', 'jsonb', 'YES', null],
        ['Upper_Case', 'ARRAY', 'YES', null],
      ].map(([column_name, data_type, is_nullable, column_default]) => ({
        column_name,
        data_type,
        is_nullable,
        column_default,
      })),
    )
    const names = await rowsOf(`select table_name from information_schema.tables
      where table_schema not in ('pg_catalog', 'information_schema') order by 1`)
    expect(names).toEqual([{ table_name: 'people' }, { table_name: 'teams' }])
    const schemas = await rowsOf(`select nspname from pg_namespace where nspname !~ '^pg_'`)
    expect(schemas.map(({ nspname }) => nspname).sort()).toEqual(['information_schema', 'public'])
  })

  it('has keys, links, checks, enum types and comments', async () => {
    const [server] = await rowsOf(`select current_setting('server_version_num')::int as version`)
    // Older ones have no foreign keys that are not enforced.
    const unkept = Number(server?.version) >= 180_000 ? 'NOT ENFORCED' : 'NOT VALID'
    const constraints = await rowsOf(
      `select conname as name, pg_get_constraintdef(oid) as definition, convalidated as valid
      from pg_constraint where conrelid = 'people'::regclass and contype <> 'n' order by 1`,
    )
    expect(constraints).toEqual([
      { name: 'adult', definition: 'CHECK ((age >= 18))', valid: true },
      { name: 'one', definition: 'UNIQUE (name, day)', valid: true },
      { name: 'people_email_key', definition: 'UNIQUE (email)', valid: true },
      { name: 'people_pkey', definition: 'PRIMARY KEY (id)', valid: true },
      {
        name: 'people_team_fkey',
        definition: `FOREIGN KEY (team) REFERENCES teams(id) ${unkept}`,
        valid: false,
      },
    ])
    expect(
      await rowsOf(
        `select enumlabel from pg_enum e join pg_type t on t.oid = e.enumtypid
        where t.typname = 'people_level' order by enumsortorder`,
      ),
    ).toEqual([{ enumlabel: 'low' }, { enumlabel: "it's high" }])
    expect(
      await rowsOf(`select col_description('people'::regclass, 2), format_type(a.atttypid, a.atttypmod)
        from pg_attribute a where attrelid = 'people'::regclass and attname = 'price'`),
    ).toEqual([{ col_description: "what it's called", format_type: 'numeric(10,2)' }])
    const usage = await rowsOf(`select kcu.column_name, ccu.table_name as target
      from information_schema.table_constraints tc
      join information_schema.key_column_usage kcu using (constraint_name)
      join information_schema.constraint_column_usage ccu using (constraint_name)
      where tc.constraint_type = 'FOREIGN KEY' and tc.table_name = 'people'`)
    expect(usage).toEqual([{ column_name: 'team', target: 'teams' }])
  })

  it('has the key of other columns than the id once, by the name that it was given', async () => {
    const client = await wire.connect('shop:main')
    await client.query('select offshoot.fork($1)', ['keyed'])
    await client.query('select offshoot.checkout($1)', ['keyed'])
    await client.query(
      'create table keyed (a int, b text, constraint keyed_pkey primary key (a, b))',
    )
    const { rows } = await client.query(
      `select conname, pg_get_constraintdef(oid) as definition from pg_constraint
      where conrelid = 'keyed'::regclass and contype in ('p', 'u') order by 1`,
    )
    expect(rows).toEqual([
      { conname: 'keyed_id_pkey', definition: 'PRIMARY KEY (id)' },
      { conname: 'keyed_pkey', definition: 'UNIQUE (a, b)' },
    ])
    await client.query(`insert into keyed values (1, 'x')`)
    await expect(client.query(`insert into keyed values (1, 'x')`)).rejects.toMatchObject({
      code: '23505',
      constraint: 'keyed_pkey',
    })
    await client.end()
  })

  it('tells a unique index from a constraint, and so do dumps and schemas that name neither', async () => {
    const client = await wire.connect('shop:main')
    await client.query('select offshoot.fork($1)', ['told'])
    await client.query('select offshoot.checkout($1)', ['told'])
    await client.query('create table told (id serial primary key, a text, b text)')
    await client.query('create unique index told_index on told (a, b)')
    await client.query('alter table told add constraint told_rule unique (b, a)')
    const read = async () => ({
      constraints: (
        await client.query(
          `select conname from pg_constraint where conrelid = 'told'::regclass and contype = 'u'`,
        )
      ).rows,
      indexes: (
        await client.query(
          `select indexdef from pg_indexes where tablename = 'told' and indexname like 'told_%' order by 1 desc`,
        )
      ).rows.map(({ indexdef }) => indexdef),
    })
    const shown = {
      constraints: [{ conname: 'told_rule' }],
      indexes: [
        'CREATE UNIQUE INDEX told_rule ON public.told USING btree (b, a)',
        'CREATE UNIQUE INDEX told_pkey ON public.told USING btree (id)',
        'CREATE UNIQUE INDEX told_index ON public.told USING btree (a, b)',
      ],
    }
    expect(await read()).toEqual(shown)
    const { body } = expectOk(await branches.call('told', 'GET', ''))
    const { tables } = (body as { schema: { tables: { name: string; constraints?: object[] }[] } })
      .schema
    const unnamed = tables.map(({ constraints, ...table }) => ({
      ...table,
      ...(constraints && {
        constraints: constraints.map((each) => ({ ...each, index: undefined })),
      }),
    }))
    const compared = await branches.call('told', 'POST', '/schema/compare', {
      schema: { tables: unnamed },
    })
    expect(compared).toMatchObject({ status: 200, body: { edits: { operations: [] } } })
    await client.query(`insert into told (a, b) values ('x', 'y')`)
    await expect(client.query(`insert into told (a, b) values ('x', 'y')`)).rejects.toMatchObject({
      code: '23505',
      constraint: 'told_index',
    })
    await client.query('drop index told_index')
    expect((await read()).indexes).toEqual(shown.indexes.slice(0, 2))
    const refused = await branches.call('told', 'POST', '/schema/update', {
      operations: [
        {
          addConstraint: { table: 'told', constraint: { name: 'c', check: 'a > b', index: true } },
        },
      ],
    })
    expect(refused).toMatchObject({
      status: 400,
      body: { message: expect.stringContaining('[index] is for [unique] only') },
    })
    await client.end()
  })

  it('shows a link that needs a value as NOT NULL, and defaults as they are written', async () => {
    const client = await wire.connect('shop:main')
    await client.query('select offshoot.fork($1)', ['required'])
    await client.query('select offshoot.checkout($1)', ['required'])
    await client.query(`create table owners (id serial primary key)`)
    await client.query(`create table pets (id serial primary key, owner integer not null references owners,
      kind text default 'cat' check (kind in ('cat', 'dog')), constraint named check (kind = any (array['cat', 'dog'])))`)
    const { rows } = await client.query(
      `select conname as name, contype as type from pg_constraint
      where conrelid = 'pets'::regclass and contype not in ('p', 'f') order by 1`,
    )
    expect(rows).toEqual([
      { name: 'named', type: 'c' },
      { name: 'pets_id_not_null', type: 'n' },
      { name: 'pets_kind_check', type: 'c' },
      { name: 'pets_owner_not_null', type: 'n' },
    ])
    const columns = await client.query(
      `select column_name as name, is_nullable as nullable, column_default as value
      from information_schema.columns where table_name = 'pets' and column_name <> 'id' order by 1`,
    )
    expect(columns.rows).toEqual([
      { name: 'kind', nullable: 'YES', value: `'cat'::text` },
      { name: 'owner', nullable: 'NO', value: null },
    ])
    const links = await client.query(
      `select pg_get_constraintdef(oid) as text from pg_constraint where conrelid = 'pets'::regclass and contype = 'f'`,
    )
    expect(links.rows).toEqual([{ text: 'FOREIGN KEY (owner) REFERENCES owners(id) NOT VALID' }])
    await client.query(`insert into owners default values`)
    await expect(client.query('insert into pets default values')).rejects.toMatchObject({
      code: '23502',
      column: 'owner',
    })
    await expect(
      client.query(`insert into pets (owner, kind) values (1, 'cow')`),
    ).rejects.toMatchObject({ code: '23514', constraint: 'pets_kind_check' })
    await client.end()
  })

  it('has the sequence of a column that can be empty, so that dumps keep it', async () => {
    const client = await wire.connect('shop:main')
    await client.query('select offshoot.fork($1)', ['numbered'])
    await client.query('select offshoot.checkout($1)', ['numbered'])
    await branches.edit(
      'numbered',
      { addTable: { table: 'a', idType: 'int' } },
      // Tables can have the names that PostgreSQL gives to sequences.
      { addTable: { table: 'a_id_seq' } },
      { addTable: { table: 'a_Nr_seq' } },
      {
        addColumn: {
          table: 'a',
          column: { name: 'nr', type: 'int', bits: 32, generate: 'sequence' },
        },
      },
      { addColumn: { table: 'a', column: { name: 'Nr-2', type: 'int', generate: 'sequence' } } },
      {
        addColumn: {
          table: 'a',
          column: { name: 'must', type: 'int', generate: 'sequence', notNull: true },
        },
      },
    )
    await branches.put('numbered', 'a', '5', {})
    const columns = await client.query(
      `select column_name as name, is_nullable as nullable, column_default as value, is_identity as identity
      from information_schema.columns where table_name = 'a' order by ordinal_position`,
    )
    expect(columns.rows).toEqual([
      { name: 'id', nullable: 'NO', value: null, identity: 'YES' },
      { name: 'nr', nullable: 'YES', value: `nextval('a_nr_seq'::regclass)`, identity: 'NO' },
      { name: 'Nr-2', nullable: 'YES', value: `nextval('"a_Nr-2_seq"'::regclass)`, identity: 'NO' },
      { name: 'must', nullable: 'NO', value: null, identity: 'YES' },
    ])
    const { rows } = await client.query(
      `select sequencename as name, data_type::text as type, last_value as last from pg_sequences order by 1`,
    )
    expect(rows).toEqual([
      { name: 'a_Nr-2_seq', type: 'bigint', last: '1' },
      { name: 'a_id_seq_2', type: 'bigint', last: null },
      { name: 'a_must_seq', type: 'bigint', last: '1' },
      { name: 'a_nr_seq', type: 'integer', last: '1' },
    ])
    await client.end()
  })

  it('tells about the caller, not about the server', async () => {
    const user = service.workspaceId
    expect(await rowsOf('select datname from pg_catalog.pg_database')).toEqual([
      { datname: 'shop:main' },
    ])
    expect(await rowsOf(`select rolname from pg_roles where rolname !~ '^pg_'`)).toEqual([
      { rolname: user },
    ])
    expect(await rowsOf('select usename from pg_user')).toEqual([{ usename: user }])
    expect(await rowsOf('select datname, usename from pg_stat_activity')).toEqual([
      { datname: 'shop:main', usename: user },
    ])
    expect(
      await rowsOf(`select current_database() || '!' as d, current_user::text as u, session_user::text as s,
        pg_catalog.current_setting('server_version_num')::int > 140000 as v`),
    ).toEqual([{ d: 'shop:main!', u: user, s: user, v: true }])
    // SQLAlchemy compares it with the access method of each table.
    expect(
      await rowsOf(
        `select amname = current_setting('default_table_access_method') as same
        from pg_class c join pg_am a on a.oid = c.relam where relname = 'people'`,
      ),
    ).toEqual([{ same: true }])
    await client.query(`set application_name = 'mine'`)
    expect(
      await rowsOf(
        `select setting from pg_settings where name in ('application_name', 'data_directory')`,
      ),
    ).toEqual([{ setting: 'mine' }])
    expect(
      await rowsOf(`select tableowner from pg_tables where schemaname = 'public' limit 1`),
    ).toEqual([{ tableowner: user }])
    expect(
      await rowsOf(`select distinct pg_get_userbyid(relowner) as o from pg_class c
        where relnamespace = 'public'::regnamespace`),
    ).toEqual([{ o: user }])
    expect(
      await rowsOf(`select distinct schema_owner as o from information_schema.schemata`),
    ).toEqual([{ o: user }])
  })

  it('does not show what it consists of', async () => {
    const namespaces = 'select oid from pg_catalog.pg_namespace'
    for (const text of [
      `select nspname from pg_namespace where nspname ~ 'offshoot'`,
      `select relname from pg_class where relnamespace not in (${namespaces})`,
      `select proname from pg_proc where pronamespace not in (${namespaces})`,
      `select typname from pg_type where typnamespace not in (${namespaces})`,
      'select rulename from pg_rewrite where ev_class not in (select oid from pg_class)',
      `select viewname from pg_views where schemaname ~ 'offshoot'`,
      `select schema_name from information_schema.schemata where schema_name ~ 'offshoot'`,
    ]) {
      expect([text, (await client.query(text)).rows]).toEqual([text, []])
    }
  })

  it('answers what tools ask about the server', async () => {
    const { rows } = await client.query(
      `select getdatabaseencoding() as encoding, pg_postmaster_start_time() < now() as "isStarted",
        pg_conf_load_time() is not null as "isLoaded", inet_server_port() as port, inet_client_addr() as address,
        case when pg_is_in_recovery() then pg_is_wal_replay_paused() else false end as "isPaused"`,
    )
    expect(rows).toEqual([
      {
        encoding: 'UTF8',
        isStarted: true,
        isLoaded: true,
        port: null,
        address: null,
        isPaused: false,
      },
    ])
  })

  it('is what an ORM introspects', async () => {
    const pool = new pg.Pool({ connectionString: wire.url('shop:main') })
    const kysely = new Kysely<object>({ dialect: new PostgresDialect({ pool }) })
    const tables = await kysely.introspection.getTables()
    await kysely.destroy()
    expect(tables.map(({ schema, name }) => `${schema}.${name}`)).toEqual([
      'public.people',
      'public.teams',
    ])
    const columns = tables[0]?.columns.map(({ name, dataType, isNullable, hasDefaultValue }) =>
      [name, dataType, isNullable, hasDefaultValue].join(' '),
    )
    expect(columns).toContain('id text false true')
    expect(columns).toContain('age int8 true false')
    expect(columns).toContain('tags _text true false')
  })

  it('answers what psql sends for \\d', async () => {
    const [found] = await rowsOf(`SELECT c.oid, n.nspname, c.relname FROM pg_catalog.pg_class c
      LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relname OPERATOR(pg_catalog.~) '^(people)$' COLLATE pg_catalog.default
        AND pg_catalog.pg_table_is_visible(c.oid)
      ORDER BY 2, 3`)
    expect(found).toMatchObject({ nspname: 'public', relname: 'people' })
    const columns = await rowsOf(`SELECT a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod),
        (SELECT pg_catalog.pg_get_expr(d.adbin, d.adrelid, true) FROM pg_catalog.pg_attrdef d
          WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum AND a.atthasdef),
        a.attnotnull
      FROM pg_catalog.pg_attribute a
      WHERE a.attrelid = '${found.oid}' AND a.attnum > 0 AND NOT a.attisdropped
      ORDER BY a.attnum`)
    expect(columns[3]).toEqual({
      attname: 'age',
      format_type: 'bigint',
      pg_get_expr: null,
      attnotnull: false,
    })
    const listed = await rowsOf(`SELECT n.nspname as "Schema", c.relname as "Name",
        CASE c.relkind WHEN 'r' THEN 'table' WHEN 'v' THEN 'view' END as "Type",
        pg_catalog.pg_get_userbyid(c.relowner) as "Owner"
      FROM pg_catalog.pg_class c LEFT JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
      WHERE c.relkind IN ('r','p','') AND n.nspname <> 'pg_catalog' AND n.nspname !~ '^pg_toast'
        AND n.nspname <> 'information_schema' AND pg_catalog.pg_table_is_visible(c.oid)
      ORDER BY 1,2;`)
    expect(listed.map((row) => [row.Name, row.Owner])).toEqual([
      ['people', service.workspaceId],
      ['teams', service.workspaceId],
    ])
  })

  it('is shared by forks, and changes with the schema', async () => {
    await rowsOf('select 1 from pg_class limit 1')
    const before = await listShapes()
    await branches.fork('same')
    const same = await wire.connect('shop:same')
    expect(await rowsOf('select current_database() as d from pg_class limit 1', [], same)).toEqual([
      { d: 'shop:same' },
    ])
    expect(await listShapes()).toEqual(before)
    const asked = `select count(*)::int as n from information_schema.columns where column_name = 'city'`
    expect(await rowsOf(asked, [], same)).toEqual([{ n: 0 }])
    await branches.edit('same', {
      addColumn: { table: 'people', column: { name: 'city', type: 'string' } },
    })
    expect(await rowsOf(asked, [], same)).toEqual([{ n: 1 }])
    expect(await rowsOf(asked)).toEqual([{ n: 0 }])
  })

  it('keeps few shapes of a database', async () => {
    await branches.fork('many')
    const many = await wire.connect('shop:many')
    for (let count = 0; count <= SHAPES_PER_DATABASE_MAX; count++) {
      await branches.edit('many', { addTable: { table: `t${count}` } })
      const [found] = await rowsOf(`select to_regclass('t${count}')::text as name`, [], many)
      expect(found).toEqual({ name: `t${count}` })
    }
    // One more is the template.
    expect(await listShapes()).toHaveLength(SHAPES_PER_DATABASE_MAX + 1)
    expect(await rowsOf(`select to_regclass('t0') as name`)).toEqual([{ name: null }])
  })

  it('is not for a key that was deleted', async () => {
    const created = await service.call('POST', '/user/keys/reader', {
      body: { scope: { access: 'read' } },
    })
    const reader = await wire.connect('shop:main', { key: created.body.key })
    expect(await rowsOf('select count(*)::int > 0 as has from pg_class', [], reader)).toEqual([
      { has: true },
    ])
    await service.call('DELETE', '/user/keys/reader')
    expect(await codeOf(reader.query('select count(*) from pg_class'))).toBe('28P01')
  })
})

describe('statements on the catalogue', () => {
  it('are described, and return values in binary form, of all types', async () => {
    const raw = await wire.openRaw()
    raw.send(
      parse(
        'select relname, relkind, relnatts, indkey from pg_class c join pg_index i on i.indexrelid = c.oid where relname = $1',
        'a',
      ),
      describeStatement('a'),
      bind(['people_pkey'], { name: 'a', resultFormats: [1] }),
      execute(),
      sync(),
    )
    const messages = await raw.until('Z')
    expect(errorCode(messages)).toBe(undefined)
    expect(messages.map(({ type }) => type).join('')).toBe('1tT2DCZ')
    // The parameter is a name.
    expect(messages[1]?.body.readInt32BE(2)).toBe(19)
    const row = messages[4]?.body ?? Buffer.alloc(0)
    expect(row.readInt16BE(0)).toBe(4)
    expect(row.subarray(6, 17).toString()).toBe('people_pkey')
    raw.close()
  })

  it('return the rows of a portal in parts', async () => {
    const raw = await wire.openRaw()
    raw.send(
      parse(`select relname from pg_class where relname in ('pg_class', 'pg_proc', 'pg_type')`),
      bind([], { portal: 'p' }),
      execute(2, 'p'),
      execute(2, 'p'),
      sync(),
    )
    expect((await raw.until('Z')).map(({ type }) => type).join('')).toBe('12DDsDCZ')
    raw.close()
  })

  it('tell the place of an error in the text of the client', async () => {
    const text = 'select current_database(), nothing from pg_catalog.pg_database, pg_class'
    const error = await client.query(text).catch((e) => e)
    expect([error.code, error.position]).toEqual(['42703', String(text.indexOf('nothing') + 1)])
  })

  it('cannot use tables, too', async () => {
    const mixed = [
      'select * from people, pg_class',
      'select (select count(*) from information_schema.tables) from people',
      'with a as (select * from pg_class) select * from a join public.people p on true',
    ]
    for (const text of mixed) expect(await codeOf(client.query(text))).toBe('0A000')
    expect(
      await rowsOf('with people as (select 1 as n from pg_class limit 1) select n from people'),
    ).toEqual([{ n: 1 }])
  })

  it('end after a time', async () => {
    await client.query('set statement_timeout = 100')
    const endless = 'select count(*) from pg_proc a, pg_proc b, pg_proc c, pg_proc d'
    expect(await codeOf(client.query(endless))).toBe('57014')
    await client.query('reset statement_timeout')
    expect(await rowsOf(`select 1 as n from pg_class limit 1`)).toEqual([{ n: 1 }])
  })
})

describe('hostile statements on the catalogue', () => {
  const FROM = 'from pg_class limit 1'
  const HOSTILE = [
    'select * from pg_authid',
    'select * from pg_catalog.pg_authid',
    'select * from pg_shadow',
    'select * from pg_catalog.pg_hba_file_rules',
    'select * from pg_file_settings',
    'select * from pg_statistic',
    'select * from pg_largeobject',
    'select * from pg_user_mapping',
    'select * from pg_stat_statements',
    'select * from pg_offshoot.pg_database',
    'select * from information_schema._pg_user_mappings',
    `select pg_read_file('/etc/passwd') ${FROM}`,
    `select pg_catalog.pg_read_binary_file('/etc/passwd') ${FROM}`,
    `select pg_ls_dir('.') ${FROM}`,
    `select pg_stat_file('postgresql.conf') ${FROM}`,
    `select lo_import('/etc/passwd') ${FROM}`,
    `select lo_get(1) ${FROM}`,
    `select pg_sleep(100) ${FROM}`,
    `select dblink('dbname=offshoot', 'select 1') ${FROM}`,
    `select pg_terminate_backend(pid) from pg_stat_activity`,
    `select pg_reload_conf() ${FROM}`,
    `select pg_advisory_lock(1) ${FROM}`,
    `select pg_notify('a', 'b') ${FROM}`,
    `select nextval('pg_class') ${FROM}`,
    `select query_to_xml('select 1', true, true, '') ${FROM}`,
    `select table_to_xml('pg_authid', true, true, '') ${FROM}`,
    `select pg_stat_get_activity(null) ${FROM}`,
    `select * from pg_show_all_settings()`,
    `select * from pg_class, pg_show_all_settings()`,
    `select current_query() ${FROM}`,
    `select txid_current() ${FROM}`,
    `select pg_export_snapshot() ${FROM}`,
    `select pg_offshoot.session_value('user') ${FROM}`,
    `select public.current_database() ${FROM}`,
    `select repeat('x', 1000000000) ${FROM}`,
    `select lpad('x', 1000000000) ${FROM}`,
    `select 10::regrole ${FROM}`,
    `select 'postgres'::regrole::oid ${FROM}`,
    `select pg_has_role('postgres', 'member') ${FROM}`,
    `select (select pg_sleep(100)) ${FROM}`,
    `select 1 from pg_class where pg_sleep(100) is not null`,
    `select relname from pg_class order by pg_sleep(100)`,
    `select relname from pg_class limit (select length(pg_read_file('/etc/passwd')))`,
    `with a as (select pg_sleep(100)) select * from pg_class, a`,
    `with a as (insert into people (id) values ('x') returning 1) select * from pg_class, a`,
    `with a as (delete from pg_class returning 1) select * from a`,
    `select * into stolen from pg_class`,
    `select relname from pg_class for update`,
    `create table stolen as select * from pg_class`,
    `insert into pg_class (relname) values ('x')`,
    `update pg_catalog.pg_class set relname = 'x'`,
    `delete from pg_attribute`,
    `copy pg_class to '/tmp/x'`,
    `copy (select * from pg_authid) to stdout`,
    `copy pg_class from program 'id'`,
    `declare c cursor for select * from pg_authid`,
    `prepare a as select * from pg_authid`,
    `do $$ begin perform pg_sleep(100); end $$`,
    `set role postgres`,
    `set session authorization postgres`,
    `set local role none`,
    `select set_config('role', 'none', false), relname from pg_class`,
    `create function f() returns int language sql as 'select 1'`,
    `alter table pg_class owner to postgres`,
    `grant all on pg_class to public`,
    `explain select * from pg_authid`,
    `comment on table pg_class is 'x'`,
    `lock table pg_class; select * from pg_authid`,
    `select xmlparse(document '<a/>') ${FROM}`,
    `select 1 operator(public.+) 2 ${FROM}`,
    `select U&"\\0070g_database".datname from U&"\\0070g_database"`,
    `select * from pg_catalog/* */.pg_database`,
    'select * from a.pg_catalog.pg_database',
  ]
  /** Those that are harmless without an error. */
  const HARMLESS = new Set([
    `select set_config('role', 'none', false), relname from pg_class`,
    `lock table pg_class; select * from pg_authid`,
    // Has no effect: the role is never another one.
    'set local role none',
  ])

  it.each(HOSTILE)('are refused: %s', async (text) => {
    const raw = await wire.openRaw()
    raw.send(query(text))
    const simple = await raw.until('Z')
    if (!HARMLESS.has(text)) expect(errorCode(simple)).toMatch(/^(?:0A000|42)/)
    raw.send(parse(text), bind([]), execute(), sync())
    const extended = await raw.until('Z')
    if (!HARMLESS.has(text)) expect(errorCode(extended)).toMatch(/^(?:0A000|42)/)
    expect(Buffer.concat(simple.map(({ body }) => body)).toString()).not.toContain('SCRAM')
    raw.close()
  })

  it('do not change the session of others or the role', async () => {
    await rowsOf(`select set_config('search_path', 'nothing', true), relname from pg_class limit 1`)
    const other = await wire.connect('shop:main')
    expect(await rowsOf(`select 'people'::regclass::text as name`, [], other)).toEqual([
      { name: 'people' },
    ])
  })

  it('would find a role without privileges, in a database that hides the server', async () => {
    await rowsOf('select 1 from pg_class limit 1')
    const shape = (await listShapes()).find((name) => /_shape_\d+_/.test(name)) ?? ''
    const url = new URL(service.url)
    url.pathname = `/${shape}`
    const inside = new pg.Client({ connectionString: url.href })
    await inside.connect()
    const { rows } = await inside.query(
      `select tableowner as role from pg_tables where schemaname = 'public'`,
    )
    await inside.query(`set role ${pg.escapeIdentifier(rows[0].role)}`)
    const refused = [
      'select * from pg_authid',
      'select * from pg_database',
      'select * from pg_roles',
      'select * from pg_stat_activity',
      'select * from pg_settings',
      'select * from pg_shdescription',
      `select pg_read_file('/etc/passwd')`,
      `select set_config('role', 'none', false)`,
      'select pg_sleep(1)',
      `select lo_create(0)`,
      'create temp table t (a int)',
      'create table public.t (a int)',
      'create schema s',
      `copy (select 1) to program 'id'`,
      `select pg_stat_get_activity(null)`,
    ]
    for (const text of refused) {
      expect([text, await codeOf(inside.query(text))]).toEqual([text, '42501'])
    }
    await inside.end()
  })
})

describe('shapes', () => {
  it('that a crash or an old version left behind are dropped', async () => {
    await rowsOf('select 1 from pg_class limit 1')
    const kept = await listShapes()
    const prefix = `offshoot_${await findInstance()}_shape`
    await asAdministrator(`create database ${prefix}_7_unfinished`)
    await asAdministrator(`create database ${prefix}_7_forgotten`)
    await asAdministrator(`comment on database ${prefix}_7_forgotten is '2020-01-01T00:00:00Z'`)
    await collectShapes(service.database)
    expect(await listShapes()).toEqual(kept)
  })

  it('are made again if they were dropped', async () => {
    await rowsOf('select 1 from pg_class limit 1')
    await collectShapes(service.database, { unusedMs: 0 })
    expect(await listShapes()).toEqual([])
    expect(await rowsOf(`select relname from pg_class where relname = 'people'`)).toEqual([
      { relname: 'people' },
    ])
  })

  describe('on a server that gives the service few privileges', () => {
    const roleName = `weak_${randomBytes(6).toString('hex')}`
    let weak: Database

    beforeAll(async () => {
      const url = new URL(service.url)
      await asAdministrator(`create role ${roleName} login password '${roleName}'`)
      await asAdministrator(`grant usage on schema offshoot_work to ${roleName}`)
      await asAdministrator(`grant select on offshoot_work.identity to ${roleName}`)
      url.username = roleName
      url.password = roleName
      weak = new Database({ poolMax: 3, statementTimeoutMs: 0, onIdleError: () => undefined })
      weak.connect({ url: url.href })
    })
    afterAll(async () => {
      await weak.close()
    })

    const open = () => {
      const session = {
        access: { workspaceId: 'w' },
        branch: { rows: { databaseId: '1' } },
        schema: { tableNames: [], tableByName: () => undefined },
      }
      return new ShapeDatabases(weak).open(session as unknown as Session)
    }

    it('cannot be made without the right to create databases and roles', async () => {
      await expect(open()).rejects.toThrow(/may not create databases \(CREATEDB\).*tables work/)
      await asAdministrator(`alter role ${roleName} createdb`)
      await expect(open()).rejects.toThrow(/may not create roles \(CREATEROLE\)/)
    })

    it('need no superuser', async () => {
      await asAdministrator(`alter role ${roleName} createdb createrole`)
      await collectShapes(service.database, { unusedMs: 0 })
      await asAdministrator(`drop role if exists offshoot_${await findInstance()}_shapes`)
      const inside = await open()
      const { rows } = await inside.query(
        `select table_schema from offshoot_catalogue.tables where table_schema <> 'pg_catalog' limit 1`,
      )
      expect(rows).toEqual([{ table_schema: 'information_schema' }])
      await inside.end()
      await collectShapes(weak, { unusedMs: 0 })
    })
  })
})
