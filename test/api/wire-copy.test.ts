import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { TestBranches } from '../support/branches.js'
import { SEED } from '../support/random.js'
import { Random } from '../support/seeded-random.js'
import type { TestService } from '../support/service.js'
import {
  bind,
  errorCode,
  execute,
  message,
  openShop,
  parse,
  query,
  RawClient,
  type Received,
  sync,
  type WireService,
  type WireShop,
} from '../support/wire-clients.js'

/* COPY from and to clients of PostgreSQL. */

let shop: WireShop
let service: TestService
let branches: TestBranches
let wire: WireService
let client: pg.Client

beforeAll(async () => {
  shop = await openShop({
    people: [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int' },
      { name: 'at', type: 'datetime' },
      { name: 'tags', type: 'multiple' },
      { name: 'doc', type: 'json' },
      { name: 'need', type: 'string', notNull: true, defaultValue: 'x' },
    ],
  })
  ;({ service, branches, wire, client } = shop)
})
afterAll(() => shop?.close())

const data = (text: string) => message('d', Buffer.from(text))
const done = () => message('c')

const lettersOf = (messages: readonly Received[]) => messages.map(({ type }) => type).join('')
const tagOf = (messages: readonly Received[]) =>
  messages
    .find(({ type }) => type === 'C')
    ?.body.toString()
    .slice(0, -1)
const linesOf = (messages: readonly Received[]) =>
  messages.filter(({ type }) => type === 'd').map(({ body }) => body.toString())

/** Sends rows. Returns the command tag, or the code of the error. */
const copyIn = async (statement: string, bytes: Buffer | string) => {
  const raw = await wire.openRaw()
  raw.send(query(statement))
  await raw.until('G')
  raw.send(message('d', Buffer.from(bytes)), done())
  const answer = await raw.until('Z')
  raw.close()
  return errorCode(answer) ?? tagOf(answer)
}

const VALUES = `p1,Ann,41,2026-01-02 03:04:05+00,"{a,""b c""}","{""k"": [1]}",y\np2,"x\ny",,,,,z\n`

describe('COPY', () => {
  it('has no computed columns unless it names them', async () => {
    await client.query(
      'create table sums (id text primary key, a int, twice int generated always as (a * 2) stored, b int)',
    )
    const raw = await wire.openRaw()
    raw.send(query('copy sums from stdin'))
    await raw.until('G')
    raw.send(data('s1\t4\t5\n'), done())
    expect(tagOf(await raw.until('Z'))).toBe('COPY 1')
    raw.send(query('copy sums to stdout (header)'))
    expect(linesOf(await raw.until('Z'))).toEqual(['id\ta\tb\n', 's1\t4\t5\n'])
    raw.send(query('copy sums (id, twice) to stdout'))
    expect(linesOf(await raw.until('Z'))).toEqual(['s1\t8\n'])
    raw.close()
  })

  it('has no ids of a table that SQL made without a column for them, unless it names them', async () => {
    await client.query(
      `create table codes (code text primary key, label text);
       create table pairs (a int, b int, v text, primary key (a, b))`,
    )
    expect(await copyIn('copy codes from stdin', 'DE\tGermany\nAT\tAustria\n')).toBe('COPY 2')
    expect(
      await copyIn('copy codes from stdin (format csv, header match)', 'code,label\nIT,\n'),
    ).toBe('COPY 1')
    expect(await copyIn('copy pairs from stdin', '1\t2\tx\n')).toBe('COPY 1')
    expect(await copyIn('copy codes from stdin', 'id1\tFR\tFrance\n')).toBe('22P04')
    expect(await copyIn('copy codes (id, code, label) from stdin', 'id1\tFR\tFrance\n')).toBe(
      'COPY 1',
    )
    await client.query('insert into codes values ($1, $2)', ['NL', 'Netherlands'])
    const raw = await wire.openRaw()
    raw.send(query('copy codes to stdout'))
    expect(linesOf(await raw.until('Z')).sort()).toEqual([
      'AT\tAustria\n',
      'DE\tGermany\n',
      'FR\tFrance\n',
      'IT\t\\N\n',
      'NL\tNetherlands\n',
    ])
    raw.send(query('copy pairs to stdout (header)'))
    expect(linesOf(await raw.until('Z'))).toEqual(['a\tb\tv\n', '1\t2\tx\n'])
    raw.send(query(`copy codes (id, code) to stdout`))
    expect(linesOf(await raw.until('Z'))).toContain('id1\tFR\n')
    raw.close()
  })

  it('inserts rows of a table, and returns them as they were', async () => {
    const raw = await wire.openRaw()
    raw.send(query('copy people from stdin csv'))
    await raw.until('G')
    for (const each of VALUES) raw.send(data(each))
    raw.send(done())
    const copied = await raw.until('Z')
    expect([lettersOf(copied), tagOf(copied)]).toEqual(['CZ', 'COPY 2'])
    expect(await branches.read('main', 'people', ['p1'])).toMatchObject({
      p1: { name: 'Ann', age: 41, tags: ['a', 'b c'], doc: { k: [1] } },
    })
    raw.send(query(`copy (select * from people order by id) to stdout (format csv, header)`))
    const sent = await raw.until('Z')
    expect([lettersOf(sent), tagOf(sent)]).toEqual(['HdddcCZ', 'COPY 2'])
    const [header, ...lines] = linesOf(sent)
    expect(header).toBe('id,name,age,at,tags,doc,need\n')
    expect(lines.join('')).toBe(VALUES)
    raw.send(query('copy people (name, age) to stdout'))
    expect(linesOf(await raw.until('Z')).sort()).toEqual(['Ann\t41\n', 'x\\ny\t\\N\n'])
    raw.close()
  })

  it('gives columns that it does not name their defaults', async () => {
    const raw = await wire.openRaw()
    raw.send(query('copy people (id, name) from stdin'), data('d1\tDan\n'), done())
    expect(tagOf(await raw.until('Z'))).toBe('COPY 1')
    expect(await branches.read('main', 'people', ['d1'])).toMatchObject({
      d1: { name: 'Dan', need: 'x' },
    })
    raw.close()
  })

  it('inserts all rows or none', async () => {
    await branches.fork('none')
    const raw = await wire.openRaw('shop:none')
    const count = 2_500
    const lines = Array.from({ length: count }, (_, index) => `n${index}\tName\n`).join('')
    const counted = async () =>
      (
        await (
          await wire.connect('shop:none')
        ).query(`select count(*)::int as n from people where id like 'n%'`)
      ).rows[0]?.n
    for (const [end, code] of [
      [[data('n1\tAgain\n'), done()], '23505'],
      [[data('too few\n'), done()], '22P04'],
      [[message('f', Buffer.from('enough\0'))], '57014'],
    ] as const) {
      raw.send(query('copy people (id, name) from stdin'), data(lines), ...end)
      expect(errorCode(await raw.until('Z'))).toBe(code)
      expect(await counted()).toBe(0)
    }
    raw.send(query('copy people (id, name) from stdin; select 1'), data(lines), done())
    expect(lettersOf(await raw.until('Z'))).toBe('GCTDCZ')
    expect(await counted()).toBe(count)
    raw.close()
  })

  it('is one entry of the log, which can be reverted', async () => {
    await branches.fork('taken-back')
    const before = await branches.call('taken-back', 'POST', '/tables/people/query', {})
    const raw = await wire.openRaw('shop:taken-back')
    const lines = Array.from({ length: 2500 }, (_, index) => `t${index}\tName\n`).join('')
    raw.send(query('begin'), query('copy people (id, name) from stdin'), data(lines), done())
    raw.send(query('rollback'))
    for (let count = 0; count < 3; count++) await raw.until('Z')
    const entries = async () =>
      (await branches.call('taken-back', 'GET', '/log?kind=bulk')).body.entries
    expect(await entries()).toEqual([])
    raw.send(query('copy people (id, name) from stdin'), data(lines), done())
    expect(tagOf(await raw.until('Z'))).toBe('COPY 2500')
    raw.close()
    const [entry, ...others] = await entries()
    expect([entry, others]).toMatchObject([{ table: 'people', counts: { inserted: 2500 } }, []])
    const body = { entry: entry.id }
    const { body: reverted } = await branches.call('taken-back', 'POST', '/revert', body)
    expect(reverted).toMatchObject({ merged: true, tables: [{ name: 'people', deleted: 2500 }] })
    const after = await branches.call('taken-back', 'POST', '/tables/people/query', {})
    expect(after.body.records).toEqual(before.body.records)
  })

  it('works in prepared statements and in transactions', async () => {
    await branches.fork('prepared')
    const raw = await wire.openRaw('shop:prepared')
    raw.send(query('begin'))
    await raw.until('Z')
    raw.send(parse('copy people (id) from stdin'), bind([]), execute(), sync())
    await raw.until('G')
    raw.send(data('t1\n'), done(), sync())
    expect(lettersOf(await raw.until('Z'))).toBe('CZ')
    raw.send(query(`copy (select id from people where id = 't1') to stdout`))
    expect(linesOf(await raw.until('Z'))).toEqual(['t1\n'])
    raw.send(query('rollback'))
    await raw.until('Z')
    raw.send(
      parse('copy people (id) from stdin'),
      bind([]),
      execute(),
      data('wrong\tx\n'),
      done(),
      sync(),
    )
    expect(errorCode(await raw.until('Z'))).toBe('22P04')
    raw.send(query(`select id from people where id in ('t1', 'wrong')`))
    expect(lettersOf(await raw.until('Z'))).toBe('TCZ')
    raw.close()
  })

  it('needs a key that can write to insert', async () => {
    const created = await service.call('POST', '/user/keys/copy-reader', {
      body: { scope: { access: 'read' } },
    })
    const raw = await RawClient.open(wire.port, {
      user: service.workspaceId,
      database: 'shop:main',
      key: created.body.key,
    })
    raw.send(query('copy people (id) from stdin'), data('r1\n'), done())
    expect(errorCode(await raw.until('Z'))).toBe('42501')
    raw.close()
    expect((await client.query(`select id from people where id = 'r1'`)).rows).toEqual([])
  })
})

describe('COPY in binary format', () => {
  const columns = '(id, name, age, at, tags, doc)'
  const COPY_OUT = `copy (select id, name, age, at, tags, doc from people where name like 'binary%' order by id)
    to stdout (format binary)`
  const read = async (raw: RawClient) => {
    raw.send(query(COPY_OUT))
    const messages = await raw.until('Z')
    const parts = messages.filter(({ type }) => type === 'd').map(({ body }) => body)
    return { messages, bytes: Buffer.concat(parts) }
  }
  /** Sends bytes in parts of a size. */
  const write = async (raw: RawClient, bytes: Buffer, size: number) => {
    raw.send(query(`copy people ${columns} from stdin binary`))
    await raw.until('G')
    for (let at = 0; at < bytes.length; at += size) {
      raw.send(message('d', bytes.subarray(at, at + size)))
    }
    raw.send(done())
    return raw.until('Z')
  }

  it('sends rows that it reads again, in whatever parts they arrive', async () => {
    await client.query(`insert into people ${columns} values
      ('b1', 'binary one', 41, '2026-01-02T03:04:05.678Z', array['a', 'b,"c'], '{"k": [1]}'),
      ('b2', 'binary two', null, null, null, null)`)
    const raw = await wire.openRaw()
    const { messages, bytes } = await read(raw)
    // Clients such as psycopg read a row from each message, and the head from that of the first.
    expect(lettersOf(messages)).toBe('HdddcCZ')
    expect(messages[0]?.body[0]).toBe(1)
    const { rows } = await client.query(
      `select * from people where name like 'binary%' order by id`,
    )
    // The mark of the end can be missing: pgx does not send it.
    const unmarked = bytes.subarray(0, -2)
    for (const [sent, size] of [
      [bytes, 1],
      [bytes, 7],
      [bytes, bytes.length],
      [unmarked, 1],
      [unmarked, bytes.length],
    ] as const) {
      await client.query(`delete from people where name like 'binary%'`)
      expect(tagOf(await write(raw, sent, size))).toBe('COPY 2')
      const again = await client.query(`select * from people where name like 'binary%' order by id`)
      expect(again.rows).toEqual(rows)
    }
    raw.close()
  })

  it('refuses data of another form, and stores nothing of it', async () => {
    const raw = await wire.openRaw()
    const { bytes } = await read(raw)
    await client.query(`delete from people where name like 'binary%'`)
    const changed = (at: number, value: number) => {
      const copy = Buffer.from(bytes)
      copy[at] = value
      return copy
    }
    const wrong = [
      Buffer.from('p1\tAnn\t1\n'.repeat(5)),
      changed(0, 0x51),
      changed(11, 0xff),
      changed(20, 5),
      changed(21, 0xfe),
      bytes.subarray(0, -1),
      bytes.subarray(0, -10),
      bytes.subarray(0, 10),
      Buffer.alloc(0),
    ]
    for (const each of wrong) {
      expect(errorCode(await write(raw, each, 1000))).toMatch(/^22P0[34]$/)
    }
    const { rows } = await client.query(`select id from people where name like 'binary%'`)
    expect(rows).toEqual([])
    raw.close()
  })
})

describe('rows that a client sends', () => {
  it('are refused if their bytes are no UTF-8, and nothing is stored', async () => {
    const faulty = [
      Buffer.from('bad1\tx\nbad2\ta\xff\xfeb\n', 'latin1'),
      Buffer.from('bad1\tx\nbad2\ta\xc3', 'latin1'),
    ]
    for (const bytes of faulty) {
      expect(await copyIn('copy people (id, name) from stdin', bytes)).toBe('22021')
    }
    expect(await branches.read('main', 'people', ['bad1', 'bad2'])).toEqual({})
    const raw = await wire.openRaw()
    const bound = bind([Buffer.from([0x61, 0xff])])
    for (const messages of [
      [message('Q', Buffer.from(`select 'a\xff'\0`, 'latin1'))],
      [parse('select $1::text', '', [25]), bound, execute(), sync()],
    ]) {
      raw.send(...messages)
      expect(errorCode(await raw.until('Z'))).toBe('22021')
    }
    raw.close()
  })

  it('may have a character whose bytes arrive apart', async () => {
    const raw = await wire.openRaw()
    raw.send(query('copy people (id, name) from stdin'))
    await raw.until('G')
    for (const byte of Buffer.from('apart\tä€😀\n')) raw.send(message('d', Buffer.from([byte])))
    raw.send(done())
    expect(tagOf(await raw.until('Z'))).toBe('COPY 1')
    expect(await branches.read('main', 'people', ['apart'])).toMatchObject({
      apart: { name: 'ä€😀' },
    })
    raw.close()
  })

  it('have the columns of their header, if it is to match', async () => {
    const statement = 'copy people (id, name) from stdin (format csv, header match)'
    expect(await copyIn(statement, 'name,id\nx,y\n')).toBe('22P04')
    expect(await copyIn(statement, 'id,name,age\nx,y,1\n')).toBe('22P04')
    expect(await copyIn(statement, 'id,name\nmatched,y\n')).toBe('COPY 1')
  })

  it('go on behind a line of CSV that ends other formats', async () => {
    const statement = 'copy people (id, name) from stdin (format csv)'
    expect(await copyIn(statement, 'csv1,a\n\\.\ncsv2,b\n')).toBe('22P04')
    expect(await copyIn(statement, 'csv1,\\.\ncsv2,b\n')).toBe('COPY 2')
  })
})

describe('an error of COPY', () => {
  const BINARY_HEAD = Buffer.from('PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0', 'latin1')

  it.each([
    ['', 'e1\ta\ne2\n', 'missing data for column "name"', 'line 2'],
    ['', 'e1\ta\tb\n', 'extra data after last expected column', 'line 1'],
    [' (header)', 'id\tname\ne1\ta\ne2\n', 'missing data for column "name"', 'line 3'],
    [' (format csv)', 'e1,"a\nb"\ne2\n', 'missing data for column "name"', 'line 3'],
    [' (format csv)', 'e1,a\ne2,"b', 'unterminated CSV quoted field', 'line 2'],
    ['', 'e1\ta\ne2\t\\377\n', 'bytes beyond ASCII cannot be given by number', 'line 2'],
    ['', 'e1\ta\ne1\tb\n', undefined, 'lines 1 to 2'],
    [' (format binary)', Buffer.concat([BINARY_HEAD, Buffer.from([0, 3])]), undefined, 'line 1'],
    [' (format binary)', Buffer.from('no head of the binary format'), undefined, ''],
    ['', Buffer.from([0x65, 0xff]), undefined, ''],
  ])('names the table, and the line if it is known: %s %s', async (options, bytes, text, lines) => {
    const raw = await wire.openRaw()
    raw.send(query(`copy people (id, name) from stdin${options}`))
    await raw.until('G')
    raw.send(message('d', Buffer.from(bytes)), done())
    const error = (await raw.until('Z')).find(({ type }) => type === 'E')
    const fields = error?.body.toString().split('\0') ?? []
    expect(fields).toContain(`WCOPY people${lines && `, ${lines}`}`)
    if (text !== undefined) expect(fields).toContain(`M${text}`)
    raw.close()
  })
})

describe('columns that COPY names in its options', () => {
  it('have quotes around their values', async () => {
    await copyIn('copy people (id, name, age) from stdin', 'quoted\tq\t5\n')
    const raw = await wire.openRaw()
    const rows = `copy (select id, name, age, doc from people where id = 'quoted') to stdout`
    raw.send(query(`${rows} (format csv, header, force_quote (name, age, doc))`))
    expect(linesOf(await raw.until('Z'))).toEqual(['id,name,age,doc\n', 'quoted,"q","5",\n'])
    raw.send(query(`${rows} csv force quote *`))
    expect(linesOf(await raw.until('Z'))).toEqual(['"quoted","q","5",\n'])
    raw.close()
  })

  it('read a text for null in another way', async () => {
    const given = 'N,"N",N\n'
    const into = (id: string, options: string) =>
      copyIn(
        `copy people (id, name, need) from stdin (format csv, null 'N'${options})`,
        given.replace('N', id),
      )
    expect(await into('null1', ', force_null (name), force_not_null (need)')).toBe('COPY 1')
    expect(await into('null2', ', force_not_null *')).toBe('COPY 1')
    expect(await branches.read('main', 'people', ['null1', 'null2'])).toMatchObject({
      null1: { need: 'N' },
      null2: { name: 'N', need: 'N' },
    })
  })

  it('must be there, and of the direction and format', async () => {
    const codeOf = (text: string) => client.query(text).catch((error) => error.code)
    const from = 'copy people (id, name) from stdin'
    expect(await codeOf(`${from} (format csv, force_null (age))`)).toBe('42P10')
    expect(await codeOf(`${from} (force_null (name))`)).toBe('0A000')
    expect(await codeOf(`${from} (format csv, force_quote (name))`)).toBe('0A000')
    const to = 'copy people (id, name) to stdout'
    expect(await codeOf(`${to} (format csv, force_quote (age))`)).toBe('42P10')
    expect(await codeOf(`${to} (force_quote (name))`)).toBe('0A000')
    expect(await codeOf(`${to} (format csv, force_null (name))`)).toBe('0A000')
  })
})

describe('a client that goes away while it copies', () => {
  const ROWS = Array.from({ length: 6_000 }, (_, n) => `gone${n}\t${n}\n`).join('')

  it.each([
    ['inside of a transaction', 'begin; copy gone (id, n) from stdin'],
    ['alone', 'copy gone (id, n) from stdin'],
  ])('leaves no rows, whenever it closes its connection: %s', async (_, statement) => {
    await client.query('create table if not exists gone (id text primary key, n bigint)')
    const random = new Random(SEED)
    const clients: RawClient[] = []
    for (let round = 0; round < 25; round++) {
      const raw = await wire.openRaw()
      raw.send(query(statement))
      await raw.until('G')
      raw.send(data(ROWS))
      await delay(random.below(60))
      if (random.chance(0.5)) raw.send(message('X'))
      raw.close()
      clients.push(raw)
    }
    // A change of the schema waits for all transactions before it.
    await client.query('alter table gone add column later text')
    await client.query('alter table gone drop column later')
    const { rows } = await client.query('select count(*)::int as count from gone')
    expect(rows).toEqual([{ count: 0 }])
  })
})
