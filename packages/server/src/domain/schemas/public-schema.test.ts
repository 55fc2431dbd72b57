import type { Column } from '@offshoot/contract/schema'
import { describe, expect, test } from 'vitest'
import type { StoredSchema } from '../../rows/columns/stored-schema.js'
import { findColumn, flattenColumns, toPublicSchema } from './public-schema.js'

const stored: StoredSchema = {
  tables: [
    {
      id: 7,
      name: 'users',
      columns: [
        { id: 8, name: 'email', type: 'email', unique: true },
        { id: 9, name: 'age', type: 'int', notNull: true, defaultValue: '1', fill: '1' },
        { id: 10, name: 'friend', type: 'link', link: { tableId: 7 } },
      ],
    },
    {
      id: 11,
      name: 'orders',
      columns: [
        { id: 12, name: 'owner', type: 'link', link: { tableId: 7 } },
        { id: 13, name: 'embedding', type: 'vector', vector: { dimension: 3 } },
        { id: 14, name: 'photo', type: 'file', defaultPublicAccess: true },
        { id: 15, name: 'photos', type: 'file[]', defaultPublicAccess: true },
        { id: 16, name: 'scan', type: 'file' },
        {
          id: 17,
          name: 'delivery',
          type: 'object',
          columns: [
            { id: 18, name: 'note', type: 'text' },
            {
              id: 19,
              name: 'by',
              type: 'object',
              columns: [{ id: 20, name: 'driver', type: 'link', link: { tableId: 7 } }],
            },
          ],
        },
      ],
    },
  ],
}

describe('toPublicSchema', () => {
  test('shows names and fields that are set, and no internal fields', () => {
    expect(toPublicSchema(stored)).toEqual({
      tables: [
        {
          id: 'tbl_7',
          name: 'users',
          columns: [
            { name: 'email', type: 'email', unique: true },
            { name: 'age', type: 'int', notNull: true, defaultValue: '1' },
            { name: 'friend', type: 'link', link: { table: 'users' } },
          ],
          revLinks: [
            { table: 'users', column: 'friend' },
            { table: 'orders', column: 'owner' },
            { table: 'orders', column: 'delivery.by.driver' },
          ],
        },
        {
          id: 'tbl_11',
          name: 'orders',
          columns: [
            { name: 'owner', type: 'link', link: { table: 'users' } },
            { name: 'embedding', type: 'vector', vector: { dimension: 3 } },
            { name: 'photo', type: 'file', file: { defaultPublicAccess: true } },
            { name: 'photos', type: 'file[]', 'file[]': { defaultPublicAccess: true } },
            { name: 'scan', type: 'file' },
            {
              name: 'delivery',
              type: 'object',
              columns: [
                { name: 'note', type: 'text' },
                {
                  name: 'by',
                  type: 'object',
                  columns: [{ name: 'driver', type: 'link', link: { table: 'users' } }],
                },
              ],
            },
          ],
        },
      ],
      tablesOrder: ['users', 'orders'],
    })
  })

  test.each([
    [
      ['orders', 'users'],
      ['orders', 'users'],
    ],
    [['orders'], ['orders', 'users']],
    [
      ['gone', 'orders', 'orders'],
      ['orders', 'users'],
    ],
    [[], ['users', 'orders']],
  ])('shows the tables in the order %j as %j', (tablesOrder, shown) => {
    expect(toPublicSchema({ ...stored, tablesOrder }).tablesOrder).toEqual(shown)
  })

  test('an empty schema has an empty order', () => {
    expect(toPublicSchema({ tables: [] })).toEqual({ tables: [], tablesOrder: [] })
  })
})

describe('columns of a table', () => {
  const columns: Column[] = [
    { name: 'email', type: 'email', unique: true },
    {
      name: 'address',
      type: 'object',
      columns: [
        { name: 'city', type: 'string' },
        { name: 'geo', type: 'object', columns: [{ name: 'lat', type: 'float' }] },
      ],
    },
  ]

  test('are flattened to dotted names', () => {
    expect(flattenColumns({ columns })).toEqual([
      { name: 'email', type: 'email', unique: true },
      { name: 'address.city', type: 'string' },
      { name: 'address.geo.lat', type: 'float' },
    ])
  })

  test.each([
    ['email', columns[0]],
    ['address', columns[1]],
    ['address.city', { name: 'city', type: 'string' }],
    ['address.geo.lat', { name: 'lat', type: 'float' }],
    ['Email', undefined],
    ['address.street', undefined],
    ['email.city', undefined],
    ['', undefined],
  ])('are found by the path %s', (path, column) => {
    expect(findColumn({ columns }, path)).toEqual(column)
  })
})
