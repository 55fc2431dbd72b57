import { AppError } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import type { Column } from '@offshoot/contract/schema'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import { describe, expect, test } from 'vitest'
import { finish } from '../../../../../test/support/finish.js'
import { EMPTY_SCHEMA, type StoredSchema } from '../../rows/columns/stored-schema.js'
import { applyOperations as applyOperationsSteps } from './apply-operations.js'
import type { EditOptions } from './schema-draft.js'

const applyOperations = (...given: Parameters<typeof applyOperationsSteps>) =>
  finish(applyOperationsSteps(...given))

const addTable = (table: string): SchemaOperation => ({ addTable: { table } })
const removeTable = (table: string): SchemaOperation => ({ removeTable: { table } })
const renameTable = (oldName: string, newName: string): SchemaOperation => ({
  renameTable: { oldName, newName },
})
const addColumn = (table: string, column: Column): SchemaOperation => ({
  addColumn: { table, column },
})
const removeColumn = (table: string, column: string): SchemaOperation => ({
  removeColumn: { table, column },
})
const renameColumn = (table: string, oldName: string, newName: string): SchemaOperation => ({
  renameColumn: { table, oldName, newName },
})
const int = (name: string): Column => ({ name, type: 'int' })
const link = (name: string, table: string): Column => ({ name, type: 'link', link: { table } })

function editOptions(limits: Partial<EditOptions['limits']> = {}): EditOptions {
  let id = 100
  return {
    limits: { ...LIMITS, ...limits },
    nextId: () => {
      id += 1
      return id
    },
    checkDefault: (_column, text) => (text === 'bad' ? 'is bad' : undefined),
    defaultFill: ({ defaultValue }) => (defaultValue === 'now' ? undefined : `<${defaultValue}>`),
  }
}

const apply = (schema: StoredSchema, ...operations: SchemaOperation[]) =>
  applyOperations(schema, operations, editOptions())

function refusal(run: () => unknown): { code: string; message: string } {
  try {
    run()
  } catch (error) {
    if (error instanceof AppError) return { code: error.code, message: error.message }
    throw error
  }
  throw new Error('the edit was accepted')
}

const shop: StoredSchema = {
  tables: [
    {
      id: 1,
      name: 'users',
      columns: [
        { id: 2, name: 'name', type: 'string' },
        { id: 3, name: 'friend', type: 'link', link: { tableId: 1 } },
      ],
    },
    {
      id: 4,
      name: 'orders',
      columns: [{ id: 5, name: 'owner', type: 'link', link: { tableId: 1 } }],
    },
  ],
}

describe('tables', () => {
  test('are added with the columns that follow', () => {
    expect(apply(EMPTY_SCHEMA, addTable('a'), addColumn('a', int('x')))).toEqual({
      schema: {
        tables: [{ id: 101, name: 'a', columns: [{ id: 102, name: 'x', type: 'int' }] }],
      },
      changes: [
        {
          kind: 'tableAdded',
          table: { id: 101, name: 'a', columns: [{ id: 102, name: 'x', type: 'int' }] },
        },
      ],
    })
  })

  test('are removed', () => {
    const { schema, changes } = apply(shop, removeTable('orders'))
    expect(schema).toEqual({ tables: [shop.tables[0]] })
    expect(changes).toEqual([{ kind: 'tableRemoved', table: shop.tables[1] }])
  })

  test('are renamed without a change in the storage, and links follow', () => {
    const { schema, changes } = apply(shop, renameTable('users', 'people'))
    expect(schema.tables).toEqual([{ ...shop.tables[0], name: 'people' }, shop.tables[1]])
    expect(changes).toEqual([])
  })

  test('may change the case of their name, or keep it', () => {
    expect(apply(shop, renameTable('users', 'Users')).schema.tables[0]?.name).toBe('Users')
    expect(apply(shop, renameTable('users', 'users')).schema).toEqual(shop)
  })

  test('may swap their names', () => {
    const { schema, changes } = apply(
      shop,
      renameTable('users', 'spare'),
      renameTable('orders', 'users'),
      renameTable('spare', 'orders'),
    )
    expect(schema.tables.map(({ id, name }) => [id, name])).toEqual([
      [1, 'orders'],
      [4, 'users'],
    ])
    expect(changes).toEqual([])
  })

  test('get a new id when they are removed and added again', () => {
    const { schema, changes } = apply(shop, removeTable('orders'), addTable('orders'))
    expect(schema.tables[1]).toEqual({ id: 101, name: 'orders', columns: [] })
    expect(changes).toEqual([
      { kind: 'tableRemoved', table: shop.tables[1] },
      { kind: 'tableAdded', table: { id: 101, name: 'orders', columns: [] } },
    ])
  })

  test('that are added and removed in one migration leave no trace', () => {
    const { schema, changes } = apply(
      shop,
      addTable('a'),
      addColumn('a', int('x')),
      removeTable('a'),
    )
    expect(schema).toEqual(shop)
    expect(changes).toEqual([])
  })

  test.each([
    [addTable('users'), 'already_exists', 'table [users] already exists'],
    [addTable('USERS'), 'already_exists', 'table [users] already exists'],
    [renameTable('orders', 'Users'), 'already_exists', 'table [users] already exists'],
    [removeTable('gone'), 'table_not_found', 'table [gone] not found'],
    [removeTable('Users'), 'table_not_found', 'table [Users] not found'],
    [removeTable('__proto__'), 'table_not_found', 'table [__proto__] not found'],
    [renameTable('gone', 'a'), 'table_not_found', 'table [gone] not found'],
    [addTable(''), 'invalid_schema', 'table []: name is empty'],
    [
      addTable('a.b'),
      'invalid_schema',
      'table [a.b]: name may hold only letters, digits, underscores, hyphens and ~',
    ],
    [
      renameTable('users', 'a b'),
      'invalid_schema',
      'table [a b]: name may hold only letters, digits, underscores, hyphens and ~',
    ],
    [
      addTable('x'.repeat(256)),
      'invalid_schema',
      `table [${'x'.repeat(256)}]: name is longer than 255 characters`,
    ],
  ])('%j is refused', (operation, code, message) => {
    expect(refusal(() => apply(shop, operation))).toEqual({ code, message })
  })

  test('may have the names that are reserved for columns, and odd ones', () => {
    for (const name of ['id', 'service', '__proto__', 'x'.repeat(255)]) {
      expect(apply(shop, addTable(name)).schema.tables[2]?.name).toBe(name)
    }
  })
})

describe('columns', () => {
  test('are added to an existing table', () => {
    const { schema, changes } = apply(shop, addColumn('orders', int('total')))
    const column = { id: 101, name: 'total', type: 'int' }
    const table = { id: 4, name: 'orders', columns: [...(shop.tables[1]?.columns ?? []), column] }
    expect(schema.tables).toEqual([shop.tables[0], table])
    expect(changes).toEqual([{ kind: 'columnAdded', table, column }])
  })

  test('that are not edited stay the same objects', () => {
    const { schema } = apply(shop, addColumn('orders', int('total')))
    expect(schema.tables[0]).toBe(shop.tables[0])
    expect(schema.tables[1]?.columns[0]).toBe(shop.tables[1]?.columns[0])
  })

  test('are stored with the fields that are set', () => {
    const columns: Column[] = [
      { name: 'a', type: 'string', unique: true, notNull: true },
      { name: 'b', type: 'text', unique: false, notNull: false, defaultValue: '' },
      { name: 'c', type: 'vector', vector: { dimension: 3 } },
      { name: 'd', type: 'file', file: { defaultPublicAccess: true } },
      { name: 'e', type: 'file[]', 'file[]': { defaultPublicAccess: true } },
      { name: 'f', type: 'file', file: { defaultPublicAccess: false } },
      { name: 'g', type: 'object', columns: [link('h', 't'), int('i')] },
    ]
    const { schema } = apply(
      EMPTY_SCHEMA,
      addTable('t'),
      ...columns.map((column) => addColumn('t', column)),
    )
    expect(schema.tables[0]?.columns).toEqual([
      { id: 102, name: 'a', type: 'string', unique: true, notNull: true },
      { id: 103, name: 'b', type: 'text', defaultValue: '' },
      { id: 104, name: 'c', type: 'vector', vector: { dimension: 3 } },
      { id: 105, name: 'd', type: 'file', defaultPublicAccess: true },
      { id: 106, name: 'e', type: 'file[]', defaultPublicAccess: true },
      { id: 107, name: 'f', type: 'file' },
      {
        id: 108,
        name: 'g',
        type: 'object',
        columns: [
          { id: 109, name: 'h', type: 'link', link: { tableId: 101 } },
          { id: 110, name: 'i', type: 'int' },
        ],
      },
    ])
  })

  test('are removed', () => {
    const { schema, changes } = apply(shop, removeColumn('users', 'name'))
    const [users, orders] = shop.tables
    const table = { id: 1, name: 'users', columns: [users?.columns[1]] }
    expect(schema.tables).toEqual([table, orders])
    expect(changes).toEqual([{ kind: 'columnRemoved', table, column: users?.columns[0] }])
  })

  test('are renamed without a change in the storage', () => {
    const { schema, changes } = apply(shop, renameColumn('users', 'name', 'Name'))
    expect(schema.tables[0]?.columns.map(({ id, name }) => [id, name])).toEqual([
      [2, 'Name'],
      [3, 'friend'],
    ])
    expect(changes).toEqual([])
  })

  test('get a new id when they are removed and added again', () => {
    const { changes } = apply(
      shop,
      removeColumn('users', 'name'),
      addColumn('users', { name: 'name', type: 'string' }),
    )
    const column = { id: 101, name: 'name', type: 'string' }
    const table = { id: 1, name: 'users', columns: [shop.tables[0]?.columns[1], column] }
    expect(changes).toEqual([
      { kind: 'columnRemoved', table, column: shop.tables[0]?.columns[0] },
      { kind: 'columnAdded', table, column },
    ])
  })

  test('that are added, renamed and removed in one migration leave no trace', () => {
    const { schema, changes } = apply(
      shop,
      addColumn('users', int('age')),
      renameColumn('users', 'age', 'years'),
      removeColumn('users', 'years'),
    )
    expect(schema).toEqual(shop)
    expect(changes).toEqual([])
  })

  test('that are added and renamed are added under the last name', () => {
    const { changes } = apply(
      shop,
      addColumn('orders', int('a')),
      renameColumn('orders', 'a', 'b'),
      renameTable('orders', 'sales'),
    )
    expect(changes).toMatchObject([
      { kind: 'columnAdded', table: { name: 'sales' }, column: { id: 101, name: 'b' } },
    ])
  })

  test('of a table that is removed need no change of their own', () => {
    const { changes } = apply(
      shop,
      removeColumn('orders', 'owner'),
      addColumn('orders', int('total')),
      removeTable('orders'),
    )
    expect(changes).toEqual([{ kind: 'tableRemoved', table: shop.tables[1] }])
  })

  test.each([
    [addColumn('gone', int('a')), 'table_not_found', 'table [gone] not found'],
    [removeColumn('gone', 'a'), 'table_not_found', 'table [gone] not found'],
    [renameColumn('gone', 'a', 'b'), 'table_not_found', 'table [gone] not found'],
    [
      removeColumn('users', 'gone'),
      'column_not_found',
      'table [users]: column [gone]: column not found',
    ],
    [
      renameColumn('users', 'Name', 'a'),
      'column_not_found',
      'table [users]: column [Name]: column not found',
    ],
    [
      addColumn('users', int('NAME')),
      'already_exists',
      'table [users]: column [name] already exists',
    ],
    [
      renameColumn('users', 'friend', 'Name'),
      'already_exists',
      'table [users]: column [name] already exists',
    ],
    [
      addColumn('users', int('Id')),
      'invalid_schema',
      'table [users]: column [Id]: name is reserved',
    ],
    [
      renameColumn('users', 'name', 'xata'),
      'invalid_schema',
      'table [users]: column [xata]: name is reserved',
    ],
    [
      renameColumn('users', 'name', 'a.b'),
      'invalid_schema',
      'table [users]: column [a.b]: ' +
        'name may hold only letters, digits, underscores, hyphens and ~',
    ],
    [
      addColumn('users', { name: 'a', type: 'string', link: { table: 'users' } }),
      'invalid_schema',
      'table [users]: column [a]: type mismatch: type [string] is not valid for field [link]',
    ],
    [
      addColumn('users', { name: 'a', type: 'int', defaultValue: 'bad' }),
      'invalid_schema',
      'table [users]: column [a]: default value: is bad',
    ],
  ])('%j is refused', (operation, code, message) => {
    expect(refusal(() => apply(shop, operation))).toEqual({ code, message })
  })
})

describe('filling existing rows', () => {
  const filled = (column: Partial<Column>) =>
    apply(shop, addColumn('orders', { ...int('a'), ...column })).schema.tables[1]?.columns[1]

  test('uses the default of a notNull column', () => {
    expect(filled({ notNull: true, defaultValue: '1' })).toMatchObject({ fill: '<1>' })
  })

  test('is not done for a column that may be null, has no default, or whose type gives no text', () => {
    expect(filled({ defaultValue: '1' })).not.toHaveProperty('fill')
    expect(filled({ notNull: true })).not.toHaveProperty('fill')
    expect(filled({ notNull: true, defaultValue: 'now' })).not.toHaveProperty('fill')
  })

  test('is not done for a table that the same migration adds', () => {
    const { schema } = apply(
      shop,
      addTable('a'),
      addColumn('a', { ...int('x'), notNull: true, defaultValue: '1' }),
    )
    expect(schema.tables[2]?.columns[0]).not.toHaveProperty('fill')
  })

  test('survives a rename', () => {
    const { schema } = apply(
      shop,
      addColumn('orders', { ...int('a'), notNull: true, defaultValue: '1' }),
    )
    const renamed = apply(schema, renameColumn('orders', 'a', 'b')).schema
    expect(renamed.tables[1]?.columns[1]).toMatchObject({ name: 'b', fill: '<1>' })
  })
})

describe('links', () => {
  const targetOf = (schema: StoredSchema, table: string, column: string) => {
    const columns = schema.tables.find(({ name }) => name === table)?.columns
    const tableId = columns?.find(({ name }) => name === column)?.link?.tableId
    return schema.tables.find(({ id }) => id === tableId)?.name
  }

  test('may point forward, back and to the table itself', () => {
    const { schema } = apply(
      shop,
      addTable('a'),
      addColumn('a', link('forward', 'b')),
      addColumn('a', link('back', 'users')),
      addColumn('a', link('self', 'a')),
      addTable('b'),
    )
    expect(targetOf(schema, 'a', 'forward')).toBe('b')
    expect(targetOf(schema, 'a', 'back')).toBe('users')
    expect(targetOf(schema, 'a', 'self')).toBe('a')
  })

  test('may point to a table that gets its name later', () => {
    const { schema } = apply(
      shop,
      addColumn('orders', link('buyer', 'people')),
      renameTable('users', 'people'),
    )
    expect(targetOf(schema, 'orders', 'buyer')).toBe('people')
  })

  test('follow their table when it is renamed', () => {
    const { schema } = apply(
      shop,
      addColumn('orders', link('buyer', 'users')),
      renameTable('users', 'people'),
      addTable('users'),
    )
    expect(targetOf(schema, 'orders', 'buyer')).toBe('people')
  })

  test('refer to the table that replaces their removed table', () => {
    const { schema } = apply(
      EMPTY_SCHEMA,
      addTable('a'),
      addTable('b'),
      addColumn('a', link('l', 'b')),
      removeTable('b'),
      addTable('b'),
    )
    expect(targetOf(schema, 'a', 'l')).toBe('b')
  })

  test('without a target are refused, including nested ones', () => {
    expect(refusal(() => apply(shop, addColumn('users', link('l', 'Users'))))).toEqual({
      code: 'invalid_schema',
      message: 'table [users]: column [l]: linked table [Users] not found',
    })
    const nested: Column = { name: 'o', type: 'object', columns: [link('l', 'gone')] }
    expect(refusal(() => apply(shop, addColumn('users', nested)))).toEqual({
      code: 'invalid_schema',
      message: 'table [users]: column [o]: column [l]: linked table [gone] not found',
    })
  })

  test('without a target are accepted when their column is removed', () => {
    const { schema } = apply(
      shop,
      addColumn('users', link('l', 'gone')),
      removeColumn('users', 'l'),
    )
    expect(schema).toEqual(shop)
  })

  const message =
    'table [users]: is linked from [orders.owner]; remove that column first or in the same edit'

  test('prevent the removal of their target table', () => {
    expect(refusal(() => apply(shop, removeTable('users')))).toEqual({
      code: 'invalid_schema',
      message,
    })
    expect(refusal(() => apply(shop, removeTable('users'), addTable('users')))).toEqual({
      code: 'invalid_schema',
      message,
    })
  })

  test('are named in the refusal with the old table name and the current column name', () => {
    expect(
      refusal(() =>
        apply(
          shop,
          renameTable('users', 'people'),
          renameColumn('orders', 'owner', 'buyer'),
          removeTable('people'),
        ),
      ).message,
    ).toContain('table [users]: is linked from [orders.buyer];')
  })

  test('inside an object prevent the removal of their target table too', () => {
    const { schema } = apply(
      shop,
      removeColumn('orders', 'owner'),
      addColumn('orders', { name: 'o', type: 'object', columns: [link('l', 'users')] }),
    )
    expect(refusal(() => apply(schema, removeTable('users'))).message).toContain(
      'table [users]: is linked from [orders.o.l];',
    )
  })

  test('allow the removal of their target table in the same edit, in any order', () => {
    const [users, orders] = shop.tables
    const removals = [removeTable('users'), removeColumn('orders', 'owner')]
    for (const operations of [removals, removals.toReversed()]) {
      const { schema, changes } = apply(shop, ...operations)
      expect(schema.tables).toEqual([{ ...orders, columns: [] }])
      expect(changes).toHaveLength(2)
      expect(changes).toContainEqual({ kind: 'tableRemoved', table: users })
    }
    expect(apply(shop, removeTable('users'), removeTable('orders')).schema.tables).toEqual([])
  })
})

describe('the order of tables', () => {
  test('is not stored unless it was given', () => {
    expect(apply(shop, addTable('a')).schema).not.toHaveProperty('tablesOrder')
  })

  test('is updated by edits', () => {
    const ordered = { ...shop, tablesOrder: ['orders', 'users'] }
    expect(apply(ordered, addTable('a')).schema.tablesOrder).toEqual(['orders', 'users', 'a'])
    expect(apply(ordered, removeTable('orders')).schema.tablesOrder).toEqual(['users'])
    expect(apply(ordered, renameTable('orders', 'sales')).schema.tablesOrder).toEqual([
      'sales',
      'users',
    ])
    expect(
      apply(ordered, addTable('a'), renameTable('orders', 'b'), removeTable('a')).schema
        .tablesOrder,
    ).toEqual(['b', 'users'])
  })

  test('is completed if tables are missing in it', () => {
    expect(apply({ ...shop, tablesOrder: ['orders'] }).schema.tablesOrder).toEqual([
      'orders',
      'users',
    ])
  })
})

describe('limits', () => {
  const within = (limits: Partial<EditOptions['limits']>, ...operations: SchemaOperation[]) =>
    applyOperations(shop, operations, editOptions(limits))

  test('operations of a migration', () => {
    const limits = { schemaOperationsMax: 2 }
    expect(within(limits).changes).toEqual([])
    expect(within(limits, addTable('a'), addTable('b')).changes).toHaveLength(2)
    expect(refusal(() => within(limits, addTable('a'), addTable('b'), addTable('c')))).toEqual({
      code: 'invalid_schema',
      message: 'a migration cannot have more than 2 operations',
    })
  })

  test('tables of a branch, counted at the end of the migration', () => {
    const limits = { tablesPerBranchMax: 3 }
    expect(within(limits, addTable('a')).schema.tables).toHaveLength(3)
    expect(within(limits, addTable('a'), addTable('b'), removeTable('a')).changes).toHaveLength(1)
    expect(refusal(() => within(limits, addTable('a'), addTable('b')))).toEqual({
      code: 'invalid_schema',
      message: 'a branch cannot have more than 3 tables',
    })
  })

  test('columns of a table, including nested columns and their object', () => {
    const limits = { columnsPerTableMax: 3 }
    const object: Column = { name: 'o', type: 'object', columns: [int('a')] }
    expect(within(limits, addColumn('orders', object)).changes).toHaveLength(1)
    expect(
      within(limits, addColumn('users', int('a')), removeColumn('users', 'name')).changes,
    ).toHaveLength(2)
    expect(refusal(() => within(limits, addColumn('users', object)))).toEqual({
      code: 'invalid_schema',
      message: 'table [users]: a table cannot have more than 3 columns',
    })
  })

  test('the limits of the service, at and above each limit', () => {
    const columns = (count: number) =>
      Array.from({ length: count }, (_, index) => addColumn('a', int(`c${index}`)))
    const tables = (count: number) =>
      Array.from({ length: count }, (_, index) => addTable(`t${index}`))
    expect(apply(EMPTY_SCHEMA, addTable('a'), ...columns(256)).changes).toHaveLength(1)
    expect(() => apply(EMPTY_SCHEMA, addTable('a'), ...columns(257))).toThrow('256 columns')
    expect(apply(EMPTY_SCHEMA, ...tables(1000)).changes).toHaveLength(1000)
    expect(() => apply(EMPTY_SCHEMA, ...tables(1001))).toThrow('1000 tables')
    expect(() => apply(EMPTY_SCHEMA, ...tables(10_001))).toThrow('10000 operations')
  })

  test('a schema above a lowered limit may shrink and have renames, but not grow', () => {
    const limits = { tablesPerBranchMax: 1, columnsPerTableMax: 1 }
    expect(within(limits, removeTable('orders')).changes).toHaveLength(1)
    expect(within(limits, renameTable('users', 'a')).changes).toEqual([])
    expect(within(limits, removeColumn('users', 'name')).changes).toHaveLength(1)
    expect(within(limits, renameColumn('users', 'name', 'a')).changes).toEqual([])
    expect(() => within(limits, addTable('a'))).toThrow('1 tables')
    expect(() => within(limits, addColumn('users', int('a')))).toThrow('1 columns')
  })
})

test('an empty migration changes nothing', () => {
  expect(apply(shop)).toEqual({ schema: shop, changes: [] })
})

test('a refused migration leaves the schema as it was', () => {
  const before = structuredClone(shop)
  expect(() => apply(shop, removeColumn('users', 'name'), removeTable('gone'))).toThrow()
  expect(shop).toEqual(before)
})

test('the largest migration ends long before the time limit of a test', () => {
  const operations = Array.from({ length: 5000 }, (_, index) => [
    addColumn('users', link(`c${index}`, `t${index}`)),
    removeColumn('users', `c${index}`),
  ]).flat()
  expect(apply(shop, ...operations).schema).toEqual(shop)
})
