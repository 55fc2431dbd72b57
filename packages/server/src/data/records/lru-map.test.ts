import { describe, expect, it } from 'vitest'
import { LruMap } from './lru-map.js'

describe('a map that forgets', () => {
  it('keeps as many entries as it may, and not one more', () => {
    const map = new LruMap<number, string>(4)
    for (let key = 1; key <= 5; key++) map.set(key, 'x')
    expect([1, 2, 3, 4, 5].filter((key) => map.get(key) !== undefined)).toEqual([2, 3, 4, 5])
  })

  it('forgets what was longest unused first', () => {
    const map = new LruMap<string, number>(4)
    for (const key of ['a', 'b', 'c', 'd']) map.set(key, 1)
    map.get('a')
    map.set('e', 1)
    map.get('c')
    map.set('f', 1)
    expect(['a', 'b', 'c', 'd', 'e', 'f'].filter((key) => map.get(key))).toEqual([
      ...['a', 'c', 'e', 'f'],
    ])
  })
})
