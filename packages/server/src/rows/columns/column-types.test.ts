import { LIMITS } from '@offshoot/contract/limits'
import { COLUMN_TYPES, type ColumnType } from '@offshoot/contract/schema'
import { expect, test } from 'vitest'
import { COLUMN_TYPE_ENTRIES, isFileType } from './column-types.js'
import { Fault } from './fault.js'

const T = true
const f = false

test.each<[ColumnType, string, boolean, boolean, boolean, boolean, boolean]>([
  // Type, SQL type, unique, index, notNull, defaultValue, computed.
  ['bool', 'boolean', f, T, T, T, T],
  ['int', 'bigint', T, T, T, T, T],
  ['float', 'double precision', T, T, T, T, T],
  ['string', 'text collate "C"', T, T, T, T, T],
  ['text', 'text collate "C"', f, f, T, T, T],
  ['email', 'text collate "C"', T, T, T, T, f],
  ['multiple', 'text[]', f, f, T, T, f],
  ['link', 'text collate "C"', T, T, f, f, f],
  ['object', 'boolean', f, f, f, f, f],
  ['datetime', 'timestamptz', T, T, T, T, T],
  ['vector', 'real[]', f, T, f, f, f],
  ['file', 'jsonb', f, f, f, f, f],
  ['file[]', 'jsonb', f, f, f, f, f],
  ['json', 'jsonb', f, f, T, T, f],
])('%s is stored as %s', (type, sqlType, unique, index, notNull, defaultValue, computed) => {
  const entry = COLUMN_TYPE_ENTRIES[type]
  expect(entry.sqlType).toBe(sqlType)
  expect(entry.allows).toEqual({
    unique,
    index,
    notNull,
    defaultValue,
    ...(computed && { computed }),
  })
})

test('every type of the contract has an entry', () => {
  expect(Object.keys(COLUMN_TYPE_ENTRIES).sort()).toEqual([...COLUMN_TYPES].sort())
})

test('a type that allows no default reads none', () => {
  for (const type of COLUMN_TYPES) {
    const entry = COLUMN_TYPE_ENTRIES[type]
    if (entry.allows.defaultValue) continue
    const column = { id: 1, name: 'c', type }
    const options = { limits: LIMITS, jsonAsText: false }
    for (const text of ['', 'a', '1', 'now', '{}', '[]']) {
      expect(entry.parseDefault(text, column, options)).toBeInstanceOf(Fault)
    }
  }
})

test('files are known by their type', () => {
  expect(COLUMN_TYPES.filter(isFileType)).toEqual(['file[]', 'file'])
})
