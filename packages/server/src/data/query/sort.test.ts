import { describe, expect, it } from 'vitest'
import { listSort } from './sort.js'

describe('listSort', () => {
  it.each([
    [undefined, []],
    [null, []],
    ['name', [{ path: 'name', direction: 'asc' }]],
    [{ name: 'desc' }, [{ path: 'name', direction: 'desc' }]],
    [
      ['name', { age: 'desc', id: 'asc' }],
      [
        { path: 'name', direction: 'asc' },
        { path: 'age', direction: 'desc' },
        { path: 'id', direction: 'asc' },
      ],
    ],
    [{ '*': 'random' }, [{ path: '*', direction: 'random' }]],
  ])('reads %j', (sort, list) => {
    expect(listSort(sort)).toEqual(list)
  })

  it.each([
    [{ name: 'random' }, 'sort: column [name]: must be [asc] or [desc]'],
    [{ name: null }, 'sort: column [name]: must be [asc] or [desc]'],
    [[[5]], 'sort: expected an object or a list'],
    [true, 'sort: expected an object or a list'],
  ])('refuses %j', (sort, message) => {
    expect(() => listSort(sort)).toThrow(message)
  })
})
