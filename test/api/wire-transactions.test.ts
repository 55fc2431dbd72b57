import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import {
  bind,
  errorCode,
  execute,
  message,
  openShop,
  openWire,
  parse,
  query,
  RawClient,
  type Received,
  sync,
  type WireService,
  type WireShop,
} from '../support/wire-clients.js'

/* Transactions that clients of PostgreSQL keep open. */

const TABLES = {
  people: [
    { name: 'name', type: 'string' },
    { name: 'email', type: 'email', unique: true },
    { name: 'age', type: 'int' },
    { name: 'need', type: 'string', notNull: true, defaultValue: 'x' },
  ],
  notes: [{ name: 'text', type: 'string' }],
  logs: [{ name: 'text', type: 'string' }],
} as const

let shop: WireShop
let service: TestService
let branches: TestBranches
let wire: WireService

beforeAll(async () => {
  shop = await openShop(TABLES, { limits: { sqlWaitMs: 300, sqlTransactionsMax: 30 } })
  ;({ service, branches, wire } = shop)
  await branches.bulk('main', 'people', [
    { id: 'p1', name: 'Ann', email: 'ann@b.co', age: 41 },
    { id: 'p2', name: 'Bob', email: 'bob@b.co', age: 17 },
  ])
})
afterAll(() => shop?.close())

const openRaw = (place: string) =>
  RawClient.open(wire.port, { user: service.workspaceId, database: place, key: service.key })

/** A branch of its own for a test. */
async function forkTo(name: string): Promise<pg.Client> {
  await branches.fork(name)
  return wire.connect(`shop:${name}`)
}

const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: { code?: string }) => error.code,
  )

const agesOf = async (client: pg.Client) =>
  (await client.query('select id, age::int from people order by id')).rows.map(({ age }) => age)

const heldConnections = () => service.app.sqlEngine.connections.state.held

/** The letters of answers, with the state of the transaction. */
const lettersOf = (messages: readonly Received[]) =>
  messages.map(({ type, body }) => (type === 'Z' ? `Z${body}` : type)).join('')
const tagsOf = (messages: readonly Received[]) =>
  messages.filter(({ type }) => type === 'C').map(({ body }) => body.toString().slice(0, -1))

describe('a transaction', () => {
  it('shows its writes to itself, and to others when it is committed', async () => {
    const client = await forkTo('commits')
    const other = await wire.connect('shop:commits')
    await client.query('begin')
    await client.query(`insert into people (id, age) values ('p3', 3)`)
    await client.query(`update people set age = age + 1 where id = $1`, ['p3'])
    expect((await client.query('delete from people where age = 17 returning id')).rows).toEqual([
      { id: 'p2' },
    ])
    expect(await agesOf(client)).toEqual([41, 4])
    expect(await agesOf(other)).toEqual([41, 17])
    const { command } = await client.query('commit')
    expect([command, await agesOf(other)]).toEqual(['COMMIT', [41, 4]])
    expect(heldConnections()).toBe(0)
  })

  it('has one time, also in the defaults of its records', async () => {
    const client = await forkTo('times')
    await client.query(`create table visits (id int primary key, at timestamptz default now(), local timestamp default now(),
      day date default now(), hour time default now(), other timestamptz)`)
    const insert = 'insert into visits (id, other) values ($1, now())'
    await client.query('begin')
    const {
      rows: [began],
    } = await client.query('select now() as at')
    for (const id of [1, 2]) await client.query(insert, [id])
    await client.query(
      'insert into visits (id) values (2) on conflict (id) do update set other = excluded.at',
    )
    await client.query('insert into visits (id) values (3)')
    await client.query('update visits set other = default, at = default where id = 3')
    const { rows } = await client.query(
      `select at, at = now() and local = now()::timestamp and day = now()::date and hour = now()::time as "isNow", at = other as "isSame"
      from visits order by id`,
    )
    const now = { at: began.at, isNow: true }
    expect(rows).toEqual([
      { ...now, isSame: true },
      { ...now, isSame: true },
      { ...now, isSame: null },
    ])
    await client.query('commit')
    await client.query('insert into visits (id, other) values (4, now()), (5, now())')
    const { rows: alone } = await client.query(
      'select distinct at = other as "isSame" from visits where id > 3',
    )
    expect(alone).toEqual([{ isSame: true }])
  })

  it('has no effect when it is rolled back', async () => {
    const client = await forkTo('rolls-back')
    await client.query('start transaction isolation level read committed')
    await client.query(`update people set age = 0`)
    await client.query('rollback')
    expect(await agesOf(client)).toEqual([41, 17])
    expect(heldConnections()).toBe(0)
  })

  it('writes to several tables of a new fork', async () => {
    const client = await forkTo('several')
    await client.query('begin')
    expect(await agesOf(client)).toEqual([41, 17])
    await client.query(`insert into notes (id, text) values ('n1', 'a')`)
    await client.query(`insert into logs (id, text) values ('l1', 'b')`)
    await client.query(`update people set age = 1 where id = 'p1'`)
    await client.query('commit')
    expect(await branches.read('several', 'logs', ['l1'])).toEqual({ l1: { text: 'b' } })
    expect(await agesOf(client)).toEqual([1, 17])
    expect(await branches.read('main', 'notes', ['n1'])).toEqual({})
  })

  it('begins again once for the first write to a table of a fork, if the schema has very many', async () => {
    const many = Array.from({ length: 201 }, (_, index) => [`t${index}`, TABLES.notes] as const)
    const large = await TestBranches.create(service, 'large', Object.fromEntries(many))
    await large.fork('other')
    const client = await wire.connect('large:other')
    const insert = async () => {
      await client.query('begin')
      await client.query(`insert into t7 (id) values ('a')`)
      await client.query('commit')
    }
    expect(await codeOf(insert())).toBe('40001')
    await client.query('rollback')
    await insert()
    expect(await large.read('other', 't7', ['a'])).toEqual({ a: {} })
  })

  it('refuses everything after an error, until it ends', async () => {
    await branches.fork('fails')
    const raw = await openRaw('shop:fails')
    const ask = async (text: string) => {
      raw.send(query(text))
      const messages = await raw.until('Z')
      return [lettersOf(messages), errorCode(messages) ?? tagsOf(messages)[0]]
    }
    expect(await ask('begin')).toEqual(['CZT', 'BEGIN'])
    expect(await ask('update people set age = 5')).toEqual(['CZT', 'UPDATE 2'])
    expect(await ask('select nothing')).toEqual(['EZE', '42703'])
    expect(await ask('select 1')).toEqual(['EZE', '25P02'])
    expect(await ask('begin')).toEqual(['EZE', '25P02'])
    expect(await ask('savepoint a')).toEqual(['EZE', '25P02'])
    expect(heldConnections()).toBe(0)
    expect(await ask('commit')).toEqual(['CZI', 'ROLLBACK'])
    expect(await ask('select sum(age)::int from people')).toEqual(['TDCZI', 'SELECT 1'])
    expect(await ask('commit')).toEqual(['NCZI', 'COMMIT'])
    expect(await ask('savepoint a')).toEqual(['EZI', '25P01'])
    raw.close()
    expect(await agesOf(await wire.connect('shop:fails'))).toEqual([41, 17])
  })

  it('returns to its savepoints', async () => {
    const client = await forkTo('savepoints')
    await client.query('begin')
    await client.query(`update people set age = 1 where id = 'p1'`)
    await client.query('savepoint a')
    await client.query(`update people set age = 2 where id = 'p1'`)
    await client.query('savepoint "b c"')
    expect(await codeOf(client.query(`insert into people (id) values ('p1')`))).toBe('23505')
    expect(await codeOf(client.query('select 1'))).toBe('25P02')
    await client.query('rollback to savepoint "b c"')
    expect(await agesOf(client)).toEqual([2, 17])
    await client.query('rollback to a')
    expect(await agesOf(client)).toEqual([1, 17])
    await client.query('release a')
    expect(await codeOf(client.query('rollback to a'))).toBe('3B001')
    await client.query('rollback')
    await client.query('begin')
    await client.query('savepoint a')
    await client.query(`update people set age = 7 where id = 'p1'`)
    await client.query('release savepoint a')
    await client.query('commit')
    expect(await agesOf(client)).toEqual([7, 17])
  })

  it('is left after a prepared statement whose columns the client had asked for has failed', async () => {
    await branches.fork('jdbc')
    const raw = await openRaw('shop:jdbc')
    // As pgjdbc sends statements.
    const ask = async (text: string) => {
      raw.send(parse(text), bind([]), message('D', Buffer.from('P\0')), execute(), sync())
      const messages = await raw.until('Z')
      return [lettersOf(messages), errorCode(messages) ?? tagsOf(messages)[0]]
    }
    expect(await ask('BEGIN')).toEqual(['12nCZT', 'BEGIN'])
    expect(await ask('SAVEPOINT "JDBC_SAVEPOINT_1"')).toEqual(['12nCZT', 'SAVEPOINT'])
    const taken = `insert into people (email) values ('ann@b.co')`
    expect(await ask(taken)).toEqual(['12EZE', '23505'])
    expect(await ask('ROLLBACK TO SAVEPOINT "JDBC_SAVEPOINT_1"')).toEqual(['12nCZT', 'ROLLBACK'])
    expect(await ask('select id from people')).toEqual(['12TDDCZT', 'SELECT 2'])
    expect(await ask(taken)).toEqual(['12EZE', '23505'])
    expect(await ask('ROLLBACK')).toEqual(['12nCZI', 'ROLLBACK'])
    raw.close()
  })

  it('tells which constraint a write violates, as outside of it', async () => {
    const client = await forkTo('violates')
    for (const [text, code, fields] of [
      [
        `insert into people (email) values ('ann@b.co')`,
        '23505',
        { table: 'people', column: 'email', constraint: 'people_email_key' },
      ],
      [`insert into people (need) values (null)`, '23502', { table: 'people', column: 'need' }],
    ] as const) {
      for (const before of ['rollback', 'begin']) {
        await client.query(before)
        const error = await client.query(text).catch((each: unknown) => each)
        expect(error).toMatchObject({ code, ...fields })
      }
    }
    await client.query('rollback')
  })

  it('is serializable: of two that depend on each other, one fails with 40001 and a hint', async () => {
    const first = await forkTo('serial')
    const second = await wire.connect('shop:serial')
    const skew = async (client: pg.Client, id: string) => {
      await client.query(`update people set age = 0 where id = '${id}'`)
    }
    for (const client of [first, second]) {
      await client.query('begin')
      await agesOf(client)
    }
    const errors: (pg.DatabaseError | undefined)[] = []
    const attempt = (work: Promise<unknown>) =>
      work.catch((error: pg.DatabaseError) => {
        errors.push(error)
      })
    await attempt(skew(first, 'p1'))
    await attempt(skew(second, 'p2'))
    await attempt(first.query('commit'))
    await attempt(second.query('commit'))
    expect(errors.map((error) => error?.code)).toEqual(['40001'])
    expect(errors[0]?.hint).toContain('repeat it')
    expect((await agesOf(first)).filter((age) => age === 0)).toHaveLength(1)
  })

  it('that only reads refuses writes, sees one state, and keeps no fork waiting', async () => {
    const client = await forkTo('reads')
    await client.query('begin read only')
    expect(await agesOf(client)).toEqual([41, 17])
    await branches.patch('reads', 'people', 'p1', { age: 1 })
    await branches.fork('from-reads', 'reads')
    expect(await agesOf(client)).toEqual([41, 17])
    expect(await codeOf(client.query('delete from people'))).toBe('25006')
    await client.query('rollback')
    await client.query('begin')
    await client.query('set transaction read only')
    expect(await codeOf(client.query('delete from people'))).toBe('25006')
    await client.query('rollback')
    expect(await agesOf(client)).toEqual([1, 17])
  })

  it('only reads where the session says so, also for single statements', async () => {
    const client = await forkTo('read-only')
    const show = async (name: string) =>
      Object.values((await client.query(`show ${name}`)).rows[0] ?? {})[0]
    const insert = () => codeOf(client.query(`insert into notes (text) values ('x')`))
    for (const [on, off] of [
      ['set default_transaction_read_only = true', 'set default_transaction_read_only = off'],
      [
        'set session characteristics as transaction read only, isolation level serializable',
        'set session characteristics as transaction read write',
      ],
      [
        `select set_config('default_transaction_read_only', 'yes', false)`,
        'reset default_transaction_read_only',
      ],
    ] as const) {
      await client.query(on)
      await client.query('set session characteristics as transaction isolation level serializable')
      expect(await show('default_transaction_read_only')).toBe('on')
      expect(await show('transaction_read_only')).toBe('on')
      for (const text of [
        `insert into notes (text) values ('x')`,
        `insert into notes (text) values ('x'); select 1`,
        `with w as (insert into notes (text) values ('x') returning id) select * from w`,
        `update people set age = 1`,
        'truncate notes',
        'create table more (id text primary key)',
        'copy notes (text) from stdin',
        `select offshoot.fork('never')`,
        `select offshoot.checkpoint()`,
      ]) {
        expect([text, await codeOf(client.query(text))]).toEqual([text, '25006'])
      }
      await client.query(`select offshoot.checkout('read-only')`)
      expect(await agesOf(client)).toEqual([41, 17])
      await client.query('begin read write')
      expect([await show('transaction_read_only'), await insert()]).toEqual(['off', undefined])
      await client.query('rollback')
      await client.query(off)
      expect([await show('transaction_read_only'), await insert()]).toEqual(['off', undefined])
    }
    const options = '-c default_transaction_read_only=1'
    const given = await wire.connect(`shop:read-only?options=${encodeURIComponent(options)}`)
    expect(await codeOf(given.query(`insert into notes (text) values ('x')`))).toBe('25006')
    expect(await codeOf(client.query('set default_transaction_read_only = maybe'))).toBe('22023')
  })

  it('only reads after it was set so, and cannot take that back after a statement', async () => {
    const client = await forkTo('turns-read-only')
    const insert = () => codeOf(client.query(`insert into notes (text) values ('x')`))
    for (const text of [
      'set transaction_read_only = on',
      'set local transaction_read_only = on',
      `select set_config('transaction_read_only', 'on', true)`,
    ]) {
      await client.query('begin')
      expect(await insert()).toBeUndefined()
      await client.query(text)
      expect((await client.query('show transaction_read_only')).rows).toEqual([
        { transaction_read_only: 'on' },
      ])
      await client.query('savepoint a')
      expect(await codeOf(client.query('set transaction read write'))).toBe('25001')
      await client.query('rollback to a')
      expect(await insert()).toBe('25006')
      await client.query('rollback')
      expect(await insert()).toBeUndefined()
    }
  })

  it('accepts FOR UPDATE and FOR SHARE', async () => {
    const client = await forkTo('locks')
    await client.query('begin')
    const { rows } = await client.query(`select id from people where id = 'p1' for update`)
    expect(rows).toEqual([{ id: 'p1' }])
    await client.query('select id from people for share nowait')
    await client.query('commit')
  })

  it('has the statements of one message, unless they say otherwise', async () => {
    const client = await forkTo('message')
    const text = `update people set age = 1 where id = 'p1'; insert into people (id) values ('p1')`
    expect(await codeOf(client.query(text))).toBe('23505')
    expect(await agesOf(client)).toEqual([41, 17])
    await client.query(`update people set age = 2; update people set age = age + 1`)
    expect(await agesOf(client)).toEqual([3, 3])
    const commits = `update people set age = 4; commit; select nothing`
    expect(await codeOf(client.query(commits))).toBe('42703')
    expect(await agesOf(client)).toEqual([4, 4])
    const begins = `begin; update people set age = 5; commit; begin; update people set age = 6`
    await client.query(begins)
    await client.query('rollback')
    expect(await agesOf(client)).toEqual([5, 5])
    expect(heldConnections()).toBe(0)
  })

  it('has the statements before its BEGIN in the same message, and a ROLLBACK there ends it', async () => {
    const client = await forkTo('before')
    await client.query('update people set age = 1; begin; update people set age = 2; rollback')
    expect(await agesOf(client)).toEqual([41, 17])
    await client.query('update people set age = 3; rollback; select 1')
    expect(await agesOf(client)).toEqual([41, 17])
    expect(await codeOf(client.query('update people set age = 4; begin; select 1 / 0'))).toBe(
      '22012',
    )
    await client.query('rollback')
    expect(await agesOf(client)).toEqual([41, 17])
    await client.query('update people set age = 5; begin; update people set age = age + 1')
    await client.query('commit')
    expect(await agesOf(client)).toEqual([6, 6])
  })

  it('can be sent as one pipeline, and keeps portals between its statements', async () => {
    await branches.fork('pipeline')
    const raw = await openRaw('shop:pipeline')
    const run = (text: string) => [parse(text), bind([]), execute()]
    raw.send(
      ...run('begin'),
      ...run('update people set age = 9'),
      parse('select id from people order by id'),
      bind([], { portal: 'p' }),
      execute(1, 'p'),
      sync(),
    )
    expect(lettersOf(await raw.until('Z'))).toBe('12C12C12DsZT')
    raw.send(execute(0, 'p'), ...run('commit'), sync())
    expect(lettersOf(await raw.until('Z'))).toBe('DC12CZI')
    raw.send(execute(0, 'p'), sync())
    expect(errorCode(await raw.until('Z'))).toBe('34000')
    raw.close()
  })
})

describe('a transaction that others wait for', () => {
  it('is ended by a fork, and nothing of it is stored', async () => {
    const client = await forkTo('waited')
    await client.query('begin')
    await client.query('update people set age = 0')
    await branches.fork('from-waited', 'waited')
    expect(await codeOf(client.query('select 1'))).toBe('40001')
    expect(await codeOf(client.query('select 1'))).toBe('25P02')
    expect((await client.query('commit')).command).toBe('ROLLBACK')
    await client.query('begin')
    await client.query('update people set age = 1')
    await branches.edit('waited', {
      addColumn: { table: 'notes', column: { name: 'more', type: 'string' } },
    })
    expect(await codeOf(client.query('commit'))).toBe('40001')
    expect(await agesOf(client)).toEqual([41, 17])
    expect(await agesOf(await wire.connect('shop:from-waited'))).toEqual([41, 17])
  })

  it('is ended when the branch begins to require approvals', async () => {
    const client = await forkTo('approved')
    await client.query('begin')
    await client.query('update people set age = 0')
    const fields = { protected: true, requiredApprovals: 1 }
    expect((await branches.call('approved', 'PATCH', '', fields)).status).toBe(200)
    expect(await codeOf(client.query('commit'))).toBe('40001')
    expect(await agesOf(client)).toEqual([41, 17])
  })

  it.each(['begin', 'begin read only', 'begin; savepoint a'])(
    'is ended when its key was revoked, also by another process (%s)',
    async (begin) => {
      const other = await createTestService({ url: service.url })
      try {
        const key = await createKey(service, 'revoked')
        const client = await wire.connect('shop:main', { key })
        await client.query(begin)
        await client.query('declare c cursor for select id from people')
        await client.query('declare h cursor with hold for select id from people')
        expect(await agesOf(client)).toHaveLength(2)
        const options = { key: service.key }
        expect((await other.call('DELETE', '/user/keys/revoked', options)).status).toBe(204)
        // A transaction asks again after a tenth of a second.
        await delay(150)
        expect(await codeOf(client.query('fetch h'))).toBe('28P01')
        if (begin.includes('savepoint')) {
          expect(await codeOf(client.query('rollback to a'))).toBe('28P01')
        }
        await expect.poll(heldConnections).toBe(0)
        await client.query('rollback')
        expect(await codeOf(client.query('select 1'))).toBe('28P01')
      } finally {
        await other.close()
      }
    },
  )

  it('cannot go on to write, read or fetch when its key was revoked', async () => {
    const texts = [
      `insert into notes (text) values ('x')`,
      'table people',
      'fetch c',
      'savepoint b',
    ]
    for (const text of texts) {
      const key = await createKey(service, 'revoked')
      const client = await wire.connect('shop:main', { key })
      await client.query('begin; declare c cursor for select id from people')
      await service.call('DELETE', '/user/keys/revoked')
      await delay(150)
      expect([text, await codeOf(client.query(text))]).toEqual([text, '28P01'])
    }
    expect(heldConnections()).toBe(0)
  })

  it('is ended by a fork in another process, and by a write to the same row', async () => {
    const client = await forkTo('contended')
    const other = await createTestService({ url: service.url })
    try {
      await client.query('begin')
      await client.query('update people set age = 0')
      await branches.through(other).fork('from-contended', 'contended')
      expect(await codeOf(client.query('commit'))).toBe('40001')
    } finally {
      await other.close()
    }
    await client.query('begin')
    await client.query('update people set age = 0')
    await branches.patch('contended', 'people', 'p1', { age: 1 })
    expect(await codeOf(client.query('commit'))).toBe('40001')
    expect(await agesOf(client)).toEqual([1, 17])
  })

  it('keeps nobody from writing, and nobody from forking', async () => {
    await branches.fork('crowded')
    const clients = await Promise.all(
      Array.from({ length: 20 }, () => wire.connect('shop:crowded')),
    )
    for (const [index, client] of clients.entries()) {
      await client.query('begin')
      await client.query(`insert into notes (id) values ('n${index}')`)
    }
    expect(heldConnections()).toBe(20)
    await branches.put('crowded', 'notes', 'x', { text: 'y' })
    await branches.fork('from-crowded', 'crowded')
    const codes = await Promise.all(clients.map((client) => codeOf(client.query('commit'))))
    expect(codes).toEqual(clients.map(() => '40001'))
    expect(heldConnections()).toBe(0)
    expect(await branches.read('from-crowded', 'notes', ['x', 'n1'])).toEqual({ x: { text: 'y' } })
  })

  it('is refused if too many are open', async () => {
    await branches.fork('many')
    const clients = await Promise.all(Array.from({ length: 25 }, () => wire.connect('shop:many')))
    await clients[0]?.query(`begin; update people set age = 0; rollback`)
    for (const client of clients) await client.query('begin')
    const codes = await Promise.all(
      clients.map((client) => codeOf(client.query('select count(*) from people'))),
    )
    expect(codes.filter((code) => code === '53300')).toHaveLength(1)
    expect(codes.filter((code) => code === undefined)).toHaveLength(24)
    expect((await wire.connect('shop:many').then((each) => each.query('select 1'))).rows).toEqual([
      { '?column?': 1 },
    ])
    await Promise.all(clients.map((client) => client.query('rollback')))
    expect(heldConnections()).toBe(0)
  })

  it.each(['idle', 'busy'])('ends when its client disappears while it is %s', async (state) => {
    await branches.fork(`gone-${state}`)
    const raw = await openRaw(`shop:gone-${state}`)
    raw.send(query('begin; update people set age = 0'))
    expect(lettersOf(await raw.until('Z'))).toBe('CCZT')
    if (state === 'busy') raw.send(query('select count(*) from generate_series(1, 1000000000)'))
    raw.close()
    await expect.poll(heldConnections).toBe(0)
    expect(await agesOf(await wire.connect(`shop:gone-${state}`))).toEqual([41, 17])
  })

  it('ends with its key', async () => {
    await branches.fork('revoked')
    const created = await service.call('POST', '/user/keys/short', { body: {} })
    const client = await wire.connect('shop:revoked', { key: created.body.key })
    await client.query('begin')
    await client.query('update people set age = 0')
    await service.call('DELETE', '/user/keys/short')
    expect(await codeOf(client.query('commit'))).toBe('28P01')
    expect(await agesOf(await wire.connect('shop:revoked'))).toEqual([41, 17])
    expect(heldConnections()).toBe(0)
  })

  it('leaves a cursor WITH HOLD that ends with its key', async () => {
    const created = await service.call('POST', '/user/keys/cursor', { body: {} })
    const client = await wire.connect('shop:main', { key: created.body.key })
    await client.query('begin; declare kept cursor with hold for select id from people; commit')
    expect((await client.query('fetch 1 from kept')).rows).toHaveLength(1)
    await service.call('DELETE', '/user/keys/cursor')
    expect(await codeOf(client.query('fetch 1 from kept'))).toBe('28P01')
  })

  it('ends with its branch', async () => {
    const client = await forkTo('deleted')
    await client.query('begin')
    await client.query('update people set age = 0')
    await branches.delete('deleted')
    expect(await codeOf(client.query('commit'))).toMatch(/^(?:40001|3D000)$/)
    await expect.poll(heldConnections).toBe(0)
  })
})

describe('a transaction that takes long', () => {
  let short: TestService
  let shortWire: WireService

  beforeAll(async () => {
    short = await createTestService({
      limits: { sqlTransactionIdleMs: 600, sqlTransactionMs: 2_000 },
    })
    await TestBranches.create(short, 'shop', TABLES)
    shortWire = await openWire(short)
  })
  afterAll(async () => {
    await shortWire.close()
    await short.close()
  })

  const held = () => short.app.sqlEngine.connections.state.held

  it.each(['select 1', 'commit'])('without a statement is ended: %s', async (text) => {
    const client = await shortWire.connect('shop:main')
    await client.query('begin')
    await client.query(`insert into notes (id) values ('idle')`)
    await expect.poll(held).toBe(0)
    expect(await codeOf(client.query(text))).toBe('25P03')
    await client.query('rollback')
    expect((await client.query('select id from notes')).rows).toEqual([])
  })

  it('with statements is ended, too', async () => {
    const client = await shortWire.connect('shop:main')
    await client.query('begin')
    let code: string | undefined
    while (code === undefined) code = await codeOf(client.query('select count(*) from notes'))
    expect(code).toBe('25P04')
    await client.query('rollback')
    expect(held()).toBe(0)
  })
})
