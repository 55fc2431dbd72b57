import type pg from 'pg'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { TestBranches } from '../support/branches.js'
import {
  bind,
  errorCode,
  execute,
  message,
  openShop,
  parse,
  sync,
  type WireService,
  type WireShop,
} from '../support/wire-clients.js'

/* Queries that a client runs again: what has changed since is seen. */

let shop: WireShop
let branches: TestBranches
let wire: WireService

beforeAll(async () => {
  shop = await openShop({
    people: [
      { name: 'name', type: 'string' },
      { name: 'age', type: 'int' },
    ],
  })
  ;({ branches, wire } = shop)
  await branches.bulk('main', 'people', [
    { id: 'p1', name: 'Ann', age: 41 },
    { id: 'p2', name: 'Bob', age: 17 },
  ])
})
afterAll(() => shop?.close())

const BY_ID = 'select name, age from people where id = $1'

async function connect(branch: string) {
  const client = await wire.connect(`shop:${branch}`)
  const find = (id: string, text = BY_ID) =>
    client.query({ name: text, text, values: [id] }).then(
      ({ rows }) => rows,
      (error: pg.DatabaseError) => error.code,
    )
  // The first run describes the statement, the second one is known.
  await find('p1')
  return { client, find }
}

describe('a query that has run before', () => {
  it('sees what was written meanwhile, by itself and by others', async () => {
    await branches.fork('written')
    const { client, find } = await connect('written')
    expect(await find('p2')).toEqual([{ name: 'Bob', age: '17' }])
    await client.query(`update people set age = 18 where id = 'p2'`)
    expect(await find('p2')).toEqual([{ name: 'Bob', age: '18' }])
    await branches.remove('written', 'people', 'p2')
    expect(await find('p2')).toEqual([])
    await branches.fork('above', 'written')
    expect(await find('p1')).toEqual([{ name: 'Ann', age: '41' }])
  })

  it('reads the column that has its name after the schema has changed', async () => {
    await branches.fork('edited')
    const { find } = await connect('edited')
    expect(await find('p1')).toEqual([{ name: 'Ann', age: '41' }])
    await branches.edit(
      'edited',
      { renameColumn: { table: 'people', oldName: 'name', newName: 'called' } },
      { addColumn: { table: 'people', column: { name: 'name', type: 'string' } } },
    )
    expect(await find('p1')).toEqual([{ name: null, age: '41' }])
    await branches.edit('edited', { removeColumn: { table: 'people', column: 'name' } })
    expect(await find('p1')).toBe('42703')
  })

  it('belongs to the branch of its name, also if that is another one now', async () => {
    await branches.fork('again')
    const { find } = await connect('again')
    await branches.delete('again')
    expect(await find('p1')).toBe('3D000')
    await branches.fork('again')
    await branches.bulk('again', 'people', [{ id: 'new', name: 'Cid', age: 1 }])
    expect(await find('new')).toEqual([{ name: 'Cid', age: '1' }])
  })

  it('follows a checkout to another branch', async () => {
    await branches.fork('one')
    await branches.fork('two')
    await branches.bulk('two', 'people', [{ id: 'p3', name: 'Dan', age: 3 }])
    const { client, find } = await connect('one')
    expect(await find('p3')).toEqual([])
    await client.query(`select offshoot.checkout('two')`)
    expect(await find('p3')).toEqual([{ name: 'Dan', age: '3' }])
    await client.query(`select offshoot.checkout('one')`)
    expect(await find('p3')).toEqual([])
  })

  it('is planned again for parameters that are too large for its plan', async () => {
    const { find } = await connect('main')
    for (const length of [8_000, 100_000, 2]) expect(await find('x'.repeat(length))).toEqual([])
    expect(await find('p1')).toEqual([{ name: 'Ann', age: '41' }])
    expect(await find('\ud800')).toEqual([])
  })

  it('fails each time, and works again, with the values that make it so', async () => {
    const { find } = await connect('main')
    const divided = 'select 10 / age as part from people where id = $1'
    await branches.bulk('main', 'people', [{ id: 'zero', name: 'Zoe', age: 0 }])
    for (let round = 0; round < 3; round++) {
      expect(await find('p1', divided)).toEqual([{ part: '0' }])
      expect(await find('zero', divided)).toBe('22012')
    }
  })

  it('goes on as a long one if it does not end soon', async () => {
    const { find } = await connect('main')
    const slow = `select count(*) from generate_series(1, 3000000) n, people where id = $1`
    for (let round = 0; round < 2; round++) {
      expect(await find('p1', slow)).toEqual([{ count: '3000000' }])
    }
  })

  it('keeps the settings of its connection', async () => {
    const client = await wire.connect('shop:main')
    await client.query(`update people set age = 41 where id = 'p1'`)
    const read = () => client.query({ name: 'at', text: AT, values: ['2026-01-02T03:04:05Z'] })
    const AT = 'select $1::timestamptz::text as at from people limit 1'
    await read()
    expect((await read()).rows).toEqual([{ at: '2026-01-02 03:04:05+00' }])
    await client.query(`set time zone 'Asia/Tokyo'`)
    expect((await read()).rows).toEqual([{ at: '2026-01-02 12:04:05+09' }])
  })
})

describe('queries that differ in their literals', () => {
  /** Returns what a client gets: rows, columns and their types, or an error. */
  const ask = (client: pg.Client, text: string, values?: unknown[]) =>
    client
      .query({ text, ...(values && { values }), rowMode: 'array' })
      .then(({ rows, fields }) => ({
        rows,
        fields: fields.map(({ name, dataTypeID }) => [name, dataTypeID]),
      }))
      .catch((error: pg.DatabaseError) => ({ code: error.code, message: error.message }))

  /** The literals of each query, in turn. */
  const QUERIES: readonly [query: (literal: string) => string, literals: readonly string[]][] = [
    [(id) => `select * from people where id = ${id}`, [`'p1'`, `'p2'`, `'it''s'`, '1', 'null']],
    [
      (age) => `select id, age from people where age >= ${age} and id <> 'zero' order by id`,
      ['17', '18', '1.5', '3000000000', '1e400', `'17'`, `'x'`, '-1', '99999999999999999999'],
    ],
    [
      (names) => `select id from people where name in (${names}) order by 1`,
      [`'Ann', 'Bob'`, `'Bob', 'Ann'`, `'Cid'`, `1`, `'Ann', null`],
    ],
    [
      (age) => `select ${age}, age + ${age}, 'a' from people where age between ${age} and 50`,
      ['17', '1', '2.5', `'18'`],
    ],
    [
      (count) => `select id from people where id > 'a' order by id limit ${count}`,
      ['1', '2', `'1'`],
    ],
    [(age) => `select id from people where (age = ${age}) = (id = 'p1') order by 1`, ['41', '17']],
    [(id) => `select count(*) from people where ${id} = id or id = ${id}::text`, [`'p1'`, `'p2'`]],
    [
      (age) => `select age = ${age} from people where age > 0 group by age = ${age} order by 1`,
      ['41', '17'],
    ],
    [(id) => `explain (costs off) select * from people where id = ${id}`, [`'p1'`, `'p2'`]],
    [(id) => `select people.nothing from people where id = ${id}`, [`'p1'`, `'p2'`]],
  ]

  it('answer as if each of them were the first', async () => {
    const client = await wire.connect('shop:main')
    for (const [query, literals] of QUERIES) {
      for (const literal of [...literals, ...literals]) {
        const text = query(literal)
        // A text with a comment is read as it is.
        const alone = await ask(client, `${text} -- ${literal.length}`)
        expect(await ask(client, text), text).toEqual(alone)
        const prepared = text.replace(' from people where ', ' from people where $1 and ')
        if (!prepared.includes('$1')) continue
        const other = await ask(client, `${prepared} -- alone`, [true])
        expect(await ask(client, prepared, [true]), prepared).toEqual(other)
      }
    }
  })

  it('are read in transactions and by cursors, too', async () => {
    const client = await wire.connect('shop:main')
    for (const id of ['p1', 'p2', 'p1']) {
      await client.query('begin')
      const found = await client.query(`select id from people where id = '${id}'`)
      expect(found.rows).toEqual([{ id }])
      await client.query(`declare c cursor for select id from people where id = '${id}'`)
      expect((await client.query('fetch c')).rows).toEqual([{ id }])
      await client.query('commit')
    }
  })

  it('write what they say', async () => {
    await branches.fork('literal')
    const client = await wire.connect('shop:literal')
    for (const [id, age] of [
      ['p1', 1],
      ['p2', 2],
    ]) {
      await client.query(`update people set age = ${age} where id = '${id}'`)
    }
    const { rows } = await client.query('select id, age from people where id < $1', ['q'])
    expect(rows).toEqual([
      { id: 'p1', age: '1' },
      { id: 'p2', age: '2' },
    ])
  })
})

describe('a portal that is read in parts', () => {
  it('is suspended after as many rows as were asked for, and tells how many came last', async () => {
    const raw = await wire.openRaw()
    const describePortal = message('D', Buffer.from('Pp\0'))
    const part = () => execute(2, 'p')
    raw.send(
      parse('select n from generate_series(1, 4) n', 's'),
      bind([], { name: 's', portal: 'p' }),
      ...[part(), describePortal, part(), part(), part(), sync()],
    )
    const answers = await raw.until('Z')
    expect(answers.map(({ type }) => type).join('')).toBe('12DDsTDDsCCZ')
    const tags = answers.filter(({ type }) => type === 'C').map(({ body }) => body.toString())
    expect(tags).toEqual(['SELECT 0\0', 'SELECT 0\0'])
    raw.close()
  })
})

describe('names of columns without an alias', () => {
  it.each([
    ['1::text::int8', 'int8'],
    ["case when true then '2026-01-01'::date else '1999-01-01'::date end", 'case'],
    ['case when true then 1 else (select 2) end', '?column?'],
    ['case when true then 1 else (select 2 as two) end', 'two'],
    ["date '2026-01-01'::timestamptz", 'timestamptz'],
    ['(age + 1)::text', 'text'],
    ['age::text::int8', 'age'],
    ['lower(name)::text', 'lower'],
    ['coalesce(age, 1)::text', 'coalesce'],
    ['(select age from people p where p.id = people.id)', 'age'],
  ])('are those of PostgreSQL: %s', async (expression, name) => {
    const { fields } = await shop.client.query(`select ${expression} from people limit 1`)
    expect(fields.map((field) => field.name)).toEqual([name])
  })
})

describe('formats of results', () => {
  it('are refused if their number is not that of the columns', async () => {
    const raw = await wire.openRaw()
    for (let round = 0; round < 2; round++) {
      raw.send(parse(BY_ID), bind(['p1'], { resultFormats: [0, 1, 0] }), execute(), sync())
      expect(errorCode(await raw.until('Z'))).toBe('08P01')
      raw.send(parse(BY_ID), bind(['p1']), execute(), sync())
      expect(errorCode(await raw.until('Z'))).toBeUndefined()
    }
    raw.send(parse(BY_ID), bind(['p1'], { resultFormats: [0, 1] }), execute(), sync())
    const row = (await raw.until('Z')).find(({ type }) => type === 'D')
    expect(row?.body.subarray(-8)).toEqual(Buffer.from([0, 0, 0, 0, 0, 0, 0, 41]))
    raw.close()
  })
})
