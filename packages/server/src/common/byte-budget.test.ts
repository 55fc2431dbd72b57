import { describe, expect, it } from 'vitest'
import { ByteBudget, type ByteShare, newShare, SMALL_ANSWER_BYTES } from './byte-budget.js'

/** Takes one byte at a time, for one body, until the budget refuses. */
function sendBody(budget: ByteBudget, share: ByteShare): { heldBytes: number; isGivenUp: boolean } {
  const body = {
    heldBytes: 0,
    isGivenUp: false,
    giveUp() {
      budget.give(share, body.heldBytes)
      share.arriving.delete(body)
      body.heldBytes = 0
      body.isGivenUp = true
    },
  }
  share.arriving.add(body)
  while (body.heldBytes < 1000 && budget.take(share, { bytes: 1, ownBytes: body.heldBytes })) {
    body.heldBytes++
  }
  return body
}

describe('a budget of bytes', () => {
  it('leaves as much for others as one caller has taken', () => {
    const budget = new ByteBudget(12_000)
    const share = newShare()
    for (let count = 0; count < 20; count++) sendBody(budget, share)
    expect(share.bytes).toBe(6000)
  })

  it('gives a late caller an equal share at the cost of those who hold most', () => {
    const budget = new ByteBudget(12_000)
    const greedy = Array.from({ length: 20 }, newShare)
    for (const share of greedy) for (let count = 0; count < 20; count++) sendBody(budget, share)
    const late = newShare()
    expect(sendBody(budget, late)).toMatchObject({ isGivenUp: false })
    expect(late.bytes).toBeGreaterThan(12_000 / 25)
    expect(budget.bytes).toBeLessThanOrEqual(12_000)
  })

  it('never ends a body that has arrived', () => {
    const budget = new ByteBudget(1000)
    const busy = newShare()
    budget.add(busy, 1000)
    budget.take(newShare(), { bytes: 1, ownBytes: 0 })
    expect(busy.bytes).toBe(1000)
  })

  it('gives others an equal share when one caller has filled it for good, and no more', () => {
    const budget = new ByteBudget(1000)
    const [busy, other] = [newShare(), newShare()]
    budget.add(busy, 5000)
    expect(budget.take(busy, { bytes: 1, ownBytes: 0 })).toBe(false)
    expect(budget.take(other, { bytes: 333, ownBytes: 0 })).toBe(true)
    expect(budget.isSpentFor(other)).toBe(false)
    expect(budget.take(other, { bytes: 1, ownBytes: 0 })).toBe(false)
    expect(budget.isSpentFor(busy)).toBe(true)
  })

  it('lets the longest of the answers that a caller reads go on, until the caller holds too much', () => {
    const budget = new ByteBudget(1000)
    const share = newShare()
    const [long, short] = [{ readBytes: 300 }, { readBytes: 200 }]
    for (const reading of [short, long]) {
      share.readings.add(reading)
      budget.add(share, reading.readBytes)
    }
    expect(budget.mayReadOn(share, long)).toBe(true)
    expect(budget.mayReadOn(share, short)).toBe(false)
    budget.add(share, 499)
    expect(budget.mayReadOn(share, long)).toBe(true)
    budget.add(share, 1)
    expect(budget.mayReadOn(share, long)).toBe(false)
    const other = newShare()
    budget.add(other, 999)
    budget.give(share, 500)
    expect(budget.mayReadOn(share, long)).toBe(true)
    budget.add(other, 501)
    expect(budget.mayReadOn(share, long)).toBe(false)
  })

  it('gives small shares only, beyond twice its size', () => {
    const size = 10 * SMALL_ANSWER_BYTES
    const budget = new ByteBudget(size)
    const small = { bytes: SMALL_ANSWER_BYTES, ownBytes: 0 }
    const large = { bytes: SMALL_ANSWER_BYTES + 1, ownBytes: 0 }
    budget.add(newShare(), 2 * size - 1)
    const [one, two] = [newShare(), newShare()]
    expect(budget.take(one, large)).toBe(true)
    expect(budget.take(two, large)).toBe(false)
    expect(budget.take(two, small)).toBe(true)
  })

  it('has one share for each owner', () => {
    const budget = new ByteBudget(1000)
    expect(budget.shareOf('a')).toBe(budget.shareOf('a'))
    expect(budget.shareOf('a')).not.toBe(budget.shareOf('b'))
  })

  it('counts all callers of another workspace as one', () => {
    const budget = new ByteBudget(1200)
    for (let key = 0; key < 10; key++) {
      budget.useWorkspace(`key${key}`, 'many')
      budget.add(budget.shareOf(`key${key}`), 120)
    }
    budget.useWorkspace('own', 'many')
    expect(budget.take(budget.shareOf('own'), { bytes: 100, ownBytes: 0 })).toBe(true)
    expect(budget.take(budget.shareOf('own'), { bytes: 1, ownBytes: 100 })).toBe(false)
    budget.useWorkspace('other', 'single')
    expect(budget.take(budget.shareOf('other'), { bytes: 400, ownBytes: 0 })).toBe(true)
    expect(budget.take(budget.shareOf('other'), { bytes: 1, ownBytes: 400 })).toBe(false)
  })

  it('gives the callers of one workspace no more than half of its size on top', () => {
    const size = 100 * SMALL_ANSWER_BYTES
    const budget = new ByteBudget(size)
    for (const key of ['a', 'b', 'c']) budget.useWorkspace(key, 'many')
    budget.useWorkspace('other', 'single')
    const large = { bytes: SMALL_ANSWER_BYTES + 1, ownBytes: 0 }
    const small = { bytes: SMALL_ANSWER_BYTES, ownBytes: 0 }
    budget.add(budget.shareOf('a'), 1.5 * size - 1)
    expect(budget.take(budget.shareOf('b'), large)).toBe(true)
    expect(budget.take(budget.shareOf('c'), large)).toBe(false)
    expect(budget.take(budget.shareOf('c'), small)).toBe(true)
    expect(budget.take(budget.shareOf('other'), large)).toBe(true)
  })

  it('counts what a caller holds for the workspace that it has used last', () => {
    const budget = new ByteBudget(1000)
    const share = budget.shareOf('key')
    budget.add(share, 300)
    budget.useWorkspace('key', 'first')
    const first = share.workspace
    expect(first).toEqual({ bytes: 300, holders: 1 })
    budget.useWorkspace('key', 'second')
    expect(first).toEqual({ bytes: 0, holders: 0 })
    expect(share.workspace).toEqual({ bytes: 300, holders: 1 })
    budget.give(share, 300)
    expect(share.workspace).toEqual({ bytes: 0, holders: 0 })
    expect(budget.bytes).toBe(0)
  })

  it('takes a body of any size when nothing else is held', () => {
    const budget = new ByteBudget(100)
    const share = newShare()
    expect(budget.take(share, { bytes: 90, ownBytes: 0 })).toBe(true)
    expect(budget.take(share, { bytes: 90, ownBytes: 90 })).toBe(true)
    expect(budget.take(share, { bytes: 1, ownBytes: 0 })).toBe(false)
  })

  it('is spent for those who hold it, and not for others', () => {
    const budget = new ByteBudget(100)
    const [greedy, other] = [newShare(), newShare()]
    budget.add(greedy, 500)
    expect(budget.isSpentFor(greedy)).toBe(true)
    expect(budget.isSpentFor(other)).toBe(false)
    budget.give(greedy, 500)
    expect(budget.isSpentFor(greedy)).toBe(false)
    expect(budget.bytes).toBe(0)
  })
})
