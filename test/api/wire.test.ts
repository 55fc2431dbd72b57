import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { fromBinary, toBinary } from '../../packages/server/src/wire/values.js'
import { TestBranches } from '../support/branches.js'
import { amount, EXPLORES, SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import type { TestService } from '../support/service.js'
import {
  bind,
  describeStatement,
  errorCode,
  execute,
  int32,
  message,
  openShop,
  parse,
  query,
  RawClient,
  startup,
  sync,
  type WireService,
  type WireShop,
} from '../support/wire-clients.js'

/* Clients of PostgreSQL, connected to a branch. */

let shop: WireShop
let service: TestService
let branches: TestBranches
let wire: WireService
let client: pg.Client

beforeAll(async () => {
  shop = await openShop(
    {
      people: [
        { name: 'name', type: 'string' },
        { name: 'email', type: 'email', unique: true },
        { name: 'age', type: 'int' },
        { name: 'score', type: 'float' },
        { name: 'active', type: 'bool' },
        { name: 'at', type: 'datetime' },
        { name: 'tags', type: 'multiple' },
        { name: 'doc', type: 'json' },
        { name: 'need', type: 'string', notNull: true, defaultValue: 'x' },
      ],
    },
    { limits: { headersTimeoutMs: 2_000 } },
  )
  ;({ service, branches, wire, client } = shop)
  await branches.bulk('main', 'people', [
    { id: 'p1', name: 'Ann', email: 'ann@b.co', age: 41 },
    { id: 'p2', name: 'Bob', email: 'bob@b.co', age: 17 },
  ])
})
afterAll(() => shop?.close())

const rowsOf = async (text: string, values?: unknown[], by = client) =>
  (await by.query(text, values)).rows

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: { code?: string }) => error.code,
  )

describe('a client of PostgreSQL', () => {
  it('reads, inserts, updates and deletes with parameters of the types of the columns', async () => {
    const at = new Date('2026-01-02T03:04:05.678Z')
    const inserted = await rowsOf(
      `insert into people (id, name, email, age, score, active, at, tags, doc)
      values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning *`,
      ['c1', 'Cid', 'cid@b.co', 42, 1.5, true, at, ['a', 'b,"c'], { k: [1] }],
    )
    expect(inserted).toEqual([
      {
        id: 'c1',
        name: 'Cid',
        email: 'cid@b.co',
        age: '42',
        score: 1.5,
        active: true,
        at,
        tags: ['a', 'b,"c'],
        doc: { k: [1] },
        need: 'x',
      },
    ])
    const updated = await client.query('update people set age = age + $1 where id = $2', [1, 'c1'])
    expect([updated.command, updated.rowCount]).toEqual(['UPDATE', 1])
    expect(await rowsOf('select age from people where id = $1', ['c1'])).toEqual([{ age: '43' }])
    expect(await rowsOf('delete from people where id = $1 returning id', ['c1'])).toEqual([
      { id: 'c1' },
    ])
    expect(await branches.read('main', 'people', ['c1'])).toEqual({})
  })

  it('sees its own branch, and main if it names none', async () => {
    await branches.fork('own')
    const own = await wire.connect('shop:own')
    await own.query(`update people set age = 1 where id = 'p1'`)
    const asked = `select age from people where id = 'p1'`
    expect(await rowsOf(asked, [], own)).toEqual([{ age: '1' }])
    expect(await rowsOf(asked, [], await wire.connect('shop'))).toEqual([{ age: '41' }])
  })

  it('gets each row once, also if a lookup of another client that arrives with it fails', async () => {
    const clients = await Promise.all(Array.from({ length: 6 }, () => wire.connect('shop:main')))
    const text = 'select id, name from people where id = $1 and age = $2::int'
    const lookUp = (each: pg.Client, age: unknown) => each.query({ text, values: ['p1', age] })
    for (const each of clients) await lookUp(each, 41)
    for (let round = 0; round < 5; round++) {
      const answers = await Promise.allSettled(
        clients.map((each, index) => lookUp(each, index === 3 ? 'many' : 41)),
      )
      const found = answers.map((each) => (each.status === 'fulfilled' ? each.value.rows : []))
      expect(found).toEqual(
        clients.map((_, index) => (index === 3 ? [] : [{ id: 'p1', name: 'Ann' }])),
      )
    }
    await Promise.all(clients.map((each) => each.end()))
  })

  it('can name its database before tables and columns', async () => {
    for (const name of ['shop', '"shop:main"']) {
      expect(
        await rowsOf(
          `select ${name}.public.people.name, 'é', p.id from ${name}.public.people join ${name} . "public".people p using (id) where id = 'p1'`,
        ),
      ).toEqual([{ name: 'Ann', '?column?': 'é', id: 'p1' }])
      await client.query(`update ${name}.public.people set age = 41 where id = $1`, ['p1'])
    }
    await client.query('alter table shop.public.people add column if not exists age int')
    expect(await codeOf(client.query('select * from other.public.people'))).toBe('42P01')
    expect(await codeOf(client.query('select * from "shop:dev".public.people'))).toBe('42P01')
  })

  it('sees a new column in an open connection', async () => {
    await branches.fork('edited')
    const edited = await wire.connect('shop:edited')
    const all = { name: 'all', text: `select * from people where id = 'p1'` }
    expect((await edited.query(all)).rows[0]).not.toHaveProperty('city')
    await branches.edit('edited', {
      addColumn: { table: 'people', column: { name: 'city', type: 'string' } },
    })
    const other = await wire.connect('shop:edited')
    expect((await other.query(all)).rows[0]).toHaveProperty('city', null)
    expect(await rowsOf(`select city from people where id = 'p1'`, [], edited)).toEqual([
      { city: null },
    ])
  })

  it('gets metadata only if it names it', async () => {
    const [plain] = await rowsOf(`select * from public.people where "public"."people".id = 'p1'`)
    expect(Object.keys(plain)).not.toContain('service.version')
    expect(await rowsOf(`select "service.version" from people where id = 'p2'`)).toEqual([
      { 'service.version': 0 },
    ])
  })

  it('reads more rows than a request over HTTP may return', async () => {
    const { rows } = await client.query('select g from generate_series(1, 150000) g')
    expect([rows.length, rows.at(-1)]).toEqual([150_000, { g: 150_000 }])
  })

  it('keeps no connection to PostgreSQL between statements', async () => {
    await client.query('select 1')
    expect(service.app.sqlEngine.connections.state).toEqual({ held: 0, lost: 0, waiting: 0 })
  })

  it('gets errors with the codes of PostgreSQL', async () => {
    const cases: [string, string][] = [
      ['selec', '42601'],
      ['select * from nothing', '42P01'],
      ['select nothing from people', '42703'],
      ['select age / 0 from people', '22012'],
      [`insert into people (id) values ('p1')`, '23505'],
      [`insert into people (email) values ('ann@b.co')`, '23505'],
      [`insert into people (need) values (null)`, '23502'],
      ['create view v as select 1', '0A000'],
      ['listen a', '0A000'],
      ['select pg_sleep(1)', '0A000'],
    ]
    for (const [text, code] of cases) {
      expect([text, await codeOf(client.query(text))]).toEqual([text, code])
    }
    const taken = await client
      .query(`insert into people (email) values ('ann@b.co')`)
      .catch((e) => e)
    expect(taken).toMatchObject({
      table: 'people',
      column: 'email',
      constraint: 'people_email_key',
      schema: 'public',
    })
    const positionIn = async (text: string) =>
      (await client.query(text).catch((error) => error)).position
    expect(await positionIn('select nothing from people')).toBe('8')
    // A character counts once, whatever its size.
    expect(await positionIn(`select 'é😀', nothing from people`)).toBe('14')
    expect(await positionIn(`select 'é😀' froma x`)).toBe('19')
  })

  it('names broken rules as the catalogue does, and shows what a deletion does to links', async () => {
    const rules = await TestBranches.create(service, 'rules', {
      teams: [{ name: 'name', type: 'string' }],
      people: [
        { name: 'age', type: 'int' },
        { name: 'email', type: 'email', unique: true },
        { name: 'team', type: 'link', link: { table: 'teams', onDelete: 'cascade' } },
        { name: 'boss', type: 'link', link: { table: 'people', onDelete: 'setNull' } },
      ],
    })
    for (const constraint of [
      { name: 'adult', check: 'age >= 18' },
      { name: 'once', unique: ['age', 'team'] },
    ]) {
      await rules.edit('main', { addConstraint: { table: 'people', constraint } })
    }
    await rules.put('main', 'teams', 't', {})
    await rules.put('main', 'people', 'p', { age: 20, team: 't', email: 'a@b.co' })
    const other = await wire.connect('rules:main')
    const faultOf = async (values: string) => {
      const error = await other
        .query(`insert into people (age, email, team) values (${values})`)
        .catch((thrown) => thrown)
      return [error.code, error.table, error.constraint]
    }
    expect(await faultOf(`17, null, null`)).toEqual(['23514', 'people', 'adult'])
    expect(await faultOf(`20, null, 't'`)).toEqual(['23505', 'people', 'once'])
    expect(await faultOf(`21, 'a@b.co', null`)).toEqual(['23505', 'people', 'people_email_key'])
    expect(await faultOf(`22, null, 'x'`)).toEqual(['23503', 'people', 'people_team_fkey'])
    const { rows: keys } = await other.query(
      `select conname as name, confdeltype as action from pg_constraint
      where conrelid = 'people'::regclass and contype = 'f' order by 1`,
    )
    expect(keys).toEqual([
      { name: 'people_boss_fkey', action: 'n' },
      { name: 'people_team_fkey', action: 'c' },
    ])
    await other.end()
  })

  it('says of a broken link what PostgreSQL says, because clients read it', async () => {
    const linked = await TestBranches.create(service, 'linked', {
      teams: [{ name: 'name', type: 'string' }],
      people: [{ name: 'team', type: 'link', link: { table: 'teams', onDelete: 'restrict' } }],
    })
    await linked.put('main', 'teams', 't', {})
    await linked.put('main', 'people', 'p', { team: 't' })
    const other = await wire.connect('linked:main')
    await expect(other.query(`update people set team = 'x'`)).rejects.toMatchObject({
      code: '23503',
      detail: 'Key (team)=(x) is not present in table "teams".',
    })
    await expect(other.query('delete from teams')).rejects.toMatchObject({
      code: '23503',
      detail: 'Key (id)=(t) is still referenced from table "people".',
    })
    await other.end()
  })

  it('can ask about its session and set what has no effect', async () => {
    const [row] = await rowsOf(
      'select version(), current_schema(), current_database(), current_user, pg_backend_pid() as pid',
    )
    expect(row).toMatchObject({
      current_schema: 'public',
      current_database: 'shop:main',
      current_user: service.workspaceId,
    })
    expect(row.version).toMatch(/^PostgreSQL \d+/)
    await client.query(`set application_name to 'tests'`)
    expect(await rowsOf('show application_name')).toEqual([{ application_name: 'tests' }])
    const notices: string[] = []
    client.on('notice', ({ message: text = '' }) => notices.push(text))
    await client.query(`set bytea_output to 'escape'`)
    expect(notices).toEqual(['"bytea_output" is always hex: the new value is ignored'])
    expect(await codeOf(client.query('show nothing_like_this'))).toBe('42704')
    expect(await codeOf(client.query(`set client_encoding to 'latin1'`))).toBe('0A000')
    await client.query('discard all')
    expect(await rowsOf('show application_name')).toEqual([{ application_name: '' }])
  })
})

describe('access', () => {
  it('needs a valid key, an existing branch, and an address of the right form', async () => {
    const refused = (url: string) => codeOf(new pg.Client({ connectionString: url }).connect())
    expect(await refused(wire.url('shop:main', { key: 'off_wrong' }))).toBe('28P01')
    expect(await refused(wire.url('nothing:main'))).toBe('3D000')
    expect(await refused(wire.url('shop:nothing'))).toBe('3D000')
    expect(await refused(wire.url('a:b:c'))).toBe('3D000')
    expect(await refused(wire.url('shop:main', { workspace: 'other-000000' }))).toBe('28000')
  })

  it('is that of the key, and ends with it', async () => {
    const created = await service.call('POST', '/user/keys/reader', {
      body: { scope: { access: 'read' } },
    })
    const reader = await wire.connect('shop:main', { key: created.body.key })
    expect(await rowsOf('select count(*)::int as n from people', [], reader)).toEqual([{ n: 2 }])
    expect(await codeOf(reader.query(`delete from people where id = 'p1'`))).toBe('42501')
    await service.call('DELETE', '/user/keys/reader')
    expect(await codeOf(reader.query('select count(*) from people'))).toBe('28P01')
  })
})

describe('a query without columns', () => {
  const kindsOf = (messages: readonly { readonly type: string }[]) =>
    messages.map(({ type }) => type).join('')
  let raw: RawClient

  beforeAll(async () => {
    await client.query('create table bare (a int); insert into bare (a) values (1), (2)')
    raw = await wire.openRaw()
  })
  afterAll(async () => {
    raw?.close()
    await client.query('set offshoot.allow_data_loss = on; drop table bare')
  })

  it.each([
    ['select from bare', 'TDDCZ'],
    ['select from bare where a > 5', 'TCZ'],
    ['select', 'TDCZ'],
    ['with x as (select a from bare) select from x', 'TDDCZ'],
    ['prepare none as select from bare; execute none; deallocate none', 'CTDDCCZ'],
    [
      'begin; declare none cursor for select from bare; fetch 1 from none; move 1 from none; commit',
      'CCTDCCCZ',
    ],
    ['select count(*) from bare x where exists (select from bare y where y.a > x.a)', 'TDCZ'],
    ['update bare set a = a', 'CZ'],
  ])('describes no columns before its rows: %s', async (text, kinds) => {
    raw.send(query(text))
    expect(kindsOf(await raw.until('Z'))).toBe(kinds)
  })

  it.each([
    ['select from bare', 'T', 'DD'],
    ['select from bare where a > 5', 'T', ''],
    ['execute none', 'T', 'DD'],
    ['update bare set a = a', 'n', ''],
    ['prepare other as select', 'n', ''],
  ])('describes no columns of a statement and of a portal: %s', async (text, told, rows) => {
    raw.send(query('prepare none as select from bare'))
    await raw.until('Z')
    const portal = message('D', Buffer.from('P\0'))
    raw.send(parse(text), describeStatement(), bind([]), portal, sync())
    expect(kindsOf(await raw.until('Z'))).toBe(`1t${told}2${told}Z`)
    raw.send(bind([]), portal, execute(), sync())
    expect(kindsOf(await raw.until('Z'))).toBe(`2${told}${rows}CZ`)
    raw.send(query('deallocate all'))
    await raw.until('Z')
  })
})

describe('the extended protocol', () => {
  it('describes parameters and columns before values are bound', async () => {
    const raw = await wire.openRaw()
    raw.send(
      parse('insert into people (id, age, at) values ($1, $2, $3) returning age, at', 'a'),
      describeStatement('a'),
      sync(),
    )
    const messages = await raw.until('Z')
    const types = messages.find(({ type }) => type === 't')?.body
    expect([2, 6, 10].map((at) => types?.readInt32BE(at))).toEqual([25, 20, 1184])
    const columns = messages.find(({ type }) => type === 'T')?.body.toString('latin1')
    expect(columns).toContain('age\0')
    raw.close()
  })

  it.each([
    ['select id from people where age = $1 and name like $2 limit $3', [20, 25, 20]],
    ['insert into people (age, at) select $1, $2', [20, 1184]],
    ['insert into people (id, age) select id, $1 from people where active = $2', [20, 16]],
    [
      'insert into people (email, age) values ($1, $2) on conflict (email) do update set age = people.age + $3 where people.score > $4',
      [25, 20, 20, 701],
    ],
  ])('tells the types of parameters from the columns beside them: %s', async (text, typeIds) => {
    const raw = await wire.openRaw()
    raw.send(parse(text), describeStatement(), sync())
    const messages = await raw.until('Z')
    expect(errorCode(messages)).toBeUndefined()
    const { body = Buffer.alloc(0) } = messages.find(({ type }) => type === 't') ?? {}
    expect(typeIds.map((_, index) => body.readInt32BE(2 + 4 * index))).toEqual(typeIds)
    raw.close()
  })

  it('sends and receives binary values', async () => {
    const raw = await wire.openRaw()
    const texts = [
      'b1',
      '7',
      '2.5',
      'true',
      '2026-01-02 03:04:05.000678+00',
      '{a,"b c"}',
      '{"k": 1}',
    ]
    const typeIds = [25, 20, 701, 16, 1184, 1009, 3802]
    const values = texts.map((text, index) => toBinary(typeIds[index] ?? 0, text))
    raw.send(
      parse(
        `insert into people (id, age, score, active, at, tags, doc) values ($1, $2, $3, $4, $5, $6, $7)
        returning id, age, score, active, at, tags, doc`,
      ),
      bind(values, { resultFormats: [1] }),
      execute(),
      sync(),
    )
    const messages = await raw.until('Z')
    expect(errorCode(messages)).toBe(undefined)
    const row = messages.find(({ type }) => type === 'D')?.body ?? Buffer.alloc(0)
    const found: string[] = []
    for (let at = 2, column = 0; at < row.length; column++) {
      const length = row.readInt32BE(at)
      found.push(fromBinary(typeIds[column] ?? 0, row.subarray(at + 4, at + 4 + length)))
      at += 4 + length
    }
    expect(found).toEqual([...texts.slice(0, 5), '{"a","b c"}', '{"k": 1}'])
    await client.query(`delete from people where id = 'b1'`)
    raw.close()
  })

  it.each(['', ';', '-- nothing'])(
    'describes no columns of a text without statements: [%s]',
    async (text) => {
      const raw = await wire.openRaw()
      const portal = message('D', Buffer.from('P\0'))
      raw.send(parse(text, 'none'), describeStatement('none'), bind([], { name: 'none' }), portal)
      raw.send(execute(), parse('execute none'), bind([]), portal, execute(), sync())
      expect((await raw.until('Z')).map(({ type }) => type).join('')).toBe('1tn2nI12nIZ')
      raw.close()
    },
  )

  it('returns the rows of a portal in parts', async () => {
    const raw = await wire.openRaw()
    raw.send(
      parse('select g from generate_series(1, 5) g'),
      bind([], { portal: 'p' }),
      execute(2, 'p'),
      execute(2, 'p'),
      execute(2, 'p'),
      sync(),
    )
    const kinds = (await raw.until('Z')).map(({ type }) => type).join('')
    expect(kinds).toBe('12DDsDDsDCZ')
    raw.close()
  })

  it('is told an error at once, also if it asks for answers by Flush', async () => {
    const raw = await wire.openRaw()
    raw.send(parse('select nothing', 'a'), describeStatement('a'), message('H', Buffer.alloc(0)))
    expect(errorCode([...(await raw.until('E'))])).toBe('42703')
    raw.send(sync())
    expect((await raw.until('Z')).map(({ type }) => type).join('')).toBe('Z')
    raw.close()
  })

  it('skips what follows an error until the next Sync, and goes on after it', async () => {
    const raw = await wire.openRaw()
    raw.send(
      parse('select nothing'),
      bind([]),
      execute(),
      parse('select 1'),
      sync(),
      query('select 1'),
    )
    const first = await raw.until('Z')
    expect(errorCode(first)).toBe('42703')
    expect(first.filter(({ type }) => type === '1')).toHaveLength(1)
    expect((await raw.until('Z')).map(({ type }) => type).join('')).toBe('TDCZ')
    raw.close()
  })

  it('refuses the call of a function by its own message, and goes on after it', async () => {
    const raw = await wire.openRaw()
    // The oid of a function, no formats, no arguments, and a result as text.
    raw.send(message('F', Buffer.from([0, 0, 5, 13, 0, 0, 0, 0, 0, 0])), query('select 1'))
    const refused = await raw.until('Z')
    expect([refused.map(({ type }) => type).join(''), errorCode(refused)]).toEqual(['EZ', '0A000'])
    expect((await raw.until('Z')).map(({ type }) => type).join('')).toBe('TDCZ')
    raw.close()
  })

  it('cancels a statement by the key of its connection, and no other', async () => {
    const raw = await new Promise<RawClient>((resolve) => {
      const opened = new RawClient(wire.port)
      opened.send(startup({ user: service.workspaceId, database: 'shop:main' }))
      opened.send(message('p', Buffer.from(`${service.key}\0`)))
      resolve(opened)
    })
    const started = await raw.until('Z')
    const key = started.find(({ type }) => type === 'K')?.body ?? Buffer.alloc(8)
    const cancelBy = (secret: Buffer) => {
      const other = new RawClient(wire.port)
      other.send(int32(16), int32(80_877_102), key.subarray(0, 4), secret)
    }
    raw.send(query('select count(*) from generate_series(1, 1000000000) a'))
    cancelBy(int32(1))
    const sending = setInterval(() => cancelBy(key.subarray(4)), 200)
    expect(errorCode(await raw.until('Z'))).toBe('57014')
    clearInterval(sending)
    raw.close()
  })

  it('ignores a signal to cancel that comes when nothing runs', async () => {
    const raw = new RawClient(wire.port)
    raw.send(startup({ user: service.workspaceId, database: 'shop:main' }))
    raw.send(message('p', Buffer.from(`${service.key}\0`)))
    const key = (await raw.until('Z')).find(({ type }) => type === 'K')?.body ?? Buffer.alloc(8)
    const other = new RawClient(wire.port)
    other.send(int32(16), int32(80_877_102), key)
    // The service closes the connection when it has read the signal.
    await other.closed()
    raw.send(query('select count(*) from people'))
    expect(errorCode(await raw.until('Z'))).toBeUndefined()
    raw.close()
  })
})

describe('statements that are not allowed', () => {
  const HOSTILE = [
    'select * from pg_catalog.pg_authid',
    'select * from offshoot.api_keys',
    `select pg_read_file('/etc/passwd')`,
    `select set_config('role', 'postgres', false)`,
    `set role postgres`,
    `set session authorization postgres`,
    `copy people to '/tmp/people'`,
    `copy people from '/etc/passwd'`,
    'copy offshoot.api_keys to stdout',
    'copy (select * from pg_catalog.pg_authid) to stdout',
    'copy people to stdout (format parquet)',
    `copy people to program 'id'`,
    'drop schema public cascade',
    'select lo_import($$/etc/passwd$$)',
    `select query_to_xml('select 1', true, true, '')`,
    `do $$ begin end $$`,
    `select current_setting('data_directory')`,
    `select 1; drop schema public cascade`,
    'cluster people',
    'checkpoint',
    `select dblink('a', 'b')`,
    'explain select * from offshoot.api_keys',
    'explain (settings) select 1',
    'declare c cursor for select * from offshoot.api_keys',
  ]

  it.each(HOSTILE)('are refused in both protocols: %s', async (text) => {
    const raw = await wire.openRaw()
    raw.send(query(text))
    expect(errorCode(await raw.until('Z'))).toMatch(/^(?:0A000|42|22)/)
    raw.send(parse(text), bind([]), execute(), sync())
    expect(errorCode(await raw.until('Z'))).toMatch(/^(?:0A000|42|22)/)
    expect(await rowsOf('select count(*)::int as n from people')).toEqual([{ n: 2 }])
    raw.close()
  })
})

describe('bad messages', () => {
  it('end the connection before the key is known', async () => {
    const cases = [
      Buffer.from('GET / HTTP/1.1\r\n\r\n'),
      Buffer.concat([int32(0x7fffffff), int32(196_608)]),
      Buffer.concat([int32(8), int32(1)]),
      Buffer.concat([int32(3)]),
      Buffer.concat([startup({ user: 'a' }), message('Q', Buffer.from('select 1\0'))]),
    ]
    for (const bytes of cases) {
      const raw = new RawClient(wire.port)
      raw.send(bytes)
      await raw.closed()
    }
  })

  it('are waited for only so long', async () => {
    const raw = new RawClient(wire.port)
    raw.send(int32(100))
    await raw.closed()
  })

  it('do not end the service, whatever they are', async () => {
    const random = new Random(EXPLORES ? SEED : 7)
    const letters = 'QPBDECSHXFdcfp?\0'
    const texts = [
      ...[
        'select 1',
        'select $1',
        '',
        'begin',
        'commit',
        'rollback',
        'savepoint a',
        'rollback to a',
      ],
      ...['select * from people where id = $1', `update people set name = 'x' where id = 'none'`],
      ...['create table fuzzed (id text primary key)', 'alter table fuzzed add column a int'],
      ...['copy people (id) from stdin', 'copy people to stdout', 'drop table if exists fuzzed'],
      ...['select relname from pg_class', 'set a.b = c', 'declare c cursor for select 1', ';;'],
    ]
    for (let round = 0; round < amount('WIRE', { short: 60, long: 600 }); round++) {
      const raw = await wire.openRaw()
      for (let count = 0; count < 12; count++) {
        const bytes = Buffer.from(Array.from({ length: random.below(40) }, () => random.below(256)))
        const known = [
          parse(random.pick(texts), random.pick(['', 'a'])),
          bind([null], { portal: random.pick(['', 'b']) }),
          bind([Buffer.from([1, 2, 3])], { resultFormats: [1] }),
          execute(random.below(3), random.pick(['', 'b'])),
          describeStatement(random.pick(['', 'a'])),
          query(random.pick(texts)),
          message('d', Buffer.from('none\tx\n')),
          message('c', Buffer.alloc(0)),
          sync(),
        ]
        raw.send(
          random.chance(0.7) ? random.pick(known) : message(random.pick([...letters]), bytes),
        )
      }
      // A COPY ends with its own message.
      raw.send(message('c', Buffer.alloc(0)), sync(), query('select 42'))
      await raw.until('Z')
      raw.close()
    }
    expect(await rowsOf('select 1 as one')).toEqual([{ one: 1 }])
    await expect.poll(() => service.app.sqlEngine.connections.state.held).toBe(0)
  })
})

describe('binary values', () => {
  it.each([
    ['numeric', 1700, ['0', '1', '-1.50', '12345.6789', '0.0001', '100000000', 'NaN', '-0.10']],
    ['int8', 20, ['0', '-9223372036854775808']],
    ['float8', 701, ['1.5', '-0', 'Infinity', 'NaN']],
    ['timestamptz', 1184, ['1999-12-31 23:59:59.999999+00', '2026-11-18 04:05:06+00', 'infinity']],
    ['date', 1082, ['1999-12-31', '2000-01-01', '0001-01-01']],
    ['time', 1083, ['00:00:00', '23:59:59.5']],
    [
      'interval',
      1186,
      [
        '1 year 2 mons -3 days +04:05:06.7',
        '-1 days',
        '-00:00:01',
        '00:00:00',
        '30 mons',
        '100:00:00',
      ],
    ],
    ['uuid', 2950, ['01234567-89ab-cdef-0123-456789abcdef']],
    ['bool', 16, ['t', 'f']],
  ])('of type %s have the form of PostgreSQL', async (name, typeId, texts) => {
    const direct = new pg.Client({ connectionString: service.url })
    await direct.connect()
    for (const text of texts) {
      const { rows } = await direct
        .query(
          `set timezone to 'UTC'; set intervalstyle to postgres; select encode(${name === 'timestamptz' || name === 'numeric' || name === 'uuid' || name === 'time' || name === 'date' || name === 'interval' ? `${name}_send` : `${name}send`}('${text}'::${name}), 'hex') as hex, '${text}'::${name}::text as text`,
        )
        .then((results) => (results as unknown as pg.QueryResult[])[2] as pg.QueryResult)
      const [{ hex, text: written }] = rows
      expect([text, toBinary(typeId, written).toString('hex')]).toEqual([text, hex])
      const back = fromBinary(typeId, Buffer.from(hex, 'hex'))
      expect(toBinary(typeId, back).toString('hex')).toBe(hex)
    }
    await direct.end()
  })
})
