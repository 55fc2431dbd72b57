import { describe, expect, test } from 'vitest'
import type { StoredColumn, StoredSchema } from '../../rows/columns/stored-schema.js'
import { SameIds } from './same-ids.js'

const column = (id: number, name: string, more: Partial<StoredColumn> = {}): StoredColumn => ({
  id,
  name,
  type: 'string',
  ...more,
})
/** A schema with one table. */
const schema = (...columns: StoredColumn[]): StoredSchema => ({
  tables: [{ id: 1, name: 'users', columns }],
})
const BASE = schema(column(2, 'name'))
const [NAME] = BASE.tables[0]?.columns ?? []

/** Returns the ids of a schema as they are read. */
function idsOf({ tables }: StoredSchema): unknown {
  return tables.map(({ id, columns }) => [id, ...columns.map((each) => each.id)])
}

describe('the column that a column was made of', () => {
  const origin = column(2, 'n', { type: 'int' })
  const theirs = { ...schema(column(9, 'n', { type: 'int' })), sameIds: [[2, 9]] }

  test('is read by the id under which ours has its values', () => {
    const ours = schema(column(5, 'n', { from: origin }))
    const ids = new SameIds({ ours, theirs })
    expect(ids.read(ours).tables).toEqual(ours.tables)
    expect(idsOf(ids.read(theirs))).toEqual([[1, 2]])
    expect(ids.readIds(theirs).columns.get(2)).toMatchObject({ id: 9 })
  })

  test('keeps its id, although another column of ours is the same', () => {
    const ours = {
      ...schema(column(5, 'n', { from: origin }), column(9, 'm', { type: 'int' })),
      sameIds: [[2, 9]],
    }
    const ids = new SameIds({ ours, theirs })
    expect(ids.read(ours).tables).toEqual(ours.tables)
  })
})

describe('what both sides have added', () => {
  const added = (ours: StoredColumn, theirs: StoredColumn, base = BASE) => {
    const sides = {
      ours: schema(...(NAME ? [NAME] : []), ours),
      theirs: schema(...(NAME ? [NAME] : []), theirs),
    }
    return new SameIds(sides).withAdded(base)
  }

  test('is the same if name and definition are, whatever index and fill are', () => {
    const ids = added(
      column(5, 'mail', { unique: true, index: true, fill: 'x' }),
      column(9, 'mail', { unique: true }),
    )
    expect(ids.stored).toEqual([[5, 9]])
    expect(ids.isNew).toBe(true)
    expect([ids.idOf(9), ids.idOf(5), ids.idOf(2)]).toEqual([5, 5, 2])
  })

  test('is the same if it is computed of columns that are', () => {
    const twice = (id: number, used: number) =>
      column(id, 'twice', { computed: { text: [used, ' * 2'], sql: [used, ' * 2'] } })
    const sides = {
      ours: schema(column(5, 'size'), twice(6, 5)),
      theirs: schema(column(9, 'size'), twice(10, 9)),
    }
    expect(new SameIds(sides).withAdded(BASE).stored).toEqual([
      [5, 9],
      [6, 10],
    ])
    const other = { ...sides, theirs: schema(column(9, 'length'), twice(10, 9)) }
    expect(new SameIds(other).withAdded(BASE).stored).toBeUndefined()
  })

  test.each([
    ['name', column(9, 'Mail')],
    ['type', column(9, 'mail', { type: 'text' })],
    ['rule', column(9, 'mail', { notNull: true })],
    ['default', column(9, 'mail', { defaultValue: 'x' })],
    ['link', column(9, 'mail', { type: 'link', link: { tableId: 1 } })],
  ])('is different if the %s differs', (_name, theirs) => {
    expect(added(column(5, 'mail'), theirs).stored).toBeUndefined()
  })

  test('is different if the base has, or has removed, one of them', () => {
    const pair = [column(5, 'mail'), column(9, 'mail')] as const
    expect(added(...pair, schema(column(2, 'name'), column(9, 'mail'))).stored).toBeUndefined()
    expect(added(...pair, { ...BASE, removedIds: [5] }).stored).toBeUndefined()
  })

  test('can be nested, in any order', () => {
    const nested = (id: number, ...columns: StoredColumn[]) =>
      column(id, 'place', { type: 'object', columns })
    const ids = added(
      nested(5, column(6, 'city'), column(7, 'street')),
      nested(10, column(11, 'street'), column(12, 'city')),
    )
    expect(ids.stored).toEqual([
      [5, 10],
      [6, 12],
      [7, 11],
    ])
  })

  test('can be tables that link to each other', () => {
    const tables = (first: number): StoredSchema => ({
      tables: [
        { id: first, name: 'teams', columns: [] },
        {
          id: first + 1,
          name: 'people',
          columns: [column(first + 2, 'team', { type: 'link', link: { tableId: first } })],
        },
      ],
    })
    const ids = new SameIds({ ours: tables(10), theirs: tables(20) }).withAdded({ tables: [] })
    expect(ids.read(tables(20))).toEqual(tables(10))
    expect(ids.allOf([10])).toEqual([10, 20])
    const skipped = new SameIds({ ours: tables(10), theirs: tables(20) }).withAdded(
      { tables: [] },
      () => false,
    )
    expect(skipped.stored).toBeUndefined()
  })
})

describe('ids that are known to be the same', () => {
  test('are read as those of ours, or else as those of theirs', () => {
    const sameIds = [[5, 9]]
    const ours = { ...schema(column(9, 'mail')), sameIds }
    const theirs = { ...schema(column(5, 'post', { fill: 'x' })), removedIds: [7], sameIds }
    const ids = new SameIds({ ours, theirs })
    expect(ids.isNew).toBe(false)
    expect(idsOf(ids.read(theirs))).toEqual([[1, 9]])
    expect(ids.readIds(theirs).columns).toEqual(
      new Map([[9, { id: 5, column: column(5, 'post', { fill: 'x' }) }]]),
    )
    expect(ids.readIds(ours).columns).toEqual(new Map())
    const removed = { ...schema(), removedIds: [9], sameIds }
    const afterwards = new SameIds({ ours: removed, theirs })
    expect(afterwards.read(removed).removedIds).toEqual([5])
    expect(idsOf(afterwards.read(theirs))).toEqual([[1, 5]])
    expect(afterwards.store({ ...schema(), removedIds: [5] })).toEqual({
      ...schema(),
      removedIds: [9, 5],
      sameIds,
    })
  })

  test('stay apart if one of the sides uses both', () => {
    const ours = { ...schema(column(5, 'mail')), sameIds: [[5, 9, 11]] }
    const theirs = schema(column(5, 'mail'), column(9, 'post'))
    for (const sides of [
      { ours, theirs },
      { ours: theirs, theirs: ours },
    ]) {
      const ids = new SameIds(sides)
      expect(idsOf(ids.read(theirs))).toEqual([[1, 5, 9]])
      expect(ids.stored).toEqual([[5, 11]])
    }
  })

  test('are joined with further ones', () => {
    const ours = { ...schema(column(5, 'mail')), sameIds: [[5, 9]] }
    const theirs = { ...schema(column(11, 'mail')), sameIds: [[9, 11]] }
    const ids = new SameIds({ ours, theirs })
    expect(ids.stored).toEqual([[5, 9, 11]])
    expect(ids.isNew).toBe(true)
    expect(idsOf(ids.read(theirs))).toEqual([[1, 5]])
  })

  test('leave schemas alone that do not use them', () => {
    const ids = new SameIds({ ours: BASE, theirs: BASE })
    expect(ids.read(BASE)).toEqual(BASE)
    expect(ids.store(BASE)).toEqual(BASE)
    expect(ids.readIds(BASE)).toEqual({ tables: new Map(), columns: new Map() })
  })
})
