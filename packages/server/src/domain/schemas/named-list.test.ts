import { expect, test } from 'vitest'
import { NamedList } from './named-list.js'

const list = () =>
  new NamedList([
    { id: 1, name: 'b' },
    { id: 2, name: 'a' },
  ])

test('finds by id, by name, and by name ignoring case', () => {
  expect(list().get(2)).toEqual({ id: 2, name: 'a' })
  expect(list().find('a')).toEqual({ id: 2, name: 'a' })
  expect(list().find('A')).toBeUndefined()
  expect(list().findIgnoringCase('A')).toEqual({ id: 2, name: 'a' })
  expect(list().find('__proto__')).toBeUndefined()
})

test('keeps its order when an item is renamed, and frees the old name', () => {
  const items = list()
  items.set({ id: 1, name: 'c' })
  expect(items.items()).toEqual([
    { id: 1, name: 'c' },
    { id: 2, name: 'a' },
  ])
  expect(items.findIgnoringCase('b')).toBeUndefined()
})

test('keeps a name whose case changes', () => {
  const items = list()
  items.set({ id: 1, name: 'B' })
  expect(items.find('B')).toEqual({ id: 1, name: 'B' })
})

test('does not find deleted items', () => {
  const items = list()
  items.delete(1)
  items.delete(7)
  expect(items.get(1)).toBeUndefined()
  expect(items.find('b')).toBeUndefined()
  expect(items.items()).toEqual([{ id: 2, name: 'a' }])
})
