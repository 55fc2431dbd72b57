import { describe, expect, it } from 'vitest'
import { NO_OWNER, Shares } from './shares.js'

/** Takes as many permits as the owner gets. */
function takeAll(shares: Shares, owner: string): number {
  let count = 0
  for (; shares.hasRoom(owner); count++) shares.take(owner)
  return count
}

describe('shares', () => {
  it('leave a quarter of the free permits to other owners', () => {
    const shares = new Shares(20)
    const counts = ['a', 'b', 'c', 'd', 'e'].map((owner) => takeAll(shares, owner))
    expect(counts).toEqual([15, 3, 1, 1, 0])
  })

  it.each([
    [1, [1, 0]],
    [2, [1, 1]],
    [3, [2, 1]],
    [4, [3, 1]],
  ])('of %i permits give an owner at least one', (permitsMax, counts) => {
    const shares = new Shares(permitsMax)
    expect(['a', 'b'].map((owner) => takeAll(shares, owner))).toEqual(counts)
  })

  it('grow when other owners give permits back', () => {
    const shares = new Shares(8)
    expect([takeAll(shares, 'a'), takeAll(shares, 'b')]).toEqual([6, 1])
    expect(takeAll(shares, 'a')).toBe(0)
    for (let count = 0; count < 6; count++) shares.give('a')
    expect(takeAll(shares, 'b')).toBe(5)
  })

  it('are of a fixed size if one is given', () => {
    const shares = new Shares(8, 4)
    expect(['a', 'b', 'c'].map((owner) => takeAll(shares, owner))).toEqual([4, 4, 0])
  })

  it('do not limit the process itself', () => {
    expect(takeAll(new Shares(8), NO_OWNER)).toBe(8)
  })
})
