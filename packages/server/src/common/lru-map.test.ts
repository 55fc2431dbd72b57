import { afterEach, describe, expect, it, vi } from 'vitest'
import { LruMap } from './lru-map.js'

describe('a map that forgets', () => {
  afterEach(() => void vi.useRealTimers())

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

  it('keeps as much as it may by weight, and nothing that is heavier by itself', () => {
    const weigh = (key: string, value: string) => key.length + value.length
    const map = new LruMap<string, string>(100, { weightMax: 10, weigh })
    const kept = (...keys: string[]) => keys.filter((key) => map.get(key) !== undefined)
    map.set('a', '1234')
    map.set('b', '1234')
    expect(kept('a', 'b')).toEqual(['a', 'b'])
    map.set('a', '123')
    map.set('c', '1')
    expect(kept('a', 'b', 'c')).toEqual(['a', 'c'])
    map.set('d', '123456')
    expect(kept('a', 'c', 'd')).toEqual(['c', 'd'])
    map.set('e', '1234567890')
    expect(kept('c', 'd', 'e')).toEqual([])
    map.set('a', '1234')
    map.set('b', '1234')
    expect(kept('a', 'b')).toEqual(['a', 'b'])
  })

  it('forgets what was not used for a time, and keeps what was used', () => {
    vi.useFakeTimers({ now: 0 })
    const map = new LruMap<string, number>(1000, { unusedMsMax: 100 })
    const setAt = (time: number, key: string) => {
      vi.setSystemTime(time)
      map.set(key, 1)
    }
    setAt(0, 'old')
    setAt(0, 'used')
    setAt(99, 'young')
    setAt(100, 'a')
    map.get('used')
    expect([...map.keys()]).toEqual(['old', 'young', 'a', 'used'])
    setAt(199, 'b')
    expect([...map.keys()]).toEqual(['old', 'young', 'a', 'used', 'b'])
    setAt(200, 'c')
    expect([...map.keys()]).toEqual(['a', 'used', 'b', 'c'])
    setAt(300, 'd')
    expect([...map.keys()]).toEqual(['c', 'd'])
  })
})
