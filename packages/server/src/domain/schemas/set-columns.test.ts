import type { Column, Table } from '@offshoot/contract/schema'
import { expect, test } from 'vitest'
import { canAlter } from './compare-columns.js'
import { setColumns as setColumnsBy } from './set-columns.js'

const setColumns = (table: Table, columns: readonly Column[]) =>
  setColumnsBy(
    table,
    columns,
    canAlter((name) => (name === 'invoices' ? 'int' : 'string')),
  )

const name: Column = { name: 'name', type: 'string' }
const age: Column = { name: 'age', type: 'int', notNull: true, defaultValue: '1' }
const address: Column = {
  name: 'address',
  type: 'object',
  columns: [
    { name: 'city', type: 'string' },
    { name: 'country', type: 'link', link: { table: 'countries' } },
  ],
}
const table: Table = { name: 'users', columns: [name, age, address] }

test('the same columns in any order need no edit', () => {
  const turned = { ...address, columns: [...(address.columns ?? [])].reverse() }
  expect(
    setColumns(table, [turned, { ...age, unique: false }, { ...name, notNull: false }]),
  ).toEqual([])
})

test('columns that are not listed are removed, and new ones are added', () => {
  const email: Column = { name: 'email', type: 'email' }
  expect(setColumns(table, [name, address, email])).toEqual([
    { removeColumn: { table: 'users', column: 'age' } },
    { addColumn: { table: 'users', column: email } },
  ])
  expect(setColumns(table, [])).toEqual([
    { removeColumn: { table: 'users', column: 'name' } },
    { removeColumn: { table: 'users', column: 'age' } },
    { removeColumn: { table: 'users', column: 'address' } },
  ])
})

const link: Column = {
  name: 'age',
  type: 'link',
  link: { table: 'invoices', onDelete: 'restrict' },
}

test.each<[Column, object]>([
  [{ ...age, type: 'float' }, { type: 'float' }],
  [{ ...age, defaultValue: '2' }, { defaultValue: '2' }],
  [{ name: 'age', type: 'int', notNull: true }, { defaultValue: null }],
  [{ ...age, notNull: false }, { notNull: false }],
  [
    { name: 'age', type: 'int', unique: true },
    { notNull: false, unique: true, defaultValue: null },
  ],
  [
    { name: 'age', type: 'decimal', decimal: { precision: 4, scale: 1 }, notNull: true },
    { type: 'decimal', decimal: { precision: 4, scale: 1 }, defaultValue: null },
  ],
  [link, { type: 'link', link: link.link, notNull: false, defaultValue: null }],
  [
    { ...age, generate: 'sequence', defaultValue: undefined } as unknown as Column,
    { generate: 'sequence', defaultValue: null },
  ],
])('a column that changed to %j keeps its values', (changed, changes) => {
  expect(setColumns(table, [name, changed, address])).toEqual([
    { alterColumn: { table: 'users', column: 'age', ...changes } },
  ])
})

test.each<Column>([
  { name: 'age', type: 'uuid' },
  { name: 'age', type: 'link', link: { table: 'countries' } },
  { name: 'age', type: 'int', computed: 'length(name)' },
])('a column that cannot become %j is replaced', (changed) => {
  expect(setColumns(table, [name, changed, address])).toEqual([
    { removeColumn: { table: 'users', column: 'age' } },
    { addColumn: { table: 'users', column: changed } },
  ])
})

test('a generator that is not named stays, unless the new definition excludes it', () => {
  const key: Column = { name: 'key', type: 'string', generate: 'uuid' }
  const keyed: Table = { name: 'things', columns: [key] }
  const changes = (changed: Column) => setColumns(keyed, [changed])
  expect(changes({ name: 'key', type: 'text' })).toEqual([
    { alterColumn: { table: 'things', column: 'key', type: 'text' } },
  ])
  expect(changes({ name: 'key', type: 'int' })).toEqual([
    { alterColumn: { table: 'things', column: 'key', type: 'int', generate: null } },
  ])
  expect(changes({ name: 'key', type: 'string', defaultValue: 'a' })).toEqual([
    { alterColumn: { table: 'things', column: 'key', defaultValue: 'a', generate: null } },
  ])
})

test('an object with another column in it is replaced', () => {
  const changed: Column = { ...address, columns: [{ name: 'city', type: 'text' }] }
  expect(setColumns(table, [name, age, changed])).toEqual([
    { removeColumn: { table: 'users', column: 'address' } },
    { addColumn: { table: 'users', column: changed } },
  ])
})

test('a nested column that is listed twice is a change', () => {
  const [city] = address.columns ?? []
  const changed: Column = { ...address, columns: city ? [city, city] : [] }
  expect(setColumns(table, [name, age, changed])).toHaveLength(2)
})

test('a column that is listed twice is added, which applying the edits refuses', () => {
  expect(setColumns(table, [name, name, age, address])).toEqual([
    { addColumn: { table: 'users', column: name } },
  ])
})

test('a column whose description is left out or changed keeps its values', () => {
  const described: Table = {
    name: 'people',
    columns: [{ name: 'age', type: 'int', description: 'In years.' }],
  }
  expect(setColumns(described, [{ name: 'age', type: 'int' }])).toEqual([])
  expect(setColumns(described, [{ name: 'age', type: 'int', description: 'In months.' }])).toEqual([
    { alterColumn: { table: 'people', column: 'age', description: 'In months.' } },
  ])
})
