import type { ColumnDefinition } from '@offshoot/client'
import { expect, test } from 'vitest'
import { changesOf } from './column-changes.js'

const n: ColumnDefinition = { name: 'n', type: 'string' }

test.each<[ColumnDefinition, ColumnDefinition, object]>([
  [n, n, {}],
  [n, { ...n, notNull: false }, {}],
  [n, { name: 'm', type: 'int' }, { name: 'm', type: 'int' }],
  [{ ...n, notNull: true }, n, { notNull: false }],
  [{ ...n, defaultValue: 'x', description: 'y' }, n, { defaultValue: null, description: null }],
  [
    { name: 'n', type: 'enum', enum: { values: ['a'] } },
    { name: 'n', type: 'enum', enum: { values: ['a', 'b'] } },
    { enum: { values: ['a', 'b'] } },
  ],
  [
    { name: 'n', type: 'link', link: { table: 't', onDelete: 'cascade' } },
    { name: 'n', type: 'link', link: { table: 't' } },
    { link: { onDelete: 'none' } },
  ],
  [
    { name: 'n', type: 'link', link: { table: 't', onDelete: 'cascade' } },
    { name: 'n', type: 'link', link: { table: 't', onDelete: 'cascade', constraint: 'r' } },
    { link: { constraint: 'r' } },
  ],
  [
    { name: 'n', type: 'link', link: { table: 't', onDelete: 'cascade', constraint: 'r' } },
    { name: 'n', type: 'link', link: { table: 't', onDelete: 'setNull' } },
    { link: { onDelete: 'setNull', constraint: null } },
  ],
  [
    { name: 'n', type: 'link', link: { table: 't', onDelete: 'cascade', constraint: 'r' } },
    { name: 'n', type: 'link', link: { table: 't' } },
    { link: { onDelete: 'none' } },
  ],
  [n, { name: 'n', type: 'link', link: { table: 't' } }, { type: 'link', link: { table: 't' } }],
  [n, { ...n, generate: 'uuid' }, { generate: 'uuid' }],
  [n, { ...n, maxLength: 20 }, { maxLength: 20 }],
  [
    { name: 'n', type: 'datetime' },
    { name: 'n', type: 'datetime', withoutZone: true },
    { withoutZone: true },
  ],
  [{ name: 'n', type: 'datetime', withoutZone: true }, n, { type: n.type }],
  [{ ...n, maxLength: 20 }, n, { maxLength: null }],
  [
    { ...n, maxLength: 20 },
    { name: 'n', type: 'int', bits: 32 },
    { type: 'int', bits: 32 },
  ],
  [{ name: 'n', type: 'int', bits: 16 }, { name: 'n', type: 'int' }, { bits: null }],
  [{ ...n, generate: 'uuid' }, n, { generate: null }],
])('the changes from %j to %j are %j', (before, after, changes) => {
  expect(changesOf(before, after)).toEqual(changes)
})
