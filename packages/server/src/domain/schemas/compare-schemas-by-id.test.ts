import { LIMITS } from '@offshoot/contract/limits'
import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { cpuMsOf } from '../../../../../test/support/cpu-time.js'
import { finish } from '../../../../../test/support/finish.js'
import type { StoredColumn, StoredSchema, StoredTable } from '../../rows/columns/stored-schema.js'
import { applyOperations as applyOperationsSteps } from './apply-operations.js'
import {
  compareSchemasById as compareSchemasByIdSteps,
  storageChanges,
} from './compare-schemas-by-id.js'
import { toPublicSchema } from './public-schema.js'

const applyOperations = (...given: Parameters<typeof applyOperationsSteps>) =>
  finish(applyOperationsSteps(...given))
const compareSchemasById = (...given: Parameters<typeof compareSchemasByIdSteps>) =>
  finish(compareSchemasByIdSteps(...given))

const column = (id: number, name: string, more: Partial<StoredColumn> = {}): StoredColumn => ({
  id,
  name,
  type: 'string',
  ...more,
})
const table = (id: number, name: string, ...columns: StoredColumn[]): StoredTable => ({
  id,
  name,
  columns,
})
const schema = (...tables: StoredTable[]): StoredSchema => ({ tables })

describe('compareSchemasById', () => {
  test('returns no edits for equal schemas', () => {
    const one = schema(table(1, 'users', column(2, 'name')))
    expect(compareSchemasById(one, one)).toEqual([])
  })

  test('distinguishes a rename from a removal and an addition', () => {
    const before = schema(table(1, 'users', column(2, 'name'), column(3, 'age')))
    const after = schema(table(1, 'people', column(2, 'fullName'), column(4, 'age')))
    expect(compareSchemasById(before, after)).toEqual([
      { renameTable: { oldName: 'users', newName: 'people' } },
      { removeColumn: { table: 'people', column: 'age' } },
      { renameColumn: { table: 'people', oldName: 'name', newName: 'fullName' } },
      { addColumn: { table: 'people', column: { name: 'age', type: 'string' } } },
    ])
  })

  test('distinguishes different tables with the same name', () => {
    const before = schema(table(1, 'users', column(2, 'name')))
    const after = schema(table(3, 'users', column(4, 'name')))
    expect(compareSchemasById(before, after)).toEqual([
      { removeTable: { table: 'users' } },
      { addTable: { table: 'users' } },
      { addColumn: { table: 'users', column: { name: 'name', type: 'string' } } },
    ])
  })

  test('adds and renames tables before it adds the columns that link to them', () => {
    const before = schema(table(1, 'users'))
    const after = schema(
      table(2, 'orders', column(3, 'by', { type: 'link', link: { tableId: 1 } })),
      table(1, 'people'),
    )
    expect(compareSchemasById(before, after)).toEqual([
      { renameTable: { oldName: 'users', newName: 'people' } },
      { addTable: { table: 'orders' } },
      {
        addColumn: {
          table: 'orders',
          column: { name: 'by', type: 'link', link: { table: 'people' } },
        },
      },
    ])
  })

  test('frees names before it uses them', () => {
    const before = schema(table(1, 'a'), table(2, 'b'), table(3, 'c'))
    const after = schema(table(1, 'b'), table(2, 'c'), table(4, 'a'))
    expect(compareSchemasById(before, after)).toEqual([
      { removeTable: { table: 'c' } },
      { renameTable: { oldName: 'b', newName: 'c' } },
      { renameTable: { oldName: 'a', newName: 'b' } },
      { addTable: { table: 'a' } },
    ])
  })

  test('uses a temporary name when two tables exchange their names', () => {
    const before = schema(table(1, 't', column(2, 'renamed_1'), column(3, 'b')))
    const after = schema(table(1, 't', column(2, 'b'), column(3, 'renamed_1')))
    expect(compareSchemasById(before, after)).toEqual([
      { renameColumn: { table: 't', oldName: 'renamed_1', newName: 'renamed_2' } },
      { renameColumn: { table: 't', oldName: 'b', newName: 'renamed_1' } },
      { renameColumn: { table: 't', oldName: 'renamed_2', newName: 'b' } },
    ])
  })

  test('changes the case of a name in one step', () => {
    const before = schema(table(1, 'users', column(2, 'name')))
    const after = schema(table(1, 'Users', column(2, 'Name')))
    expect(compareSchemasById(before, after)).toEqual([
      { renameTable: { oldName: 'users', newName: 'Users' } },
      { renameColumn: { table: 'Users', oldName: 'name', newName: 'Name' } },
    ])
  })

  test('takes time in proportion to the schema', () => {
    // All columns of every table move on to the next name, and the tables exchange theirs.
    const large = (tables: number, shift: number) =>
      schema(
        ...Array.from({ length: tables }, (_, index) =>
          table(
            index * 100,
            `t${(index + shift) % tables}`,
            ...Array.from({ length: 20 }, (_, number) =>
              column(index * 100 + number + 1, `c${(number + shift) % 20}`),
            ),
          ),
        ),
      )
    const compare = (tables: number) => {
      const [before, after] = [large(tables, 0), large(tables, 1)]
      return cpuMsOf(() => compareSchemasById(before, after))
    }
    compare(1000)
    const least = (tables: number) => Math.min(...[1, 2, 3].map(() => compare(tables)))
    // In quadratic time it would be 100 times. Garbage collection adds to the 10 times of linear time.
    expect(least(1000)).toBeLessThan(50 * Math.max(1, least(100)))
  })

  test('returns edits that can be applied and result in the other schema', () => {
    const names = fc.shuffledSubarray(['a', 'b', 'c', 'd', 'e', 'renamed_1'])
    const columns = (tableId: number) =>
      fc
        .tuple(fc.subarray([1, 2, 3, 4]), names)
        .map(([ids, given]) =>
          ids
            .slice(0, given.length)
            .map((id, index) => column(tableId * 10 + id, given[index] ?? '')),
        )
    const schemas = fc
      .tuple(fc.subarray([1, 2, 3, 4]), names, fc.tuple(...[1, 2, 3, 4].map(columns)))
      .map(([ids, given, allColumns]) =>
        schema(
          ...ids
            .slice(0, given.length)
            .map((id, index) => table(id, given[index] ?? '', ...(allColumns[id - 1] ?? []))),
        ),
      )
    fc.assert(
      fc.property(schemas, schemas, (before, after) => {
        let id = 1000
        const { schema: applied } = applyOperations(before, compareSchemasById(before, after), {
          limits: LIMITS,
          nextId: () => ++id,
          checkDefault: () => undefined,
          defaultFill: () => undefined,
        })
        expect(comparable(applied)).toEqual(comparable(after))
      }),
      { numRuns: 2000 },
    )
  })
})

/** Reduces a schema to its names, without an order. */
function comparable(stored: StoredSchema): Record<string, string[]> {
  return Object.fromEntries(
    toPublicSchema(stored).tables.map(({ name, columns }) => [
      name,
      columns.map((own) => own.name).sort(),
    ]),
  )
}

describe('storageChanges', () => {
  test('contain additions and removals, but not renames', () => {
    const before = schema(table(1, 'users', column(2, 'name'), column(3, 'age')), table(4, 'old'))
    const after = schema(
      table(1, 'people', column(2, 'fullName'), column(5, 'mail')),
      table(6, 'new'),
    )
    const kinds = storageChanges(before, after).map((change) => [
      change.kind,
      change.table.id,
      'column' in change ? change.column.id : undefined,
    ])
    expect(kinds).toEqual([
      ['tableRemoved', 4, undefined],
      ['columnRemoved', 1, 3],
      ['columnAdded', 1, 5],
      ['tableAdded', 6, undefined],
    ])
  })

  test('contain indexes, for which there are no operations', () => {
    const before = schema(
      table(1, 'users', column(2, 'name'), column(3, 'team', { type: 'link', index: false })),
    )
    const after = schema(
      table(1, 'users', column(2, 'name', { index: true }), column(3, 'team', { type: 'link' })),
    )
    const changes = storageChanges(before, after)
    expect(changes.map((change) => ['column' in change && change.column.id, change.kind])).toEqual([
      [2, 'indexChanged'],
      [3, 'indexChanged'],
    ])
    expect(compareSchemasById(before, after)).toEqual([])
    // A unique column has the same index, whether one was requested or not.
    const unique = (index: boolean) =>
      schema(table(1, 'users', column(2, 'name', { unique: true, index })))
    expect(storageChanges(unique(true), unique(false))).toEqual([])
  })

  test('are empty for equal schemas, like the operations', () => {
    const one = schema(table(1, 'users', column(2, 'name')))
    const operations: SchemaOperation[] = compareSchemasById(one, one)
    expect([storageChanges(one, one), operations]).toEqual([[], []])
  })
})
