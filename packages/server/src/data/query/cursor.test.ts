import { deflateRawSync } from 'node:zlib'
import { describe, expect, it } from 'vitest'
import { type Cursor, otherSide, readCursor, writeCursor } from './cursor.js'

const CURSOR: Cursor = {
  filter: { name: { $any: ['a', 'ä', '"'] } },
  sort: [{ name: 'asc' }],
  columns: ['name', { name: '<-posts.author' }],
  size: 20,
  seed: 7,
  first: { keys: ['a', null], id: 'one' },
  last: { keys: [null, 'b'], id: 'two', isInclusive: true },
}

describe('a cursor', () => {
  it('is read as it was written', () => {
    expect(readCursor(writeCursor(CURSOR))).toEqual(CURSOR)
    const { first: _first, last: _last, ...bare } = CURSOR
    expect(readCursor(writeCursor(bare))).toEqual(bare)
  })

  it('stays small with many ids', () => {
    const ids = Array.from({ length: 1500 }, (_, index) => `rec_${index}`)
    const text = writeCursor({ ...CURSOR, filter: { id: { $any: ids } } })
    expect(text.length).toBeLessThan(10_000)
    expect(text).toMatch(/^[\w-]+$/)
  })

  it('of many ids is compressed, another one is not', () => {
    const ids = Array.from({ length: 100 }, (_, index) => `rec_${index}`)
    const texts = [CURSOR, { ...CURSOR, filter: { id: ids } }].map((cursor) => writeCursor(cursor))
    expect(texts.map((text) => text.charAt(0))).toEqual(['p', 'c'])
  })

  const encode = (value: unknown) => `p${Buffer.from(JSON.stringify(value)).toString('base64url')}`
  it.each([
    ['no cursor', 'nonsense'],
    ['an empty one', ''],
    ['compressed nonsense', `c${Buffer.from('nonsense').toString('base64url')}`],
    ['compressed null', `c${deflateRawSync('null').toString('base64url')}`],
    ['null', encode(null)],
    ['a list', encode([])],
    ['a cursor without a size', encode({ ...CURSOR, size: undefined })],
    ['a size of nothing', encode({ ...CURSOR, size: 0 })],
    ['a size that is no number', encode({ ...CURSOR, size: '20' })],
    ['a seed that is SQL', encode({ ...CURSOR, seed: '1); drop table' })],
    ['a position that is none', encode({ ...CURSOR, first: 5 })],
    ['a position without an id', encode({ ...CURSOR, last: { keys: [] } })],
    ['keys that are no texts', encode({ ...CURSOR, last: { keys: [1], id: 'a' } })],
    ['a side that is none', encode({ ...CURSOR, last: { keys: [], id: 'a', isInclusive: 1 } })],
  ])('is refused when it is %s', (_name, text) => {
    expect(() => readCursor(text)).toThrow('page: invalid cursor')
  })
})

describe('otherSide', () => {
  it('turns a boundary around, and back', () => {
    const position = { keys: ['a'], id: 'one' }
    expect(otherSide(position)).toEqual({ ...position, isInclusive: true })
    expect(otherSide(otherSide(position))).toEqual({ ...position, isInclusive: false })
  })
})
