import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'
import { openWire } from '../support/wire-clients.js'

let service: TestService
let number = 0
beforeAll(async () => {
  service = await createTestService({ limits: { automaticCheckpointsMax: 20 } })
})
afterAll(() => service.close())

const TOTAL = {
  name: 'total',
  type: 'decimal',
  decimal: { precision: 10, scale: 2 },
  computed: 'price * quantity',
} as const
const LABEL = { name: 'label', type: 'string', computed: "upper(name) || '!'" } as const
const COLUMNS = [
  // A computed column may stand before those that it uses.
  TOTAL,
  { name: 'name', type: 'string' },
  { name: 'price', type: 'decimal', decimal: { precision: 10, scale: 2 } },
  { name: 'quantity', type: 'int' },
  LABEL,
] as const

/** A database with three items on `main`. */
async function open() {
  const branches = await TestBranches.create(service, `computed${++number}`, { items: COLUMNS })
  await branches.put('main', 'items', 'a', { name: 'ant', price: '1.50', quantity: 2 })
  await branches.put('main', 'items', 'b', { name: 'bee', price: '2.25', quantity: 4 })
  await branches.put('main', 'items', 'c', { name: 'cat', price: '7' })
  const send = (method: string, path: string, body?: unknown, branch = 'main') =>
    branches.call(branch, method, path, body)
  const sql = async (statement: string, branch = 'main') =>
    expectOk(await send('POST', '/sql', { statement }, branch)).body as {
      records: Record<string, unknown>[]
    }
  const columns = async (branch = 'main') => {
    const { body } = expectOk(await send('GET', '', undefined, branch)) as {
      body: { schema: { tables: { columns: Record<string, unknown>[] }[] } }
    }
    return body.schema.tables[0]?.columns ?? []
  }
  return { branches, send, sql, columns }
}

describe.each(['main', 'fork', 'late fork'])('a computed column on %s', (kind) => {
  const branch = kind === 'main' ? 'main' : 'fork'
  let opened: Awaited<ReturnType<typeof open>>
  beforeAll(async () => {
    opened = await open()
    const { branches } = opened
    if (kind === 'main') return
    if (kind === 'late fork') {
      // The fork gets its columns itself, for rows that it inherits and rows of its own.
      for (const column of ['total', 'label']) {
        await branches.edit('main', { removeColumn: { table: 'items', column } })
      }
    }
    await branches.fork('fork')
    await branches.patch('fork', 'items', 'b', { quantity: 4 })
    if (kind === 'late fork') {
      await branches.edit(
        'fork',
        { addColumn: { table: 'items', column: TOTAL } },
        { addColumn: { table: 'items', column: LABEL } },
      )
    }
  })
  const send = (method: string, path: string, body?: unknown) =>
    opened.send(method, path, body, branch)

  it('is read with the record, and by queries that filter, sort, summarize and aggregate', async () => {
    expect(await opened.branches.read(branch, 'items', ['a', 'b', 'c'])).toMatchObject({
      a: { total: '3.00', label: 'ANT!' },
      b: { total: '9.00', label: 'BEE!' },
      c: { label: 'CAT!' },
    })
    const { body } = await send('POST', '/tables/items/query', {
      columns: ['total'],
      filter: { total: { $ge: '3' } },
      sort: { total: 'desc' },
      page: { size: 1 },
    })
    expect(body).toMatchObject({ records: [{ id: 'b', total: '9.00' }] })
    const next = await send('POST', '/tables/items/query', {
      page: { after: body.meta.page.cursor },
    })
    expect(next.body.records).toMatchObject([{ id: 'a', total: '3.00' }])
    const summary = await send('POST', '/tables/items/summarize', {
      summaries: { sum: { sum: 'total' } },
    })
    expect(Number(summary.body.summaries[0].sum)).toBe(12)
    const aggregate = await send('POST', '/tables/items/aggregate', {
      aggs: { largest: { max: { column: 'total' } } },
    })
    expect(Number(aggregate.body.aggs.largest)).toBe(9)
    const found = await send('POST', '/tables/items/search', { query: 'bee', target: ['label'] })
    expect(found.body.records).toMatchObject([{ id: 'b' }])
  })

  it('is a column of SQL, in the order of the schema', async () => {
    const { records } = await opened.sql(
      'select * from items where total > 3 order by label',
      branch,
    )
    const names = ['id', 'total', 'name', 'price', 'quantity', 'label']
    const later = ['id', 'name', 'price', 'quantity', 'total', 'label']
    expect(Object.keys(records[0] ?? {}).slice(0, 6)).toEqual(kind === 'late fork' ? later : names)
    expect(records).toMatchObject([{ id: 'b', label: 'BEE!' }])
    const written = await opened.sql(
      "insert into items (id, name, price, quantity) values ('s', 'sow', 1, 3) returning total, label",
      branch,
    )
    expect(written.records).toEqual([{ total: 3, label: 'SOW!' }])
    const changed = await opened.sql(
      "update items set quantity = 5 where total = 3 and id = 's' returning total",
      branch,
    )
    expect(changed.records).toEqual([{ total: 5 }])
    const kept = await opened.sql(
      "insert into items (id, quantity) values ('s', 1) on conflict (id) do update set quantity = excluded.quantity returning total",
      branch,
    )
    expect(kept.records).toEqual([{ total: 1 }])
    await opened.sql('delete from items where total = 1', branch)
    expect((await opened.sql("select id from items where id = 's'", branch)).records).toEqual([])
  })

  it('is not written by anybody, and the refusal names it', async () => {
    const refused = 'column [total]: is computed and cannot be written'
    const values = { name: 'x', total: '1' }
    const answers = [
      await send('POST', '/tables/items/data', values),
      await send('PUT', '/tables/items/data/x', values),
      await send('PATCH', '/tables/items/data/a', values),
      await send('PATCH', '/tables/items/data/a', { total: { $increment: 1 } }),
      await send('POST', '/sql', { statement: 'update items set total = 1' }),
      await send('POST', '/sql', { statement: "insert into items (total) values ('1')" }),
    ]
    for (const { status, body } of answers) {
      expect([status, body.message]).toEqual([400, expect.stringContaining(refused)])
    }
    const bulk = await send('POST', '/tables/items/bulk', { records: [{ name: 'y' }, values] })
    expect(bulk).toMatchObject({ status: 400 })
    expect(JSON.stringify(bulk.body)).toContain(refused)
    const insert = { table: 'items', record: values }
    const transaction = await send('POST', '/transaction', { operations: [{ insert }] })
    expect(transaction).toMatchObject({ status: 400 })
    expect(JSON.stringify(transaction.body)).toContain(refused)
    expect(
      (await opened.sql("select id from items where name in ('x', 'y')", branch)).records,
    ).toEqual([])
  })

  it('refuses values that it cannot be calculated of', async () => {
    const large = { price: '99999999.99', quantity: 2 }
    const refused = { code: 'check_violation', column: 'total' }
    expect(await send('POST', '/tables/items/data', large)).toMatchObject({
      status: 400,
      body: refused,
    })
    expect(await send('PATCH', '/tables/items/data/a', large)).toMatchObject({
      status: 400,
      body: refused,
    })
    expect(await send('PATCH', '/tables/items/data/a', { quantity: 2 })).toMatchObject({
      status: 200,
    })
    const bulk = await send('POST', '/tables/items/bulk', { records: [{ name: 'y' }, large] })
    expect(bulk).toMatchObject({ status: 400, body: { errors: [{ index: 1, ...refused }] } })
  })
})

describe('a computed column', () => {
  it('follows the names of the columns that it uses, which cannot be removed', async () => {
    const { branches, send, columns } = await open()
    await branches.edit('main', {
      renameColumn: { table: 'items', oldName: 'price', newName: 'Unit' },
    })
    expect((await columns()).find(({ name }) => name === 'total')).toEqual({
      ...TOTAL,
      computed: '"Unit" * quantity',
    })
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { total: '3.00' } })
    const removed = await send('DELETE', '/tables/items/columns/Unit')
    expect(removed.status).toBe(400)
    expect(removed.body.message).toContain('column [Unit]: is used by computed column [total]')
    const converted = await send('PATCH', '/tables/items/columns/Unit', { type: 'text' })
    expect(converted.status).toBe(400)
    expect(converted.body.message).toContain('column [total]: operator does not exist')
    await branches.edit(
      'main',
      { removeColumn: { table: 'items', column: 'total' } },
      { removeColumn: { table: 'items', column: 'Unit' } },
    )
    await branches.put('main', 'items', 'a', { quantity: 3 })
  })

  it('stays when a column that it uses is converted, on forks, after a merge and a revert', async () => {
    const { branches, send } = await open()
    await branches.fork('dev')
    const label = async (branch: string) => {
      const { a } = (await branches.read(branch, 'items', ['a'])) as { a: { label: string } }
      return a.label
    }
    expect(await label('dev')).toBe('ANT!')
    const type = 'text'
    expectOk(await branches.call('dev', 'PATCH', '/tables/items/columns/name', { type }))
    await branches.patch('dev', 'items', 'a', { name: 'dev' })
    expect(await label('dev')).toBe('DEV!')
    await branches.patch('main', 'items', 'b', { name: 'main' })
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(await label('main')).toBe('DEV!')
    expect(await branches.read('main', 'items', ['b'])).toMatchObject({ b: { label: 'MAIN!' } })
    const back = expectOk(await send('PATCH', '/tables/items/columns/name', { type: 'string' }))
    expectOk(await send('POST', '/revert', { entry: back.body.entry, allowDataLoss: true }))
    await branches.patch('main', 'items', 'a', { name: 'last' })
    expect(await label('main')).toBe('LAST!')
  })

  it('can be added before the columns that it uses', async () => {
    const { branches } = await open()
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'a', { quantity: 9 })
    await branches.edit(
      'dev',
      {
        addColumn: { table: 'items', column: { name: 'twice', type: 'int', computed: 'half * 2' } },
      },
      { addColumn: { table: 'items', column: { name: 'half', type: 'int' } } },
    )
    await branches.patch('dev', 'items', 'a', { half: 3 })
    expect(await branches.read('dev', 'items', ['a'])).toMatchObject({ a: { twice: 6 } })
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { twice: 6 } })
    await branches.patch('main', 'items', 'b', { half: 4 })
    expect(await branches.read('main', 'items', ['b'])).toMatchObject({ b: { twice: 8 } })
  })

  it('can get another expression and another type, if all records have a value of it', async () => {
    const { branches, send, columns } = await open()
    await branches.fork('before')
    const path = '/tables/items/columns/total'
    expectOk(await send('PATCH', path, { computed: 'price * quantity * 2', type: 'float' }))
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { total: 6 } })
    expect(await branches.read('before', 'items', ['a'])).toMatchObject({ a: { total: '3.00' } })
    const small = { type: 'decimal', decimal: { precision: 2, scale: 2 } }
    const preview = await send('PATCH', path, { ...small, dryRun: true })
    expect(preview.body).toMatchObject({
      column: { name: 'total', ...small, computed: 'price * quantity * 2' },
      problems: [{ kind: 'limit', records: 2, samples: [{ id: 'a' }, { id: 'b' }] }],
    })
    const failing = await send('PATCH', path, { computed: '1 / (quantity - 2)' })
    expect(failing).toMatchObject({
      status: 400,
      body: { code: 'invalid_schema', column: 'total', records: [expect.any(String)] },
    })
    expect(failing.body.message).toContain('cannot be evaluated for existing records')
    const tooLarge = await send('PATCH', path, {
      type: 'decimal',
      decimal: { precision: 2, scale: 2 },
    })
    expect(tooLarge).toMatchObject({
      status: 400,
      body: { code: 'constraint_violated', column: 'total', records: ['a', 'b'] },
    })
    expect((await send('PATCH', path, { notNull: true })).body).toMatchObject({
      code: 'constraint_violated',
      records: ['c'],
    })
    expect((await send('PATCH', '/tables/items/columns/name', { computed: 'price' })).status).toBe(
      400,
    )
    expect((await columns()).find(({ name }) => name === 'total')).toEqual({
      name: 'total',
      type: 'float',
      computed: 'price * quantity * 2',
    })
  })

  it.each([
    [{ computed: 'nowhere + 1' }, 'column "nowhere" does not exist'],
    [{ computed: 'now()', type: 'datetime' }, 'uses no column'],
    [{ computed: 'quantity + extract(year from now())' }, 'depends on more than the record'],
    [{ computed: '(select 1) + quantity' }, 'cannot have subqueries'],
    [{ computed: 'total * 2' }, 'column [total] is computed'],
    [{ computed: 'price > 1', type: 'date' }, 'column [x]'],
    [{ computed: 'quantity', type: 'json' }, 'field [computed]'],
    [{ computed: 'quantity', unique: true }, 'cannot be unique'],
    [{ computed: 'quantity', defaultValue: '1' }, 'both fields [computed] and [defaultValue]'],
    [{ computed: 'quantity +' }, 'syntax error'],
    [{ computed: 'length(quantity)' }, 'column [x]: function length(bigint) does not exist'],
    [{ computed: 'upper(quantity)' }, 'for texts gets a value of type bigint'],
  ])('is refused if it is invalid: %j', async (fields, message) => {
    const { send } = await open()
    const column = { name: 'x', type: 'int', ...fields }
    const answer = await send('POST', '/tables/items/columns', column)
    expect([answer.status, answer.body.message]).toEqual([400, expect.stringContaining(message)])
  })

  it('has no index, and no constraint uses it', async () => {
    const { send } = await open()
    const index = await send('PUT', '/tables/items/columns/total/index', {})
    expect([index.status, index.body.message]).toEqual([
      400,
      expect.stringContaining('a computed column cannot be indexed'),
    ])
    for (const rule of [{ unique: ['total'] }, { check: 'total > 0' }]) {
      const answer = await send('PUT', '/tables/items/constraints/x', rule)
      expect([answer.status, answer.body.message]).toEqual([
        400,
        expect.stringContaining('computed'),
      ])
    }
  })

  it('is not calculated for rows that a branch does not see', async () => {
    const { branches, send } = await open()
    await branches.put('main', 'items', 'z', { name: 'zero', quantity: 0 })
    await branches.put('main', 'items', 'd', { name: 'deleted', quantity: 0 })
    await branches.fork('dev')
    await branches.patch('dev', 'items', 'z', { quantity: 4 })
    await branches.remove('dev', 'items', 'd')
    await branches.edit('dev', {
      addColumn: {
        table: 'items',
        column: { name: 'share', type: 'float', computed: '8 / quantity' },
      },
    })
    await branches.put('main', 'items', 'e', { name: 'later', quantity: 0 })
    const { body } = await send(
      'POST',
      '/tables/items/query',
      { filter: { share: { $gt: 0 } }, sort: { share: 'asc' } },
      'dev',
    )
    expect(body).toMatchObject({ records: expect.any(Array) })
    expect(body.records.map(({ id, share }: { id: string; share: number }) => [id, share])).toEqual(
      [
        ['b', 2],
        ['z', 2],
        ['a', 4],
      ],
    )
    const refused = await send('PATCH', '/tables/items/data/a', { quantity: 0 }, 'dev')
    expect([refused.status, refused.body.message]).toEqual([
      400,
      expect.stringContaining('[share]'),
    ])
  })

  it('loses no data when it is removed, and comes back by a revert', async () => {
    const { send, branches } = await open()
    expectOk(await send('DELETE', '/tables/items/columns/total'))
    expect(await branches.read('main', 'items', ['a'])).toEqual({
      a: { name: 'ant', price: '1.50', quantity: 2, label: 'ANT!' },
    })
    await branches.edit('main', { addColumn: { table: 'items', column: TOTAL } })
    const operations = ['total', 'price'].map((column) => ({
      removeColumn: { table: 'items', column },
    }))
    const body = { edits: { operations }, allowDataLoss: true }
    const removed = expectOk(await send('POST', '/schema/apply', body))
    expectOk(await send('POST', '/revert', { entry: removed.body.entry }))
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { total: '3.00' } })
    await branches.patch('main', 'items', 'a', { price: '2' })
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { total: '4.00' } })
  })

  it('has its place among the others when a schema is applied to an empty branch', async () => {
    const { send, columns } = await open()
    const schema = { tables: [{ name: 'items', columns: await columns() }] }
    const empty = await TestBranches.create(service, `computed${++number}`, {})
    const compared = await empty.call('main', 'POST', '/schema/compare', { schema })
    const { edits } = expectOk(compared).body
    expectOk(await empty.call('main', 'POST', '/schema/apply', { edits }))
    const applied = expectOk(await empty.call('main', 'GET', '/tables/items/schema'))
    expect(applied.body.columns).toEqual(await columns())
    const used = { name: 'used', type: 'int' }
    const tax = { name: 'tax', type: 'int', computed: 'used * 2' }
    const list = [...(await columns()), tax, used]
    expectOk(await send('PUT', '/tables/items/schema', { columns: list }))
    expect(await columns()).toEqual(list)
  })

  it('is kept by clients that compare a schema without knowing of it', async () => {
    const { send, columns } = await open()
    const known = await columns()
    const unaware = known.map(({ computed: _, ...column }) => column)
    const compare = async (list: unknown) =>
      (
        await send('POST', '/schema/compare', {
          schema: { tables: [{ name: 'items', columns: list }] },
        })
      ).body.edits.operations
    expect(await compare(known)).toEqual([])
    expect(await compare(unaware)).toEqual([])
    const changed = known.map((column) =>
      column.name === 'total' ? { ...column, computed: 'price' } : column,
    )
    expect(await compare(changed)).toEqual([
      { alterColumn: { table: 'items', column: 'total', computed: 'price' } },
    ])
  })
})

describe('SQL', () => {
  it('creates computed columns', async () => {
    const { sql, send } = await open()
    const create = `create table orders (
      id text primary key,
      "Net" numeric(10, 2) not null,
      gross numeric(10, 2) generated always as (orders."Net" * 1.2) stored,
      large boolean generated always as ("Net" > 100) stored
    )`
    expectOk(await send('POST', '/sql', { statement: create }))
    const { records } = await sql(
      'insert into orders ("Net") values (10), (200) returning gross, large',
    )
    expect(records).toEqual([
      { gross: 12, large: false },
      { gross: 240, large: true },
    ])
    expectOk(
      await send('POST', '/sql', {
        statement:
          'alter table orders add column half float generated always as ("Net" / 2) stored',
      }),
    )
    expect((await sql('select half from orders order by half')).records).toEqual([
      { half: 5 },
      { half: 100 },
    ])
    const wire = await openWire(service)
    const client = await wire.connect(`computed${number}:main`)
    const { rows } = await client.query(
      "select attname, attgenerated from pg_attribute where attrelid = 'orders'::regclass and attgenerated <> '' order by attnum",
    )
    expect(rows).toEqual([
      { attname: 'gross', attgenerated: 's' },
      { attname: 'large', attgenerated: 's' },
      { attname: 'half', attgenerated: 's' },
    ])
    await wire.close()
    const dropped = await send('POST', '/sql', {
      statement: 'alter table orders drop column "Net"',
    })
    expect([dropped.status, dropped.body.message]).toEqual([
      400,
      expect.stringContaining('is used by computed column [gross]'),
    ])
  })
})

describe('a merge', () => {
  it('does not compare computed values, which follow their records', async () => {
    const { branches } = await open()
    await branches.fork('dev')
    await branches.patch('main', 'items', 'a', { price: '2' })
    await branches.patch('dev', 'items', 'a', { quantity: 3 })
    const { body } = await branches.call('dev', 'POST', '/diff', { from: 'main', rows: true })
    expect(JSON.stringify(body)).not.toContain('total')
    expect(await branches.merge('dev')).toMatchObject({ merged: true, conflictCount: 0 })
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { total: '6.00' } })
  })

  it('brings a new computed column, and checks the records of the target', async () => {
    const { branches, send } = await open()
    await branches.fork('dev')
    const column = {
      name: 'share',
      type: 'int',
      computed: 'nullif(quantity, 0) * 9007199254740991',
    } as const
    await branches.put('main', 'items', 'm', { name: 'many', quantity: 3 })
    await branches.remove('dev', 'items', 'a', 'b')
    await branches.edit('dev', { addColumn: { table: 'items', column } })
    expect((await branches.merge('dev', { dryRun: true })).conflicts).toMatchObject([
      { kind: 'check', table: 'items', column: 'share', ids: ['m'] },
    ])
    await branches.patch('main', 'items', 'm', { quantity: 1 })
    expect(await branches.merge('dev')).toMatchObject({ merged: true })
    expect(await branches.read('main', 'items', ['m'])).toMatchObject({
      m: { share: 9007199254740991 },
    })
    expect((await send('PATCH', '/tables/items/data/m', { quantity: 2 })).status).toBe(400)
  })

  it('merges expressions as one value, and reports those that both sides changed', async () => {
    const { branches, send, columns } = await open()
    await branches.fork('dev')
    const path = '/tables/items/columns/total'
    expectOk(await send('PATCH', path, { computed: 'price' }, 'dev'))
    expectOk(await send('PATCH', path, { computed: 'price + 1' }))
    const { conflicts } = await branches.merge('dev', { dryRun: true })
    expect(conflicts).toMatchObject([{ kind: 'schema', table: 'items', column: 'total' }])
    expect(await branches.merge('dev', { strategy: 'theirs' })).toMatchObject({ merged: true })
    expect((await columns()).find(({ name }) => name === 'total')).toMatchObject({
      computed: 'price',
    })
    expect(await branches.read('main', 'items', ['a'])).toMatchObject({ a: { total: '1.50' } })
  })

  it('is refused if one side removes a column that the other computes with', async () => {
    const { branches } = await open()
    await branches.edit('main', { removeColumn: { table: 'items', column: 'total' } })
    await branches.fork('dev')
    await branches.edit('main', { addColumn: { table: 'items', column: TOTAL } })
    await branches.edit('dev', { removeColumn: { table: 'items', column: 'price' } })
    expect((await branches.merge('dev', { dryRun: true })).conflicts).toMatchObject([
      { kind: 'schema', table: 'items', column: 'total', takes: ['ours', 'theirs'] },
    ])
  })
})

describe('a table with a history', () => {
  it('keeps no computed values in versions, and restores what they are made of', async () => {
    const { branches, send } = await open()
    expectOk(await send('PATCH', '/tables/items', { history: { keep: '30d' } }))
    await branches.put('main', 'items', 'd', { name: 'dog', price: '2', quantity: 3 })
    await branches.patch('main', 'items', 'd', { quantity: 5 })
    const { versions } = expectOk(await send('GET', '/tables/items/data/d/history')).body
    const record = { id: 'd', name: 'dog', price: '2.00', service: expect.anything() }
    expect(versions.map((each: { record: object }) => each.record)).toEqual([
      { ...record, quantity: 5 },
      { ...record, quantity: 3 },
    ])
    expect(versions[0].changes).toEqual({ quantity: { from: 3, to: 5 } })
    const path = `/tables/items/data/d/history/${versions[1].version}/restore`
    expectOk(await send('POST', path))
    expect(await branches.read('main', 'items', ['d'])).toMatchObject({
      d: { quantity: 3, total: '6.00' },
    })
  })
})

it('calculates with dozens of columns', async () => {
  const numbers = Array.from({ length: 60 }, (_, index): Column => {
    const decimal = { precision: 12, scale: 2 }
    return index % 2 === 0
      ? { name: `n${index}`, type: 'int' }
      : { name: `n${index}`, type: 'decimal', decimal }
  })
  const names = numbers.map(({ name }) => name)
  const branches = await TestBranches.create(service, 'dozens', { wide: numbers })
  const computed = (operator: string) => `coalesce(${names.join(operator)}, 0)`
  await branches.edit('main', {
    addColumn: { table: 'wide', column: { name: 'sum', type: 'float', computed: computed('+') } },
  })
  await branches.edit('main', {
    addColumn: { table: 'wide', column: { name: 'rest', type: 'float', computed: computed('-') } },
  })
  await branches.edit('main', {
    addConstraint: {
      table: 'wide',
      constraint: { name: 'few', check: `${names.join(' + ')} - n0 < 1750` },
    },
  })
  const record = Object.fromEntries(names.map((name, index) => [name, index]))
  expect(await branches.call('main', 'PUT', '/tables/wide/data/a', record)).toMatchObject({
    status: 400,
    body: { code: 'check_violation', constraint: 'few' },
  })
  await branches.put('main', 'wide', 'a', { ...record, n59: 1 })
  expect(await branches.read('main', 'wide', ['a'])).toMatchObject({
    a: { sum: 1712, rest: -1712 },
  })
})
