import type { TSchema } from 'typebox'
import { Value } from 'typebox/value'
import { describe, expect, test } from 'vitest'
import { ColumnSchema, ConstraintSchema, SchemaSchema, TableSchema } from './schema.js'
import * as edits from './schema-edits.js'

const context = {
  Column: ColumnSchema,
  Constraint: ConstraintSchema,
  Table: TableSchema,
  Schema: SchemaSchema,
  SchemaOperation: edits.SchemaOperationSchema,
}

const check = (schema: TSchema, value: unknown) => Value.Check(context, schema, value)

/** The type of a shape does not tell its examples. */
function examplesOf(schema: object): Record<string, object>[] {
  return 'examples' in schema ? (schema.examples as Record<string, object>[]) : []
}

describe('examples', () => {
  const shapes = Object.entries(edits).filter((entry) => typeof entry[1] === 'object')
  test.each(shapes)('of %s are valid', (_name, shape) => {
    for (const example of examplesOf(shape as TSchema)) {
      expect(check(shape as TSchema, example)).toBe(true)
    }
  })
})

describe('operations', () => {
  const good = examplesOf(edits.SchemaOperationSchema)

  test('have exactly one key', () => {
    expect(check(edits.SchemaOperationSchema, {})).toBe(false)
    expect(check(edits.SchemaOperationSchema, { ...good[0], ...good[1] })).toBe(false)
    expect(check(edits.SchemaOperationSchema, { dropTable: { table: 'users' } })).toBe(false)
  })

  for (const operation of good) {
    for (const [key, body] of Object.entries(operation)) {
      test(`${key} refuses unknown and missing fields`, () => {
        const withMore = { [key]: { ...body, more: 1 } }
        expect(check(edits.SchemaOperationSchema, withMore)).toBe(false)
        for (const field of Object.keys(body)) {
          const rest = Object.fromEntries(Object.entries(body).filter(([name]) => name !== field))
          expect(check(edits.SchemaOperationSchema, { [key]: rest })).toBe(false)
        }
      })
    }
  }

  test('accept a column with nested columns', () => {
    const column = (nested: unknown) => ({
      addColumn: { table: 't', column: { name: 'o', type: 'object', columns: [nested] } },
    })
    expect(check(edits.SchemaOperationSchema, column({ name: 'n', type: 'int' }))).toBe(true)
    expect(check(edits.SchemaOperationSchema, column({ name: 'n', type: 'number' }))).toBe(false)
    expect(check(edits.SchemaOperationSchema, column({ name: 'n', type: 'int', x: 1 }))).toBe(false)
  })
})

describe('bodies', () => {
  test('a sent schema may have all fields that reading a branch returns', () => {
    const schema = {
      tables: [
        { id: 'tbl_1', name: 'users', columns: [], revLinks: [{ table: 'teams', column: 'lead' }] },
      ],
      tablesOrder: ['users'],
    }
    expect(check(edits.CompareSchemaSchema, { schema })).toBe(true)
    expect(check(edits.CompareSchemaSchema, { schema: { ...schema, more: 1 } })).toBe(false)
  })

  test('applying accepts the edits of a comparison unchanged', () => {
    const compared = { sourceMigrationID: 'mig_1', targetMigrationID: 'mig_2', operations: [] }
    expect(check(edits.ApplyEditsSchema, { edits: compared })).toBe(true)
    expect(check(edits.ApplyEditsSchema, {})).toBe(false)
    expect(check(edits.PreviewEditsSchema, {})).toBe(true)
  })

  test('a change of a table changes something', () => {
    expect(check(edits.UpdateTableSchema, {})).toBe(false)
    expect(check(edits.UpdateTableSchema, { name: 'people' })).toBe(true)
    expect(check(edits.UpdateTableSchema, { history: null })).toBe(true)
  })

  test.each([
    ['30d', true],
    ['12h', true],
    ['0d', false],
    ['30', false],
    ['123456d', false],
    ['1 month', false],
  ])('versions are kept for %s', (keep, fits) => {
    expect(check(edits.UpdateTableSchema, { history: { keep } })).toBe(fits)
  })

  test('a change of a column changes something', () => {
    expect(check(edits.AlterColumnRequestSchema, {})).toBe(false)
    expect(check(edits.AlterColumnRequestSchema, { size: 1 })).toBe(false)
    expect(check(edits.AlterColumnRequestSchema, { defaultValue: null })).toBe(true)
  })

  test.each([
    [0, false],
    [1, true],
    [1000, true],
    [1001, false],
  ])('a history page of %d', (size, fits) => {
    expect(check(edits.HistoryRequestSchema, { page: { size } })).toBe(fits)
  })

  test('a malformed checksum is refused', () => {
    const [example] = examplesOf(edits.MigrationSchema)
    expect(check(edits.MigrationSchema, { ...example, checksum: '1:abc' })).toBe(false)
  })

  test('a column in an address may be a dotted path', () => {
    const params = (columnName: string) => ({
      databaseBranch: 'shop:main',
      tableName: 'users',
      columnName,
    })
    expect(check(edits.ColumnParamsSchema, params('address.city'))).toBe(true)
    expect(check(edits.ColumnParamsSchema, params('address.'))).toBe(false)
  })
})
