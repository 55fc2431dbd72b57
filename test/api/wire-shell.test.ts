import pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { HELD_CURSORS_MAX } from '../../packages/server/src/wire/held-cursors.js'
import { CURSORS_MAX } from '../../packages/server/src/wire/transaction-block.js'
import type { TestBranches } from '../support/branches.js'
import {
  bind,
  describeStatement,
  errorCode,
  execute,
  message,
  openShop,
  parse,
  query,
  sync,
  type WireService,
  type WireShop,
} from '../support/wire-clients.js'

/* Statements about the session of a client of PostgreSQL: prepared statements, cursors and settings. */

let shop: WireShop
let branches: TestBranches
let wire: WireService
let client: pg.Client

beforeAll(async () => {
  shop = await openShop({
    people: [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int' },
      { name: 'at', type: 'datetime' },
    ],
  })
  ;({ branches, wire } = shop)
  const people = Array.from({ length: 50 }, (_, index) => ({
    id: `p${String(index).padStart(2, '0')}`,
    name: `n${index}`,
    age: index,
    at: '2026-01-02T03:04:05.000Z',
  }))
  await branches.bulk('main', 'people', people)
})
afterAll(() => shop?.close())

const connected = async () => {
  client = await wire.connect('shop:main')
  return client
}
const rowsOf = async (text: string, values?: unknown[]) => (await client.query(text, values)).rows
const codeOf = (work: Promise<unknown>) =>
  work.then(
    () => undefined,
    (error: { code?: string }) => error.code,
  )

describe('PREPARE, EXECUTE and DEALLOCATE', () => {
  it('run a statement with values that are expressions', async () => {
    await connected()
    await client.query(
      'prepare young (int, text) as select id from people where age < $1 and name <> $2 order by id',
    )
    expect(await rowsOf(`execute young (1 + 1, 'n' || 0)`)).toEqual([{ id: 'p01' }])
    expect(await rowsOf(`execute young (2, null)`)).toEqual([])
    await client.query(`prepare older as update people set age = age + $1 where id = $2`)
    const updated = await client.query(`execute older (100, 'p49')`)
    expect([updated.command, updated.rowCount]).toEqual(['UPDATE', 1])
    await client.query(`execute older (-100, 'p49')`)
    expect(await rowsOf(`select age from people where id = 'p49'`)).toEqual([{ age: '49' }])
    await client.query('prepare who as select current_schema()')
    expect(await rowsOf('execute who')).toEqual([{ current_schema: 'public' }])
  })

  it('share their names with statements that the protocol has prepared', async () => {
    const raw = await wire.openRaw()
    raw.send(query(`prepare find as select name from people where id = $1`))
    await raw.until('Z')
    raw.send(bind(['p03'], { name: 'find' }), execute(), sync())
    const found = await raw.until('Z')
    expect(found.find(({ type }) => type === 'D')?.body.toString()).toContain('n3')
    raw.send(parse('select 1', 'find'), sync())
    expect(errorCode(await raw.until('Z'))).toBe('42P05')
    raw.send(
      parse(`execute find ('p04')`),
      bind([]),
      message('D', Buffer.from('P\0')),
      execute(),
      sync(),
    )
    const executed = await raw.until('Z')
    expect(executed.map(({ type }) => type).join('')).toBe('12TDCZ')
    raw.close()
  })

  it('cannot execute themselves', async () => {
    const raw = await wire.openRaw()
    raw.send(parse('execute self', 'self'), bind([], { name: 'self' }), execute(), sync())
    expect(errorCode(await raw.until('Z'))).toBe('0A000')
    raw.send(message('D', Buffer.from('Sself\0')), sync())
    expect(errorCode(await raw.until('Z'))).toBe('0A000')
    raw.close()
  })

  it('refuse unknown names, a wrong number of values, and names that are taken', async () => {
    await connected()
    await client.query('prepare one as select $1::int as n')
    expect(await codeOf(client.query('prepare one as select 2'))).toBe('42P05')
    expect(await codeOf(client.query('execute one'))).toBe('42601')
    expect(await codeOf(client.query('execute one (1, 2)'))).toBe('42601')
    expect(await codeOf(client.query('execute other'))).toBe('26000')
    expect(await codeOf(client.query('deallocate other'))).toBe('26000')
    expect((await client.query('deallocate one')).command).toBe('DEALLOCATE')
    expect(await codeOf(client.query('execute one (1)'))).toBe('26000')
    for (const [text, code] of [
      ['select nothing from people', '42703'],
      ['select 1 from nothing', '42P01'],
      ['update people set nothing = 1', '42703'],
      ['select nothing from pg_class', '42703'],
    ]) {
      expect(await codeOf(client.query(`prepare two as ${text}`))).toBe(code)
    }
    await client.query('prepare two as select 2')
    await client.query('deallocate all')
    expect(await codeOf(client.query('execute two'))).toBe('26000')
  })
})

describe('a prepared statement of the protocol', () => {
  it.each([
    'select nothing from people',
    'insert into people (nothing) values ($1)',
    'select id from nothing',
    'select nothing from pg_class',
  ])('does not keep its name if it cannot run, and ends a transaction: %s', async (text) => {
    const raw = await wire.openRaw()
    raw.send(query('begin'), parse(text, 'kept'), sync())
    await raw.until('Z')
    const failed = await raw.until('Z')
    expect(errorCode(failed)).toMatch(/^42/)
    expect(failed.map(({ type }) => type).join('')).toBe('EZ')
    expect(failed.at(-1)?.body.toString()).toBe('E')
    raw.send(parse('select 1', 'kept'), sync(), query('rollback'))
    expect(errorCode(await raw.until('Z'))).toBe('25P02')
    await raw.until('Z')
    raw.send(parse('select 1', 'kept'), bind([], { name: 'kept' }), execute(), sync())
    expect((await raw.until('Z')).map(({ type }) => type).join('')).toBe('12DCZ')
    raw.close()
  })

  it('is judged by the schema that its transaction has made', async () => {
    const raw = await wire.openRaw()
    raw.send(query('begin; create table fresh (n integer)'))
    await raw.until('Z')
    raw.send(
      parse('insert into fresh (n) values ($1)', 'fresh'),
      bind(['1'], { name: 'fresh' }),
      execute(),
      sync(),
    )
    expect((await raw.until('Z')).map(({ type }) => type).join('')).toBe('12CZ')
    raw.close()
  })
})

describe('a prepared statement whose columns have changed', () => {
  const describePortal = message('D', Buffer.from('P\0'))
  const select = 'select * from things'
  const update = 'update things set a = a + 1 returning *'
  const use = (options: Parameters<typeof bind>[1], ...more: Buffer[]) => [
    bind([], { name: 'kept', ...options }),
    ...more,
    execute(),
    sync(),
  ]

  it.each([
    [
      'described, bound with a format for each column',
      select,
      true,
      use({ resultFormats: [1, 1] }),
    ],
    ['described', select, true, use({})],
    ['run', select, false, use({})],
    ['run, with its portal described', select, false, use({}, describePortal)],
    [
      'run, with its portal described alone',
      select,
      false,
      use({}, describePortal).toSpliced(2, 1),
    ],
    ['run by EXECUTE', select, false, [query('execute kept')]],
    ['a write', update, false, use({})],
    ['a write in a transaction', update, false, [query('begin; execute kept')]],
  ])('fails as in PostgreSQL, and nothing is written: %s', async (_, text, isDescribed, again) => {
    await connected()
    await client.query('create table things (id text primary key, a integer)')
    await client.query(`insert into things values ('t', 1)`)
    const raw = await wire.openRaw()
    const first = isDescribed ? [describeStatement('kept'), sync()] : use({})
    raw.send(parse(text, 'kept'), ...first)
    expect(errorCode(await raw.until('Z'))).toBeUndefined()
    const before = await rowsOf('select a from things')
    await client.query('alter table things add column b integer')
    raw.send(...again)
    const failed = await raw.until('Z')
    expect(errorCode(failed)).toBe('0A000')
    const fields = failed
      .find(({ type }) => type === 'E')
      ?.body.toString()
      .split('\0')
    expect(fields).toContain('Mcached plan must not change result type')
    // asyncpg and pgjdbc prepare the statement again if they find it.
    expect(fields).toContain('RRevalidateCachedQuery')
    raw.send(query('rollback'))
    await raw.until('Z')
    expect(await rowsOf('select a from things')).toEqual(before)
    raw.send(message('C', Buffer.from('Skept\0')), parse(text, 'kept'), ...use({}))
    expect(errorCode(await raw.until('Z'))).toBeUndefined()
    raw.close()
    await client.query('set offshoot.allow_data_loss = on; drop table things')
  })
})

describe('cursors', () => {
  it('read rows in parts, forward, backward and by place', async () => {
    await connected()
    await client.query('begin')
    const declared = await client.query(
      'declare c scroll cursor for select id from people order by id',
    )
    expect(declared.command).toBe('DECLARE')
    const first = await client.query('fetch 2 from c')
    expect([first.command, first.rowCount, first.rows]).toEqual([
      'FETCH',
      2,
      [{ id: 'p00' }, { id: 'p01' }],
    ])
    expect((await client.query('move forward 10 in c')).rowCount).toBe(10)
    expect(await rowsOf('fetch next from c')).toEqual([{ id: 'p12' }])
    expect(await rowsOf('fetch backward 1 from c')).toEqual([{ id: 'p11' }])
    expect(await rowsOf('fetch absolute 5 from c')).toEqual([{ id: 'p04' }])
    expect(await rowsOf('fetch all from c')).toHaveLength(45)
    expect(await rowsOf('fetch from c')).toEqual([])
    expect((await client.query('close c')).command).toBe('CLOSE')
    expect(await codeOf(client.query('fetch from c'))).toBe('34000')
    await client.query('rollback')
  })

  it('keep the rows of their moment while the transaction writes', async () => {
    await connected()
    await client.query('begin')
    await client.query(
      'declare c cursor for select id, age from people where age >= 48 order by id',
    )
    expect(await rowsOf('fetch 1 from c')).toEqual([{ id: 'p48', age: '48' }])
    await client.query(`update people set age = 0 where id = 'p49'`)
    expect(await rowsOf('fetch 5 from c')).toEqual([{ id: 'p49', age: '49' }])
    expect(await rowsOf(`select age from people where id = 'p49'`)).toEqual([{ age: '0' }])
    await client.query('rollback')
  })

  it('take parameters, and are described as portals', async () => {
    const raw = await wire.openRaw()
    raw.send(query('begin'))
    await raw.until('Z')
    raw.send(
      parse('declare c cursor for select id, age from people where age < $1'),
      bind(['3']),
      execute(),
      sync(),
    )
    expect(errorCode(await raw.until('Z'))).toBeUndefined()
    raw.send(message('D', Buffer.from('Pc\0')), sync())
    const described = await raw.until('Z')
    expect(described.map(({ type }) => type).join('')).toBe('TZ')
    expect(described[0]?.body.toString()).toContain('age')
    raw.send(
      parse('fetch forward 10 from c'),
      bind([], { resultFormats: [1] }),
      message('D', Buffer.from('P\0')),
      execute(),
      sync(),
    )
    const fetched = await raw.until('Z')
    expect(fetched.map(({ type }) => type).join('')).toBe('12TDDDCZ')
    expect(fetched[3]?.body.subarray(-8).readBigInt64BE()).toBe(0n)
    raw.close()
  })

  it('end with their transaction, and need one', async () => {
    await connected()
    expect(await codeOf(client.query('declare c cursor for select 1'))).toBe('25P01')
    await client.query('begin')
    await client.query('declare c cursor for select id from people')
    await client.query('commit')
    await client.query('begin')
    expect(await codeOf(client.query('fetch 1 from c'))).toBe('34000')
    await client.query('rollback')
  })

  it('live on after their transaction WITH HOLD, with the rows that they had', async () => {
    await connected()
    const declare = (name: string, words = '') =>
      client.query(
        `declare ${name}${words} cursor with hold for select id, age from people order by id`,
      )
    await declare('c')
    await client.query(`update people set age = 100 where id = 'p00'`)
    expect(await rowsOf('fetch from c')).toEqual([{ id: 'p00', age: '0' }])
    expect(await codeOf(declare('c'))).toBe('42P03')
    const ids = async (fetch: string) => (await rowsOf(fetch)).map(({ id }) => id).join()
    expect(await ids('fetch 2 from c')).toBe('p01,p02')
    expect(await ids('fetch relative 0 from c')).toBe('p02')
    expect(await ids('fetch forward 0 from c')).toBe('p02')
    expect(await ids('fetch backward 2 from c')).toBe('p01,p00')
    expect(await ids('fetch prior from c')).toBe('')
    expect(await ids('fetch absolute -2 from c')).toBe('p48')
    expect(await ids('fetch all from c')).toBe('p49')
    expect(await ids('fetch from c')).toBe('')
    expect(await ids('fetch last from c')).toBe('p49')
    expect((await client.query('move backward all in c')).rowCount).toBe(49)
    expect(await ids('fetch first from c')).toBe('p00')
    await client.query('close c')
    expect(await codeOf(client.query('fetch from c'))).toBe('34000')
    await client.query(`update people set age = 0 where id = 'p00'`)

    await client.query('begin')
    await declare('kept')
    await client.query('savepoint s')
    await declare('lost', ' no scroll')
    await client.query('rollback to s')
    await declare('forward', ' no scroll')
    await client.query('release s')
    await client.query('commit')
    expect(await codeOf(client.query('fetch from lost'))).toBe('34000')
    expect(await ids('fetch 2 from forward')).toBe('p00,p01')
    expect(await codeOf(client.query('fetch prior from forward'))).toBe('55000')
    await client.query('begin')
    await declare('gone')
    await client.query('rollback')
    expect(await codeOf(client.query('fetch from gone'))).toBe('34000')
    expect(await ids('fetch from kept')).toBe('p00')
    await client.query('discard all')
    expect(await codeOf(client.query('fetch from kept'))).toBe('34000')
    for (let number = 0; number < HELD_CURSORS_MAX; number++) await declare(`c${number}`)
    expect(await codeOf(declare('more'))).toBe('54000')
    await client.query('close all')
    await declare('more')
  })

  it('are refused for a name that is taken, also on the catalogue', async () => {
    await connected()
    await client.query('begin')
    await client.query('declare c cursor for select id from people')
    await client.query('savepoint s')
    expect(await codeOf(client.query('declare c cursor for select 1'))).toBe('42P03')
    await client.query('rollback to s')
    await client.query(`declare d cursor for select relname from pg_class where relname = 'people'`)
    expect(await rowsOf('fetch all from d')).toEqual([{ relname: 'people' }])
    expect(await codeOf(client.query('declare d cursor for select 1'))).toBe('42P03')
    await client.query('rollback to s')
    await client.query('declare n no scroll cursor for select id from people')
    await client.query('savepoint s')
    expect(await codeOf(client.query('fetch backward 1 from n'))).toBe('55000')
    await client.query('rollback')
  })

  it('are limited in number', async () => {
    await connected()
    await client.query('begin')
    for (let number = 0; number < CURSORS_MAX; number++) {
      await client.query(`declare c${number} cursor for select id from people`)
    }
    await client.query('savepoint s')
    expect(await codeOf(client.query('declare more cursor for select 1'))).toBe('54000')
    await client.query('rollback to s')
    await client.query('close all')
    await client.query('declare more cursor for select 1 as one')
    expect(await rowsOf('fetch 1 from more')).toEqual([{ one: 1 }])
    await client.query('rollback')
  })

  it('count what they collect towards one limit, however it is fetched', async () => {
    await connected()
    await client.query('begin')
    await client.query(`declare c cursor for
      with recursive t (s, n) as (
        select repeat('x', 1000), 1 union select s, n + 1 from t where n < 100000
      ) select length(s) from t`)
    const fetchAll = async () => {
      for (let round = 0; round < 100; round++) {
        const { rowCount } = await client.query('move forward 5000 in c')
        await client.query('select array_agg(id) from people')
        if (rowCount === 0) return
      }
    }
    expect(await codeOf(fetchAll())).toBe('54000')
    await client.query('rollback')
  })
})

describe('settings', () => {
  it('show times in the zone of the session, and read them in it', async () => {
    await connected()
    const shown = async () => (await rowsOf(`select at::text from people where id = 'p00'`))[0]?.at
    expect(await shown()).toBe('2026-01-02 03:04:05+00')
    await client.query(`set time zone 'Europe/Berlin'`)
    expect(await rowsOf('show timezone')).toEqual([{ TimeZone: 'Europe/Berlin' }])
    expect(await shown()).toBe('2026-01-02 04:04:05+01')
    expect(await rowsOf(`select at from people where id = $1`, ['p00'])).toEqual([
      { at: new Date('2026-01-02T03:04:05Z') },
    ])
    await client.query(`insert into people (id, at) values ('z', '2026-07-01 12:00')`)
    await client.query('reset timezone')
    expect(await rowsOf(`select at::text from people where id = 'z'`)).toEqual([
      { at: '2026-07-01 10:00:00+00' },
    ])
    await client.query(`delete from people where id = 'z'`)
    await client.query(`set time zone interval '-03:30' hour to minute`)
    expect(await shown()).toBe('2026-01-01 23:34:05-03:30')
    await client.query('set time zone 5')
    expect(await shown()).toBe('2026-01-02 08:04:05+05')
    await client.query('discard all')
    expect(await shown()).toBe('2026-01-02 03:04:05+00')
    expect(await codeOf(client.query(`set timezone = 'Europe/Nowhere'`))).toBe('22023')
  })

  it.each(['ISO', 'iso, mdy', 'ISO,MDY', 'MDY', 'iso, us', 'default'])(
    'read dates with the month first, as DateStyle %s says',
    async (style) => {
      await connected()
      await client.query(`set datestyle = '${style}'`)
      expect(await rowsOf('show datestyle')).toEqual([{ DateStyle: 'ISO, MDY' }])
      const given = new pg.Client({
        connectionString: wire.url('shop:main'),
        options: `-c DateStyle=${style.replaceAll(' ', '\\ ')}`,
      })
      await given.connect()
      const { rows } = await given.query(`select '01/02/2024'::date::text as day`)
      expect(rows).toEqual([{ day: '2024-01-02' }])
      await given.end()
    },
  )

  it.each(['ISO, DMY', 'dmy', 'ISO, YMD', 'SQL, MDY', 'german', 'Postgres', 'ISO, European', 'x'])(
    'refuse the DateStyle %s, which means other dates',
    async (style) => {
      await connected()
      expect(await codeOf(client.query(`set datestyle = '${style}'`))).toBe('0A000')
      expect(await codeOf(client.query(`select set_config('DateStyle', '${style}', false)`))).toBe(
        '0A000',
      )
      const given = new pg.Client({
        connectionString: wire.url('shop:main'),
        options: `-c DateStyle=${style.replaceAll(' ', '\\ ')}`,
      })
      given.on('error', () => undefined)
      await expect(given.connect()).rejects.toMatchObject({ code: '0A000' })
    },
  )

  it('show timeouts in the largest unit of PostgreSQL', async () => {
    await connected()
    for (const name of [
      'statement_timeout',
      'lock_timeout',
      'idle_in_transaction_session_timeout',
    ]) {
      for (const [given, shown] of [
        ['200', '200ms'],
        [`'5s'`, '5s'],
        [`' 60 s '`, '1min'],
        ['1500', '1500ms'],
        [`'1.5h'`, '90min'],
        ['1.5', '2ms'],
        [`'7200000'`, '2h'],
        [`'48h'`, '2d'],
        [`'3000us'`, '3ms'],
        ['0', '0'],
      ]) {
        await client.query(`set ${name} = ${given}`)
        expect(await rowsOf(`show ${name}`), given).toEqual([{ [name]: shown }])
      }
      for (const given of ['-1', '2147483648', `'5 years'`, `'MS'`, `''`]) {
        expect(await codeOf(client.query(`set ${name} = ${given}`)), given).toBe('22023')
      }
      expect(await rowsOf(`select current_setting('${name}') as t`)).toEqual([{ t: '0' }])
    }
    await client.query(`set statement_timeout = '0.05s'`)
    expect(
      await codeOf(client.query('select count(*) from generate_series(1, 1000000000) n')),
    ).toBe('57014')
  })

  it.each(['off', 'false', 'no', '0'])(
    'refuse strings with escapes: standard_conforming_strings = %s',
    async (value) => {
      await connected()
      const set = (to: string) => codeOf(client.query(`set standard_conforming_strings = '${to}'`))
      expect(await set(value)).toBe('0A000')
      expect([await set('on'), await set('yes')]).toEqual([undefined, undefined])
      expect(await set('maybe')).toBe('22023')
      expect(await rowsOf('show standard_conforming_strings')).toEqual([
        { standard_conforming_strings: 'on' },
      ])
      const given = new pg.Client({
        connectionString: wire.url('shop:main'),
        options: `-c standard_conforming_strings=${value}`,
      })
      given.on('error', () => undefined)
      await expect(given.connect()).rejects.toMatchObject({ code: '0A000' })
    },
  )

  it('keep the zones of sessions apart, also for the same statement', async () => {
    const [one, other] = [await wire.connect('shop:main'), await wire.connect('shop:main')]
    await other.query(`set timezone = 'Asia/Tokyo'`)
    const text = `select at::text as at, '2026-01-01 00:00'::timestamptz::text as made from people where id = $1`
    for (let round = 0; round < 3; round++) {
      const [here, there] = await Promise.all([
        one.query(text, ['p00']),
        other.query(text, ['p00']),
      ])
      expect(here.rows).toEqual([{ at: '2026-01-02 03:04:05+00', made: '2026-01-01 00:00:00+00' }])
      expect(there.rows).toEqual([{ at: '2026-01-02 12:04:05+09', made: '2026-01-01 00:00:00+09' }])
    }
  })

  it('apply inside transactions, and end with them if they are local or rolled back', async () => {
    await connected()
    const zone = async () => (await rowsOf('show timezone'))[0]?.TimeZone
    await client.query('begin')
    await client.query(`set local timezone = 'Asia/Tokyo'`)
    expect(await rowsOf(`select at::text from people where id = 'p00'`)).toEqual([
      { at: '2026-01-02 12:04:05+09' },
    ])
    await client.query('commit')
    expect(await zone()).toBe('UTC')
    await client.query('begin')
    await client.query(`set timezone = 'Asia/Tokyo'`)
    await client.query('rollback')
    expect(await zone()).toBe('UTC')
    await client.query('begin')
    await client.query(`set timezone = 'Asia/Tokyo'`)
    await client.query('commit')
    expect(await zone()).toBe('Asia/Tokyo')
    await client.query('begin')
    expect(await codeOf(client.query('discard all'))).toBe('25001')
    await client.query('rollback')
  })

  it('are those of a savepoint again if the transaction returns to it', async () => {
    await connected()
    const zone = async () => (await rowsOf('show timezone'))[0]?.TimeZone
    await client.query('begin')
    await client.query(`set local timezone = 'Asia/Tokyo'`)
    await client.query('savepoint a')
    await client.query(`set local timezone = 'Europe/Paris'`)
    await client.query('savepoint b')
    await client.query(`set timezone = 'America/New_York'`)
    await client.query('savepoint c')
    await client.query('reset timezone')
    await client.query('rollback to c')
    expect(await zone()).toBe('America/New_York')
    await client.query('rollback to b')
    expect(await zone()).toBe('Europe/Paris')
    await client.query('release b')
    expect(await zone()).toBe('Europe/Paris')
    await client.query('select nothing').catch(() => {})
    await client.query('rollback to a')
    expect(await rowsOf(`select at::text from people where id = 'p00'`)).toEqual([
      { at: '2026-01-02 12:04:05+09' },
    ])
    await client.query('savepoint b')
    await client.query(`set timezone = 'America/New_York'`)
    await client.query('release b')
    await client.query('commit')
    expect(await zone()).toBe('America/New_York')
  })

  it('have space for their values at savepoints', async () => {
    await connected()
    const text = 'x'.repeat(7_000)
    await client.query('begin')
    const codes: (string | undefined)[] = []
    for (let count = 0; count < 40; count++) {
      await client.query('savepoint s')
      codes.push(await codeOf(client.query(`set my.text = '${text}${count}'`)))
      if (codes.at(-1) !== undefined) await client.query('rollback to s')
    }
    await client.query('rollback')
    expect(codes.slice(0, 20)).toEqual(Array.from({ length: 20 }))
    expect(codes.at(-1)).toBe('54000')
  })

  it('are put back by pools and tools between two uses of a connection', async () => {
    // asyncpg sends this when a connection returns to its pool.
    await client.query('select pg_advisory_unlock_all(); close all; unlisten *; reset all;')
    const { rows } = await client.query('select current_user')
    const role = Object.values(rows[0])[0]
    for (const text of [`set role '${role}'`, 'set role none', 'reset role']) {
      await client.query(text)
    }
    expect((await client.query('show role')).rows).toEqual([{ role: 'none' }])
    expect(await codeOf(client.query('set role postgres'))).toBe('0A000')
  })

  it('are told to the client when they change', async () => {
    const raw = await wire.openRaw()
    raw.send(query(`set timezone = 'Asia/Tokyo'`))
    const told = (await raw.until('Z')).filter(({ type }) => type === 'S')
    expect(told.map(({ body }) => body.toString())).toEqual(['TimeZone\0Asia/Tokyo\0'])
    raw.close()
  })

  it('can be given when the client connects', async () => {
    const given = new pg.Client({
      connectionString: wire.url('shop:main'),
      options: '-c TimeZone=Asia/Tokyo -c statement_timeout=5s',
    })
    await given.connect()
    const { rows } = await given.query(`select at::text from people where id = 'p00'`)
    expect(rows).toEqual([{ at: '2026-01-02 12:04:05+09' }])
    await given.query('set timezone = utc')
    await given.query('reset timezone')
    expect((await given.query('show timezone')).rows).toEqual([{ TimeZone: 'Asia/Tokyo' }])
    await given.end()
  })
})

describe('EXPLAIN', () => {
  const planOf = async (text: string, values?: unknown[]) =>
    (await rowsOf(text, values)).map((row) => row['QUERY PLAN'])

  it('shows plans with the names of tables, columns and indexes', async () => {
    await connected()
    const plan = (
      await planOf(`explain select name from people where age = 3 and id = 'p03'`)
    ).join('\n')
    expect(plan).toContain('people')
    expect(plan).toContain('age')
    expect(plan).not.toMatch(/heap_|past_|\bc\d+\b/)
    const [document] = await planOf('explain (format json, costs off) select * from people')
    expect(document).toMatchObject([{ Plan: {} }])
  })

  it('runs a query with ANALYZE, and never a statement that writes', async () => {
    await connected()
    const ran = await planOf(
      'explain (analyze, timing off, summary off) select * from people where age < $1',
      [3],
    )
    expect(ran.join('\n')).toContain('actual rows=3')
    expect((await planOf(`explain delete from people where age < 3`))[0]).toBe('Delete on people')
    expect(await codeOf(client.query('explain analyze delete from people'))).toBe('0A000')
    expect(await codeOf(client.query('explain (settings) select 1'))).toBe('0A000')
    expect(await codeOf(client.query('explain select relname from pg_class'))).toBe('0A000')
    expect(await rowsOf('select count(*) as n from people')).toEqual([{ n: '50' }])
  })
})

describe('expressions that clients send', () => {
  it.each([
    [`select format('%s is %2$L, %2$I', 'a', 'b c') as f`, { f: `a is 'b c', "b c"` }],
    [`select quote_ident('a b') as q`, { q: '"a b"' }],
    [`select length(uuidv7()::text) as l`, { l: 36 }],
    [
      `select count(*)::int as n from unnest(array[1, 2], array['a', 'b', 'c']) as u(a, b)`,
      { n: 3 },
    ],
    [`select e ->> 'a' as a from jsonb_array_elements('[{"a": 1}]'::jsonb) e`, { a: '1' }],
    [`select upper(w) as w from regexp_split_to_table('x', ',') w`, { w: 'X' }],
    [`select jsonb_path_query_first('{"a": [{"b": 1}]}', '$.a[*].b') as p`, { p: 1 }],
    [`select jsonb_path_exists('{"a": 1}', 'strict $."a"') as p`, { p: true }],
    [`select json_object('a' : 1, 'b' value null) as o`, { o: { a: 1, b: null } }],
    [`select json_array(1, null, 'a') as o`, { o: [1, 'a'] }],
    [`select json_arrayagg(age order by age desc) as o from people where age < 2`, { o: [1, 0] }],
    [
      `select json_objectagg(id : age) as o from only public.people where age < 1`,
      { o: { p00: 0 } },
    ],
  ])('are supported: %s', async (text, row) => {
    await connected()
    expect(await rowsOf(text)).toEqual([row])
  })

  it.each([
    `select format('%1000000s', 'a')`,
    `select format(name) from people`,
    `select jsonb_path_query('{}', '$.**')`,
    `select jsonb_path_query('[1]', '$[*] ? (@ == $[*])')`,
  ])('are refused: %s', async (text) => {
    await connected()
    expect(await codeOf(client.query(text))).toMatch(/^(?:0A000|42601)$/)
  })
})

describe('a dump', () => {
  it('is read in one transaction, with locks, COPY or cursors', async () => {
    await connected()
    await client.query('begin')
    await client.query('set transaction isolation level repeatable read, read only')
    await client.query('lock table public.people in access share mode')
    expect(
      await rowsOf(`select p.oid::regprocedure, p.proacl from pg_catalog.pg_proc p
        left join pg_init_privs i on p.oid = i.objoid and i.classoid = 'pg_proc'::regclass and i.objsubid = 0
        where p.proacl is distinct from i.initprivs`),
    ).toEqual([])
    expect(
      await rowsOf(`select c.relname from pg_catalog.pg_class c
        left join pg_init_privs i on c.oid = i.objoid and i.classoid = 'pg_class'::regclass and i.objsubid = 0
        where c.relacl is distinct from i.initprivs and c.relnamespace = 'pg_catalog'::regnamespace`),
    ).toEqual([])
    await client.query('declare _pg_dump_cursor cursor for select id, age from only public.people')
    expect(await rowsOf('fetch 100 from _pg_dump_cursor')).toHaveLength(50)
    await client.query('close _pg_dump_cursor')
    await client.query('commit')
  })

  it('of plain PostgreSQL is restored', async () => {
    await branches.fork('restored')
    const restoring = new pg.Client({ connectionString: wire.url('shop:restored') })
    await restoring.connect()
    for (const statement of [
      'SET statement_timeout = 0',
      `SELECT pg_catalog.set_config('search_path', '', false)`,
      'SET default_table_access_method = heap',
      `CREATE TABLE public.pets (
        id text DEFAULT ('rec_'::text || replace((gen_random_uuid())::text, '-'::text, ''::text)) NOT NULL,
        kind text, born timestamp with time zone
      )`,
      'ALTER TABLE ONLY public.pets ALTER COLUMN id SET STATISTICS 0',
      'ALTER TABLE public.pets OWNER TO somebody',
      'CREATE TABLE public.counts (id bigint NOT NULL, n bigint)',
      `ALTER TABLE public.counts ALTER COLUMN id ADD GENERATED BY DEFAULT AS IDENTITY (
        SEQUENCE NAME public.counts_id_seq START WITH 1 INCREMENT BY 1 NO MINVALUE NO MAXVALUE CACHE 1
      )`,
      `INSERT INTO public.pets VALUES ('p', 'dog', '2026-01-02 03:04:05+00')`,
      'ALTER TABLE ONLY public.pets ADD CONSTRAINT pets_pkey PRIMARY KEY (id)',
      'ALTER TABLE ONLY public.counts ADD CONSTRAINT counts_pkey PRIMARY KEY (id)',
      `INSERT INTO public.counts (id, n) VALUES (7, 1)`,
    ]) {
      await restoring.query(statement)
    }
    expect((await restoring.query('select * from pets')).rows).toEqual([
      { id: 'p', kind: 'dog', born: new Date('2026-01-02T03:04:05Z') },
    ])
    expect((await restoring.query('select * from counts')).rows).toEqual([{ id: '7', n: '1' }])
    await restoring.end()
  })
})
