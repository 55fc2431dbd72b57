import { AppError } from '@offshoot/contract/errors'
import type { Migration } from '@offshoot/contract/schema-edits'
import { expect, test } from 'vitest'
import { checksumOf } from './checksum.js'
import { planPush } from './plan-push.js'

function migration(id: string, parentID?: string): Migration {
  const operations = [{ addTable: { table: id } }]
  const checksum = checksumOf(operations)
  return { id, checksum, operations, ...(parentID !== undefined && { parentID }) }
}

const root = migration('root')
const a = migration('a', 'root')
const b = migration('b', 'a')
const c = migration('c', 'b')
const d = migration('d', 'c')

/** A branch that has root, a and b. */
const branch = { head: 'b', known: [{ id: 'b' }, { id: 'a' }, { id: 'root' }] }

const idsOf = (migrations: readonly Migration[]) =>
  planPush({ ...branch, migrations }).map(({ id, parentID }) => [id, parentID])

function refusal(migrations: readonly Migration[]): AppError {
  try {
    planPush({ ...branch, migrations })
  } catch (error) {
    if (error instanceof AppError) return error
    throw error
  }
  throw new Error('the push was accepted')
}

test('migrations that follow the head are new', () => {
  expect(idsOf([c])).toEqual([['c', 'b']])
  expect(idsOf([c, d])).toEqual([
    ['c', 'b'],
    ['d', 'c'],
  ])
})

test('migrations that the branch already has are left out', () => {
  expect(idsOf([root, a, b, c, d])).toEqual([
    ['c', 'b'],
    ['d', 'c'],
  ])
  expect(idsOf([b, c])).toEqual([['c', 'b']])
})

test('a push without anything new is accepted', () => {
  expect(idsOf([root, a, b])).toEqual([])
  expect(idsOf([b])).toEqual([])
  expect(idsOf([])).toEqual([])
})

test('a migration without a parent follows the previous one, or the head if it is the first', () => {
  expect(idsOf([migration('x'), migration('y')])).toEqual([
    ['x', 'b'],
    ['y', 'x'],
  ])
})

test('other fields of a migration are kept', () => {
  const noted = { ...c, title: 'a title', message: 'a message' }
  expect(planPush({ ...branch, migrations: [noted] })).toEqual([{ ...noted, parentID: 'b' }])
})

test('a migration keeps its checksum when it gets another parent', () => {
  expect(idsOf([{ ...d, parentID: 'b' }])).toEqual([['d', 'b']])
})

test.each([
  ['they follow an older migration', [migration('x', 'a')], 'x'],
  ['they follow an unknown one', [d], 'd'],
  ['they are an older part of the history', [root, a], 'root'],
  ['they leave the history before the head', [root, a, migration('x', 'a')], 'root'],
  ['there is an unknown one before the head', [root, migration('x', 'a'), b, c], 'x'],
  ['the chain breaks after the head', [b, c, migration('x', 'b')], 'x'],
  ['an old one comes after the head', [b, { ...a, parentID: 'b' }], 'a'],
] satisfies [string, Migration[], string][])('refuses them when %s', (_when, migrations, id) => {
  const error = refusal(migrations)
  expect(error.code).toBe('conflict')
  expect(error.message).toBe(`migration [${id}]: does not follow the head [b] of the branch`)
})

test('refuses a checksum that does not match the operations', () => {
  const error = refusal([{ ...c, operations: [{ addTable: { table: 'other' } }] }])
  expect(error.code).toBe('invalid_schema')
  expect(error.message).toBe('migration [c]: checksum does not match the operations')
})

test('refuses a migration that is listed twice', () => {
  const error = refusal([c, c])
  expect(error.code).toBe('invalid_schema')
  expect(error.message).toBe('migration [c]: is listed twice')
})

test('refuses a migration of the branch whose operations have changed', () => {
  const known = [{ id: 'b', checksum: b.checksum }]
  const changed = { ...migration('x'), id: 'b' }
  expect(planPush({ head: 'b', known, migrations: [b] })).toEqual([])
  expect(() => planPush({ head: 'b', known, migrations: [changed] })).toThrow(
    'migration [b]: the branch has this migration with different operations',
  )
})
