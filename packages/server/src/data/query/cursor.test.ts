import { QUERY_LIMITS } from '@offshoot/contract/limits'
import { describe, expect, it } from 'vitest'
import { type Cursor, type CursorScope, otherSide, readCursor, writeCursor } from './cursor.js'

const SCOPE: CursorScope = { secret: Buffer.alloc(32, 1), branchId: 'bb_1', tableId: 7 }
const CURSOR: Cursor = {
  filter: { name: { $any: ['a', 'ä', '"'] } },
  sort: [{ name: 'asc' }],
  columns: ['name', { name: '<-posts.author' }],
  size: 20,
  seed: 7,
  first: { keys: ['a', null], id: 'one' },
  last: { keys: [null, 'b'], id: 'two', isInclusive: true },
}
const IDS = Array.from({ length: 1500 }, (_, index) => `rec_${index}`)
const LONG: Cursor = { ...CURSOR, filter: { id: { $any: IDS } } }

describe('a cursor', () => {
  it('is read as it was written', () => {
    const { first: _first, last: _last, ...bare } = CURSOR
    for (const cursor of [CURSOR, bare, LONG]) {
      expect(readCursor(SCOPE, writeCursor(SCOPE, cursor))).toEqual(cursor)
    }
  })

  it('of many ids is compressed, another one is not', () => {
    const texts = [CURSOR, LONG].map((cursor) => writeCursor(SCOPE, cursor))
    expect(texts.map((text) => text.charAt(0))).toEqual(['p', 'c'])
    expect(texts[1]?.length).toBeLessThan(10_000)
    for (const text of texts) expect(text).toMatch(/^[\w-]+$/)
  })

  it('is refused with any character changed, left out or added', () => {
    const text = writeCursor(SCOPE, CURSOR)
    for (let at = 0; at < text.length; at++) {
      const other = text.charAt(at) === 'A' ? 'B' : 'A'
      for (const wrong of [
        `${text.slice(0, at)}${other}${text.slice(at + 1)}`,
        text.slice(0, at) + text.slice(at + 1),
        `${text.slice(0, at)}A${text.slice(at)}`,
      ]) {
        expect(() => readCursor(SCOPE, wrong), wrong).toThrow('page: invalid cursor')
      }
    }
  })

  it.each([
    ['another secret', { secret: Buffer.alloc(32, 2) }],
    ['another branch', { branchId: 'bb_2' }],
    ['another table', { tableId: 8 }],
  ])('is refused with %s', (_name, other) => {
    const text = writeCursor(SCOPE, CURSOR)
    expect(() => readCursor({ ...SCOPE, ...other }, text)).toThrow('page: invalid cursor')
  })

  it.each(['', 'p', 'c', 'nonsense', 'ä'.repeat(40), 'p'.repeat(QUERY_LIMITS.cursorLengthMax)])(
    'is refused when it is none',
    (text) => {
      expect(() => readCursor(SCOPE, text)).toThrow('page: invalid cursor')
    },
  )

  it('is refused by its length alone', () => {
    const text = 'p'.repeat(QUERY_LIMITS.cursorLengthMax + 1)
    expect(() => readCursor(SCOPE, text)).toThrow(
      `page: a cursor must not have more than ${QUERY_LIMITS.cursorLengthMax} characters`,
    )
  })

  it('holds no more than it may when it is read', () => {
    const bytes = Buffer.byteLength(JSON.stringify({ ...CURSOR, filter: '' }))
    const room = QUERY_LIMITS.cursorLengthMax - bytes
    const largest = { ...CURSOR, filter: 'a'.repeat(room) }
    expect(readCursor(SCOPE, writeCursor(SCOPE, largest))).toEqual(largest)
    const larger = { ...CURSOR, filter: 'a'.repeat(room + 1) }
    expect(() => writeCursor(SCOPE, larger)).toThrow('are too long for a cursor')
  })
})

describe('otherSide', () => {
  it('turns a boundary around, and back', () => {
    const position = { keys: ['a'], id: 'one' }
    expect(otherSide(position)).toEqual({ ...position, isInclusive: true })
    expect(otherSide(otherSide(position))).toEqual({ ...position, isInclusive: false })
  })
})
