import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import {
  bind,
  describeStatement,
  errorCode,
  execute,
  int16,
  int32,
  message,
  openWire,
  parse,
  query,
  sync,
  type WireService,
} from '../support/wire-clients.js'

/* Sizes of whole numbers, texts and ids: on writes, in changes of the schema, in merges and in the catalogue. */

let service: TestService
let wire: WireService
let count = 0

beforeAll(async () => {
  service = await createTestService()
  wire = await openWire(service)
})
afterAll(async () => {
  await wire.close()
  await service.close()
})

const SMALL: Column = { name: 'small', type: 'int', bits: 16 }
const NUMBER: Column = { name: 'n', type: 'int', bits: 32 }
const CODE: Column = { name: 'code', type: 'string', maxLength: 20 }
const NOTE: Column = { name: 'note', type: 'text', maxLength: 3 }

async function items(
  columns: readonly Column[] = [SMALL, NUMBER, CODE, NOTE],
  rows: Readonly<Record<string, Readonly<Record<string, unknown>>>> = {},
): Promise<TestBranches> {
  const branches = await TestBranches.create(service, `sizes${++count}`, { items: columns })
  for (const [id, values] of Object.entries(rows)) await branches.put('main', 'items', id, values)
  return branches
}

const put = (branches: TestBranches, id: string, values: object, branch = 'main') =>
  branches.call(branch, 'PUT', `/tables/items/data/${id}`, values)

const alter = (branches: TestBranches, column: string, changes: object, branch = 'main') =>
  branches.call(branch, 'PATCH', `/tables/items/columns/${column}`, changes)

const sql = (branches: TestBranches, statement: string, params: unknown[] = []) =>
  branches.call('main', 'POST', '/sql', { statement, params })

async function columnsOf(branches: TestBranches, branch = 'main', table = 'items') {
  const answer = await branches.call(branch, 'GET', `/tables/${table}/schema`)
  return expectOk(answer).body.columns as Column[]
}

async function tableOf(branches: TestBranches, name: string, branch = 'main') {
  const { body } = expectOk(await branches.call(branch, 'GET', ''))
  const { tables } = body.schema as { tables: Record<string, unknown>[] }
  return tables.find((table) => table.name === name)
}

function expectRefused(answer: Answer, fault: string): void {
  expect(answer.status).toBe(400)
  expect(JSON.stringify(answer.body)).toContain(fault)
}

describe('a value', () => {
  const emoji = '😀'
  it.each([
    [{ small: 32_767 }, { small: 32_768 }, 'column [small]: is not between -32768 and 32767'],
    [{ small: -32_768 }, { small: -32_769 }, 'column [small]: is not between'],
    [
      { n: 2_147_483_647 },
      { n: 2_147_483_648 },
      'column [n]: is not between -2147483648 and 2147483647',
    ],
    [{ n: -2_147_483_648 }, { n: -2_147_483_649 }, 'column [n]: is not between'],
    [
      { code: 'x'.repeat(20) },
      { code: 'x'.repeat(21) },
      'column [code]: is longer than 20 characters',
    ],
    [{ code: emoji.repeat(20) }, { code: emoji.repeat(21) }, 'column [code]: is longer than'],
    [{ note: `a${emoji}b` }, { note: 'abcd' }, 'column [note]: is longer than 3 characters'],
  ])('%j fits, and %j is refused on every way of writing', async (fits, refused, fault) => {
    const branches = await items()
    const [name = '', value] = Object.entries(refused)[0] ?? []
    const [, fitting] = Object.entries(fits)[0] ?? []
    const writes: readonly ((values: object) => Promise<Answer>)[] = [
      (values) => put(branches, 'a', values),
      (values) => branches.call('main', 'PATCH', '/tables/items/data/a', values),
      (values) => branches.call('main', 'POST', '/tables/items/data/a', values),
      (values) => branches.call('main', 'POST', '/tables/items/data', values),
      (values) => branches.call('main', 'POST', '/tables/items/bulk', { records: [values] }),
      (values) =>
        branches.call('main', 'POST', '/transaction', {
          operations: [{ update: { table: 'items', id: 'a', fields: values, upsert: true } }],
        }),
      (values) => branches.call('main', 'PATCH', '/tables/items/data', { all: true, set: values }),
    ]
    for (const write of writes) {
      expectOk(await write(fits))
      expectRefused(await write(refused), fault)
    }
    const statement = `update items set ${name} = $1 where id = 'a'`
    expectOk(await sql(branches, statement, [fitting]))
    expectRefused(await sql(branches, statement, [value]), fault)
    expectRefused(await sql(branches, `insert into items (${name}) values ($1)`, [value]), fault)
    const { body } = expectOk(await sql(branches, `select ${name} as v from items`))
    for (const { v } of body.records) expect(v).toBe(fitting)
  })

  it('inside of an object has a size', async () => {
    const branches = await items([{ name: 'o', type: 'object', columns: [SMALL, NOTE] }])
    expectOk(await put(branches, 'a', { o: { small: 1, note: 'abc' } }))
    expectRefused(await put(branches, 'a', { o: { note: 'abcd' } }), 'column [o.note]: is longer')
    expectRefused(await put(branches, 'a', { o: { small: 1e5 } }), 'column [o.small]: is not')
    expect(await columnsOf(branches)).toEqual([
      { name: 'o', type: 'object', columns: [SMALL, NOTE] },
    ])
  })

  it('of arithmetic must fit, and its operand need not', async () => {
    const branches = await items([SMALL, NUMBER], { a: { small: -30_000, n: 2_147_483_646 } })
    const patch = (fields: object) => branches.call('main', 'PATCH', '/tables/items/data/a', fields)
    expectOk(await patch({ n: { $increment: 1 } }))
    expectRefused(
      await patch({ n: { $increment: 1 } }),
      'the result of the arithmetic cannot be stored',
    )
    expectRefused(
      await patch({ n: { $multiply: 2 } }),
      'the result of the arithmetic cannot be stored',
    )
    expectOk(await patch({ small: { $increment: 60_000 } }))
    expectRefused(
      await patch({ small: { $increment: 60_000 } }),
      'the result of the arithmetic cannot be stored',
    )
    expect(await branches.record('main', 'items', 'a')).toMatchObject({
      small: 30_000,
      n: 2_147_483_647,
    })
    const changed = { filter: { id: 'a' }, set: { n: { $increment: 1 } } }
    const answer = await branches.call('main', 'PATCH', '/tables/items/data', changed)
    expectRefused(
      answer,
      'expected a whole number between -2147483648 and 2147483647; nothing was changed',
    )
  })

  it('that COPY and streams send must fit', async () => {
    const branches = await items()
    const client = await wire.openRaw(`${branches.database}:main`)
    client.send(query('copy items (id, n) from stdin'))
    await client.until('G')
    client.send(message('d', Buffer.from('a\t2147483647\nb\t2147483648\n')), message('c'))
    expect(errorCode(await client.until('Z'))).toBe('22003')
    client.close()
    const body = '{"code":"x"}\n{"code":"xxxxxxxxxxxxxxxxxxxxx"}\n'
    const headers = { 'content-type': 'application/x-ndjson' }
    const answer = await branches.call('main', 'POST', '/tables/items/bulk', body, { headers })
    expect(JSON.stringify(answer.body)).toContain('column [code]: is longer than 20 characters')
    expect((await branches.call('main', 'GET', '/tables/items/data/a')).status).toBe(404)
  })

  it('that clients of PostgreSQL send, or that SQL calculates, must fit', async () => {
    const branches = await items()
    const client = await wire.connect(`${branches.database}:main`)
    await client.query(`insert into items (id, n, code) values ('a', $1, $2)`, [
      2_147_483_647,
      'x'.repeat(20),
    ])
    await expect(
      client.query(`insert into items (id, n) values ('b', $1)`, [2_147_483_648]),
    ).rejects.toMatchObject({
      code: '22003',
      message: 'table [items]: column [n]: value "2147483648" is out of range for type integer',
    })
    await expect(
      client.query('insert into items (id, n) values ($1, 2147483648)', ['b']),
    ).rejects.toMatchObject({
      code: '22003',
      message: expect.stringContaining('column [n]: is not between'),
    })
    await expect(client.query('update items set n = n + 1')).rejects.toMatchObject({
      message: expect.stringContaining('column [n]: is not between'),
    })
    await expect(
      client.query(`insert into items (id, code) select 'c', code || 'y' from items`),
    ).rejects.toMatchObject({ message: expect.stringContaining('column [code]: is longer') })
    await expect(
      client.query(`update items set code = $1`, ['x'.repeat(21)]),
    ).rejects.toMatchObject({ message: expect.stringContaining('column [code]: is longer') })
    await client.end()
  })
})

describe('a parameter that is declared as int4 or int2', () => {
  it('can be sent in binary form, for reads and writes', async () => {
    const branches = await items([SMALL, NUMBER, { ...CODE, unique: true }])
    const client = await wire.openRaw(`${branches.database}:main`)
    const send = async (sql: string, values: Buffer[], typeIds: number[]) => {
      client.send(
        ...[parse(sql, '', typeIds), describeStatement(), bind(values), execute(), sync()],
      )
      const received = await client.until('Z')
      const described = received.find(({ type }) => type === 't')?.body ?? Buffer.alloc(0)
      return {
        error: errorCode(received),
        typeIds: values.map((_, index) => described.readInt32BE(2 + 4 * index)),
        rows: received.filter(({ type }) => type === 'D').length,
      }
    }
    const [int2, int4] = [21, 23]
    const values = [int32(2_147_483_647), int16(-32_768)]
    const insert = 'insert into items (n, small) values ($1, $2)'
    expect(await send(insert, values, [int4, int2])).toMatchObject({
      error: undefined,
      typeIds: [int4, int2],
    })
    for (const condition of ['n = $1 and small = $2', 'n in ($1) and small <= $2']) {
      const read = await send(`select * from items where ${condition}`, values, [int4, int2])
      expect(read).toEqual({ error: undefined, typeIds: [int4, int2], rows: 1 })
    }
    const update = 'update items set n = $1 - 1, small = $2 where n = $1'
    expect(await send(update, values, [int4, int2])).toMatchObject({ error: undefined })
    const above = Buffer.alloc(8)
    above.writeBigInt64BE(2_147_483_648n)
    const refused = await send('insert into items (n) values ($1)', [above], [20])
    expect(refused.error).toBe('22003')
    client.close()
  })
})

describe('the size of a column', () => {
  const longest = 2048
  it.each([
    [{ name: 'x', type: 'float', bits: 32 }, 'type [float] is not valid for field [bits]'],
    [{ name: 'x', type: 'email', maxLength: 20 }, 'type [email] is not valid for field'],
    [{ name: 'x', type: 'string', maxLength: longest + 1 }, 'from 1 to 2048'],
    [{ name: 'x', type: 'int', bits: 16, defaultValue: '32768' }, 'default value: is not between'],
    [{ name: 'x', type: 'string', maxLength: 2, defaultValue: 'abc' }, 'default value: is longer'],
    [{ name: 'x', type: 'int', bits: 16, computed: 'n' }, 'both fields [computed] and [bits]'],
    [{ name: 'x', type: 'string', maxLength: 35, generate: 'uuid' }, 'have 36 characters'],
    [{ name: 'x', type: 'string', maxLength: 23, generate: 'user' }, 'have 24 characters'],
    [{ name: 'o', type: 'object', columns: [{ ...CODE, maxLength: 9999 }] }, 'from 1 to 2048'],
  ])('is refused in %j', async (column, fault) => {
    const branches = await items([NUMBER])
    expectRefused(await branches.call('main', 'POST', '/tables/items/columns', column), fault)
  })

  it.each([{ bits: 8 }, { bits: 64 }, { maxLength: 0 }, { maxLength: 1.5 }])(
    'cannot be %j',
    async (size) => {
      const branches = await items([])
      const column = { name: 'x', type: 'bits' in size ? 'int' : 'string', ...size }
      const answer = await branches.call('main', 'POST', '/tables/items/columns', column)
      expect(answer.status).toBe(400)
    },
  )

  it('is widened freely, also on a fork, and removed by null', async () => {
    const branches = await items(undefined, { a: { small: 32_767, code: 'x'.repeat(20) } })
    await branches.fork('dev')
    expectOk(await alter(branches, 'small', { bits: 32 }, 'dev'))
    expectOk(await alter(branches, 'code', { maxLength: 21 }, 'dev'))
    expectOk(await put(branches, 'b', { small: 32_768, code: 'y'.repeat(21) }, 'dev'))
    expectOk(await alter(branches, 'small', { bits: null }, 'dev'))
    expectOk(await alter(branches, 'code', { maxLength: null }, 'dev'))
    expectOk(await put(branches, 'b', { small: 2 ** 40, code: 'y'.repeat(longest) }, 'dev'))
    expect(await columnsOf(branches, 'dev')).toEqual([
      { name: 'small', type: 'int' },
      NUMBER,
      { name: 'code', type: 'string' },
      NOTE,
    ])
    expect(await columnsOf(branches)).toEqual([SMALL, NUMBER, CODE, NOTE])
    expect((await branches.diff('dev')).schema.operations).toEqual([
      { alterColumn: { table: 'items', column: 'small', bits: null } },
      { alterColumn: { table: 'items', column: 'code', maxLength: null } },
    ])
    await branches.merge('dev')
    expect(await branches.record('main', 'items', 'b')).toMatchObject({ small: 2 ** 40 })
  })

  it('is narrowed if all values fit; a dry run lists the others', async () => {
    const columns: Column[] = [
      { name: 'n', type: 'int' },
      { name: 'code', type: 'string' },
    ]
    const branches = await items(columns, {
      a: { n: 1, code: '😀😀' },
      b: { n: -32_769, code: 'abc' },
      c: {},
    })
    await branches.fork('dev')
    for (const branch of ['dev', 'main']) {
      for (const [column, changes, value] of [
        ['n', { bits: 16 }, '-32769'],
        ['code', { maxLength: 2 }, 'abc'],
      ] as const) {
        const dryRun = await alter(branches, column, { ...changes, dryRun: true }, branch)
        const { problems } = expectOk(dryRun).body
        expect(problems).toMatchObject([
          { column, kind: 'limit', records: 1, samples: [{ id: 'b', value }] },
        ])
        const answer = await alter(branches, column, changes, branch)
        expectRefused(answer, `table [items]: column [${column}]: 1 record has a value that the`)
        expect(answer.body.problems).toEqual(problems)
      }
      await branches.remove(branch, 'items', 'b')
      expectOk(await alter(branches, 'n', { bits: 16 }, branch))
      expectOk(await alter(branches, 'code', { maxLength: 2 }, branch))
      expectRefused(await put(branches, 'a', { code: 'abc' }, branch), 'is longer than 2')
    }
  })

  it('is checked for converted values, and ends with the type', async () => {
    const branches = await items([{ name: 'v', type: 'string' }], { a: { v: '40000' } })
    expectRefused(await alter(branches, 'v', { type: 'int', bits: 16 }), '1 record has a value')
    expectOk(await alter(branches, 'v', { type: 'int', bits: 32 }))
    expectOk(await alter(branches, 'v', { type: 'text' }))
    expect(await columnsOf(branches)).toEqual([{ name: 'v', type: 'text' }])
    expectRefused(await alter(branches, 'v', { type: 'string', maxLength: 4 }), '1 record has')
    expectOk(await alter(branches, 'v', { type: 'string', maxLength: 5 }))
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ v: '40000' })
  })

  it('is taken from a schema that is compared by names', async () => {
    const branches = await items([SMALL, CODE], { a: { small: 1, code: 'a' } })
    const compared = async (columns: Column[]) => {
      const schema = { tables: [{ name: 'items', columns }] }
      const answer = await branches.call('main', 'POST', '/schema/compare', { schema })
      return expectOk(answer).body.edits.operations
    }
    const wider: Column[] = [
      { ...SMALL, bits: 32 },
      { name: 'code', type: 'string' },
    ]
    expect(await compared([SMALL, CODE])).toEqual([])
    expect(await compared(wider)).toEqual([
      { alterColumn: { table: 'items', column: 'small', bits: 32 } },
      { alterColumn: { table: 'items', column: 'code', maxLength: null } },
    ])
    expectOk(await branches.call('main', 'PUT', '/tables/items/schema', { columns: wider }))
    expect(await columnsOf(branches)).toEqual(wider)
    expect(await branches.record('main', 'items', 'a')).toMatchObject({ small: 1, code: 'a' })
  })

  it('returns with a revert, unless values have been written that do not fit', async () => {
    const branches = await items([CODE], { first: { code: 'a' } })
    const keep = async (name: string) =>
      expectOk(await branches.call('main', 'POST', '/checkpoints', { name }))
    const revert = () => branches.call('main', 'POST', '/revert', { from: 'one', to: 'two' })
    await keep('one')
    expectOk(await alter(branches, 'code', { maxLength: 30 }))
    await branches.put('main', 'items', 'b', {})
    await keep('two')
    expectOk(await put(branches, 'a', { code: 'x'.repeat(21) }))
    const answer = await revert()
    expect(answer.body.conflicts).toMatchObject([{ kind: 'limit', column: 'code' }])
    await branches.put('main', 'items', 'a', { code: 'x' })
    expectOk(await revert())
    expect(await columnsOf(branches)).toEqual([CODE])
  })
})

describe('a merge', () => {
  const wide: Column[] = [
    { name: 'n', type: 'int' },
    { name: 'code', type: 'string' },
  ]

  it.each(['n', 'code'])('refuses values of [%s] that one side has narrowed', async (column) => {
    const [changes, value] = column === 'n' ? [{ bits: 16 }, 1e6] : [{ maxLength: 2 }, 'abc']
    for (const narrowed of ['main', 'dev']) {
      const branches = await items(wide, { old: { n: 1, code: 'a' } })
      await branches.fork('dev')
      const other = narrowed === 'main' ? 'dev' : 'main'
      expectOk(await alter(branches, column, changes, narrowed))
      await branches.put(other, 'items', 'new', { [column]: value })
      const answer = await branches.merging('dev')
      expect(answer.status).toBe(409)
      const [conflict] = answer.body.conflicts
      expect(conflict).toMatchObject({ kind: 'limit', table: 'items', column, ids: ['new'] })
      const columns = { [column]: { value: column === 'n' ? 5 : 'ab' } }
      const token = conflict.tokens.new
      const resolutions = [{ table: 'items', id: 'new', token, columns }]
      expectOk(await branches.merging('dev', { resolutions }))
      expect(await branches.record('main', 'items', 'new')).toMatchObject({
        [column]: column === 'n' ? 5 : 'ab',
      })
    }
  })

  it('is in conflict if both sides have changed a size, to different ones', async () => {
    const branches = await items(wide)
    await branches.fork('dev')
    expectOk(await alter(branches, 'n', { bits: 16 }))
    expectOk(await alter(branches, 'n', { bits: 32 }, 'dev'))
    expectOk(await alter(branches, 'code', { maxLength: 5 }))
    expectOk(await alter(branches, 'code', { maxLength: 5 }, 'dev'))
    const answer = await branches.merging('dev')
    expect(answer.body.conflicts).toMatchObject([
      {
        kind: 'schema',
        column: 'n',
        message: expect.stringContaining('[bits] was changed on both'),
      },
    ])
    await branches.merge('dev', { strategy: 'theirs' })
    expect(await columnsOf(branches)).toEqual([NUMBER, { ...CODE, maxLength: 5 }])
  })
})

describe('the numbers of a sequence', () => {
  it('are refused beyond the size of their column, and are not lost', async () => {
    const branches = await items([{ ...SMALL, generate: 'sequence' }])
    expectOk(await sql(branches, `select setval('items_small_seq', 32766)`))
    const bulk = (records: object[]) =>
      branches.call('main', 'POST', '/tables/items/bulk', { records })
    // A number that is refused moves no sequence.
    expectRefused(await bulk([{ small: 40_000 }]), 'column [small]: is not between')
    expectRefused(
      await bulk([{}, {}]),
      'table [items]: column [small]: the numbers up to 32767 are used up',
    )
    expectOk(await bulk([{ id: 'b' }]))
    expect(await branches.record('main', 'items', 'b')).toMatchObject({ small: 32_767 })
    expectRefused(await bulk([{}]), 'the numbers up to 32767 are used up')
    expectOk(await alter(branches, 'small', { bits: 32 }))
    expectOk(await bulk([{ id: 'c' }]))
    expect(await branches.record('main', 'items', 'c')).toMatchObject({ small: 32_768 })
  })

  it('cannot be set beyond the size in SQL', async () => {
    const branches = await items([])
    expectOk(await sql(branches, 'create table t (id smallserial primary key)'))
    expectRefused(await sql(branches, `select setval('t_id_seq', 32768)`), 'out of range')
    expectOk(await sql(branches, `select setval('t_id_seq', 32767)`))
    expectRefused(
      await sql(branches, 'insert into t default values'),
      'table [t]: column [id]: the numbers up to 32767 are used up',
    )
  })
})

describe('ids', () => {
  async function people(bits?: number) {
    const branches = await items([])
    const id = { type: 'int', ...(bits && { bits }) }
    expectOk(await branches.call('main', 'PUT', '/tables/people', { id }))
    const boss = { name: 'boss', type: 'link', link: { table: 'people' } }
    expectOk(await branches.call('main', 'POST', '/tables/people/columns', boss))
    expectOk(await branches.call('main', 'POST', '/tables/items/columns', { ...boss, name: 'of' }))
    return branches
  }
  const resize = (branches: TestBranches, bits: number | null, branch = 'main') =>
    branches.call(branch, 'PATCH', '/tables/people', { id: { bits } })

  it('and links to them have a size', async () => {
    const branches = await people(16)
    expect(await tableOf(branches, 'people')).toMatchObject({ idType: 'int', idBits: 16 })
    await branches.put('main', 'people', '32767', { boss: '1' })
    expectOk(await sql(branches, `select setval('people_id_seq', 32767)`))
    const range = 'is not a whole number between -32768 and 32767'
    for (const answer of [
      await branches.call('main', 'PUT', '/tables/people/data/32768', {}),
      await branches.call('main', 'POST', '/tables/people/bulk', { records: [{ id: 32_768 }] }),
      await sql(branches, 'insert into people (id) values (32768)'),
    ]) {
      expectRefused(answer, `column [id]: ${range}`)
    }
    expectRefused(await put(branches, 'a', { of: '32768' }), `column [of]: ${range}`)
    expectOk(await put(branches, 'a', { of: '32767' }))
    const used = 'table [people]: column [id]: the numbers up to 32767 are used up'
    expectRefused(await branches.call('main', 'POST', '/tables/people/data', {}), used)
  })

  it('need to be of type int', async () => {
    const branches = await items([])
    for (const type of ['string', 'uuid']) {
      const answer = await branches.call('main', 'PUT', '/tables/t', { id: { type, bits: 32 } })
      expectRefused(answer, `table [t]: field [idBits]: is not possible for ids of type [${type}]`)
    }
    expectRefused(
      await branches.call('main', 'PATCH', '/tables/items', { id: { bits: 32 } }),
      'not possible for ids of type [string]',
    )
  })

  it('are widened freely, and narrowed if all ids and links fit', async () => {
    const branches = await people(16)
    await branches.put('main', 'people', '7', {})
    expectOk(await resize(branches, 32))
    await branches.put('main', 'people', '40000', {})
    await branches.put('main', 'items', 'a', { of: '50000' })
    expectRefused(await resize(branches, 16), 'table [people]: column [id]: 1 record has a value')
    await branches.remove('main', 'people', '40000')
    expectRefused(await resize(branches, 16), 'table [items]: column [of]: 1 record has a value')
    await branches.put('main', 'items', 'a', { of: '7' })
    expectOk(await resize(branches, 16))
    expectRefused(await put(branches, 'a', { of: '40000' }), 'column [of]: is not a whole number')
    expectOk(await resize(branches, null))
    expectOk(await put(branches, 'a', { of: '5000000000' }))
    expect(await tableOf(branches, 'people')).not.toHaveProperty('idBits')
  })

  it.each(['main', 'dev'])(
    'that do not fit keep a merge from happening, narrowed on %s',
    async (narrowed) => {
      const branches = await people()
      await branches.put('main', 'people', '40000', {})
      await branches.fork('dev')
      await branches.remove(narrowed, 'people', '40000')
      expectOk(await resize(branches, 16, narrowed))
      const other = narrowed === 'main' ? 'dev' : 'main'
      await branches.put(other, 'people', '50000', {})
      await branches.put(other, 'items', 'a', { of: '60000' })
      const answer = await branches.merging('dev')
      expect(answer.status).toBe(409)
      const conflicts = answer.body.conflicts as { kind: string; table: string; message: string }[]
      expect(conflicts.map(({ kind, table }) => `${table} ${kind}`).sort()).toEqual([
        'items limit',
        'people schema',
      ])
      expect(JSON.stringify(conflicts)).toContain('does not fit into 16 bits: [50000]')
      await branches.remove(other, 'people', '50000')
      await branches.put(other, 'items', 'a', { of: '7' })
      await branches.merge('dev')
      expect(await tableOf(branches, 'people')).toMatchObject({ idBits: 16 })
      const missing = await branches.call('main', 'GET', '/tables/people/data/40000')
      expect(missing.status).toBe(404)
      expect(missing.body.message).toContain('is not a whole number')
      expectRefused(await put(branches, 'b', { of: '40000' }), 'column [of]: is not a whole number')
    },
  )

  it('of different sizes on both sides are a conflict', async () => {
    const branches = await people()
    await branches.fork('dev')
    expectOk(await resize(branches, 16))
    expectOk(await resize(branches, 32, 'dev'))
    const answer = await branches.merging('dev')
    expect(answer.body.conflicts).toMatchObject([
      { kind: 'schema', table: 'people', message: expect.stringContaining('[idBits] was changed') },
    ])
    await branches.merge('dev', { strategy: 'theirs' })
    expect(await tableOf(branches, 'people')).toMatchObject({ idBits: 32 })
  })
})

describe('a declared type', () => {
  const declared = `create table owners (id serial primary key, name varchar(40) not null);
    create table things (
      id smallint primary key, a int2, b integer default 7, c bigint, d smallserial, e bigserial,
      f varchar(20) default 'x', g char(3), h character varying(5000), i text, j varchar,
      owner integer not null references owners
    )`
  const shown = [
    'id smallint',
    'a smallint',
    'b integer',
    'c bigint',
    'd smallint',
    'e bigint',
    'f character varying(20)',
    'g character varying(3)',
    'h character varying(5000)',
    'i text',
    'j text',
    'owner integer',
  ]
  const typesOf = async (branches: TestBranches, table = 'things') => {
    const client = await wire.connect(`${branches.database}:main`)
    const { rows } = await client.query(
      `select attname || ' ' || format_type(atttypid, atttypmod) as shown from pg_attribute
      where attrelid = $1::regclass and attnum > 0 order by attnum`,
      [table],
    )
    await client.end()
    return rows.map((row) => row.shown)
  }

  it('is kept, and shown in the catalogue', async () => {
    const branches = await items([])
    const { body } = expectOk(await sql(branches, declared))
    expect(body.notices).toEqual(['column [g]: values of char(3) are not padded'])
    expect(await typesOf(branches)).toEqual(shown)
    expect(await typesOf(branches, 'owners')).toEqual(['id integer', 'name character varying(40)'])
    expect(await tableOf(branches, 'things')).toMatchObject({ idType: 'int', idBits: 16 })
    expect((await columnsOf(branches, 'main', 'things')).slice(5, 8)).toEqual([
      { name: 'f', type: 'string', maxLength: 20, defaultValue: 'x' },
      { name: 'g', type: 'string', maxLength: 3 },
      { name: 'h', type: 'text', maxLength: 5000 },
    ])
    const client = await wire.connect(`${branches.database}:main`)
    const { rows } = await client.query(
      `select column_name as name, column_default as value from information_schema.columns
      where table_name = 'things' and column_default is not null order by 1`,
    )
    expect(rows).toEqual([
      { name: 'b', value: '7' },
      { name: 'f', value: "'x'::character varying" },
    ])
    await client.end()
  })

  it('is changed by ALTER COLUMN', async () => {
    const branches = await items([])
    expectOk(await sql(branches, declared))
    expectOk(await sql(branches, `insert into owners (name) values ('ada')`))
    expectOk(
      await sql(branches, 'insert into things (id, owner, c, f) values (1, 1, 40000, $1)', ['abc']),
    )
    const change = (column: string, type: string, table = 'things') =>
      sql(branches, `alter table ${table} alter column ${column} type ${type}`)
    expectRefused(await change('c', 'smallint'), 'table [things]: column [c]: 1 record has a value')
    expectRefused(await change('f', 'varchar(2)'), 'table [things]: column [f]: 1 record has')
    for (const [column, type] of [
      ...[
        ['c', 'integer'],
        ['b', 'bigint'],
        ['f', 'varchar(3)'],
        ['g', 'text'],
        ['h', 'varchar(50)'],
      ],
      ...[
        ['i', 'varchar(60)'],
        ['id', 'bigint'],
      ],
    ] as const) {
      expect(expectOk(await change(column, type)).body.notices, column).toBeUndefined()
    }
    expectOk(await change('id', 'bigint', 'owners'))
    const { notices } = expectOk(await change('owner', 'integer')).body
    expect(notices).toEqual(['column [owner]: links have the type of the ids of table [owners]'])
    expect(await typesOf(branches)).toEqual([
      ...['id bigint', 'a smallint', 'b bigint', 'c integer', 'd smallint', 'e bigint'],
      ...['f character varying(3)', 'g text', 'h character varying(50)'],
      ...['i character varying(60)', 'j text', 'owner bigint'],
    ])
    expectOk(await sql(branches, 'insert into owners (id, name) values (3000000000, $1)', ['bob']))
    expectRefused(await change('id', 'integer', 'owners'), 'table [owners]: column [id]: 1 record')
  })

  it('of a text that becomes unique is kept, if values of its length can be', async () => {
    const branches = await items([])
    expectOk(await sql(branches, 'create table t (a varchar(30) unique, b varchar(3000) unique)'))
    expect(await typesOf(branches, 't')).toEqual(['id text', 'a character varying(30)', 'b text'])
  })

  it('of a computed column has no size', async () => {
    const branches = await items([])
    const { body } = expectOk(
      await sql(
        branches,
        'create table t (a integer, b integer generated always as (a * 2) stored)',
      ),
    )
    expect(body.notices).toContain('column [b]: the size of computed values is not checked')
    expect(await typesOf(branches, 't')).toEqual(['id text', 'a integer', 'b bigint'])
    const changed = await sql(branches, 'alter table t alter column b type smallint')
    expect(expectOk(changed).body.notices).toEqual([
      'column [b]: the size of computed values is not checked',
    ])
  })
})
