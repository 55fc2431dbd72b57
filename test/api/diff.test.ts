import type { Column } from '@offshoot/contract/schema'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { TestBranches } from '../support/branches.js'
import { TYPE_COLUMNS, TYPE_VALUES } from '../support/every-type.js'
import { createDatabase, createKey } from '../support/people.js'
import { createTestService, type TestService } from '../support/service.js'
import { expectOk } from '../support/tables.js'

let service: TestService
let number = 0

beforeAll(async () => {
  service = await createTestService()
})
afterAll(() => service.close())

const ITEMS: readonly Column[] = [
  { name: 'name', type: 'string' },
  { name: 'price', type: 'int' },
]

/** Creates a database with three records on `main` and a fork `dev`. */
async function open(tables: Readonly<Record<string, readonly Column[]>> = { items: ITEMS }) {
  const branches = await TestBranches.create(service, `diff${++number}`, tables)
  if ('items' in tables) {
    await branches.bulk('main', 'items', [
      { id: 'a', name: 'A', price: 1 },
      { id: 'b', name: 'B', price: 2 },
      { id: 'c', name: 'C', price: 3 },
    ])
  }
  await branches.fork('dev')
  return branches
}

const table = (name: string, counts: readonly number[], changes: readonly unknown[]) => {
  const [inserted, updated, deleted] = counts
  const last = changes.at(-1) as { id: string } | undefined
  return {
    name,
    inserted,
    updated,
    deleted,
    changes,
    ...(last === undefined ? {} : { cursor: last.id }),
    more: false,
  }
}

describe('the difference of a branch', () => {
  it('is nothing for a fork that has done nothing', async () => {
    const branches = await open()
    expect(await branches.diff('dev')).toEqual({
      branch: 'dev',
      against: { branch: 'main', at: 'fork' },
      schema: { operations: [] },
      tables: [],
    })
  })

  it('lists what was inserted, updated and deleted since the fork, in the order of ids', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'b', { price: 20 })
    await branches.remove('dev', 'items', 'a')
    await branches.put('dev', 'items', 'd', { name: 'D' })
    // Changes of the source after the fork are not part of the diff.
    await branches.patch('main', 'items', 'c', { price: 30 })
    await branches.put('main', 'items', 'e', { name: 'E' })
    const difference = await branches.diff('dev')
    expect(difference.against).toEqual({ branch: 'main', at: 'fork' })
    expect(difference.tables).toEqual([
      table(
        'items',
        [1, 1, 1],
        [
          { change: 'deleted', id: 'a', record: { name: 'A', price: 1 } },
          { change: 'updated', id: 'b', columns: { price: { from: 2, to: 20 } } },
          { change: 'inserted', id: 'd', record: { name: 'D' } },
        ],
      ),
    ])
  })

  it('says nothing of what was changed and changed back, made and deleted', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('dev', 'items', 'a', { price: 1 })
    await branches.put('dev', 'items', 'd', { name: 'D' })
    await branches.remove('dev', 'items', 'd', 'b')
    await branches.put('dev', 'items', 'b', { name: 'B', price: 2 })
    expect((await branches.diff('dev')).tables).toEqual([table('items', [0, 0, 0], [])])
  })

  it('says nothing of a record that only a fork of the branch still has', async () => {
    const branches = await open()
    await branches.put('dev', 'items', 'd', { name: 'D' })
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.fork('older', 'dev')
    await branches.remove('dev', 'items', 'd')
    await branches.patch('dev', 'items', 'a', { price: 1 })
    expect((await branches.diff('dev')).tables).toEqual([table('items', [0, 0, 0], [])])
    await branches.remove('dev', 'items', 'a')
    const deleted = { change: 'deleted', id: 'a', record: { name: 'A', price: 1 } }
    expect((await branches.diff('dev')).tables).toEqual([table('items', [0, 0, 1], [deleted])])
    expect((await branches.diff('older', '?against=dev')).tables).toMatchObject([
      { name: 'items', inserted: 2, updated: 0, deleted: 0 },
    ])
  })

  it('shows a record that was deleted and made anew as an update', async () => {
    const branches = await open()
    await branches.remove('dev', 'items', 'a')
    await branches.put('dev', 'items', 'a', { name: 'Anew' })
    expect((await branches.diff('dev')).tables[0].changes).toEqual([
      {
        change: 'updated',
        id: 'a',
        columns: { name: { from: 'A', to: 'Anew' }, price: { from: 1, to: null } },
      },
    ])
  })

  it('against the source shows both sides as they are now', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.remove('main', 'items', 'b')
    await branches.put('main', 'items', 'd', { name: 'D' })
    await branches.patch('main', 'items', 'c', { price: 30 })
    await branches.patch('dev', 'items', 'c', { price: 30 })
    const difference = await branches.diff('dev', '?against=source')
    expect(difference.against).toEqual({ branch: 'main', at: 'now' })
    expect(difference.tables).toEqual([
      table(
        'items',
        [1, 1, 1],
        [
          { change: 'updated', id: 'a', columns: { price: { from: 1, to: 10 } } },
          { change: 'inserted', id: 'b', record: { name: 'B', price: 2 } },
          { change: 'deleted', id: 'd', record: { name: 'D' } },
        ],
      ),
    ])
  })

  it('against a branch that is called like a word of the query goes by the word', async () => {
    const branches = await open()
    await branches.fork('fork')
    await branches.put('fork', 'items', 'x', { name: 'X' })
    expect((await branches.diff('dev', '?against=fork')).against.at).toBe('fork')
  })

  it('of siblings, cousins and ancestors goes through what they share', async () => {
    const branches = await open()
    await branches.patch('main', 'items', 'a', { price: 11 })
    await branches.fork('late')
    await branches.fork('deep', 'dev')
    await branches.patch('deep', 'items', 'b', { price: 22 })
    await branches.patch('late', 'items', 'b', { price: 22 })
    await branches.remove('late', 'items', 'c')
    const changes = async (branch: string, against: string) =>
      (await branches.diff(branch, `?against=${against}`)).tables[0]?.changes ?? []
    expect(await changes('late', 'deep')).toEqual([
      { change: 'updated', id: 'a', columns: { price: { from: 1, to: 11 } } },
      { change: 'deleted', id: 'c', record: { name: 'C', price: 3 } },
    ])
    expect(await changes('deep', 'main')).toEqual([
      { change: 'updated', id: 'a', columns: { price: { from: 11, to: 1 } } },
      { change: 'updated', id: 'b', columns: { price: { from: 2, to: 22 } } },
    ])
    expect(await changes('main', 'deep')).toEqual([
      { change: 'updated', id: 'a', columns: { price: { from: 1, to: 11 } } },
      { change: 'updated', id: 'b', columns: { price: { from: 22, to: 2 } } },
    ])
    expect(await changes('dev', 'dev')).toEqual([])
  })

  it('is the same after what nobody reads was collected, and the source is deleted', async () => {
    const branches = await open()
    await branches.fork('deep', 'dev')
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('deep', 'items', 'b', { price: 20 })
    const before = await branches.diff('deep')
    await branches.delete('dev')
    expect(await branches.diff('deep')).toEqual(before)
    expect(before.against).toEqual({ branch: 'dev', at: 'fork' })
  })

  it('has every type of value as records have it', async () => {
    const branches = await open({ types: TYPE_COLUMNS })
    const values = TYPE_VALUES
    const read = { ...values, link: { id: 'other' } }
    await branches.put('dev', 'types', 'new', values)
    expect((await branches.diff('dev')).tables[0].changes).toEqual([
      { change: 'inserted', id: 'new', record: read },
    ])
    await branches.fork('next', 'dev')
    await branches.put('next', 'types', 'new', {})
    const { changes } = (await branches.diff('next')).tables[0]
    expect(changes).toEqual([
      {
        change: 'updated',
        id: 'new',
        columns: Object.fromEntries(
          Object.entries(read).map(([name, from]) => [name, { from, to: null }]),
        ),
      },
    ])
    await branches.remove('next', 'types', 'new')
    expect((await branches.diff('next')).tables[0].changes).toEqual([
      { change: 'deleted', id: 'new', record: read },
    ])
    await branches.put('next', 'types', 'new', {
      ...values,
      object: { ...values.object, leaf: 'y' },
    })
    expect((await branches.diff('next')).tables[0].changes).toEqual([
      { change: 'updated', id: 'new', columns: { 'object.leaf': { from: 'x', to: 'y' } } },
    ])
    await branches.patch('next', 'types', 'new', { object: { leaf: 'x', tags: ['t'] } })
    expect((await branches.diff('next')).tables[0].changes).toEqual([
      {
        change: 'updated',
        id: 'new',
        columns: { 'object.inner': { from: values.object.inner, to: null } },
      },
    ])
  })

  it('tells values apart that are equal numbers and read differently, in list and count', async () => {
    const branches = await open({ documents: [{ name: 'json', type: 'json' }] })
    await branches.put('main', 'documents', 'd', { json: '{"n":1.0}' })
    await branches.fork('exact')
    await branches.put('exact', 'documents', 'd', { json: '{"n":1.00}' })
    const [documents] = (await branches.diff('exact')).tables
    expect(documents.updated).toBe(1)
    expect(documents.changes).toHaveLength(1)
  })

  it('has ids of every kind', async () => {
    const branches = await open()
    const ids = ['Z', 'a-b', 'a~b', 'ab', '0', 'x'.repeat(255)]
    await branches.bulk(
      'dev',
      'items',
      ids.map((id) => ({ id })),
    )
    const [items] = (await branches.diff('dev')).tables
    expect(items.changes.map((change: { id: string }) => change.id)).toEqual([...ids].sort())
  })
})

describe('the difference after a pull or a merge', () => {
  it('shows what the branch did, and not what its source did', async () => {
    const branches = await open()
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.patch('main', 'items', 'b', { price: 20 })
    await branches.put('main', 'items', 'd', { name: 'D' })
    await branches.edit('main', {
      addColumn: { table: 'items', column: { name: 'label', type: 'string' } },
    })
    await branches.pull('dev')
    const own = [{ change: 'updated', id: 'a', columns: { price: { from: 1, to: 10 } } }]
    expect(await branches.diff('dev')).toEqual({
      branch: 'dev',
      against: { branch: 'main', at: 'base' },
      schema: { operations: [] },
      tables: [table('items', [0, 1, 0], own)],
    })
    // The state at the fork can still be asked for.
    const sinceFork = await branches.diff('dev', '?against=fork')
    expect(sinceFork.against).toEqual({ branch: 'main', at: 'fork' })
    expect(sinceFork.schema.operations).toHaveLength(1)
    expect(sinceFork.tables).toMatchObject([{ inserted: 1, updated: 2, deleted: 0 }])
    // Merged changes are no longer a difference.
    await branches.merge('dev')
    await branches.remove('dev', 'items', 'c')
    expect((await branches.diff('dev')).tables).toEqual([
      table('items', [0, 0, 1], [{ change: 'deleted', id: 'c', record: { name: 'C', price: 3 } }]),
    ])
  })

  it('is what a merge would bring, also over several common ancestors', async () => {
    const branches = await open()
    await branches.fork('one')
    await branches.patch('one', 'items', 'a', { price: 11 })
    await branches.patch('dev', 'items', 'b', { price: 22 })
    // `one` and `dev` are merged into both `main` and `two`, which then have two lowest ancestors.
    await branches.fork('two')
    for (const into of ['main', 'two']) {
      await branches.merge('one', { into })
      await branches.merge('dev', { into })
    }
    await branches.remove('two', 'items', 'c')
    await branches.put('two', 'items', 'd', { name: 'D' })
    await branches.patch('two', 'items', 'b', { price: 23 })
    expect(await branches.diff('two')).toMatchObject({
      against: { branch: 'main', at: 'base' },
      schema: { operations: [] },
      tables: [
        table(
          'items',
          [1, 1, 1],
          [
            { change: 'updated', id: 'b', columns: { price: { from: 22, to: 23 } } },
            { change: 'deleted', id: 'c', record: { name: 'C', price: 3 } },
            { change: 'inserted', id: 'd', record: { name: 'D' } },
          ],
        ),
      ],
    })
    expect((await branches.merge('two')).tables).toMatchObject([
      { inserted: 1, updated: 1, deleted: 1 },
    ])
  })

  it('is that from the fork once the source is deleted', async () => {
    const branches = await open()
    await branches.fork('deep', 'dev')
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.pull('deep')
    await branches.delete('dev')
    expect(await branches.diff('deep')).toMatchObject({
      against: { at: 'fork' },
      tables: [{ updated: 1 }],
    })
  })
})

describe('the difference after a revert has brought back a table and a column', () => {
  const expected = {
    schema: { operations: [] },
    tables: [
      table(
        'items',
        [0, 1, 0],
        [{ change: 'updated', id: 'a', columns: { price: { from: 1, to: 10 } } }],
      ),
      table(
        'notes',
        [1, 1, 1],
        [
          { change: 'deleted', id: 'a', record: { text: 'A' } },
          { change: 'updated', id: 'b', columns: { text: { from: 'B', to: 'changed' } } },
          { change: 'inserted', id: 'd', record: { text: 'D' } },
        ],
      ),
    ],
  }

  /** Removes a table and a column of the fork `deep` of `dev`, takes that back, and then changes records. */
  async function openReverted() {
    const branches = await open({ items: ITEMS, notes: [{ name: 'text', type: 'string' }] })
    await branches.bulk('dev', 'notes', [
      { id: 'a', text: 'A' },
      { id: 'b', text: 'B' },
      { id: 'c', text: 'C' },
    ])
    await branches.fork('deep', 'dev')
    expectOk(await branches.call('deep', 'POST', '/checkpoints', { name: 'whole' }))
    await branches.edit(
      'deep',
      { removeTable: { table: 'notes' } },
      { removeColumn: { table: 'items', column: 'price' } },
    )
    expectOk(await branches.call('deep', 'POST', '/checkpoints', { name: 'less' }))
    expectOk(await branches.call('deep', 'POST', '/revert', { from: 'whole', to: 'less' }))
    await branches.patch('deep', 'items', 'a', { price: 10 })
    await branches.remove('deep', 'notes', 'a')
    await branches.patch('deep', 'notes', 'b', { text: 'changed' })
    await branches.put('deep', 'notes', 'd', { text: 'D' })
    return branches
  }

  it.each(['base', 'fork', 'source', 'dev'])(
    'against %s has only what was changed',
    async (against) => {
      const branches = await openReverted()
      expect(await branches.diff('deep', `?against=${against}`)).toMatchObject(expected)
    },
  )

  it('has only what was changed, from the fork, once the source is deleted', async () => {
    const branches = await openReverted()
    await branches.delete('dev')
    expect(await branches.diff('deep')).toMatchObject({ against: { at: 'fork' }, ...expected })
  })
})

describe('the difference of schemas', () => {
  it('is the edits that lead to the branch, renames told from removals', async () => {
    const branches = await open()
    await branches.edit(
      'dev',
      { renameColumn: { table: 'items', oldName: 'price', newName: 'cents' } },
      { removeColumn: { table: 'items', column: 'name' } },
      { addColumn: { table: 'items', column: { name: 'name', type: 'text' } } },
      { renameTable: { oldName: 'items', newName: 'goods' } },
      { addTable: { table: 'items' } },
      {
        addColumn: {
          table: 'items',
          column: { name: 'good', type: 'link', link: { table: 'goods' } },
        },
      },
    )
    const { schema, tables } = await branches.diff('dev')
    expect(schema.operations).toEqual([
      { renameTable: { oldName: 'items', newName: 'goods' } },
      { addTable: { table: 'items' } },
      { removeColumn: { table: 'goods', column: 'name' } },
      { renameColumn: { table: 'goods', oldName: 'price', newName: 'cents' } },
      { addColumn: { table: 'goods', column: { name: 'name', type: 'text' } } },
      {
        addColumn: {
          table: 'items',
          column: { name: 'good', type: 'link', link: { table: 'goods' } },
        },
      },
    ])
    // The schema differs, but no record has changed.
    expect(tables).toEqual([table('items', [0, 0, 0], [])])
  })

  it('can be applied to the other branch, to get the same schema', async () => {
    const branches = await open()
    await branches.edit(
      'dev',
      { renameColumn: { table: 'items', oldName: 'name', newName: 'other' } },
      { renameColumn: { table: 'items', oldName: 'price', newName: 'name' } },
      { renameColumn: { table: 'items', oldName: 'other', newName: 'price' } },
    )
    const { operations } = (await branches.diff('dev')).schema
    await branches.edit('main', ...operations)
    expect(await branches.schema('main')).toEqual(await branches.schema('dev'))
    expect(await branches.read('main', 'items', ['a'])).toEqual({ a: { price: 'A', name: 1 } })
  })

  it('shows a new column only in the records that have a value of their own there', async () => {
    const branches = await open()
    await branches.edit('dev', {
      addColumn: {
        table: 'items',
        column: { name: 'size', type: 'int', notNull: true, defaultValue: '5' },
      },
    })
    await branches.patch('dev', 'items', 'a', { size: 6 })
    await branches.patch('dev', 'items', 'b', { price: 20 })
    expect((await branches.diff('dev')).tables[0].changes).toEqual([
      { change: 'updated', id: 'a', columns: { size: { from: 5, to: 6 } } },
      { change: 'updated', id: 'b', columns: { price: { from: 2, to: 20 } } },
    ])
  })

  it('leaves out of records what the other side has removed, and lists a removed table', async () => {
    const branches = await open({ items: ITEMS, notes: [{ name: 'text', type: 'text' }] })
    await branches.put('main', 'notes', 'n', { text: 'kept' })
    await branches.fork('late')
    await branches.patch('late', 'items', 'a', { price: 10 })
    await branches.edit('main', { removeColumn: { table: 'items', column: 'name' } })
    await branches.patch('main', 'items', 'b', { price: 20 })
    await branches.put('main', 'items', 'd', { price: 4 })
    await branches.edit('main', { removeTable: { table: 'notes' } })
    const { schema, tables } = await branches.diff('late', '?against=source')
    expect(schema.operations).toEqual([
      { addTable: { table: 'notes' } },
      { addColumn: { table: 'items', column: { name: 'name', type: 'string' } } },
      { addColumn: { table: 'notes', column: { name: 'text', type: 'text' } } },
    ])
    expect(tables).toEqual([
      table(
        'items',
        [0, 2, 1],
        [
          { change: 'updated', id: 'a', columns: { price: { from: 1, to: 10 } } },
          { change: 'updated', id: 'b', columns: { price: { from: 20, to: 2 } } },
          { change: 'deleted', id: 'd', record: { price: 4 } },
        ],
      ),
      table('notes', [1, 0, 0], [{ change: 'inserted', id: 'n', record: { text: 'kept' } }]),
    ])
  })

  it('of a branch without rows shows all of them as its own', async () => {
    const branches = await open()
    await branches.fork('empty', 'main', { data: false })
    await branches.put('empty', 'items', 'a', { name: 'own' })
    expect((await branches.diff('empty')).tables).toEqual([
      table('items', [1, 0, 0], [{ change: 'inserted', id: 'a', record: { name: 'own' } }]),
    ])
  })
})

describe('pages of a difference', () => {
  let branches: TestBranches
  const ids = Array.from({ length: 45 }, (_, index) => `r${String(index).padStart(2, '0')}`)

  beforeAll(async () => {
    branches = await open({ items: ITEMS, others: ITEMS })
    await branches.bulk(
      'dev',
      'items',
      ids.map((id) => ({ id })),
    )
    await branches.put('dev', 'others', 'x', {})
  })

  const idsOf = (page: { changes: readonly { id: string }[] }) => page.changes.map(({ id }) => id)

  it('have 20 records of each table unless asked otherwise', async () => {
    const { tables } = await branches.diff('dev')
    expect(tables.map(idsOf)).toEqual([ids.slice(0, 20), ['x']])
    expect(tables[0]).toMatchObject({ inserted: 45, cursor: 'r19', more: true })
    expect(tables[1]).toMatchObject({ more: false })
  })

  it.each([1, 7, 44, 45, 46, 1000])('of %i records lead through all of them', async (size) => {
    const found: string[] = []
    let after = ''
    for (;;) {
      const query = `?table=items&size=${size}${after === '' ? '' : `&after=${after}`}`
      const { tables } = await branches.diff('dev', query)
      expect(tables).toHaveLength(1)
      found.push(...idsOf(tables[0]))
      expect(tables[0].inserted).toBe(45)
      if (!tables[0].more) break
      after = tables[0].cursor
    }
    expect(found).toEqual(ids)
  })

  it('of no records have the counts', async () => {
    const { tables } = await branches.diff('dev', '?size=0')
    expect(tables[0]).toMatchObject({ inserted: 45, changes: [] })
  })

  it('pass over many candidates that turn out to be equal', async () => {
    const many = await open()
    const rows = Array.from({ length: 2500 }, (_, index) => ({
      id: `n${String(index).padStart(4, '0')}`,
      price: 1,
    }))
    await many.bulk('main', 'items', rows)
    await many.fork('busy')
    const touch = (price: number) => {
      const operations = rows.map(({ id }) => ({
        update: { table: 'items', id, fields: { price } },
      }))
      return [operations.slice(0, 1000), operations.slice(1000, 2000), operations.slice(2000)]
    }
    for (const operations of [...touch(2), ...touch(1)]) {
      await many.call('busy', 'POST', '/transaction', { operations })
    }
    await many.patch('busy', 'items', 'n2400', { price: 3 })
    await many.patch('busy', 'items', 'n2450', { price: 3 })
    const page = (await many.diff('busy', '?table=items&size=1')).tables[0]
    expect(page).toMatchObject({ updated: 2, cursor: 'n2400', more: true })
    const next = (await many.diff('busy', `?table=items&size=1&after=${page.cursor}`)).tables[0]
    expect(next).toMatchObject({ cursor: 'n2450', more: false })
  })
})

describe('a difference is refused', () => {
  let branches: TestBranches

  beforeAll(async () => {
    branches = await open()
    await branches.fork('empty', 'main', { data: false })
    await branches.fork('child', 'dev')
    await branches.fork('orphan', 'child')
    await branches.delete('child')
  })

  it.each([
    ['an unknown branch', 'nowhere', '', 404, 'branch_not_found'],
    ['against an unknown branch', 'dev', '?against=nowhere', 404, 'branch_not_found'],
    ['for a branch that was not forked', 'main', '', 409, 'no_source'],
    [
      'for a branch that was not forked, with its source',
      'main',
      '?against=source',
      409,
      'no_source',
    ],
    ['against a source that is gone', 'orphan', '?against=source', 409, 'no_source'],
    ['for branches without a common past', 'empty', '?against=dev', 409, 'unrelated_branches'],
    [
      'against a source without a common past',
      'empty',
      '?against=source',
      409,
      'unrelated_branches',
    ],
    ['for an unknown table', 'dev', '?table=nothing', 404, 'table_not_found'],
    ['after a record of no table', 'dev', '?after=a', 400, 'invalid_request'],
    ['for a negative size', 'dev', '?size=-1', 400, 'invalid_request'],
    ['for a page that is too large', 'dev', '?size=1001', 400, 'invalid_request'],
    ['against nothing', 'dev', '?against=', 400, 'invalid_request'],
    ['against what cannot be a name', 'dev', '?against=a%00b', 400, 'invalid_request'],
  ])('%s', async (_name, branch, query, status, code) => {
    const answer = await branches.call(branch, 'GET', `/diff${query}`)
    expect([answer.status, answer.body.code]).toEqual([status, code])
  })

  it('without a key, and for branches that a key does not reach', async () => {
    const none = await branches.call('dev', 'GET', '/diff', undefined, { key: null })
    expect(none.status).toBe(401)
    const key = await createKey(service, 'diff-dev', { fields: { scope: { branches: ['dev'] } } })
    const own = await branches.call('dev', 'GET', '/diff', undefined, { key })
    expect(own.status).toBe(200)
    const main = await branches.call('main', 'GET', '/diff?against=dev', undefined, { key })
    expect(main.body.code).toBe('branch_not_found')
    const named = await branches.call('dev', 'GET', '/diff?against=main', undefined, { key })
    expect(named.body.code).toBe('branch_not_found')
    const source = await branches.call('dev', 'GET', '/diff?against=source', undefined, { key })
    expect(source.body.code).toBe('no_source')
  })

  it('never to a key that can only read', async () => {
    const key = await createKey(service, 'diff-reader', { fields: { scope: { access: 'read' } } })
    const answer = await branches.call('dev', 'GET', '/diff?against=source', undefined, { key })
    expect(answer.status).toBe(200)
  })

  it('across databases', async () => {
    await createDatabase(service, 'elsewhere', { branchName: 'away' })
    const answer = await branches.call('dev', 'GET', '/diff?against=away')
    expect(answer.body.code).toBe('branch_not_found')
  })
})

describe('the stats of a branch', () => {
  it('count what it holds itself and what it inherits', async () => {
    const branches = await open()
    const stats = async (branch: string) => {
      const { body } = await branches.call(branch, 'GET', '/stats')
      expect(body.tables.map((own: { name: string }) => own.name)).toEqual(['items'])
      expect(body.tables[0].rows).toEqual(body.rows)
      expect(body.tables[0].bytes).toEqual(body.bytes)
      return body
    }
    expect((await stats('main')).rows).toEqual({ owned: 3, inherited: 0 })
    const fresh = await stats('dev')
    expect(fresh.rows).toEqual({ owned: 0, inherited: 3 })
    expect(fresh.bytes.owned).toBe(0)
    expect(fresh.bytes.inherited).toBeGreaterThan(0)
    await branches.patch('dev', 'items', 'a', { price: 10 })
    await branches.remove('dev', 'items', 'b')
    await branches.put('dev', 'items', 'd', {})
    const written = await stats('dev')
    expect(written.rows).toEqual({ owned: 2, inherited: 1 })
    expect(written.bytes.owned).toBeGreaterThan(0)
    await branches.patch('main', 'items', 'c', { price: 30 })
    expect((await stats('dev')).rows).toEqual({ owned: 2, inherited: 1 })
    await branches.fork('deep', 'dev')
    expect((await stats('deep')).rows).toEqual({ owned: 0, inherited: 3 })
  })

  it('are refused for an unknown branch', async () => {
    const branches = await open()
    expect((await branches.call('nowhere', 'GET', '/stats')).status).toBe(404)
  })
})
