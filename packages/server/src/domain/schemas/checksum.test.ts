import {
  type Migration,
  MigrationSchema,
  type SchemaOperation,
} from '@offshoot/contract/schema-edits'
import { expect, test } from 'vitest'
import { checksumOf } from './checksum.js'

const operations: SchemaOperation[] = [
  { addTable: { table: 'users' } },
  { addColumn: { table: 'users', column: { name: 'age', type: 'int', notNull: true } } },
]

test('has the form that clients expect', () => {
  expect(checksumOf([])).toBe('1:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945')
  expect(checksumOf(operations)).toMatch(/^1:[0-9a-f]{64}$/)
})

test('does not depend on the order of keys', () => {
  expect(
    checksumOf([
      { addTable: { table: 'users' } },
      { addColumn: { column: { type: 'int', notNull: true, name: 'age' }, table: 'users' } },
    ]),
  ).toBe(checksumOf(operations))
})

test('survives being written to a file and read back', () => {
  expect(checksumOf(JSON.parse(JSON.stringify(operations)))).toBe(checksumOf(operations))
})

test('depends on every value and on the order of operations', () => {
  expect(checksumOf([...operations].reverse())).not.toBe(checksumOf(operations))
  expect(checksumOf(operations.slice(1))).not.toBe(checksumOf(operations))
  expect(
    checksumOf([
      { addTable: { table: 'users' } },
      { addColumn: { table: 'users', column: { name: 'age', type: 'int', notNull: false } } },
    ]),
  ).not.toBe(checksumOf(operations))
})

test('matches the example in the contract', () => {
  const { examples } = MigrationSchema as unknown as { examples: Migration[] }
  for (const example of examples) expect(example.checksum).toBe(checksumOf(example.operations))
  expect(examples).toHaveLength(1)
})
