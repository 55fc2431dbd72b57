import { LIMITS } from '@offshoot/contract/limits'
import { COLUMN_TYPES, type Column, type Schema } from '@offshoot/contract/schema'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { finish } from '../../../../../test/support/finish.js'
import { applyOperations as applyOperationsSteps } from './apply-operations.js'
import { NEVER } from './compare-columns.js'
import { compareSchemasByName } from './compare-schemas-by-name.js'
import { toPublicSchema } from './public-schema.js'
import { readSchema as readSchemaSteps } from './read-schema.js'
import type { EditOptions } from './schema-draft.js'

const applyOperations = (...given: Parameters<typeof applyOperationsSteps>) =>
  finish(applyOperationsSteps(...given))
const readSchema = (...given: Parameters<typeof readSchemaSteps>) =>
  finish(readSchemaSteps(...given))

function editOptions(): EditOptions {
  let id = 0
  return {
    limits: LIMITS,
    nextId: () => {
      id += 1
      return id
    },
    checkDefault: () => undefined,
    defaultFill: ({ defaultValue }) => defaultValue,
  }
}

const users = { name: 'users', columns: [{ name: 'name', type: 'string' }] } as const
const orders = {
  name: 'orders',
  columns: [{ name: 'owner', type: 'link', link: { table: 'users' } }],
} as const

describe('compareSchemasByName', () => {
  test('equal schemas need no edit, whatever their order, ids, links back and table order', () => {
    const one: Schema = { tables: [users, orders], tablesOrder: ['orders', 'users'] }
    const other: Schema = {
      tables: [orders, { ...users, id: 'tbl_1', revLinks: [{ table: 'orders', column: 'owner' }] }],
    }
    expect(compareSchemasByName(one, other)).toEqual([])
  })

  const column = (definition: object, own: object = {}): Schema => ({
    tables: [
      users,
      { ...own, name: 'items', columns: [{ name: 'c', type: 'string', ...definition } as Column] },
    ],
  })
  const ofTable = (own: object) => column({}, own)
  const link = (more: object) => ({ type: 'link', link: { table: 'users', ...more } })
  const nested = (more: object) => ({ type: 'object', columns: [{ name: 'n', ...more }] })

  test.each<[string, Schema, Schema]>([
    ['type', column({}), column({ type: 'text' })],
    ['notNull', column({}), column({ notNull: true })],
    ['unique', column({}), column({ unique: true })],
    ['defaultValue', column({ defaultValue: 'a' }), column({ defaultValue: 'b' })],
    ['description', column({ description: 'a' }), column({ description: 'b' })],
    ['maxLength', column({ maxLength: 2 }), column({ maxLength: 3 })],
    ['bits', column({ type: 'int', bits: 16 }), column({ type: 'int' })],
    ['withoutZone', column({ type: 'datetime' }), column({ type: 'datetime', withoutZone: true })],
    ['generate', column({ type: 'uuid' }), column({ type: 'uuid', generate: 'uuid' })],
    ['computed', column({ computed: '1 + 1' }), column({ computed: '1 + 2' })],
    [
      'precision',
      column({ type: 'decimal', decimal: { precision: 9, scale: 2 } }),
      column({ type: 'decimal', decimal: { precision: 8, scale: 2 } }),
    ],
    [
      'scale',
      column({ type: 'decimal', decimal: { precision: 9, scale: 2 } }),
      column({ type: 'decimal', decimal: { precision: 9, scale: 3 } }),
    ],
    [
      'values of an enum',
      column({ type: 'enum', enum: { values: ['a', 'b'] } }),
      column({ type: 'enum', enum: { values: ['a', 'c'] } }),
    ],
    [
      'order of the values of an enum',
      column({ type: 'enum', enum: { values: ['a', 'b'] } }),
      column({ type: 'enum', enum: { values: ['b', 'a'] } }),
    ],
    [
      'type of an enum',
      column({ type: 'enum', enum: { values: ['a'], type: 'x' } }),
      column({ type: 'enum', enum: { values: ['a'], type: 'y' } }),
    ],
    [
      'dimension',
      column({ type: 'vector', vector: { dimension: 2 } }),
      column({ type: 'vector', vector: { dimension: 3 } }),
    ],
    ['onDelete', column(link({ onDelete: 'cascade' })), column(link({ onDelete: 'setNull' }))],
    [
      'name of the rule of a link',
      column(link({ onDelete: 'cascade', constraint: 'x' })),
      column(link({ onDelete: 'cascade', constraint: 'y' })),
    ],
    ['type inside of an object', column(nested({ type: 'int' })), column(nested({ type: 'text' }))],
    [
      'onDelete inside of an object',
      column(nested(link({ onDelete: 'cascade' }))),
      column(nested(link({ onDelete: 'restrict' }))),
    ],
    ['idBits', ofTable({ idType: 'int', idBits: 32 }), ofTable({ idType: 'int' })],
    ['history', ofTable({ history: { keep: '1d' } }), ofTable({ history: { keep: '2d' } })],
    [
      'name of a constraint',
      ofTable({ constraints: [{ name: 'x', check: 'true' }] }),
      ofTable({ constraints: [{ name: 'y', check: 'true' }] }),
    ],
    [
      'check',
      ofTable({ constraints: [{ name: 'x', check: 'true' }] }),
      ofTable({ constraints: [{ name: 'x', check: 'false' }] }),
    ],
    [
      'unique list',
      ofTable({ constraints: [{ name: 'x', unique: ['c', 'd'] }] }),
      ofTable({ constraints: [{ name: 'x', unique: ['c'] }] }),
    ],
    [
      'index of a constraint',
      ofTable({ constraints: [{ name: 'x', unique: ['c'], index: true }] }),
      ofTable({ constraints: [{ name: 'x', unique: ['c'], index: false }] }),
    ],
    ['constraints', ofTable({ constraints: [{ name: 'x', check: 'true' }] }), ofTable({})],
  ])('a difference of %s needs an edit in both directions', (what, one, other) => {
    expect(compareSchemasByName(one, other)).not.toEqual([])
    // A schema need not name what generates values.
    if (what !== 'generate') expect(compareSchemasByName(other, one)).not.toEqual([])
  })

  test('ids of another type are refused', () => {
    const compare = () =>
      compareSchemasByName(ofTable({ idType: 'int' }), ofTable({ idType: 'uuid' }))
    expect(compare).toThrow('ids have the type [int], which cannot become [uuid]')
  })

  test('all tables are added before any column', () => {
    expect(compareSchemasByName({ tables: [] }, { tables: [orders, users] })).toEqual([
      { addTable: { table: 'orders' } },
      { addTable: { table: 'users' } },
      { addColumn: { table: 'orders', column: orders.columns[0] } },
      { addColumn: { table: 'users', column: users.columns[0] } },
    ])
  })

  test('a linked table is removed together with the column that links to it', () => {
    expect(
      compareSchemasByName(
        { tables: [users, orders] },
        { tables: [{ name: 'orders', columns: [] }] },
      ),
    ).toEqual([
      { removeColumn: { table: 'orders', column: 'owner' } },
      { removeTable: { table: 'users' } },
    ])
  })

  test('a link with a different target table is a different column', () => {
    const target: Schema = {
      tables: [
        users,
        { name: 'orders', columns: [{ name: 'owner', type: 'link', link: { table: 'orders' } }] },
      ],
    }
    expect(compareSchemasByName({ tables: [users, orders] }, target)).toEqual([
      { removeColumn: { table: 'orders', column: 'owner' } },
      {
        addColumn: {
          table: 'orders',
          column: { name: 'owner', type: 'link', link: { table: 'orders' } },
        },
      },
    ])
  })

  test('clients that know no operation that alters columns get a changed column as another one', () => {
    const [source, target] = [column({}), column({ notNull: true, defaultValue: 'a' })]
    const changes = { notNull: true, defaultValue: 'a' }
    expect(compareSchemasByName(source, target)).toEqual([
      { alterColumn: { table: 'items', column: 'c', ...changes } },
    ])
    expect(compareSchemasByName(source, target, NEVER)).toEqual([
      { removeColumn: { table: 'items', column: 'c' } },
      { addColumn: { table: 'items', column: { name: 'c', type: 'string', ...changes } } },
    ])
  })

  test('a link becomes the ids that it had when its table is removed', () => {
    const source = readSchema({ tables: [users, orders] }, editOptions())
    const target: Schema = {
      tables: [{ name: 'orders', columns: [{ name: 'owner', type: 'string' }] }],
    }
    const operations = compareSchemasByName(toPublicSchema(source), target)
    expect(operations).toEqual([
      { removeTable: { table: 'users' } },
      { alterColumn: { table: 'orders', column: 'owner', type: 'string' } },
    ])
    const { schema } = applyOperations(source, operations, editOptions())
    expect(compareSchemasByName(toPublicSchema(schema), target)).toEqual([])
  })

  test('a name in another case replaces the old one', () => {
    const source = readSchema({ tables: [users, orders] }, editOptions())
    const target: Schema = {
      tables: [
        { ...users, name: 'Users' },
        {
          name: 'orders',
          columns: [{ name: 'Owner', type: 'link', link: { table: 'Users' } }],
        },
      ],
    }
    const operations = compareSchemasByName(toPublicSchema(source), target)
    const { schema } = applyOperations(source, operations, editOptions())
    expect(compareSchemasByName(toPublicSchema(schema), target)).toEqual([])
  })

  test('file access compares by meaning', () => {
    const tables = (column: Partial<Column>): Schema => ({
      tables: [{ name: 't', columns: [{ name: 'f', type: 'file', ...column }] }],
    })
    expect(compareSchemasByName(tables({}), tables({ file: {} }))).toEqual([])
    expect(
      compareSchemasByName(tables({}), tables({ file: { defaultPublicAccess: false } })),
    ).toEqual([])
    expect(
      compareSchemasByName(tables({}), tables({ file: { defaultPublicAccess: true } })),
    ).toHaveLength(2)
  })
})

describe('readSchema', () => {
  test('keeps the table order that was sent', () => {
    const sent: Schema = { tables: [users, orders], tablesOrder: ['orders', 'users'] }
    expect(toPublicSchema(readSchema(sent, editOptions())).tablesOrder).toEqual(['orders', 'users'])
  })

  test.each([
    [{ tables: [users, users] }, 'table [users] already exists'],
    [{ tables: [users, { ...users, name: 'Users' }] }, 'table [users] already exists'],
    [{ tables: [orders] }, 'table [orders]: column [owner]: linked table [users] not found'],
    [
      { tables: [{ name: 'users', columns: [...users.columns, ...users.columns] }] },
      'table [users]: column [name] already exists',
    ],
    [
      { tables: [{ name: 'users', columns: [{ name: 'id', type: 'int' }] }] },
      'table [users]: column [id]: name is reserved',
    ],
  ] satisfies [Schema, string][])('refuses %j', (schema, message) => {
    expect(() => readSchema(schema, editOptions())).toThrow(message)
  })

  test('accepts more tables and columns than a migration may have operations', () => {
    const options = editOptions()
    const limits = { ...LIMITS, schemaOperationsMax: 1 }
    expect(readSchema({ tables: [users, orders] }, { ...options, limits }).tables).toHaveLength(2)
  })
})

const tableNames = ['a', 'A', 'b', 'c', 'd-1', '__proto__']
const columnNames = ['x', 'X', 'y', 'z', 'constructor']

const uniqueByName = <Item extends { name: string }>(item: fc.Arbitrary<Item>, maxLength: number) =>
  fc.uniqueArray(item, { maxLength, selector: ({ name }) => name.toLowerCase() })

/** Generates a valid schema with links among its tables, some of them nested. */
const validSchema: fc.Arbitrary<Schema> = fc
  .uniqueArray(fc.constantFrom(...tableNames), {
    selector: (name) => name.toLowerCase(),
    minLength: 0,
  })
  .chain((names) =>
    fc
      .tuple(
        ...names.map((name) => fc.record({ name: fc.constant(name), columns: columns(names) })),
      )
      .map((tables) => ({ tables })),
  )

function columns(tables: readonly string[]): fc.Arbitrary<Column[]> {
  const nested = fc.record({
    name: fc.constantFrom(...columnNames),
    type: fc.constantFrom('int', 'string', 'link', 'vector'),
  })
  const column = fc
    .record({
      name: fc.constantFrom(...columnNames),
      type: fc.constantFrom(...COLUMN_TYPES),
      table: fc.constantFrom(...tables),
      dimension: fc.integer({ min: 2, max: 3 }),
      flag: fc.boolean(),
      defaultValue: fc.option(fc.constantFrom('1', '2'), { nil: undefined }),
      nested: uniqueByName(nested, 3).filter((list) => list.length > 0),
    })
    .map((draft): Column => {
      const { name, type, table, dimension, flag, defaultValue } = draft
      const detail = (inner: string) => ({
        ...(inner === 'link' && { link: { table } }),
        ...(inner === 'vector' && { vector: { dimension } }),
        ...(inner === 'decimal' && { decimal: { precision: 10, scale: dimension } }),
        ...(inner === 'int' && flag && { bits: dimension === 2 ? (16 as const) : (32 as const) }),
        ...(inner === 'string' && flag && { maxLength: dimension }),
        ...(inner === 'enum' && { enum: { values: flag ? ['a', 'b'] : ['a'] } }),
      })
      const base = { name, type, ...detail(type) }
      if (type === 'int' || type === 'json') {
        return { ...base, notNull: flag, ...(defaultValue !== undefined && { defaultValue }) }
      }
      if (type === 'string' || type === 'email' || type === 'link') return { ...base, unique: flag }
      if (type === 'file') return { ...base, file: { defaultPublicAccess: flag } }
      if (type === 'file[]') return { ...base, 'file[]': flag ? { defaultPublicAccess: true } : {} }
      if (type !== 'object') return base
      return {
        ...base,
        columns: draft.nested.map((leaf) => ({ ...leaf, ...detail(leaf.type) }) as Column),
      }
    })
  return uniqueByName(column, 4)
}

/** Removes from a schema what comparisons ignore. */
function essence(schema: Schema) {
  const sort = (list: readonly Column[]): unknown[] =>
    [...list]
      .sort((one, other) => (one.name < other.name ? -1 : 1))
      .map((column) => ({
        ...column,
        notNull: column.notNull ?? false,
        unique: column.unique ?? false,
        file: column.file?.defaultPublicAccess ?? false,
        'file[]': column['file[]']?.defaultPublicAccess ?? false,
        columns: sort(column.columns ?? []),
      }))
  return new Map(schema.tables.map((table) => [table.name, sort(table.columns)]))
}

describe('for any two schemas', () => {
  test('applying the comparison to the source gives the target', () => {
    fc.assert(
      fc.property(validSchema, validSchema, (source, target) => {
        const options = editOptions()
        const stored = readSchema(source, options)
        const operations = compareSchemasByName(toPublicSchema(stored), target)
        const { schema } = applyOperations(stored, operations, options)
        expect(essence(toPublicSchema(schema))).toEqual(essence(target))
      }),
      { numRuns: 500 },
    )
  })

  test('there are edits if and only if they differ', () => {
    fc.assert(
      fc.property(validSchema, validSchema, (source, target) => {
        expect(compareSchemasByName(source, source)).toEqual([])
        const isSame = compareSchemasByName(source, target).length === 0
        const [one, other] = [essence(source), essence(target)]
        if (isSame) expect(one).toEqual(other)
        else expect(one).not.toEqual(other)
      }),
      { numRuns: 500 },
    )
  })

  test('reading the public form returns the same schema', () => {
    fc.assert(
      fc.property(validSchema, (schema) => {
        const shown = toPublicSchema(readSchema(schema, editOptions()))
        expect(toPublicSchema(readSchema(shown, editOptions()))).toEqual(shown)
        expect(essence(shown)).toEqual(essence(schema))
      }),
    )
  })

  test('no table is added after a column', () => {
    fc.assert(
      fc.property(validSchema, validSchema, (source, target) => {
        const kinds = compareSchemasByName(source, target).flatMap(Object.keys)
        const firstColumn = kinds.indexOf('addColumn')
        expect(firstColumn === -1 || kinds.lastIndexOf('addTable') < firstColumn).toBe(true)
      }),
    )
  })
})
