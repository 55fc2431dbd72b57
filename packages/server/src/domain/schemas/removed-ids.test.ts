import { expect, test } from 'vitest'
import type { StoredSchema } from '../../rows/columns.js'
import { rememberRemoved } from './removed-ids.js'

const schema: StoredSchema = {
  tables: [
    { id: 1, name: 'a', columns: [{ id: 2, name: 'x', type: 'int' }] },
    { id: 3, name: 'b', columns: [{ id: 4, name: 'x', type: 'int' }] },
  ],
}
const [a, b] = schema.tables

test('a schema without removals has no removed ids', () => {
  expect(rememberRemoved(schema, schema)).toEqual(schema)
  expect(rememberRemoved({ tables: [] }, schema)).toEqual(schema)
})

test('the ids of removed tables, and of removed columns of remaining tables, are recorded', () => {
  const after = {
    tables: [{ id: 3, name: 'c', columns: [{ id: 5, name: 'x', type: 'int' as const }] }],
  }
  expect(rememberRemoved(schema, after).removedIds).toEqual([1, 4])
})

test('ids that were recorded before are kept', () => {
  const once = rememberRemoved(schema, { tables: a === undefined ? [] : [a] })
  const twice = rememberRemoved(once, { tables: [] })
  expect(twice).toEqual({ tables: [], removedIds: [3, 1] })
  expect(b?.id).toBe(3)
})
