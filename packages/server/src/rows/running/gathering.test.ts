import { describe, expect, it } from 'vitest'
import { ApartError, Gathering } from './gathering.js'

/** Doubles numbers, and records the batches. */
function createDoubling(max = 3, refused: readonly number[] = []) {
  const runs: number[][] = []
  const doubling = new Gathering<number, number>({ max, runningMax: Infinity }, async (items) => {
    runs.push([...items])
    const isRefused = items.some((item) => refused.includes(item))
    if (isRefused && items.length > 1) throw new ApartError()
    if (isRefused) throw new Error(`refused ${items[0]}`)
    return items.map((item) => 2 * item)
  })
  return { doubling, runs }
}

describe('a gathering', () => {
  it('runs together what comes in one turn, each with its own result', async () => {
    const { doubling, runs } = createDoubling()
    const results = [doubling.add('a', 1), doubling.add('a', 2)]
    expect(await Promise.all(results)).toEqual([2, 4])
    expect(await doubling.add('a', 3)).toBe(6)
    expect(runs).toEqual([[1, 2], [3]])
  })

  it('keeps what has different keys apart', async () => {
    const { doubling, runs } = createDoubling()
    await Promise.all([doubling.add('a', 1), doubling.add('b', 2), doubling.add('a', 3)])
    expect(runs).toEqual([[1, 3], [2]])
  })

  it('runs no more than its maximum at once', async () => {
    const { doubling, runs } = createDoubling()
    const results = [1, 2, 3, 4, 5, 6, 7].map((item) => doubling.add('a', item))
    expect(await Promise.all(results)).toEqual([2, 4, 6, 8, 10, 12, 14])
    expect(runs).toEqual([[1, 2, 3], [4, 5, 6], [7]])
  })

  it('runs each alone when they cannot be together, so that one does not fail for another', async () => {
    const { doubling, runs } = createDoubling(3, [2])
    const results = await Promise.allSettled([1, 2, 3].map((item) => doubling.add('a', item)))
    expect(results).toEqual([
      { status: 'fulfilled', value: 2 },
      { status: 'rejected', reason: new Error('refused 2') },
      { status: 'fulfilled', value: 6 },
    ])
    expect(runs).toEqual([[1, 2, 3], [1], [2], [3]])
  })

  it('does not run anything again after any other failure', async () => {
    let runs = 0
    const failing = new Gathering<number, number>({ max: 3, runningMax: Infinity }, async () => {
      runs++
      throw new Error('the outcome is not known')
    })
    const results = await Promise.allSettled([failing.add('a', 1), failing.add('a', 2)])
    expect(results.map(({ status }) => status)).toEqual(['rejected', 'rejected'])
    expect(runs).toBe(1)
  })

  describe('with one batch of a key at a time', () => {
    /** Runs batches, the first of which ends when it is told to. */
    function createSlow() {
      const runs: number[][] = []
      let endFirst = () => {}
      const first = new Promise<void>((resolve) => {
        endFirst = resolve
      })
      const gathering = new Gathering<number, number>({ max: 3, runningMax: 1 }, async (items) => {
        runs.push([...items])
        if (runs.length === 1) await first
        return [...items]
      })
      return { gathering, runs, endFirst }
    }
    const turn = () => new Promise((resolve) => setImmediate(resolve))

    it('collects what comes while a batch runs', async () => {
      const { gathering, runs, endFirst } = createSlow()
      const results = [gathering.add('a', 1)]
      await turn()
      results.push(gathering.add('a', 2))
      queueMicrotask(() => results.push(gathering.add('a', 3)))
      endFirst()
      await Promise.all(results)
      expect(await Promise.all(results)).toEqual([1, 2, 3])
      expect(runs).toEqual([[1], [2, 3]])
    })

    it('does not wait for a batch of another key, or if it has its maximum', async () => {
      const { gathering, runs, endFirst } = createSlow()
      const slow = gathering.add('a', 1)
      await turn()
      expect(await gathering.add('b', 2)).toBe(2)
      expect(await Promise.all([3, 4, 5].map((item) => gathering.add('a', item)))).toEqual([
        3, 4, 5,
      ])
      expect(runs).toEqual([[1], [2], [3, 4, 5]])
      endFirst()
      expect(await slow).toBe(1)
    })

    it('does not wait for a batch that takes long', async () => {
      const { gathering, endFirst } = createSlow()
      const slow = gathering.add('a', 1)
      await turn()
      expect(await gathering.add('a', 2)).toBe(2)
      endFirst()
      expect(await slow).toBe(1)
    })
  })
})
