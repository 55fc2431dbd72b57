import { describe, expect, it } from 'vitest'
import { BranchUses } from './uses.js'

describe('BranchUses', () => {
  it('hands out each branch once for any number of uses', () => {
    const uses = new BranchUses()
    for (const branch of ['a', 'b', 'a']) uses.start(branch)()
    expect(uses.take().sort()).toEqual(['a', 'b'])
    expect(uses.take()).toEqual([])
  })

  it('hands out a branch again and again while a use of it lasts, and once more after', () => {
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

  it('takes back what could not be written', () => {
    const uses = new BranchUses()
    uses.start('a')()
    uses.restore(uses.take())
    uses.start('b')()
    expect(uses.take().sort()).toEqual(['a', 'b'])
  })
})
