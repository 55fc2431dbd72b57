import { describe, expect, it } from 'vitest'
import { BoundedCache } from './bounded-cache.js'

describe('a bounded cache', () => {
  it('keeps a number of entries, and evicts what was not used for the longest time', () => {
    const cache = new BoundedCache<number>({ max: 3 })
    for (const [value, key] of ['a', 'b', 'c'].entries()) cache.set(key, value)
    cache.get('a')
    cache.set('d', 3)
    expect([...cache.keys()].sort()).toEqual(['a', 'c', 'd'])
  })

  it('keeps entries up to a total size, and their number whatever their size', () => {
    const cache = new BoundedCache<string>({ max: 4, maxSize: 40, sizeOf: ({ length }) => length })
    for (const key of ['a', 'b', 'c', 'd', 'e']) cache.set(key, 'x')
    expect([...cache.keys()].sort()).toEqual(['b', 'c', 'd', 'e'])
    cache.set('large', 'x'.repeat(39))
    expect([...cache.keys()].sort()).toEqual(['e', 'large'])
    cache.set('too large', 'x'.repeat(41))
    expect(cache.get('too large')).toBeUndefined()
  })

  it('takes no room for entries that it does not have', () => {
    const before = process.memoryUsage()
    const caches = Array.from({ length: 100 }, () => new BoundedCache<string>({ max: 1_000_000 }))
    const { heapUsed, arrayBuffers } = process.memoryUsage()
    const grown = heapUsed - before.heapUsed + arrayBuffers - before.arrayBuffers
    expect(caches).toHaveLength(100)
    expect(grown).toBeLessThan(10_000_000)
  })
})
