import { COLUMN_TYPES, type Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { checksumOf } from '../../packages/server/src/domain/schemas/checksum.js'
import { sql } from '../../packages/server/src/postgres/sql.js'
import { createDatabase, createKey } from '../support/people.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { addTables, type BranchCall, branchCall, expectOk, TIME } from '../support/tables.js'

let service: TestService
let databases = 0

beforeAll(async () => {
  service = await createTestService({
    limits: {
      tablesPerBranchMax: 5,
      columnsPerTableMax: 20,
      schemaOperationsMax: 60,
      objectDepthMax: 2,
    },
  })
})
afterAll(() => service.close())

/** Creates a database with these tables. */
async function open(tables: Readonly<Record<string, readonly Column[]>> = {}): Promise<BranchCall> {
  const name = `db${++databases}`
  await createDatabase(service, name)
  const call = branchCall(service, name)
  const operations = addTables(tables)
  if (operations.length > 0)
    expectOk(await call('POST', '/schema/update', { body: { operations } }))
  return call
}

const MIGRATION_ID = /^mig_[0-9a-v]{20}$/
const SUR = {
  migrationID: expect.stringMatching(MIGRATION_ID),
  parentMigrationID: expect.stringMatching(MIGRATION_ID),
  status: 'completed',
  entry: expect.stringMatching(/^log_[0-9a-v]{20}$/),
}
const string = (name: string): Column => ({ name, type: 'string' })
const branch = async (call: BranchCall) => expectOk(await call('GET', '')).body
const tablesOf = async (call: BranchCall) => (await branch(call)).schema.tables
const columnsOf = async (call: BranchCall, table: string): Promise<Column[]> =>
  expectOk(await call('GET', `/tables/${table}/schema`)).body.columns
const history = async (call: BranchCall, body?: unknown) =>
  expectOk(await call('POST', '/schema/history', { body })).body
const update = (call: BranchCall, operations: readonly unknown[], parentID?: string) =>
  call('POST', '/schema/update', { body: { operations, parentID } })
const addColumn = (call: BranchCall, table: string, column: unknown) =>
  call('POST', `/tables/${table}/columns`, { body: column })
const put = (call: BranchCall, table: string, id: string, body: unknown) =>
  call('PUT', `/tables/${table}/data/${id}`, { body })
const read = async (call: BranchCall, table: string, id: string) => {
  const {
    id: _id,
    service: _service,
    ...values
  } = expectOk(await call('GET', `/tables/${table}/data/${id}`)).body
  return values
}

/** Reads everything of a database that a schema edit may change: schema, version, history and physical tables. */
async function snapshot(call: BranchCall) {
  const details = await branch(call)
  const schema = sql`(
    select n.oid
    from offshoot.databases d
    join pg_namespace n on n.nspname = 'offshoot_db_' || d.id
    where d.name = ${details.databaseName}
  )`
  const physical = await service.database.query(sql`
    select c.relname, array_agg(a.attname order by a.attnum) as columns
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid
    where c.relnamespace = ${schema} and c.relkind = 'r' and a.attnum > 0
    group by 1
    order by 1`)
  const indexes = await service.database.query(sql`
    select relname
    from pg_class
    where relnamespace = ${schema} and relkind = 'i'
    order by 1`)
  return { branch: details, history: await history(call), physical, indexes }
}

/** Expects that an edit is refused with this message and changes nothing. */
async function expectRefused(
  call: BranchCall,
  edit: () => Promise<Answer>,
  status: number,
  message: string | RegExp,
) {
  const before = await snapshot(call)
  const answer = await edit()
  expect(answer.status).toBe(status)
  if (typeof message === 'string') expect(answer.body.message).toBe(message)
  else expect(answer.body.message).toMatch(message)
  expect(await snapshot(call)).toEqual(before)
}

/** Expects that an edit adds one version and one migration, whose parent is the previous one. */
async function expectEdit(call: BranchCall, edit: () => Promise<Answer>): Promise<Answer> {
  const before = await branch(call)
  const answer = expectOk(await edit())
  const after = await branch(call)
  expect(after.version).toBe(before.version + 1)
  expect(after.lastMigrationID).not.toBe(before.lastMigrationID)
  const { logs } = await history(call)
  expect(logs[0]).toMatchObject({ id: after.lastMigrationID, parentID: before.lastMigrationID })
  if (answer.body.migrationID !== undefined) {
    expect(answer.body).toEqual({
      migrationID: after.lastMigrationID,
      parentMigrationID: before.lastMigrationID,
      status: 'completed',
      entry: SUR.entry,
    })
  }
  return answer
}

describe('PUT, PATCH and DELETE table', () => {
  it('creates an empty table', async () => {
    const call = await open()
    const answer = await expectEdit(call, () => call('PUT', '/tables/users'))
    expect(answer.status).toBe(201)
    expect(answer.body).toEqual({
      branchName: `db${databases}:main`,
      tableName: 'users',
      status: 'completed',
      entry: expect.any(String),
    })
    expect((await branch(call)).schema).toEqual({
      tables: [{ id: expect.any(String), name: 'users', columns: [] }],
      tablesOrder: ['users'],
    })
    expect((await put(call, 'users', 'a', {})).status).toBe(201)
  })

  it('renames a table, whose records and links stay', async () => {
    const call = await open({
      users: [string('name')],
      posts: [{ name: 'author', type: 'link', link: { table: 'users' } }],
    })
    await put(call, 'users', 'a', { name: 'Ada' })
    await put(call, 'posts', 'p', { author: 'a' })
    const answer = await expectEdit(call, () =>
      call('PATCH', '/tables/users', { body: { name: 'people' } }),
    )
    expect(answer).toMatchObject({ status: 200, body: SUR })
    expect(await read(call, 'people', 'a')).toEqual({ name: 'Ada' })
    expect((await call('GET', '/tables/users/data/a')).status).toBe(404)
    expect(await columnsOf(call, 'posts')).toEqual([
      { name: 'author', type: 'link', link: { table: 'people' } },
    ])
    const expanded = await call('GET', '/tables/posts/data/p?columns=author.name')
    expect(expanded.body.author).toMatchObject({ id: 'a', name: 'Ada' })
    expect((await branch(call)).schema.tablesOrder).toEqual(['people', 'posts'])
  })

  it('takes a change of case in a rename', async () => {
    const call = await open({ users: [] })
    expect((await call('PATCH', '/tables/users', { body: { name: 'Users' } })).status).toBe(200)
  })

  it('deletes a table, and one of the same name starts empty', async () => {
    const call = await open({ users: [string('name')] })
    await put(call, 'users', 'a', { name: 'Ada' })
    const answer = await expectEdit(call, () => call('DELETE', '/tables/users'))
    expect(answer).toMatchObject({ status: 200, body: { status: 'completed' } })
    expect((await call('GET', '/tables/users/data/a')).status).toBe(404)
    await call('PUT', '/tables/users')
    const missing = await call('GET', '/tables/users/data/a')
    expect(missing.body.code).toBe('record_not_found')
    expect(await columnsOf(call, 'users')).toEqual([])
  })

  it.each<[string, string, string, unknown, number, string | RegExp]>([
    ['a taken name', 'PUT', 'users', undefined, 422, 'table [users] already exists'],
    [
      'a name that is taken in other case',
      'PUT',
      'USERS',
      undefined,
      422,
      'table [users] already exists',
    ],
    [
      'a rename to a taken name',
      'PATCH',
      'posts',
      { name: 'users' },
      422,
      'table [users] already exists',
    ],
    [
      'a rename to one taken in other case',
      'PATCH',
      'posts',
      { name: 'Users' },
      422,
      'table [users] already exists',
    ],
    ['a rename of an unknown table', 'PATCH', 'nope', { name: 'x' }, 404, 'table [nope] not found'],
    ['a change of nothing', 'PATCH', 'posts', {}, 400, 'body: must name at least one field'],
    [
      'a rename to an empty name',
      'PATCH',
      'posts',
      { name: '' },
      400,
      'body: field [name]: must not be empty',
    ],
    ['a rename to a bad name', 'PATCH', 'posts', { name: 'a b' }, 400, /^body: field \[name\]/],
    [
      'a rename with more',
      'PATCH',
      'posts',
      { name: 'x', more: 1 },
      400,
      'body: field [more]: is not known',
    ],
    [
      'the deletion of an unknown table',
      'DELETE',
      'nope',
      undefined,
      404,
      'table [nope] not found',
    ],
    [
      'the deletion of a table in other case',
      'DELETE',
      'Posts',
      undefined,
      404,
      'table [Posts] not found',
    ],
    [
      'the deletion of a linked table',
      'DELETE',
      'users',
      undefined,
      400,
      'table [users]: is linked from [posts.author]; remove that column first or in the same edit',
    ],
    ['a name with a dot', 'PUT', 'a.b', undefined, 400, /^path: part \[tableName\]/],
    [
      'a name that is too long',
      'PUT',
      'x'.repeat(256),
      undefined,
      400,
      /^path: part \[tableName\]/,
    ],
  ])('refuses %s and changes nothing', async (_name, method, table, body, status, message) => {
    const call = await open({
      users: [],
      posts: [{ name: 'author', type: 'link', link: { table: 'users' } }],
    })
    await expectRefused(call, () => call(method, `/tables/${table}`, { body }), status, message)
  })

  it('takes names of 255 characters for tables and columns', async () => {
    const name = 'x'.repeat(255)
    const call = await open()
    expect((await call('PUT', `/tables/${name}`)).status).toBe(201)
    expect(
      (await addColumn(call, name, { name: 'y'.repeat(255), type: 'string', unique: true })).status,
    ).toBe(200)
    expect(
      (await addColumn(call, name, { name: `${'y'.repeat(254)}z`, type: 'int', unique: true }))
        .status,
    ).toBe(200)
    expect((await put(call, name, 'a', { ['y'.repeat(255)]: 'v' })).status).toBe(201)
    const other = `${'x'.repeat(254)}z`
    expect((await call('PATCH', `/tables/${name}`, { body: { name: other } })).status).toBe(200)
    expect(await read(call, other, 'a')).toEqual({ ['y'.repeat(255)]: 'v' })
  })

  it.each(['a', '9', '_', '-', '~', 'A_b-c~9', 'select', 'heap_1', '__proto__', 'constructor'])(
    'takes the name %s',
    async (name) => {
      const call = await open({ [`${name}`]: [], other: [] })
      expect((await addColumn(call, name, { name, type: 'string' })).status).toBe(200)
      await put(call, name, 'a', `{${JSON.stringify(name)}: "v"}`)
      expect(JSON.stringify(await read(call, name, 'a'))).toBe(`{${JSON.stringify(name)}:"v"}`)
    },
  )
})

describe('columns', () => {
  const DEFINITIONS: Readonly<Record<(typeof COLUMN_TYPES)[number], readonly Column[]>> = {
    bool: [{ name: 'c', type: 'bool', notNull: true, defaultValue: 'false' }],
    int: [
      { name: 'c', type: 'int', notNull: true, defaultValue: '-42' },
      { name: 'c', type: 'int', unique: true },
    ],
    float: [
      { name: 'c', type: 'float', notNull: true, defaultValue: '1.5' },
      { name: 'c', type: 'float', unique: true },
    ],
    string: [
      { name: 'c', type: 'string', notNull: true, defaultValue: 'a\'"\\b' },
      { name: 'c', type: 'string', unique: true },
    ],
    decimal: [
      {
        name: 'c',
        type: 'decimal',
        decimal: { precision: 12, scale: 2 },
        notNull: true,
        defaultValue: '-1.5',
      },
      { name: 'c', type: 'decimal', decimal: { precision: 1000, scale: 1000 }, unique: true },
    ],
    date: [
      { name: 'c', type: 'date', notNull: true, defaultValue: '2026-02-28' },
      { name: 'c', type: 'date', notNull: true, defaultValue: 'now' },
      { name: 'c', type: 'date', unique: true },
    ],
    time: [
      { name: 'c', type: 'time', notNull: true, defaultValue: '09:30' },
      { name: 'c', type: 'time', unique: true },
    ],
    uuid: [
      {
        name: 'c',
        type: 'uuid',
        notNull: true,
        defaultValue: '0190A5C1-7d3e-7cc2-9f0b-2a6f1c3d4e5f',
      },
      { name: 'c', type: 'uuid', unique: true },
    ],
    enum: [
      {
        name: 'c',
        type: 'enum',
        enum: { values: ['new', 'paid'] },
        notNull: true,
        defaultValue: 'paid',
      },
      { name: 'c', type: 'enum', enum: { values: ['a'] }, unique: true },
    ],
    text: [
      { name: 'c', type: 'text', notNull: true, defaultValue: 'long' },
      { name: 'c', type: 'text', notNull: true, defaultValue: '' },
    ],
    email: [
      { name: 'c', type: 'email', notNull: true, defaultValue: 'a@b.c' },
      { name: 'c', type: 'email', unique: true },
    ],
    multiple: [{ name: 'c', type: 'multiple' }],
    link: [
      { name: 'c', type: 'link', link: { table: 'other' } },
      { name: 'c', type: 'link', link: { table: 'things' } },
    ],
    object: [
      {
        name: 'c',
        type: 'object',
        columns: [
          { name: 'a', type: 'int' },
          {
            name: 'o',
            type: 'object',
            columns: [{ name: 'l', type: 'link', link: { table: 'other' } }],
          },
        ],
      },
    ],
    datetime: [
      { name: 'c', type: 'datetime', notNull: true, defaultValue: 'now' },
      { name: 'c', type: 'datetime', defaultValue: '2026-01-31T09:30:00Z' },
      { name: 'c', type: 'datetime', unique: true },
    ],
    vector: [
      { name: 'c', type: 'vector', vector: { dimension: 2 } },
      { name: 'c', type: 'vector', vector: { dimension: 10_000 } },
    ],
    file: [
      { name: 'c', type: 'file' },
      { name: 'c', type: 'file', file: { defaultPublicAccess: true } },
    ],
    'file[]': [
      { name: 'c', type: 'file[]' },
      { name: 'c', type: 'file[]', 'file[]': { defaultPublicAccess: true } },
    ],
    json: [{ name: 'c', type: 'json', notNull: true, defaultValue: '{"a": 1}' }],
  }

  /** The tests of columns share it, and each removes what it adds. */
  let shared: Promise<BranchCall> | undefined

  it.each(
    COLUMN_TYPES.flatMap((type) => DEFINITIONS[type].map((column) => [type, column] as const)),
  )('of type %s can be added, read, renamed and deleted: %j', async (_type, column) => {
    shared ??= open({ things: [], other: [] })
    const call = await shared
    const answer = await expectEdit(call, () => addColumn(call, 'things', column))
    expect(answer).toMatchObject({ status: 200, body: SUR })
    expect((await call('GET', '/tables/things/columns/c')).body).toEqual(column)
    expect(await columnsOf(call, 'things')).toEqual([column])
    const renamed = await expectEdit(call, () =>
      call('PATCH', '/tables/things/columns/c', { body: { name: 'd' } }),
    )
    expect(renamed).toMatchObject({ status: 200, body: SUR })
    expect(await columnsOf(call, 'things')).toEqual([{ ...column, name: 'd' }])
    const removed = await expectEdit(call, () => call('DELETE', '/tables/things/columns/d'))
    expect(removed).toMatchObject({ status: 200, body: SUR })
    expect(await columnsOf(call, 'things')).toEqual([])
  })

  it('cannot be nested without end', async () => {
    const call = await open({ things: [] })
    const depth = 20_000
    const column = `${'{"name":"x","type":"object","columns":['.repeat(depth)}${']}'.repeat(depth)}`
    for (const [path, body] of [
      ['/tables/things/columns', column],
      ['/schema/update', `{"operations":[{"addColumn":{"table":"things","column":${column}}}]}`],
    ] as const) {
      expect((await call('POST', path, { body })).status).toBe(400)
    }
    expect(await columnsOf(call, 'things')).toEqual([])
  })

  it('leaves out what says nothing', async () => {
    const call = await open({ things: [] })
    const column = { name: 'c', type: 'file', notNull: false, unique: false, file: {} }
    await addColumn(call, 'things', column)
    expect((await call('GET', '/tables/things/columns/c')).body).toEqual({
      name: 'c',
      type: 'file',
    })
  })

  it('lists columns with those of objects under dotted names', async () => {
    const call = await open({
      things: [
        string('a'),
        {
          name: 'o',
          type: 'object',
          columns: [
            string('b'),
            { name: 'p', type: 'object', columns: [{ name: 'n', type: 'int' }] },
          ],
        },
      ],
    })
    const answer = await call('GET', '/tables/things/columns')
    expect(answer).toMatchObject({
      status: 200,
      body: { columns: [string('a'), string('o.b'), { name: 'o.p.n', type: 'int' }] },
    })
    expect((await call('GET', '/tables/things/columns/o.p.n')).body).toEqual({
      name: 'n',
      type: 'int',
    })
    expect((await call('GET', '/tables/things/columns/o.p')).body).toMatchObject({ type: 'object' })
  })

  it('keep their values through a rename, and lose them when dropped and added again', async () => {
    const call = await open({ things: [string('a'), string('b')] })
    await put(call, 'things', 'x', { a: '1', b: '2' })
    await call('PATCH', '/tables/things/columns/a', { body: { name: 'c' } })
    expect(await read(call, 'things', 'x')).toEqual({ c: '1', b: '2' })
    await call('PATCH', '/tables/things/columns/b', { body: { name: 'a' } })
    expect(await read(call, 'things', 'x')).toEqual({ c: '1', a: '2' })
    await call('DELETE', '/tables/things/columns/c')
    expect(await read(call, 'things', 'x')).toEqual({ a: '2' })
    await addColumn(call, 'things', string('c'))
    expect(await read(call, 'things', 'x')).toEqual({ a: '2' })
  })

  it('can be dropped and added again with another type, or be unique anew', async () => {
    const call = await open({ things: [{ name: 'a', type: 'string', unique: true }] })
    await put(call, 'things', 'x', { a: 'same' })
    await call('DELETE', '/tables/things/columns/a')
    await addColumn(call, 'things', { name: 'a', type: 'int' })
    expect((await call('PATCH', '/tables/things/data/x', { body: { a: 5 } })).status).toBe(200)
    await call('DELETE', '/tables/things/columns/a')
    await addColumn(call, 'things', { name: 'a', type: 'string', unique: true })
    expect((await put(call, 'things', 'y', { a: 'same' })).status).toBe(201)
    expect((await put(call, 'things', 'z', { a: 'same' })).status).toBe(400)
  })

  it('that must not be null fill the records there are with their default', async () => {
    const call = await open({ things: [string('a')] })
    await put(call, 'things', 'x', { a: '1' })
    const defaults = {
      b: { type: 'int', value: '7', reads: 7 },
      c: { type: 'string', value: 'it\'s \\ "x"', reads: 'it\'s \\ "x"' },
      d: { type: 'bool', value: 'false', reads: false },
      e: { type: 'json', value: '{"a":[null]}', reads: { a: [null] } },
      f: {
        type: 'datetime',
        value: '2026-01-31T09:30:00+01:00',
        reads: '2026-01-31T08:30:00.000Z',
      },
    }
    for (const [name, { type, value }] of Object.entries(defaults)) {
      expectOk(await addColumn(call, 'things', { name, type, notNull: true, defaultValue: value }))
    }
    const reads = Object.fromEntries(
      Object.entries(defaults).map(([name, { reads }]) => [name, reads]),
    )
    expect(await read(call, 'things', 'x')).toEqual({ a: '1', ...reads })
    const version = (await call('GET', '/tables/things/data/x')).body.service.version
    expect(version).toBe(0)
    expect((await call('PATCH', '/tables/things/data/x', { body: { b: null } })).status).toBe(400)
    await call('PATCH', '/tables/things/data/x', { body: { a: '2' } })
    expect(await read(call, 'things', 'x')).toEqual({ a: '2', ...reads })
  })

  it('with the default now give every record there is the same moment', async () => {
    const call = await open({ things: [] })
    for (const id of ['x', 'y']) await put(call, 'things', id, {})
    const column = { name: 'made', type: 'datetime', notNull: true, defaultValue: 'now' }
    expectOk(await addColumn(call, 'things', column))
    const { made } = await read(call, 'things', 'x')
    expect(made).toMatch(TIME)
    expect((await read(call, 'things', 'y')).made).toBe(made)
  })

  it('with a default that may be null leave the records there are alone', async () => {
    const call = await open({ things: [] })
    await put(call, 'things', 'x', {})
    await addColumn(call, 'things', { name: 'a', type: 'int', defaultValue: '7' })
    expect(await read(call, 'things', 'x')).toEqual({})
    await put(call, 'things', 'y', {})
    expect(await read(call, 'things', 'y')).toEqual({ a: 7 })
  })

  it('that must not be null need a default when there are records, as many as are told', async () => {
    const call = await open({ things: [string('a')] })
    const column = { name: 'b', type: 'int', notNull: true }
    for (const id of ['x', 'y', 'z']) await put(call, 'things', id, {})
    await call('DELETE', '/tables/things/data/z')
    await expectRefused(
      call,
      () => addColumn(call, 'things', column),
      400,
      'table [things]: column [b]: cannot be added as not null without a default: 2 records would have no value',
    )
    for (const id of ['x', 'y']) await call('DELETE', `/tables/things/data/${id}`)
    expectOk(await addColumn(call, 'things', column))
    expect((await put(call, 'things', 'x', {})).status).toBe(400)
  })

  it('that are unique can be added to records, which have no value yet', async () => {
    const call = await open({ things: [] })
    for (const id of ['x', 'y']) await put(call, 'things', id, {})
    expectOk(await addColumn(call, 'things', { name: 'u', type: 'int', unique: true }))
    expect((await call('PATCH', '/tables/things/data/x', { body: { u: 1 } })).status).toBe(200)
    expect((await call('PATCH', '/tables/things/data/y', { body: { u: 1 } })).status).toBe(400)
  })

  it.each<[string, unknown, number, string | RegExp]>([
    ['no name', { type: 'int' }, 400, 'body: field [name]: is required'],
    ['no type', { name: 'x' }, 400, 'body: field [type]: is required'],
    [
      'an unknown type',
      { name: 'x', type: 'number' },
      400,
      /^body: field \[type\]: must be one of/,
    ],
    [
      'an unknown field',
      { name: 'x', type: 'int', size: 4 },
      400,
      'body: field [size]: is not known',
    ],
    ['an empty name', { name: '', type: 'int' }, 400, /^body: field \[name\]/],
    ['a bad name', { name: 'a.b', type: 'int' }, 400, /^body: field \[name\]/],
    [
      'a name of 256 characters',
      { name: 'x'.repeat(256), type: 'int' },
      400,
      /^body: field \[name\]/,
    ],
    [
      'the reserved name id',
      { name: 'id', type: 'int' },
      400,
      'table [things]: column [id]: name is reserved',
    ],
    [
      'the reserved name XATA',
      { name: 'XATA', type: 'int' },
      400,
      'table [things]: column [XATA]: name is reserved',
    ],
    [
      'the reserved name service',
      { name: 'service', type: 'int' },
      400,
      'table [things]: column [service]: name is reserved',
    ],
    ['a taken name', string('a'), 422, 'table [things]: column [a] already exists'],
    ['a name taken in other case', string('A'), 422, 'table [things]: column [a] already exists'],
    [
      'a link to nothing',
      { name: 'x', type: 'link' },
      400,
      'table [things]: column [x]: field [link] is required for type [link]',
    ],
    [
      'a link to an unknown table',
      { name: 'x', type: 'link', link: { table: 'nope' } },
      400,
      'table [things]: column [x]: linked table [nope] not found',
    ],
    [
      'a link field on a string',
      { name: 'x', type: 'string', link: { table: 'things' } },
      400,
      'table [things]: column [x]: type mismatch: type [string] is not valid for field [link]',
    ],
    [
      'a vector without a dimension',
      { name: 'x', type: 'vector' },
      400,
      'table [things]: column [x]: field [vector] is required for type [vector]',
    ],
    [
      'a vector of one dimension',
      { name: 'x', type: 'vector', vector: { dimension: 1 } },
      400,
      /vector\.dimension/,
    ],
    [
      'a vector of 10001 dimensions',
      { name: 'x', type: 'vector', vector: { dimension: 10_001 } },
      400,
      /vector\.dimension/,
    ],
    [
      'a vector of half a dimension',
      { name: 'x', type: 'vector', vector: { dimension: 2.5 } },
      400,
      /vector\.dimension/,
    ],
    [
      'an object without columns',
      { name: 'x', type: 'object' },
      400,
      'table [things]: column [x]: field [columns] is required for type [object]',
    ],
    [
      'columns in a string',
      { name: 'x', type: 'string', columns: [string('y')] },
      400,
      /type mismatch: type \[string\] is not valid for field \[columns\]/,
    ],
    [
      'the same name twice in an object',
      { name: 'x', type: 'object', columns: [string('y'), string('Y')] },
      400,
      'table [things]: column [x]: column [Y]: name is taken',
    ],
    [
      'objects nested too deep',
      {
        name: 'x',
        type: 'object',
        columns: [
          {
            name: 'y',
            type: 'object',
            columns: [{ name: 'z', type: 'object', columns: [string('w')] }],
          },
        ],
      },
      400,
      /objects are nested more than 2 deep/,
    ],
    [
      'a file in an object',
      { name: 'x', type: 'object', columns: [{ name: 'y', type: 'file' }] },
      400,
      /type \[file\] is not allowed inside an object/,
    ],
    [
      'a unique text',
      { name: 'x', type: 'text', unique: true },
      400,
      /type mismatch: type \[text\] is not valid for field \[unique\]/,
    ],
    [
      'a unique list',
      { name: 'x', type: 'multiple', unique: true },
      400,
      /type \[multiple\] is not valid for field \[unique\]/,
    ],
    [
      'a link that must not be null',
      { name: 'x', type: 'link', link: { table: 'things' }, notNull: true },
      400,
      /type \[link\] is not valid for field \[notNull\]/,
    ],
    [
      'a default that is no int',
      { name: 'x', type: 'int', defaultValue: '1.5' },
      400,
      'table [things]: column [x]: default value: expected a whole number',
    ],
    [
      'a default that is no address',
      { name: 'x', type: 'email', defaultValue: '' },
      400,
      'table [things]: column [x]: default value: is not an email address',
    ],
    [
      'a default that is no list',
      { name: 'x', type: 'multiple', defaultValue: '"a"' },
      400,
      /default value: expected a list as JSON text/,
    ],
    [
      'a default that is a list of numbers',
      { name: 'x', type: 'multiple', defaultValue: '["a", 1]' },
      400,
      /default value: element \[1\]: expected a string/,
    ],
    [
      'a default of another type',
      { name: 'x', type: 'int', defaultValue: 5 },
      400,
      'body: field [defaultValue]: must be of type string',
    ],
    [
      'a default that is no address',
      { name: 'x', type: 'email', defaultValue: 'nobody' },
      400,
      /default value: is not an email address/,
    ],
    [
      'a default that is no time',
      { name: 'x', type: 'datetime', defaultValue: 'tomorrow' },
      400,
      /default value: is not a date and time/,
    ],
    [
      'a default that is no json',
      { name: 'x', type: 'json', defaultValue: '{a' },
      400,
      /default value: is not JSON/,
    ],
    [
      'a default with a NUL',
      { name: 'x', type: 'string', defaultValue: 'a\0b' },
      400,
      /default value: contains a NUL/,
    ],
    [
      'a default of a unique column',
      { name: 'x', type: 'int', defaultValue: '5', unique: true },
      400,
      'table [things]: column [x]: a unique column cannot have a default value',
    ],
    ['no object', [], 400, 'body: must be of type object'],
  ])('refuses %s and changes nothing', async (_name, column, status, message) => {
    const call = await open({ things: [string('a')] })
    await expectRefused(call, () => addColumn(call, 'things', column), status, message)
  })

  it.each<[string, string, string, unknown, number, string | RegExp]>([
    [
      'POST to an unknown table',
      'POST',
      '/tables/nope/columns',
      string('x'),
      404,
      'table [nope] not found',
    ],
    [
      'PATCH of an unknown column',
      'PATCH',
      '/tables/things/columns/nope',
      { name: 'x' },
      404,
      'table [things]: column [nope]: column not found',
    ],
    [
      'PATCH in an unknown table',
      'PATCH',
      '/tables/nope/columns/a',
      { name: 'x' },
      404,
      'table [nope] not found',
    ],
    [
      'PATCH with nothing',
      'PATCH',
      '/tables/things/columns/a',
      {},
      400,
      'body: must name at least one field',
    ],
    [
      'PATCH to a taken name',
      'PATCH',
      '/tables/things/columns/a',
      { name: 'B' },
      422,
      'table [things]: column [b] already exists',
    ],
    [
      'PATCH to a reserved name',
      'PATCH',
      '/tables/things/columns/a',
      { name: 'id' },
      400,
      'table [things]: column [id]: name is reserved',
    ],
    [
      'PATCH with more',
      'PATCH',
      '/tables/things/columns/a',
      { name: 'x', size: 1 },
      400,
      'body: field [size]: is not known',
    ],
    [
      'DELETE of an unknown column',
      'DELETE',
      '/tables/things/columns/nope',
      undefined,
      404,
      'table [things]: column [nope]: column not found',
    ],
    [
      'DELETE in an unknown table',
      'DELETE',
      '/tables/nope/columns/a',
      undefined,
      404,
      'table [nope] not found',
    ],
    [
      'DELETE of the id',
      'DELETE',
      '/tables/things/columns/id',
      undefined,
      404,
      'table [things]: column [id]: column not found',
    ],
    [
      'GET of an unknown column',
      'GET',
      '/tables/things/columns/nope',
      undefined,
      404,
      'table [things]: column [nope]: column not found',
    ],
    [
      'GET of a column in an unknown table',
      'GET',
      '/tables/nope/columns/a',
      undefined,
      404,
      'table [nope] not found',
    ],
    [
      'GET of the columns of an unknown table',
      'GET',
      '/tables/nope/columns',
      undefined,
      404,
      'table [nope] not found',
    ],
    [
      'GET of an unknown table schema',
      'GET',
      '/tables/nope/schema',
      undefined,
      404,
      'table [nope] not found',
    ],
    [
      'PUT of an unknown table schema',
      'PUT',
      '/tables/nope/schema',
      { columns: [] },
      404,
      'table [nope] not found',
    ],
  ])('refuses %s and changes nothing', async (_name, method, path, body, status, message) => {
    const call = await open({ things: [string('a'), string('b')] })
    await expectRefused(call, () => call(method, path, { body }), status, message)
  })

  it('are gone after a DELETE, and a second one finds nothing', async () => {
    const call = await open({ things: [string('a')] })
    expect((await call('DELETE', '/tables/things/columns/a')).status).toBe(200)
    expect((await call('DELETE', '/tables/things/columns/a')).status).toBe(404)
    const answer = await put(call, 'things', 'x', { a: '1' })
    expect(answer.body.message).toBe('invalid record: column [a]: column not found')
  })
})

describe('PUT table schema', () => {
  it('sets the whole list: keeps what is the same, drops, adds, converts, and makes anew what cannot be', async () => {
    const call = await open({
      things: [string('a'), string('b'), { name: 'c', type: 'int' }, { name: 'e', type: 'int' }],
    })
    await put(call, 'things', 'x', { a: '1', b: '2', c: 3, e: 4 })
    const columns = [
      { name: 'c', type: 'string' },
      string('d'),
      string('a'),
      { name: 'e', type: 'uuid' },
    ]
    const answer = await expectEdit(call, () =>
      call('PUT', '/tables/things/schema', { body: { columns, allowDataLoss: true } }),
    )
    expect(answer).toMatchObject({ status: 200, body: SUR })
    expect(await columnsOf(call, 'things')).toEqual(expect.arrayContaining(columns))
    expect(await columnsOf(call, 'things')).toHaveLength(4)
    expect(await read(call, 'things', 'x')).toEqual({ a: '1', c: '3' })
  })

  it('keeps the values of changed columns, and refuses changes that records do not allow', async () => {
    const state = (...values: string[]): Column => ({
      ...{ name: 'state', type: 'enum', enum: { values } },
    })
    const price = (scale: number): Column => ({
      ...{ name: 'price', type: 'decimal', decimal: { precision: 9, scale } },
    })
    const before = [
      state('new', 'paid', 'sent'),
      price(2),
      string('size'),
      { ...string('label'), defaultValue: 'a' },
      string('code'),
    ]
    const after: Column[] = [
      state('paid', 'new', 'void'),
      price(3),
      { name: 'size', type: 'int', notNull: true },
      { ...string('label'), defaultValue: 'b' },
      { ...string('code'), unique: true },
    ]
    const call = await open({ things: before })
    const setAll = () => call('PUT', '/tables/things/schema', { body: { columns: after } })
    await put(call, 'things', 'x', { state: 'sent', price: '1.50', size: 'L', code: 'same' })
    await put(call, 'things', 'y', { state: 'paid', code: 'same' })
    const kindsOf = ({ problems }: { problems: { column: string; kind: string }[] }) =>
      problems.map(({ column, kind }) => [column, kind])
    const refused = await setAll()
    expect(refused).toMatchObject({ status: 400, body: { code: 'invalid_schema' } })
    expect(kindsOf(refused.body)).toEqual([['state', 'limit']])
    const schema = { tables: [{ name: 'things', columns: after }] }
    const compared = expectOk(await call('POST', '/schema/compare', { body: { schema } })).body
    expect(compared.dataLoss).toEqual([])
    const { edits } = compared
    const preview = expectOk(await call('POST', '/schema/preview', { body: { edits } }))
    expect(kindsOf(preview.body)).toEqual([
      ['state', 'limit'],
      ['size', 'conversion'],
      ['size', 'notNull'],
      ['code', 'unique'],
    ])
    expect(await columnsOf(call, 'things')).toEqual(before)
    await put(call, 'things', 'x', { state: 'new', price: '1.50', size: '3', code: 'one' })
    await put(call, 'things', 'y', { state: 'paid', size: '4', code: 'two' })
    expectOk(await setAll())
    expect(await columnsOf(call, 'things')).toEqual(after)
    const kept = { state: 'new', price: '1.500', size: 3, label: 'a', code: 'one' }
    expect(await read(call, 'things', 'x')).toEqual(kept)
  })

  it('with the list that is there makes no migration', async () => {
    const call = await open({ things: [string('a')] })
    const before = await branch(call)
    const body = { columns: [string('a')] }
    const answer = await call('PUT', '/tables/things/schema', { body })
    expect(answer.body.migrationID).toBe(before.lastMigrationID)
    expect(await branch(call)).toEqual(before)
  })

  it.each<[string, unknown, number, string | RegExp]>([
    ['no list', {}, 400, 'body: field [columns]: is required'],
    [
      'a name twice',
      { columns: [string('x'), string('x')] },
      422,
      'table [things]: column [x] already exists',
    ],
    [
      'a bad column among good ones',
      { columns: [string('x'), { name: 'y', type: 'link' }] },
      400,
      /column \[y\]/,
    ],
    [
      'a not-null column without default',
      { columns: [{ name: 'y', type: 'int', notNull: true }], allowDataLoss: true },
      400,
      /: 1 record would have no value$/,
    ],
  ])('refuses %s and changes nothing', async (_name, body, status, message) => {
    const call = await open({ things: [string('a')] })
    await put(call, 'things', 'x', { a: '1' })
    await expectRefused(call, () => call('PUT', '/tables/things/schema', { body }), status, message)
    expect(await read(call, 'things', 'x')).toEqual({ a: '1' })
  })
})

describe('links', () => {
  it('are listed at the table they lead to, with those inside objects', async () => {
    const call = await open({
      users: [{ name: 'boss', type: 'link', link: { table: 'users' } }],
      posts: [
        { name: 'author', type: 'link', link: { table: 'users' } },
        {
          name: 'meta',
          type: 'object',
          columns: [{ name: 'editor', type: 'link', link: { table: 'users' } }],
        },
      ],
    })
    const [users, posts] = await tablesOf(call)
    expect(users.revLinks).toEqual([
      { table: 'users', column: 'boss' },
      { table: 'posts', column: 'author' },
      { table: 'posts', column: 'meta.editor' },
    ])
    expect(posts).not.toHaveProperty('revLinks')
    await call('DELETE', '/tables/posts/columns/author')
    expect((await tablesOf(call))[0].revLinks).toHaveLength(2)
  })

  it('may point at a table that the same migration adds later', async () => {
    const call = await open()
    const operations = [
      { addTable: { table: 'posts' } },
      {
        addColumn: {
          table: 'posts',
          column: { name: 'author', type: 'link', link: { table: 'users' } },
        },
      },
      { addTable: { table: 'users' } },
    ]
    expectOk(await update(call, operations))
    expect((await tablesOf(call))[1].revLinks).toEqual([{ table: 'posts', column: 'author' }])
  })

  it('become the ids that they had in the migration that removes their table', async () => {
    const call = await open({
      users: [],
      posts: [{ name: 'author', type: 'link', link: { table: 'users' } }],
    })
    await put(call, 'posts', 'p', { author: 'ada' })
    const schema = { tables: [{ name: 'posts', columns: [string('author')] }] }
    const { edits } = expectOk(await call('POST', '/schema/compare', { body: { schema } })).body
    expectOk(await call('POST', '/schema/apply', { body: { edits } }))
    expect(await read(call, 'posts', 'p')).toEqual({ author: 'ada' })
  })

  it('may be removed together with their table', async () => {
    const call = await open({
      users: [],
      posts: [{ name: 'author', type: 'link', link: { table: 'users' } }],
    })
    const operations = [
      { removeTable: { table: 'users' } },
      { removeColumn: { table: 'posts', column: 'author' } },
    ]
    expectOk(await update(call, operations))
    expect((await branch(call)).schema.tablesOrder).toEqual(['posts'])
  })
})

describe('POST schema/update', () => {
  it('applies any number of operations as one migration', async () => {
    const call = await open({ a: [string('x')], b: [] })
    await put(call, 'a', 'r', { x: '1' })
    const operations = [
      { renameTable: { oldName: 'a', newName: 'c' } },
      { renameColumn: { table: 'c', oldName: 'x', newName: 'y' } },
      { addColumn: { table: 'c', column: string('x') } },
      { removeTable: { table: 'b' } },
      { addTable: { table: 'a' } },
    ]
    const answer = await expectEdit(call, () => update(call, operations))
    expect(answer.body).toEqual(SUR)
    expect((await history(call)).logs[0].operations).toEqual(operations)
    expect(await read(call, 'c', 'r')).toEqual({ y: '1' })
    expect(await columnsOf(call, 'a')).toEqual([])
  })

  it('with parentID applies only on top of that migration', async () => {
    const call = await open({ a: [] })
    const { lastMigrationID } = await branch(call)
    expectOk(await update(call, [{ addTable: { table: 'b' } }], lastMigrationID))
    const head = (await branch(call)).lastMigrationID
    await expectRefused(
      call,
      () => update(call, [{ addTable: { table: 'c' } }], lastMigrationID),
      409,
      `migration [${lastMigrationID}]: is not the last migration of the branch, which is [${head}]`,
    )
  })

  it('with nothing to do makes no migration and names the head', async () => {
    const call = await open({ a: [] })
    const before = await branch(call)
    const answer = await update(call, [])
    expect(answer).toMatchObject({ status: 200, body: { migrationID: before.lastMigrationID } })
    expect(await branch(call)).toEqual(before)
  })

  it('leaves nothing of a migration whose last operation fails', async () => {
    const call = await open({ a: [string('x'), { name: 'u', type: 'int', unique: true }] })
    await put(call, 'a', 'r', { x: '1' })
    const operations = [
      { addTable: { table: 'b' } },
      { addColumn: { table: 'a', column: { name: 'v', type: 'int', unique: true } } },
      { removeColumn: { table: 'a', column: 'u' } },
      { addColumn: { table: 'a', column: { name: 'n', type: 'int', notNull: true } } },
    ]
    await expectRefused(
      call,
      () => update(call, operations),
      400,
      /: 1 record would have no value$/,
    )
    await expectRefused(
      call,
      () => update(call, [...operations.slice(0, 3), { removeTable: { table: 'nope' } }]),
      404,
      'table [nope] not found',
    )
    expect((await put(call, 'a', 's', { u: 1 })).status).toBe(201)
    expect((await put(call, 'a', 't', { u: 1 })).status).toBe(400)
  })

  it.each<[string, unknown, string | RegExp]>([
    ['no operations', {}, 'body: field [operations]: is required'],
    [
      'operations of another type',
      { operations: {} },
      'body: field [operations]: must be of type array',
    ],
    [
      'an unknown operation',
      { operations: [{ dropTable: { table: 'a' } }] },
      /operations\.0\.dropTable\]: is not known/,
    ],
    ['an empty operation', { operations: [{}] }, /operations\.0/],
    [
      'two operations in one',
      { operations: [{ addTable: { table: 'b' }, removeTable: { table: 'a' } }] },
      'body: field [operations.0]: must have exactly one of its fields',
    ],
    [
      'an operation with more',
      { operations: [{ addTable: { table: 'b', if: 1 } }] },
      'body: field [operations.0.addTable.if]: is not known',
    ],
    [
      'an operation with less',
      { operations: [{ renameTable: { oldName: 'a' } }] },
      'body: field [operations.0.renameTable.newName]: is required',
    ],
    [
      'a column with dots',
      { operations: [{ removeColumn: { table: 'a', column: 'a.b' } }] },
      /operations\.0\.removeColumn\.column/,
    ],
    ['an unknown field', { operations: [], force: true }, 'body: field [force]: is not known'],
    ['no body', undefined, /^body: /],
  ])('refuses %s', async (_name, body, message) => {
    const call = await open({ a: [] })
    await expectRefused(call, () => call('POST', '/schema/update', { body }), 400, message)
  })
})

describe('POST schema/compare', () => {
  const compare = (call: BranchCall, body: unknown) => call('POST', '/schema/compare', { body })

  it('gives the edits that turn the branch into the given schema, and apply takes them', async () => {
    const call = await open({ gone: [string('x')], kept: [string('a'), string('b')] })
    const schema = {
      tables: [
        { name: 'kept', columns: [string('a'), { name: 'b', type: 'int' }] },
        { name: 'fresh', columns: [{ name: 'to', type: 'link', link: { table: 'last' } }] },
        { name: 'last', columns: [] },
      ],
    }
    const { status, body } = await compare(call, { schema })
    expect(status).toBe(200)
    const { lastMigrationID, schema: present } = await branch(call)
    expect(body.source).toEqual(present)
    expect(body.edits.sourceMigrationID).toBe(lastMigrationID)
    expect(body.edits).not.toHaveProperty('targetMigrationID')
    const kinds = body.edits.operations.map((operation: object) => Object.keys(operation)[0])
    expect(kinds.lastIndexOf('addTable')).toBeLessThan(kinds.indexOf('addColumn'))
    expect(body.edits.operations).toEqual(
      expect.arrayContaining([
        { removeTable: { table: 'gone' } },
        { addTable: { table: 'fresh' } },
        { addTable: { table: 'last' } },
        { alterColumn: { table: 'kept', column: 'b', type: 'int' } },
      ]),
    )
    const answer = await expectEdit(call, () =>
      call('POST', '/schema/apply', { body: { edits: body.edits } }),
    )
    expect(answer.body).toEqual(SUR)
    expect((await compare(call, { schema })).body.edits.operations).toEqual([])
    const empty = (await compare(call, { schema })).body.edits
    const before = await branch(call)
    expect((await call('POST', '/schema/apply', { body: { edits: empty } })).status).toBe(200)
    expect(await branch(call)).toEqual(before)
  })

  it('answers Xata clients with operations that they know', async () => {
    const call = await open({ a: [string('x')] })
    const schema = { tables: [{ name: 'a', columns: [{ name: 'x', type: 'int' }] }] }
    const headers = { 'x-xata-client-id': 'x' }
    const { body } = await call('POST', '/schema/compare', { body: { schema }, headers })
    expect(body.edits.operations).toEqual([
      { removeColumn: { table: 'a', column: 'x' } },
      { addColumn: { table: 'a', column: { name: 'x', type: 'int' } } },
    ])
  })

  it('takes back what the branch itself answers, and finds no difference', async () => {
    const call = await open({
      users: [
        { name: 'boss', type: 'link', link: { table: 'users' } },
        { name: 'n', type: 'int', notNull: true, defaultValue: '1' },
      ],
      files: [{ name: 'f', type: 'file', file: { defaultPublicAccess: true } }],
    })
    const { schema } = await branch(call)
    const { body } = await compare(call, { schema })
    expect(body.edits.operations).toEqual([])
  })

  it('applies the operations of each side first', async () => {
    const call = await open({ a: [string('x')] })
    const { body } = await compare(call, {
      schema: { tables: [] },
      schemaOperations: [{ addTable: { table: 'b' } }],
      branchOperations: [{ removeTable: { table: 'a' } }],
    })
    expect(body.source.tables).toEqual([])
    expect(body.target.tables).toMatchObject([{ name: 'b', columns: [] }])
    expect(body.edits.operations).toEqual([{ addTable: { table: 'b' } }])
  })

  it('changes nothing', async () => {
    const call = await open({ a: [] })
    const before = await snapshot(call)
    await compare(call, { schema: { tables: [] } })
    expect(await snapshot(call)).toEqual(before)
  })

  it.each<[string, unknown, number, RegExp]>([
    ['no schema', {}, 400, /\[schema\]: is required/],
    [
      'a bad column',
      { schema: { tables: [{ name: 't', columns: [{ name: 'x', type: 'link' }] }] } },
      400,
      /field \[link\] is required/,
    ],
    [
      'a link to nowhere',
      {
        schema: {
          tables: [{ name: 't', columns: [{ name: 'x', type: 'link', link: { table: 'u' } }] }],
        },
      },
      400,
      /linked table \[u\] not found/,
    ],
    [
      'a table twice',
      {
        schema: {
          tables: [
            { name: 't', columns: [] },
            { name: 'T', columns: [] },
          ],
        },
      },
      422,
      /already exists/,
    ],
    [
      'an operation that fails',
      { schema: { tables: [] }, schemaOperations: [{ removeTable: { table: 'x' } }] },
      404,
      /table \[x\] not found/,
    ],
    [
      'an unknown field',
      { schema: { tables: [], size: 1 } },
      400,
      /\[schema\.size\]: is not known/,
    ],
  ])('refuses %s', async (_name, body, status, message) => {
    const call = await open({ a: [] })
    const answer = await compare(call, body)
    expect(answer.status).toBe(status)
    expect(answer.body.message).toMatch(message)
  })

  it('compares with another branch, from the one in the path to the other', async () => {
    const call = await open({ a: [string('x')] })
    const other = branchCall(service, `db${databases}`, { branch: 'other' })
    expectOk(await call('PUT', '', {}).then(() => other('PUT', '', {})))
    await other('PUT', '/tables/b')
    await call('DELETE', '/tables/a/columns/x')
    const { status, body } = await call('POST', '/schema/compare/other', { body: {} })
    expect(status).toBe(200)
    expect(body.edits).toEqual({
      sourceMigrationID: (await branch(call)).lastMigrationID,
      targetMigrationID: (await branch(other)).lastMigrationID,
      operations: [
        { addTable: { table: 'b' } },
        { addColumn: { table: 'a', column: string('x') } },
      ],
    })
    const back = await other('POST', '/schema/compare/main')
    expect(back.body.edits.operations).toEqual([
      { removeColumn: { table: 'a', column: 'x' } },
      { removeTable: { table: 'b' } },
    ])
    const same = await call('POST', '/schema/compare/other', {
      body: {
        sourceBranchOperations: [{ addTable: { table: 'b' } }],
        targetBranchOperations: [{ removeColumn: { table: 'a', column: 'x' } }],
      },
    })
    expect(same.body.edits.operations).toEqual([])
  })

  it('answers 404 for an unknown branch', async () => {
    const call = await open()
    const answer = await call('POST', '/schema/compare/nope', { body: {} })
    expect(answer).toMatchObject({ status: 404, body: { code: 'branch_not_found' } })
  })
})

describe('POST schema/preview', () => {
  const preview = (call: BranchCall, body: unknown) => call('POST', '/schema/preview', { body })

  it('shows the schema before and after, and changes nothing', async () => {
    const call = await open({ a: [string('x')] })
    const before = await snapshot(call)
    const edits = {
      operations: [{ addTable: { table: 'b' } }, { removeColumn: { table: 'a', column: 'x' } }],
    }
    const { status, body } = await preview(call, { edits })
    expect(status).toBe(200)
    expect(body.original).toEqual(before.branch.schema)
    expect(body.updated).toMatchObject({ tables: [{ name: 'a', columns: [] }, { name: 'b' }] })
    expect((await preview(call, {})).body.updated).toEqual(before.branch.schema)
    expect(await snapshot(call)).toEqual(before)
  })

  it('refuses what apply would refuse', async () => {
    const call = await open({ a: [] })
    const edits = { operations: [{ addTable: { table: 'A' } }] }
    for (const path of ['preview', 'apply']) {
      const answer = await call('POST', `/schema/${path}`, { body: { edits } })
      expect(answer).toMatchObject({ status: 422, body: { message: 'table [a] already exists' } })
    }
  })
})

describe('POST schema/history', () => {
  async function withHistory(count: number): Promise<{ call: BranchCall; ids: string[] }> {
    const call = await open({ a: [] })
    for (let number = 3; number <= count; number++) {
      const [to, from] = number % 2 === 0 ? ['a', 'b'] : ['b', 'a']
      expectOk(await update(call, [{ renameTable: { oldName: from, newName: to } }]))
    }
    const { logs } = await history(call, { page: { size: 1000 } })
    const ids: string[] = logs.map((log: { id: string }) => log.id)
    expect(ids).toHaveLength(count)
    return { call, ids }
  }
  const idsOf = (body: { logs: { id: string }[] }) => body.logs.map((log) => log.id)

  it('lists migrations newest first, each with its checksum and parent', async () => {
    const call = await open({ a: [string('x')] })
    const { logs, meta } = await history(call)
    expect(logs).toEqual([
      {
        id: (await branch(call)).lastMigrationID,
        parentID: logs[1].id,
        checksum: expect.stringMatching(/^1:[0-9a-f]{64}$/),
        createdAt: expect.stringMatching(TIME),
        operations: addTables({ a: [string('x')] }),
      },
      {
        id: expect.stringMatching(MIGRATION_ID),
        checksum: expect.stringMatching(/^1:[0-9a-f]{64}$/),
        createdAt: expect.stringMatching(TIME),
        operations: [],
      },
    ])
    expect(meta).toEqual({ cursor: logs[1].id, more: false })
    expect(logs[0].checksum).toBe(checksumOf(logs[0].operations))
  })

  it('pages by twenty, onwards with the cursor', async () => {
    const { call, ids } = await withHistory(23)
    const first = await history(call)
    expect(idsOf(first)).toEqual(ids.slice(0, 20))
    expect(first.meta).toEqual({ cursor: ids[19], more: true })
    const second = await history(call, { page: { after: first.meta.cursor } })
    expect(idsOf(second)).toEqual(ids.slice(20))
    expect(second.meta.more).toBe(false)
    const third = await history(call, { page: { after: second.meta.cursor } })
    expect(third).toMatchObject({ logs: [], meta: { more: false } })
  })

  it('pages by any size, to older and to newer ones, and stops at since', async () => {
    const { call, ids } = await withHistory(7)
    const page = async (body: object) => idsOf(await history(call, body))
    expect(await page({ page: { size: 1 } })).toEqual(ids.slice(0, 1))
    expect(await page({ page: { size: 7 } })).toEqual(ids)
    expect((await history(call, { page: { size: 7 } })).meta.more).toBe(false)
    expect((await history(call, { page: { size: 6 } })).meta.more).toBe(true)
    expect(await page({ page: { after: ids[2], size: 2 } })).toEqual(ids.slice(3, 5))
    expect(await page({ page: { before: ids[4], size: 2 } })).toEqual(ids.slice(2, 4))
    expect(await page({ page: { before: ids[1], size: 5 } })).toEqual(ids.slice(0, 1))
    expect(await page({ page: { before: ids[0] } })).toEqual([])
    expect(await page({ since: ids[3] })).toEqual(ids.slice(0, 3))
    expect(await page({ since: ids[0] })).toEqual([])
    expect(await page({ since: ids[3], page: { after: ids[1] } })).toEqual(ids.slice(2, 3))
    expect((await history(call, { since: ids[3] })).meta.more).toBe(false)
    expect((await history(call, { since: ids[3], page: { size: 2 } })).meta.more).toBe(true)
  })

  it('goes on in a fork with the history of its source', async () => {
    const { call, ids } = await withHistory(3)
    const fork = branchCall(service, `db${databases}`, { branch: 'fork' })
    expectOk(await fork('PUT', ''))
    expect(idsOf(await history(fork))).toEqual(ids)
    await fork('PUT', '/tables/more')
    expect(idsOf(await history(fork)).slice(1)).toEqual(ids)
    expect(idsOf(await history(call))).toEqual(ids)
  })

  it.each<[string, unknown]>([
    ['an unknown after', { page: { after: 'mig_x' } }],
    ['an unknown since', { since: 'mig_x' }],
    ['a size of 0', { page: { size: 0 } }],
    ['a size of 1001', { page: { size: 1001 } }],
    ['an unknown field', { pages: {} }],
  ])('refuses %s with 400', async (_name, body) => {
    const call = await open()
    expect((await call('POST', '/schema/history', { body })).status).toBe(400)
  })

  it('refuses after and before together', async () => {
    const { call, ids } = await withHistory(3)
    const body = { page: { after: ids[2], before: ids[0] } }
    const answer = await call('POST', '/schema/history', { body })
    expect(answer.status).toBe(400)
  })
})

describe('POST schema/push', () => {
  const push = (call: BranchCall, migrations: readonly unknown[]) =>
    call('POST', '/schema/push', { body: { migrations } })
  const migration = (id: string, operations: readonly object[], more: object = {}) => ({
    id,
    checksum: checksumOf(operations as never),
    operations,
    ...more,
  })

  it('applies migrations that follow the head, each as one, under their own ids', async () => {
    const call = await open({ a: [] })
    await put(call, 'a', 'r', {})
    const before = await branch(call)
    const first = migration('mig_one', [{ addTable: { table: 'b' } }], {
      parentID: before.lastMigrationID,
      title: 'a title',
      message: 'a message',
    })
    const second = migration(
      'mig_two',
      [
        { addColumn: { table: 'b', column: string('x') } },
        {
          addColumn: {
            table: 'a',
            column: { name: 'n', type: 'int', notNull: true, defaultValue: '3' },
          },
        },
      ],
      { parentID: 'mig_one' },
    )
    const answer = await push(call, [first, second])
    expect(answer).toMatchObject({
      status: 200,
      body: { migrationID: 'mig_two', parentMigrationID: 'mig_one', status: 'completed' },
    })
    const after = await branch(call)
    expect(after).toMatchObject({ version: before.version + 2, lastMigrationID: 'mig_two' })
    const { logs } = await history(call)
    expect(logs.slice(0, 2)).toMatchObject([second, first])
    expect(await read(call, 'a', 'r')).toEqual({ n: 3 })
  })

  it('takes a list that contains the head and applies what comes after it', async () => {
    const call = await open({ a: [] })
    const { logs } = await history(call)
    const known = logs
      .toReversed()
      .map(({ createdAt: _createdAt, ...log }: { createdAt: string }) => log)
    const before = await branch(call)
    expectOk(await push(call, known))
    expect(await branch(call)).toEqual(before)
    expectOk(await push(call, [...known, migration('mig_new', [{ addTable: { table: 'b' } }])]))
    expect((await branch(call)).lastMigrationID).toBe('mig_new')
  })

  it('takes an empty list', async () => {
    const call = await open({ a: [] })
    const before = await branch(call)
    expect((await push(call, [])).status).toBe(200)
    expect(await branch(call)).toEqual(before)
  })

  it('carries migrations from one branch to another, which then share them', async () => {
    const call = await open({ a: [] })
    const fork = branchCall(service, `db${databases}`, { branch: 'fork' })
    expectOk(await fork('PUT', ''))
    await fork('PUT', '/tables/b')
    const { logs } = await history(fork)
    const migrations = logs
      .toReversed()
      .map(({ createdAt: _createdAt, ...log }: { createdAt: string }) => log)
    expectOk(await push(call, migrations))
    expect((await branch(call)).schema.tablesOrder).toEqual(['a', 'b'])
    expect(await history(call)).toEqual(await history(fork))
    await fork('PUT', '/tables/c')
    expect((await branch(call)).schema.tablesOrder).toEqual(['a', 'b'])
  })

  it('refuses a migration that another branch knows otherwise', async () => {
    const call = await open({ a: [] })
    const fork = branchCall(service, `db${databases}`, { branch: 'fork' })
    expectOk(await fork('PUT', ''))
    expectOk(await push(fork, [migration('mig_same', [{ addTable: { table: 'b' } }])]))
    await expectRefused(
      call,
      () => push(call, [migration('mig_same', [{ addTable: { table: 'c' } }])]),
      409,
      'migration [mig_same]: another branch of this database has a different migration with this id',
    )
  })

  it.each<[string, (head: string) => object[], number, RegExp]>([
    [
      'another parent',
      () => [migration('m', [], { parentID: 'mig_other' })],
      409,
      /does not follow the head/,
    ],
    [
      'a wrong checksum',
      () => [{ ...migration('m', [{ addTable: { table: 'b' } }]), checksum: checksumOf([]) }],
      400,
      /checksum does not match/,
    ],
    [
      'a checksum of another form',
      () => [{ ...migration('m', []), checksum: 'abc' }],
      400,
      /migrations\.0\.checksum/,
    ],
    ['an id twice', () => [migration('m', []), migration('m', [])], 400, /is listed twice/],
    [
      'a second that fails',
      () => [
        migration('m1', [{ addTable: { table: 'b' } }]),
        migration('m2', [{ addTable: { table: 'b' } }]),
      ],
      422,
      /already exists/,
    ],
    [
      'the head with other operations',
      (head) => [migration(head, [{ addTable: { table: 'z' } }])],
      400,
      /the branch has this migration with different operations/,
    ],
    [
      'a broken chain',
      () => [migration('m1', []), migration('m2', [], { parentID: 'm0' })],
      409,
      /does not follow/,
    ],
    ['an unknown field', () => [{ ...migration('m', []), status: 'x' }], 400, /is not known/],
  ])('refuses %s and changes nothing', async (_name, migrations, status, message) => {
    const call = await open({ a: [] })
    const { lastMigrationID } = await branch(call)
    await expectRefused(call, () => push(call, migrations(lastMigrationID)), status, message)
  })
})

describe('limits', () => {
  it('of tables a branch', async () => {
    const call = await open({ a: [], b: [], c: [], d: [], e: [] })
    await expectRefused(
      call,
      () => call('PUT', '/tables/f'),
      400,
      'a branch cannot have more than 5 tables',
    )
    expectOk(await update(call, [{ removeTable: { table: 'a' } }, { addTable: { table: 'f' } }]))
  })

  it('of columns a table, those inside objects included', async () => {
    const names = Array.from({ length: 18 }, (_, number) => string(`c${number}`))
    const call = await open({ a: names })
    const object = (columns: Column[]) => ({ name: 'o', type: 'object', columns })
    await expectRefused(
      call,
      () => addColumn(call, 'a', object([string('x'), string('y')])),
      400,
      'table [a]: a table cannot have more than 20 columns',
    )
    expectOk(await addColumn(call, 'a', object([string('x')])))
    await expectRefused(call, () => addColumn(call, 'a', string('z')), 400, /more than 20 columns/)
  })

  it('of operations a migration', async () => {
    const call = await open({ a: [] })
    const flips = (count: number) =>
      Array.from({ length: count }, (_, number) => ({
        renameTable:
          number % 2 === 0 ? { oldName: 'a', newName: 'b' } : { oldName: 'b', newName: 'a' },
      }))
    expectOk(await update(call, flips(60)))
    await expectRefused(
      call,
      () => update(call, flips(61)),
      400,
      'a migration cannot have more than 60 operations',
    )
  })
})

describe('keys', () => {
  it('that can only read may look at the schema and not edit it', async () => {
    const call = await open({ a: [string('x')] })
    const key = await createKey(service, `reader${databases}`, {
      fields: { scope: { access: 'read' } },
    })
    for (const [method, path, body] of [
      ['GET', '/tables/a/schema', undefined],
      ['GET', '/tables/a/columns', undefined],
      ['GET', '/tables/a/columns/x', undefined],
      ['POST', '/schema/compare', { schema: { tables: [] } }],
      ['POST', '/schema/compare/main', {}],
      ['POST', '/schema/preview', {}],
      ['POST', '/schema/history', undefined],
    ] as const) {
      expect((await call(method, path, { key, body })).status).toBe(200)
    }
    const before = await snapshot(call)
    for (const [method, path, body] of [
      ['PUT', '/tables/b', undefined],
      ['PATCH', '/tables/a', { name: 'b' }],
      ['DELETE', '/tables/a', undefined],
      ['PUT', '/tables/a/schema', { columns: [] }],
      ['POST', '/tables/a/columns', string('y')],
      ['PATCH', '/tables/a/columns/x', { name: 'y' }],
      ['DELETE', '/tables/a/columns/x', undefined],
      ['POST', '/schema/apply', { edits: { operations: [] } }],
      ['POST', '/schema/update', { operations: [] }],
      ['POST', '/schema/push', { migrations: [] }],
    ] as const) {
      const answer = await call(method, path, { key, body })
      expect(answer).toMatchObject({ status: 403, body: { code: 'key_scope' } })
    }
    expect(await snapshot(call)).toEqual(before)
  })

  it('that are unknown are refused on every path', async () => {
    const call = await open({ a: [] })
    for (const [method, path] of [
      ['PUT', '/tables/b'],
      ['GET', '/tables/a/schema'],
      ['POST', '/schema/update'],
    ] as const) {
      expect((await call(method, path, { key: 'off_unknown' })).status).toBe(401)
    }
  })
})
