import { afterEach, beforeEach, expect, it, vi } from 'vitest'
import { BranchCache } from './branch-cache.js'

const MINUTE_MS = 60_000

beforeEach(() => {
  vi.useFakeTimers()
  // The cache takes the time 0 for no time.
  vi.advanceTimersByTime(1)
})

afterEach(() => void vi.useRealTimers())

it('keeps what is used, and evicts what is not', () => {
  const cache = new BranchCache<{ name: string }>({ max: 10 })
  cache.set('used', { name: 'used' })
  cache.set('unused', { name: 'unused' })
  for (let minute = 0; minute < 6; minute++) {
    vi.advanceTimersByTime(MINUTE_MS)
    expect(cache.get('used')).toEqual({ name: 'used' })
  }
  expect(cache.size).toBe(1)
  vi.advanceTimersByTime(5 * MINUTE_MS)
  expect(cache.size).toBe(0)
  expect(vi.getTimerCount()).toBe(0)
})

it('has at most the given number of entries, and their size', () => {
  const cache = new BranchCache<{ size: number }>({
    max: 3,
    maxSize: 10,
    sizeOf: ({ size }) => size,
  })
  for (const key of ['a', 'b', 'c', 'd']) cache.set(key, { size: 1 })
  expect(cache.size).toBe(3)
  cache.set('large', { size: 9 })
  expect(cache.size).toBe(2)
  cache.delete('large')
  expect([cache.get('large'), cache.get('d')]).toEqual([undefined, { size: 1 }])
})
