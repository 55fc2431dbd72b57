import { expect, test } from 'vitest'
import type { StoredSchema } from '../../rows/columns/stored-schema.js'
import { rememberIds } from './remembered-ids.js'

const schema: StoredSchema = {
  tables: [
    { id: 1, name: 'a', columns: [{ id: 2, name: 'x', type: 'int' }] },
    { id: 3, name: 'b', columns: [{ id: 4, name: 'x', type: 'int' }] },
  ],
}
const [a, b] = schema.tables

test('a schema without removals has no removed ids', () => {
  expect(rememberIds(schema, schema)).toEqual(schema)
  expect(rememberIds({ tables: [] }, schema)).toEqual(schema)
})

test('the ids of removed tables, and of removed columns of remaining tables, are recorded', () => {
  const after = {
    tables: [{ id: 3, name: 'c', columns: [{ id: 5, name: 'x', type: 'int' as const }] }],
  }
  expect(rememberIds(schema, after).removedIds).toEqual([1, 4])
})

test('ids that were recorded before are kept', () => {
  const once = rememberIds(schema, { tables: a === undefined ? [] : [a] })
  const twice = rememberIds(once, { tables: [] })
  expect(twice).toEqual({ tables: [], removedIds: [3, 1] })
  expect(b?.id).toBe(3)
})

test('ids that are known to be the same are kept', () => {
  const before = { ...schema, sameIds: [[1, 7]] }
  expect(rememberIds(before, schema)).toEqual(before)
  expect(rememberIds(before, { tables: [] })).toEqual({
    tables: [],
    removedIds: [1, 3],
    sameIds: [[1, 7]],
  })
})
