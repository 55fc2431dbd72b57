import { describe, expect, it } from 'vitest'
import { BranchUses } from './uses.js'

describe('BranchUses', () => {
  it('returns each branch once for any number of uses', () => {
    const uses = new BranchUses()
    for (const branch of ['a', 'b', 'a']) uses.start(branch)()
    expect(uses.take().sort()).toEqual(['a', 'b'])
    expect(uses.take()).toEqual([])
  })

  it('returns a branch on every call while a use of it lasts, and once more after', () => {
    const uses = new BranchUses()
    const ends = [uses.start('a'), uses.start('a')]
    expect(uses.take()).toEqual(['a'])
    expect(uses.take()).toEqual(['a'])
    ends[0]?.()
    expect(uses.take()).toEqual(['a'])
    expect(uses.take()).toEqual(['a'])
    ends[1]?.()
    expect(uses.take()).toEqual(['a'])
    expect(uses.take()).toEqual([])
  })

  it('returns restored branches again', () => {
    const uses = new BranchUses()
    uses.start('a')()
    uses.restore(uses.take())
    uses.start('b')()
    expect(uses.take().sort()).toEqual(['a', 'b'])
  })
})
