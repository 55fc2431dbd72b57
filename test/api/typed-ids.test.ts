import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { type Answer, createTestService, type TestService } from '../support/service.js'
import { type BranchCall, branchCall, createTables, expectOk } from '../support/tables.js'

/*
 * Tables whose ids are whole numbers or UUIDs.
 */

let service: TestService
let main: BranchCall

beforeAll(async () => {
  service = await createTestService({ limits: { automaticCheckpointsMax: 20 } })
  await createTables(service, 'shop', {})
  main = branchCall(service, 'shop')
})
afterAll(() => service.close())

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/

async function createTable(name: string, type: string, columns: readonly Column[] = []) {
  expectOk(await main('PUT', `/tables/${name}`, { body: { id: { type } } }))
  for (const column of columns) {
    expectOk(await main('POST', `/tables/${name}/columns`, { body: column }))
  }
}

async function fork(name: string): Promise<BranchCall> {
  expectOk(
    await service.call('PUT', `${service.workspace}/db/shop:${name}`, { body: { from: 'main' } }),
  )
  return branchCall(service, 'shop', { branch: name })
}

async function insert(call: BranchCall, table: string, body: object = {}): Promise<string> {
  return expectOk(await call('POST', `/tables/${table}/data`, { body })).body.id
}

async function ids(call: BranchCall, table: string, body: object = {}): Promise<string[]> {
  const answer = expectOk(await call('POST', `/tables/${table}/query`, { body }))
  return answer.body.records.map(({ id }: { id: string }) => id)
}

async function sql(call: BranchCall, statement: string, params: unknown[] = []) {
  return expectOk(await call('POST', '/sql', { body: { statement, params } })).body.records
}

describe('a table with ids of type int', () => {
  it('numbers its records, and answers with texts', async () => {
    await createTable('numbers', 'int', [{ name: 'name', type: 'string' }])
    expect(await insert(main, 'numbers')).toBe('1')
    expect(await insert(main, 'numbers')).toBe('2')
    const bulk = await main('POST', '/tables/numbers/bulk', {
      body: { records: [{}, { id: 10 }, { id: '11' }, {}] },
    })
    expect(expectOk(bulk).body.recordIDs).toEqual(['12', '10', '11', '13'])
    expect(await insert(main, 'numbers')).toBe('14')
    expectOk(await main('PUT', '/tables/numbers/data/-3', { body: { name: 'minus' } }))
    expect((await main('GET', '/tables/numbers/data/-3')).body).toMatchObject({
      id: '-3',
      name: 'minus',
    })
    const { body } = await main('GET', '')
    expect(body.schema.tables.find(({ name }: { name: string }) => name === 'numbers').idType).toBe(
      'int',
    )
  })

  it('takes numbers as ids of all operations of a transaction', async () => {
    await createTable('operated', 'int', [{ name: 'name', type: 'string' }])
    const operations = [
      { insert: { table: 'operated', record: { id: 7, name: 'seven' } } },
      { update: { table: 'operated', id: 7, fields: { name: 'changed' } } },
      { get: { table: 'operated', id: 7, columns: ['name'] } },
      { delete: { table: 'operated', id: 7, failIfMissing: true } },
    ]
    const { body } = expectOk(await main('POST', '/transaction', { body: { operations } }))
    expect(body.results[2].columns).toEqual({ name: 'changed' })
    expect(await ids(main, 'operated')).toEqual([])
    const refused = await main('POST', '/transaction', {
      body: { operations: [{ delete: { table: 'operated', id: 1.5 } }] },
    })
    expect(refused.body.errors[0].message).toMatch(
      /^table \[operated\]: column \[id\]: is not a whole number/,
    )
  })

  it('goes on after a number that a request gives in any way', async () => {
    await createTable('given', 'int')
    expectOk(await main('PUT', '/tables/given/data/5', { body: {} }))
    expect(await insert(main, 'given')).toBe('6')
    const operations = [
      { insert: { table: 'given', record: { id: 20 } } },
      { insert: { table: 'given', record: {} } },
      { update: { table: 'given', id: '30', fields: {}, upsert: true } },
    ]
    const { body } = expectOk(await main('POST', '/transaction', { body: { operations } }))
    expect(body.results.map(({ id }: { id: string }) => id)).toEqual(['20', '31', '30'])
    await sql(main, 'insert into given (id) values (40)')
    expect(await sql(main, 'insert into given default values returning id')).toEqual([{ id: 41 }])
    const stream = await main('POST', '/tables/given/bulk', {
      body: '{"id":50}\n{}\n',
      headers: { 'content-type': 'application/x-ndjson' },
    })
    expectOk(stream)
    const two = { insert: null, update: { table: 'given', id: '60', fields: {}, upsert: true } }
    const refused = await main('POST', '/transaction', { body: { operations: [two] } })
    expect(refused.status).toBe(400)
    expect(JSON.stringify(refused.body)).toContain('expected exactly one of')
    expect(await ids(main, 'given')).toEqual(['5', '6', '20', '30', '31', '40', '41', '50', '51'])
  })

  it('sorts, filters and pages by number', async () => {
    await createTable('ordered', 'int')
    const records = [100, 9, -20, 10, 2].map((id) => ({ id }))
    expectOk(await main('POST', '/tables/ordered/bulk', { body: { records } }))
    expect(await ids(main, 'ordered')).toEqual(['-20', '2', '9', '10', '100'])
    expect(await ids(main, 'ordered', { sort: { id: 'desc' } })).toEqual([
      '100',
      '10',
      '9',
      '2',
      '-20',
    ])
    expect(await ids(main, 'ordered', { filter: { id: { $gt: 9 } } })).toEqual(['10', '100'])
    expect(await ids(main, 'ordered', { filter: { id: { $le: '9' } } })).toEqual(['-20', '2', '9'])
    expect(await ids(main, 'ordered', { filter: { id: '10' } })).toEqual(['10'])
    expect(await ids(main, 'ordered', { filter: { id: [2, '100', 7] } })).toEqual(['2', '100'])
    const branch = await fork('ordered-fork')
    for (const call of [main, branch]) {
      const found: string[] = []
      let after: string | undefined
      for (let count = 0; count < 5; count++) {
        const page = { size: 2, ...(after && { after }) }
        const { body } = expectOk(await call('POST', '/tables/ordered/query', { body: { page } }))
        found.push(...body.records.map(({ id }: { id: string }) => id))
        if (!body.meta.page.more) break
        after = body.meta.page.cursor
      }
      expect(found).toEqual(['-20', '2', '9', '10', '100'])
      expectOk(await branch('PUT', '/tables/ordered/data/3', { body: {} }))
      expectOk(await branch('DELETE', '/tables/ordered/data/3'))
    }
  })

  it.each(['x', '1e3', '01', '9007199254740992', '-0'])('refuses the id %s', async (id) => {
    await main('PUT', '/tables/strict', { body: { id: { type: 'int' } } })
    for (const method of ['PUT', 'GET', 'DELETE', 'PATCH']) {
      const body = method === 'PUT' || method === 'PATCH' ? { body: {} } : {}
      const answer = await main(method, `/tables/strict/data/${id}`, body)
      // No record has such an id, so that one to read or delete is missing.
      const code = 'body' in body ? 'invalid_record' : 'record_not_found'
      expect(answer, method).toMatchObject({ status: 'body' in body ? 400 : 404, body: { code } })
      expect(answer.body.message).toContain('column [id]: is not a whole number')
    }
    const history = await main('GET', `/tables/strict/data/${id}/history`)
    expect(history.body).toMatchObject({ code: 'record_not_found' })
    const { body, status } = await main('POST', '/tables/strict/query', {
      body: { filter: { id: { $gt: id } } },
    })
    expect([status, body.message]).toEqual([
      400,
      expect.stringContaining('filter: column [id]: is not a whole number'),
    ])
    expect(await ids(main, 'strict')).toEqual([])
  })

  it('gives different numbers on different branches, so that all merge', async () => {
    await createTable('tickets', 'int', [{ name: 'title', type: 'string' }])
    await insert(main, 'tickets', { title: 'first' })
    const branch = await fork('tickets-fork')
    const [here, there] = [
      await insert(main, 'tickets', { title: 'main' }),
      await insert(branch, 'tickets', { title: 'fork' }),
    ]
    expect(here).not.toBe(there)
    const { body } = expectOk(await branch('POST', '/merge', { body: {} }))
    expect(body.tables).toEqual([{ name: 'tickets', inserted: 1, updated: 0, deleted: 0 }])
    expect(await ids(main, 'tickets')).toEqual(['1', here, there])
  })

  it('numbers records that an upsert inserts', async () => {
    await createTable('stock', 'int', [{ name: 'code', type: 'string', unique: true }])
    const upsert = async (by: string, records: object[]) =>
      expectOk(await main('POST', '/tables/stock/upsert', { body: { records, by } })).body.results
    expect(await upsert('id', [{ code: 'a' }, { id: 7, code: 'b' }])).toEqual([
      { id: '8', outcome: 'inserted' },
      { id: '7', outcome: 'inserted' },
    ])
    const again = await upsert('code', [{ code: 'b' }, { code: 'c' }, { code: 'c' }])
    expect(again).toEqual([
      { id: '7', outcome: 'unchanged' },
      { id: expect.stringMatching(/^(9|1\d)$/), outcome: 'inserted' },
      { id: again[1].id, outcome: 'unchanged' },
    ])
    const set = await main('PATCH', '/tables/stock/data', {
      body: { filter: { id: { $ge: 8 } }, set: { code: null } },
    })
    expect(expectOk(set).body.updated).toBe(2)
  })

  it('gives every number once to requests at the same time', async () => {
    await createTable('races', 'int')
    const made = await Promise.all(Array.from({ length: 40 }, () => insert(main, 'races')))
    expect([...made].map(Number).sort((one, other) => one - other)).toEqual(
      Array.from({ length: 40 }, (_, index) => index + 1),
    )
  })

  it('is a bigint in SQL, and so are links to it', async () => {
    await createTable('makers', 'int', [{ name: 'name', type: 'string' }])
    await createTable('cars', 'int', [
      { name: 'maker', type: 'link', link: { table: 'makers' } },
      { name: 'owner', type: 'link', link: { table: 'makers' }, unique: true },
    ])
    await sql(main, "insert into makers (name) values ('Ada'), ('Bob')")
    await sql(main, 'insert into cars (maker, owner) values (1, 2), (2, null)')
    const branch = await fork('cars-fork')
    for (const call of [main, branch]) {
      expect(
        await sql(
          call,
          'select c.id + 1 as next, m.name from cars c join makers m on m.id = c.maker order by c.id',
        ),
      ).toEqual([
        { next: 2, name: 'Ada' },
        { next: 3, name: 'Bob' },
      ])
      expect(await sql(call, 'select id from makers where id > $1', [1])).toEqual([{ id: 2 }])
      expect(await sql(call, 'update cars set maker = 1 where id = 2 returning id, maker')).toEqual(
        [{ id: 2, maker: 1 }],
      )
      expect(await ids(call, 'cars', { filter: { maker: 1 } })).toEqual(['1', '2'])
      expect(await ids(call, 'cars', { filter: { 'maker.id': { $lt: '2' } } })).toEqual(['1', '2'])
      const { body } = await call('GET', '/tables/cars/data/1?columns=maker.name')
      expect(body.maker).toMatchObject({ id: '1', name: 'Ada' })
      const refused = await call('PATCH', '/tables/cars/data/1', { body: { maker: 'x' } })
      expect([refused.status, refused.body.message]).toEqual([
        400,
        expect.stringContaining('column [maker]: is not a whole number'),
      ])
      await sql(
        call,
        'insert into cars (id, maker) values (2, 2) on conflict (id) do update set maker = excluded.maker',
      )
      expect(await sql(call, 'select maker from cars where id = 2')).toEqual([{ maker: 2 }])
      await sql(call, 'delete from cars where id = 2')
    }
  })
})

describe('a table with ids of type uuid', () => {
  it('makes UUIDs of version 7 and takes given ones in any case', async () => {
    await createTable('things', 'uuid')
    const made = [await insert(main, 'things'), await insert(main, 'things')]
    for (const id of made) expect(id).toMatch(UUID)
    expect(await ids(main, 'things')).toEqual(made)
    const given = 'F190A5C1-7D3E-7CC2-9F0B-2A6F1C3D4E5F'
    expectOk(await main('PUT', `/tables/things/data/${given}`, { body: {} }))
    expect((await main('GET', `/tables/things/data/${given}`)).body.id).toBe(given.toLowerCase())
    expect(await ids(main, 'things', { filter: { id: given } })).toEqual([given.toLowerCase()])
    expect(await sql(main, 'select id from things where id = $1', [given])).toEqual([
      { id: given.toLowerCase() },
    ])
    const refused = await main('PUT', '/tables/things/data/rec_1', { body: {} })
    expect([refused.status, refused.body.message]).toEqual([
      400,
      expect.stringContaining('column [id]: is not a UUID'),
    ])
  })
})

it('are numbered for the database that has the name now', async () => {
  const other = await createTestService({ url: service.url })
  try {
    const calls = [service, other].map((via) => branchCall(service, 'again', { via }))
    for (const round of [1, 2]) {
      await createTables(service, 'again', {})
      const [first = main] = calls
      expectOk(await first('PUT', '/tables/numbers', { body: { id: { type: 'int' } } }))
      for (const call of calls) {
        const body = { records: [{ id: round }, {}] }
        const answer = await call('POST', '/tables/numbers/upsert', { body })
        expect(answer.status, JSON.stringify(answer.body)).toBe(200)
      }
      const url = `/workspaces/${service.workspaceId}/dbs/again`
      expectOk(await service.call('DELETE', url, { key: service.key }))
    }
  } finally {
    await other.close()
  }
})

describe('links to typed ids', () => {
  it('have the type of the ids in checks and computed columns, also if they become links', async () => {
    const zero = '00000000-0000-4000-8000-000000000000'
    const create = `
      create table owners (id int primary key);
      create table marks (id uuid primary key);
      create table kids (id int primary key, owner int references owners (id), second int, thing uuid references marks (id),
        twice bigint generated always as (owner * 2) stored,
        constraint large check (owner > 5), constraint large_second check (second > 5),
        constraint other check (thing <> '${zero}'))`
    await sql(main, create)
    await sql(main, 'insert into owners (id) values (4), (10), (50)')
    await sql(main, 'insert into marks (id) values ($1)', [zero])
    await sql(main, 'insert into kids (id, owner, second) values (1, 10, 10)')
    await sql(main, 'alter table kids add foreign key (second) references owners (id)')
    const copy = await fork('links')
    for (const call of [main, copy]) {
      await sql(call, 'insert into kids (id, second) values (2, 50)')
      for (const [statement, name] of [
        ['insert into kids (id, owner) values (3, 4)', 'large'],
        ['update kids set owner = 4', 'large'],
        ['insert into kids (id, second) values (3, 4)', 'large_second'],
        [`insert into kids (id, thing) values (3, '${zero}')`, 'other'],
      ]) {
        const { status, body } = await call('POST', '/sql', { body: { statement } })
        expect([statement, status, body.message]).toEqual([
          statement,
          400,
          expect.stringContaining(`constraint [${name}]`),
        ])
      }
      expect(await sql(call, 'select id, second, twice from kids order by id')).toEqual([
        { id: 1, second: 10, twice: 20 },
        { id: 2, second: 50, twice: null },
      ])
    }
  })
})

describe('the type of ids', () => {
  it('is refused if it is not known', async () => {
    const answer = await main('PUT', '/tables/odd', { body: { id: { type: 'float' } } })
    expect(answer.status).toBe(400)
    expect(answer.body.message).toContain('id.type')
  })

  it('cannot change, and a schema need not name it', async () => {
    await createTable('fixed', 'uuid')
    const compare = (idType?: string) =>
      main('POST', '/schema/compare', {
        body: { schema: { tables: [{ name: 'fixed', ...(idType && { idType }), columns: [] }] } },
      })
    expect(expectOk(await compare('uuid')).status).toBe(200)
    expect(expectOk(await compare()).status).toBe(200)
    const refused = await compare('int')
    expect([refused.status, refused.body.message]).toEqual([
      400,
      'table [fixed]: ids have the type [uuid], which cannot become [int]; create another table instead',
    ])
  })

  it('of tables that two branches add under one name decides whether they are the same', async () => {
    const branch = await fork('types-fork')
    expectOk(await branch('PUT', '/tables/both', { body: { id: { type: 'int' } } }))
    expectOk(await main('PUT', '/tables/both', { body: { id: { type: 'uuid' } } }))
    const { body } = await branch('POST', '/merge', { body: {} })
    expect(body.code, JSON.stringify(body)).toBe('merge_conflict')
    const other = await fork('types-other')
    expectOk(await other('PUT', '/tables/same', { body: { id: { type: 'int' } } }))
    expectOk(await main('PUT', '/tables/same', { body: { id: { type: 'int' } } }))
    expectOk(await other('POST', '/merge', { body: {} }))
  })
})

describe('ids in a merge', () => {
  const UPPER = 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11'

  /** Creates a table with a record on `main`, which `main` and a fork have changed. */
  async function contradict(table: string, type: string, id: string) {
    await createTable(table, type, [{ name: 'name', type: 'string' }])
    expectOk(await main('PUT', `/tables/${table}/data/${id}`, { body: { name: 'base' } }))
    const branch = await fork(`${table}-fork`)
    expectOk(await branch('PATCH', `/tables/${table}/data/${id}`, { body: { name: 'theirs' } }))
    expectOk(await main('PATCH', `/tables/${table}/data/${id}`, { body: { name: 'ours' } }))
    return branch
  }
  const nameOf = async (table: string, id: string) =>
    (await main('GET', `/tables/${table}/data/${id}`)).body.name

  it.each([
    ['upper', 'uuid', UPPER, UPPER],
    ['number', 'int', '8', 8],
    ['text', 'int', '8', '8'],
    ['any', 'string', 'A', 'A'],
  ])('are written as in requests of records (%s)', async (name, type, id, given) => {
    const table = `merged-${name}`
    const branch = await contradict(table, type, id)
    const merge = (body: object) => branch('POST', '/merge', { body })
    const only = { records: [{ table, id: given }] }
    const dryRun = expectOk(await merge({ dryRun: true, only })).body
    expect(dryRun).toMatchObject({ conflictCount: 1 })
    const token = dryRun.conflicts[0].token
    const resolution = { table, id: given, take: 'theirs', token }
    const merged = expectOk(await merge({ only, resolutions: [resolution] })).body
    expect(merged).toMatchObject({ merged: true, tables: [{ name: table, updated: 1 }] })
    expect(await nameOf(table, id)).toBe('theirs')
  })

  it('decide a record once, however they are written', async () => {
    const branch = await contradict('decided', 'uuid', UPPER)
    const { body } = expectOk(await branch('POST', '/merge', { body: { dryRun: true } }))
    const { token } = body.conflicts.find(({ table }: { table: string }) => table === 'decided')
    const resolutions = [UPPER, UPPER.toLowerCase()].map((id) => {
      return { table: 'decided', id, take: 'theirs', token }
    })
    const only = { tables: ['decided'] }
    const refused = await branch('POST', '/merge', { body: { only, resolutions } })
    expect([refused.status, refused.body.message]).toEqual([
      400,
      'body: field [resolutions.1]: decides the same as field [resolutions.0]; nothing was merged',
    ])
  })

  it.each([
    ['int', '08', 'column [id]: is not a whole number'],
    ['int', 'zz', 'column [id]: is not a whole number'],
    ['uuid', 'zz', 'column [id]: is not a UUID'],
    ['string', 8, 'column [id]: expected a record id, got a number'],
  ])('that a table with ids of type %s cannot have are refused: %j', async (type, id, reason) => {
    const table = `refused-${type}-${id}`
    const branch = await contradict(table, type, type === 'uuid' ? UPPER : '8')
    const message = `table [${table}]: record [${id}]: ${reason}`
    const only = { records: [{ table, id }] }
    const partial = await branch('POST', '/merge', { body: { only } })
    expect([partial.status, partial.body.code]).toEqual([400, 'invalid_request'])
    expect(partial.body.message).toContain(`body: field [only.records.0.id]: ${message}`)
    const resolutions = [{ table, id, take: 'theirs', token: 'any' }]
    const body = { only: { tables: [table] }, resolutions }
    const decided = await branch('POST', '/merge', { body })
    expect([decided.status, decided.body.code]).toEqual([400, 'invalid_resolution'])
    expect(decided.body.message).toContain(`body: field [resolutions.0]: ${message}`)
  })
})

describe('numbers of a table that comes into being again', () => {
  const removeTable = async (call: BranchCall, table: string): Promise<string> =>
    expectOk(await call('DELETE', `/tables/${table}`)).body.entry
  const revert = async (call: BranchCall, entry: string): Promise<string> =>
    expectOk(await call('POST', '/revert', { body: { entry, allowDataLoss: true } })).body.entry
  const merge = async (call: BranchCall): Promise<string> =>
    expectOk(await call('POST', '/merge', { body: { allowDataLoss: true } })).body.entry

  it('go on after those before its removal was reverted, also of deleted records', async () => {
    await createTable('removed', 'int')
    const dev = await fork('with-removed')
    for (const id of ['1', '2', '3']) expect(await insert(main, 'removed')).toBe(id)
    expectOk(await main('DELETE', '/tables/removed/data/3'))
    await revert(main, await removeTable(main, 'removed'))
    expect(await insert(main, 'removed')).toBe('4')
    // A branch that has kept the table takes of the same numbers.
    expect(await insert(dev, 'removed')).toBe('5')
    expect(await insert(main, 'removed')).toBe('6')
    await revert(main, await removeTable(main, 'removed'))
    expect(await insert(main, 'removed')).toBe('7')
    expect(await insert(dev, 'removed')).toBe('8')
    expect(await sql(main, `select nextval('removed_id_seq') as n`)).toEqual([{ n: 9 }])
  })

  it('go on after those before its removal by a merge was reverted', async () => {
    await createTable('merged_away', 'int')
    for (const id of ['1', '2']) expect(await insert(main, 'merged_away')).toBe(id)
    const dev = await fork('without-table')
    await removeTable(dev, 'merged_away')
    await revert(main, await merge(dev))
    expect(await insert(main, 'merged_away')).toBe('3')
  })

  it('go on if only its schema was brought back', async () => {
    await createTable('schema_only', 'int')
    expect(await insert(main, 'schema_only')).toBe('1')
    const entry = await removeTable(main, 'schema_only')
    const tables = { schema_only: { mode: 'schema' } }
    expectOk(await main('POST', '/revert', { body: { entry, tables, allowDataLoss: true } }))
    expect(await insert(main, 'schema_only')).toBe('2')
  })

  it.each(['merge', 'pull'])('are shared by tables that a %s joins', async (how) => {
    const name = `joined_${how}`
    const dev = await fork(`adds-${how}`)
    for (const call of [main, dev]) {
      expectOk(await call('PUT', `/tables/${name}`, { body: { id: { type: 'int' } } }))
      const column = { name: 'number', type: 'int', generate: 'sequence' }
      expectOk(await call('POST', `/tables/${name}/columns`, { body: column }))
    }
    const [into, other] = how === 'merge' ? [main, dev] : [dev, main]
    for (let count = 0; count < 3; count++) await insert(other, name)
    if (how === 'merge') await merge(dev)
    else expectOk(await dev('POST', '/pull', { body: {} }))
    const made = [
      await insert(into, name),
      await insert(other, name),
      await insert(into, name),
      await insert(other, name),
    ]
    expect(made).toEqual(['4', '5', '6', '7'])
    const statement = `select number from ${name} where id > 3 order by id`
    expect(await sql(into, statement)).toEqual([{ number: 4 }, { number: 6 }])
    expect(await sql(other, statement)).toEqual([{ number: 5 }, { number: 7 }])
    expectOk(await into('PUT', `/tables/${name}/data/20`, { body: {} }))
    expect(await insert(other, name)).toBe('21')
  })
})

describe('a number that is given', () => {
  it('moves the sequence only in the lower half of its range', async () => {
    await sql(main, 'create table wide (id serial primary key, v text unique)')
    await sql(main, `insert into wide (v) values ('a')`)
    const dev = await fork('gives-numbers')
    const none = `insert into wide (id, v) values (2147483647, 'a') on conflict (v) do nothing`
    await sql(dev, none)
    await sql(main, `insert into wide (v) values ('b')`)
    await sql(main, `insert into wide (id, v) values (2147483647, 'c')`)
    await sql(main, `insert into wide (v) values ('d')`)
    await sql(main, `insert into wide (id, v) values (${2 ** 30}, 'e')`)
    await sql(main, `insert into wide (v) values ('f')`)
    const rows = await sql(main, `select id from wide where v in ('b', 'd', 'f') order by id`)
    expect(rows).toEqual([{ id: 2 }, { id: 3 }, { id: 2 ** 30 + 1 }])
  })

  it('is not repeated by inserts if it is taken', async () => {
    await createTable('taken', 'int', [{ name: 'n', type: 'int' }])
    await sql(main, `select setval('taken_id_seq', ${2 ** 52 + 1})`)
    expectOk(await main('PUT', `/tables/taken/data/${2 ** 52 + 2}`, { body: {} }))
    const refused = await main('POST', '/tables/taken/data', { body: {} })
    expect(refused).toMatchObject({ status: 400, body: { code: 'unique_violation' } })
    expect(await insert(main, 'taken')).toBe(String(2 ** 52 + 3))
  })

  it.each([
    ['a bulk insert', '/tables/%/bulk', (): object => ({ records: [{}] })],
    [
      'a transaction',
      '/transaction',
      (table: string): object => ({ operations: [{ insert: { table, record: {} } }] }),
    ],
    [
      'SQL',
      '/sql',
      (table: string): object => ({ statement: `insert into ${table} default values` }),
    ],
    ['an upsert', '/tables/%/upsert', (): object => ({ records: [{}] })],
    ['a stream', '/tables/%/bulk?mode=partial', (): string => '{}\n'],
  ])('is not repeated by %s if it is taken', async (name, path, bodyOf) => {
    const table = `taken_by_${name.replaceAll(' ', '_').toLowerCase()}`
    await createTable(table, 'int')
    await sql(main, `select setval('${table}_id_seq', ${2 ** 52 + 1})`)
    expectOk(await main('PUT', `/tables/${table}/data/${2 ** 52 + 2}`, { body: {} }))
    const body = bodyOf(table)
    const headers = { 'content-type': 'application/x-ndjson' }
    await main('POST', path.replace('%', table), {
      body,
      ...(typeof body === 'string' && { headers }),
    })
    expect(Number(await insert(main, table))).toBeGreaterThan(2 ** 52 + 2)
  })
})

describe('a number that is refused', () => {
  const LAST = Number.MAX_SAFE_INTEGER
  const NDJSON = { 'content-type': 'application/x-ndjson' }
  const columns: Column[] = [
    { name: 'n', type: 'int', notNull: true },
    { name: 'position', type: 'int', generate: 'sequence' },
  ]
  const refusals: [string, (call: BranchCall, table: string) => Promise<Answer>][] = [
    ['by its path', (call, table) => call('PUT', `/tables/${table}/data/${LAST}`, { body: {} })],
    [
      'by a check',
      (call, table) => call('PUT', `/tables/${table}/data/${LAST}`, { body: { n: -1 } }),
    ],
    [
      'by an update that inserts',
      (call, table) => call('POST', `/tables/${table}/data/${LAST}`, { body: { n: -1 } }),
    ],
    [
      'in a column',
      (call, table) => call('POST', `/tables/${table}/data`, { body: { n: -1, position: LAST } }),
    ],
    [
      'in a transaction',
      (call, table) => {
        const operations = [
          { insert: { table, record: { n: 1 } } },
          { insert: { table, record: { id: LAST, n: -1, position: LAST } } },
        ]
        return call('POST', '/transaction', { body: { operations } })
      },
    ],
    [
      'in a bulk insert',
      (call, table) => {
        const records = [{ n: 1 }, { id: LAST - 1, n: -1, position: LAST - 1 }]
        return call('POST', `/tables/${table}/bulk`, { body: { records } })
      },
    ],
    [
      'in a stream',
      (call, table) => {
        const body = `{"n":1}\n{"id":${LAST - 1},"n":-1,"position":${LAST - 1}}\n`
        return call('POST', `/tables/${table}/bulk`, { body, headers: NDJSON })
      },
    ],
    [
      'in SQL',
      (call, table) => {
        const statement = `insert into ${table} (id, n, position) values (${LAST}, -1, ${LAST})`
        return call('POST', '/sql', { body: { statement } })
      },
    ],
  ]

  it.each(refusals)('%s does not move its sequence', async (name, refuse) => {
    const table = name.replaceAll(' ', '_')
    await createTable(table, 'int', columns)
    const rule = { check: 'n > 0' }
    expectOk(await main('PUT', `/tables/${table}/constraints/positive`, { body: rule }))
    expect(await insert(main, table, { n: 1 })).toBe('1')
    expect((await refuse(main, table)).status).toBe(400)
    expect(await insert(main, table, { n: 1 })).toBe('2')
    expect((await main('GET', `/tables/${table}/data/2`)).body.position).toBe(2)
  })

  it.each(['upsert', 'bulk?mode=partial'])(
    'of %s moves it to those that are stored',
    async (to) => {
      const table = `parts_${to.slice(0, 4)}`
      await createTable(table, 'int', columns)
      const rule = { check: 'n > 0' }
      expectOk(await main('PUT', `/tables/${table}/constraints/positive`, { body: rule }))
      const body = [
        { id: 5, n: 1, position: 7 },
        { id: LAST, n: -1, position: LAST },
        { id: LAST - 1, position: LAST - 1 },
      ]
        .map((record) => JSON.stringify(record))
        .join('\n')
      const answer = await main('POST', `/tables/${table}/${to}`, { body, headers: NDJSON })
      expect(expectOk(answer).body).toMatchObject({ inserted: 1, failed: 2 })
      expect(await insert(main, table, { n: 1 })).toBe('6')
      expect((await main('GET', `/tables/${table}/data/6`)).body.position).toBe(8)
    },
  )

  it('stays where others have used the sequence since', async () => {
    await createTable('shared', 'int', columns)
    const rule = { check: 'n > 0' }
    expectOk(await main('PUT', '/tables/shared/constraints/positive', { body: rule }))
    const requests = Array.from({ length: 20 }, (_, index) =>
      index % 2 === 0
        ? main('PUT', `/tables/shared/data/${100 + index}`, { body: { n: -1 } })
        : main('POST', '/tables/shared/data', { body: { n: 1 } }),
    )
    const statuses = (await Promise.all(requests)).map(({ status }) => status)
    expect(statuses.filter((status) => status === 400)).toHaveLength(10)
    const found = await ids(main, 'shared')
    expect(new Set(found).size).toBe(10)
  })
})
