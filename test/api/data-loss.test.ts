import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { type Answer, createTestService, type TestService } from '../support/service.js'

const LIMIT = 5
const XATA_CLIENT = { 'x-xata-client-id': 'client' }

let service: TestService
let count = 0
let db: string

beforeAll(async () => {
  service = await createTestService({ limits: { dataLossRecordsMax: LIMIT } })
})
afterAll(() => service.close())

const ADDRESS = {
  name: 'address',
  type: 'object',
  columns: [
    { name: 'city', type: 'string' },
    { name: 'zip', type: 'string' },
  ],
}
const COLUMNS = [
  { name: 'name', type: 'string' },
  { name: 'age', type: 'int' },
  { name: 'unused', type: 'text' },
  ADDRESS,
]

beforeEach(async () => {
  const name = `loss${++count}`
  db = `${service.workspace}/db/${name}`
  await ok(
    service.call('PUT', `/workspaces/${service.workspaceId}/dbs/${name}`, {
      body: { region: 'local' },
    }),
  )
  await ok(
    post('main/schema/update', {
      operations: [
        { addTable: { table: 'people' } },
        ...COLUMNS.map((column) => ({ addColumn: { table: 'people', column } })),
        { addTable: { table: 'empty' } },
      ],
    }),
  )
  await insert('main', [{ name: 'Ada', age: 36 }, { name: 'Alan' }, { address: { city: 'Bern' } }])
})

const post = (path: string, body?: unknown, headers = {}) =>
  service.call('POST', `${db}:${path}`, { body, headers })
const insert = (branch: string, records: readonly object[]) =>
  ok(post(`${branch}/tables/people/bulk`, { records }))
const putSchema = (branch: string, body: object, headers = {}) =>
  service.call('PUT', `${db}:${branch}/tables/people/schema`, { body, headers })
const without = (...names: string[]) => COLUMNS.filter(({ name }) => !names.includes(name))

async function ok(answer: Promise<Answer>): Promise<Answer> {
  const { status, body, headers } = await answer
  expect({ status, body }).toMatchObject({ status: expect.toSatisfy((code) => code < 300) })
  return { status, body, headers }
}

/** Reads the state that a refused edit must not change. */
async function stateOf(branch: string): Promise<unknown> {
  const { body: details } = await ok(service.call('GET', `${db}:${branch}`))
  const { body: rows } = await ok(post(`${branch}/tables/people/query`, {}))
  return { details, rows: rows.records }
}

async function expectRefused(
  call: () => Promise<Answer>,
  dataLoss: readonly object[],
  branch = 'main',
): Promise<string> {
  const before = await stateOf(branch)
  const answer = await call()
  expect(answer).toMatchObject({ status: 409, body: { code: 'data_loss', dataLoss } })
  expect(answer.body.message).toContain('[allowDataLoss] to true')
  expect(await stateOf(branch)).toEqual(before)
  return answer.body.message
}

const NAMES = { table: 'people', column: 'name', records: 2, more: false }
const removeColumn = (column: string) => ({ removeColumn: { table: 'people', column } })

describe('setting the whole column list', () => {
  it('refuses to lose the values of a column that was left out', async () => {
    const message = await expectRefused(
      () => putSchema('main', { columns: without('name') }),
      [NAMES],
    )
    expect(message).toContain('table [people]: column [name]: 2 records with a value')
  })

  it('refuses to lose the values of a column that cannot have the new type', async () => {
    for (const change of [{ type: 'json' }, { ...ADDRESS, name: 'name' }]) {
      const columns = [{ name: 'name', ...change }, ...without('name')]
      await expectRefused(() => putSchema('main', { columns }), [NAMES])
    }
  })

  it('keeps the values of a column whose type or rules differ', async () => {
    for (const change of [{ type: 'text' }, { unique: true }, { defaultValue: 'x' }]) {
      const columns = [{ name: 'name', type: 'string', ...change }, ...without('name')]
      await ok(putSchema('main', { columns }))
      const { body } = await ok(post('main/tables/people/query', { filter: { name: 'Ada' } }))
      expect(body.records).toHaveLength(1)
    }
  })

  it('names every column, and an object by any of its parts', async () => {
    await expectRefused(
      () => putSchema('main', { columns: without('name', 'age', 'address') }),
      [
        NAMES,
        { table: 'people', column: 'age', records: 1, more: false },
        { table: 'people', column: 'address', records: 1, more: false },
      ],
    )
    const fewer = { ...ADDRESS, columns: ADDRESS.columns.slice(0, 1) }
    await expectRefused(
      () => putSchema('main', { columns: [...without('address'), fewer] }),
      [{ table: 'people', column: 'address', records: 1, more: false }],
    )
  })

  it('removes a column that holds no value, and one of a table without records', async () => {
    await ok(putSchema('main', { columns: without('unused') }))
    await ok(
      service.call('PUT', `${db}:main/tables/empty/schema`, {
        body: { columns: [{ name: 'a', type: 'int' }] },
      }),
    )
    await ok(service.call('PUT', `${db}:main/tables/empty/schema`, { body: { columns: [] } }))
  })

  it('loses them when it says so, and only then', async () => {
    const columns = without('name')
    await expectRefused(() => putSchema('main', { columns, allowDataLoss: false }), [NAMES])
    const wrong = await putSchema('main', { columns, allowDataLoss: 'true' })
    expect(wrong).toMatchObject({ status: 400, body: { code: 'invalid_request' } })
    await ok(putSchema('main', { columns, allowDataLoss: true }))
  })

  it('works for Xata clients without the consent', async () => {
    await ok(putSchema('main', { columns: without('name') }, XATA_CLIENT))
  })
})

describe.each([
  ['apply', (operations: object[]) => ({ edits: { operations } })],
  ['update', (operations: object[]) => ({ operations })],
])('schema/%s', (route, bodyOf) => {
  const edit = (operations: object[], more = {}, headers = {}) =>
    post(`main/schema/${route}`, { ...bodyOf(operations), ...more }, headers)

  it('refuses to remove a column or a table with values', async () => {
    await expectRefused(() => edit([removeColumn('name')]), [NAMES])
    const message = await expectRefused(
      () => edit([{ removeTable: { table: 'people' } }]),
      [{ table: 'people', records: 3, more: false }],
    )
    expect(message).toContain('table [people]: 3 records')
    await ok(edit([{ removeTable: { table: 'empty' } }]))
  })

  it('sees through renames, and through names that are used again', async () => {
    const rename = (oldName: string, newName: string) => ({
      renameColumn: { table: 'people', oldName, newName },
    })
    await expectRefused(() => edit([rename('name', 'title'), removeColumn('title')]), [NAMES])
    await expectRefused(
      () => edit([rename('age', 'years'), removeColumn('name'), rename('years', 'name')]),
      [NAMES],
    )
    const again = { addColumn: { table: 'people', column: { name: 'name', type: 'string' } } }
    await expectRefused(() => edit([removeColumn('name'), again]), [NAMES])
    await ok(edit([rename('name', 'title'), rename('title', 'name')]))
  })

  it('does not mind what the same edit has added', async () => {
    const column = { name: 'extra', type: 'string', notNull: true, defaultValue: 'x' }
    await ok(edit([{ addColumn: { table: 'people', column } }, removeColumn('extra')]))
  })

  it('loses values when the request says so, or comes from a Xata client', async () => {
    await ok(edit([removeColumn('name')], { allowDataLoss: true }))
    await ok(edit([removeColumn('age')], {}, XATA_CLIENT))
  })
})

describe('compare and preview', () => {
  it('show what would be lost, and the edits can still be sent back as they are', async () => {
    const schema = { tables: [{ name: 'people', columns: without('name') }] }
    const { body } = await ok(post('main/schema/compare', { schema }))
    expect(body.dataLoss).toEqual([NAMES])
    await expectRefused(() => post('main/schema/apply', { edits: body.edits }), [NAMES])
    const preview = await ok(post('main/schema/preview', { edits: body.edits }))
    expect(preview.body.dataLoss).toEqual([NAMES])
    await ok(post('main/schema/apply', { edits: body.edits, allowDataLoss: true }))
  })

  it('do not count values that an expression makes new ones of, unless these are lost', async () => {
    const rewrite = { alterColumn: { table: 'people', column: 'age', using: 'age + 1' } }
    const lossOf = async (...operations: object[]) =>
      (await ok(post('main/schema/preview', { edits: { operations } }))).body.dataLoss
    expect(await lossOf(rewrite)).toEqual([])
    const twice = [rewrite, { alterColumn: { table: 'people', column: 'age', type: 'text' } }]
    expect(await lossOf(...twice, removeColumn('unused'))).toEqual([])
    const loss = [{ table: 'people', column: 'age', records: 1, more: false }]
    expect(await lossOf(rewrite, removeColumn('age'))).toEqual(loss)
    await expectRefused(
      () => post('main/schema/apply', { edits: { operations: [rewrite, removeColumn('age')] } }),
      loss,
    )
    const operations = [...twice, removeColumn('unused')]
    await ok(post('main/schema/apply', { edits: { operations } }))
  })

  it('show nothing where nothing is lost', async () => {
    await ok(service.call('PUT', `${db}:dev`))
    const { body } = await ok(post('main/schema/compare/dev'))
    expect(body.dataLoss).toEqual([])
    expect((await ok(post('main/schema/preview', {}))).body.dataLoss).toEqual([])
  })

  it('show what a branch would lose on the way to the schema of another one', async () => {
    await ok(service.call('PUT', `${db}:dev`))
    await ok(service.call('DELETE', `${db}:dev/tables/people/columns/name`))
    expect((await ok(post('main/schema/compare/dev'))).body.dataLoss).toEqual([NAMES])
    expect((await ok(post('dev/schema/compare/main'))).body.dataLoss).toEqual([])
  })

  it('answer Xata clients without the field', async () => {
    const schema = { tables: [] }
    const { body } = await ok(post('main/schema/compare', { schema }, XATA_CLIENT))
    expect(body).not.toHaveProperty('dataLoss')
  })
})

describe('a push of migrations', () => {
  it('is refused as a whole when one of them would lose values', async () => {
    await ok(service.call('PUT', `${db}:dev`))
    await ok(post('dev/schema/update', { operations: [{ addTable: { table: 'first' } }] }))
    await ok(service.call('DELETE', `${db}:dev/tables/people/columns/name`))
    const { body } = await ok(post('dev/schema/history', { page: { size: 2 } }))
    const migrations = body.logs
      .reverse()
      .map(({ createdAt: _createdAt, ...migration }: { createdAt: string }) => migration)
    await expectRefused(() => post('main/schema/push', { migrations }), [NAMES])
    await ok(post('main/schema/push', { migrations, allowDataLoss: true }))
  })

  it('may make new values of a column several times', async () => {
    await ok(service.call('PUT', `${db}:dev`))
    const using = 'age + 1'
    const alterColumn = { table: 'people', column: 'age', using }
    const operations = [{ alterColumn }]
    for (let time = 1; time <= 2; time++) await ok(post('dev/schema/update', { operations }))
    await ok(service.call('DELETE', `${db}:dev/tables/people/columns/unused`))
    const { body } = await ok(post('dev/schema/history', { page: { size: 3 } }))
    const migrations = body.logs
      .reverse()
      .map(({ createdAt: _createdAt, ...migration }: { createdAt: string }) => migration)
    await ok(post('main/schema/push', { migrations }))
    const { body: found } = await ok(post('main/tables/people/query', { filter: { age: 38 } }))
    expect(found.records).toHaveLength(1)
  })
})

describe('a fork', () => {
  it('counts the records that it sees: inherited, changed, deleted and its own', async () => {
    await ok(service.call('PUT', `${db}:dev`))
    await expectRefused(() => putSchema('dev', { columns: without('name') }), [NAMES], 'dev')
    await insert('dev', [{ name: 'Grace' }])
    const loss = { ...NAMES, records: 3 }
    await expectRefused(() => putSchema('dev', { columns: without('name') }), [loss], 'dev')
    await expectRefused(() => putSchema('main', { columns: without('name') }), [NAMES])
    const { body } = await ok(post('dev/tables/people/query', { filter: { $exists: 'name' } }))
    for (const { id } of body.records) {
      await ok(service.call('DELETE', `${db}:dev/tables/people/data/${id}`))
    }
    await ok(putSchema('dev', { columns: without('name') }))
  })
})

describe('a merge', () => {
  beforeEach(async () => {
    await ok(service.call('PUT', `${db}:dev`))
  })

  it('refuses to take over the removal of a column that the target holds values in', async () => {
    await ok(service.call('DELETE', `${db}:dev/tables/people/columns/name`))
    const dryRun = await ok(post('dev/merge', { dryRun: true }))
    expect(dryRun.body).toMatchObject({ merged: false, dataLoss: [NAMES] })
    await expectRefused(() => post('dev/merge'), [NAMES])
    const merged = await ok(post('dev/merge', { allowDataLoss: true }))
    expect(merged.body).toMatchObject({ merged: true, dataLoss: [NAMES] })
  })

  it('refuses to take over the removal of a table with records, also by a pull', async () => {
    await ok(service.call('DELETE', `${db}:main/tables/people`))
    const loss = { table: 'people', records: 3, more: false }
    await expectRefused(() => post('dev/pull'), [loss], 'dev')
    await ok(post('dev/pull', { tables: { people: { mode: 'skip' } } }))
  })

  it('takes over removals that lose nothing, and says so', async () => {
    await ok(service.call('DELETE', `${db}:dev/tables/people/columns/unused`))
    await ok(service.call('DELETE', `${db}:dev/tables/empty`))
    expect((await ok(post('dev/merge'))).body).toMatchObject({ merged: true, dataLoss: [] })
  })
})

describe('a table with many records', () => {
  const fill = (n: number) =>
    insert(
      'main',
      Array.from({ length: n }, () => ({ name: 'x' })),
    )

  it('is counted exactly up to the limit', async () => {
    await fill(LIMIT - 3)
    const loss = { ...NAMES, records: LIMIT - 1 }
    await expectRefused(() => putSchema('main', { columns: without('name') }), [loss])
    await ok(putSchema('main', { columns: without('unused') }))
  })

  it('is not read further than the limit, and what was not seen counts as a loss', async () => {
    await fill(LIMIT - 2)
    const removed = () => putSchema('main', { columns: without('unused') })
    const loss = { table: 'people', column: 'unused', records: 0, more: true }
    const message = await expectRefused(removed, [loss])
    expect(message).toContain('[unused]: possibly; it has more records')
    await expectRefused(
      () => post('main/schema/update', { operations: [{ removeTable: { table: 'people' } }] }),
      [{ table: 'people', records: LIMIT, more: true }],
    )
  })
})

describe('an explicit removal', () => {
  it('of one column or one table needs no permission', async () => {
    await ok(service.call('DELETE', `${db}:main/tables/people/columns/name`))
    await ok(service.call('DELETE', `${db}:main/tables/people`))
  })
})
