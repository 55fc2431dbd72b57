import { describe, expect, it } from 'vitest'
import { nearest } from './nearest.js'

describe('nearest', () => {
  it.each([
    ['colums', 'columns'],
    ['COLUMNS', 'columns'],
    ['column', 'columns'],
    ['fitler', 'filter'],
    ['sorts', 'sort'],
  ])('finds for %s the name %s', (name, expected) => {
    expect(nearest(name, ['filter', 'sort', 'columns', 'page'])).toBe(expected)
  })

  it.each(['', 'x', 'everything', 'limit'])('finds nothing near %j', (name) => {
    expect(nearest(name, ['filter', 'sort', 'columns', 'page'])).toBeUndefined()
  })

  it('does not compare names of more than 64 characters', () => {
    expect(nearest('a'.repeat(64), ['a'.repeat(63)])).toBe('a'.repeat(63))
    expect(nearest('a'.repeat(65), ['a'.repeat(64)])).toBeUndefined()
  })
})
