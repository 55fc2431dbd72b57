import { describe, expect, it } from 'vitest'
import { type GateMode, GateQueues } from './gate-queues.js'

/** A time that no test waits for. */
const LONG_MS = 600_000

/** Enters a gate, and notes the order in which requests get through. */
function follow(queues: GateQueues) {
  const through: string[] = []
  return {
    through,
    enter: async (name: string, mode: GateMode, waitMs = LONG_MS): Promise<boolean> => {
      const hasEntered = await queues.enter('gate', mode, waitMs)
      if (hasEntered) through.push(name)
      return hasEntered
    },
  }
}

const turn = () => new Promise((resolve) => setImmediate(resolve))

describe('the queue in front of a gate', () => {
  it('lets writers pass together, up to their number', async () => {
    const queues = new GateQueues({ sharedMax: 2 })
    const { through, enter } = follow(queues)
    expect(queues.enter('gate', 'shared', LONG_MS)).toBe(true)
    void enter('second', 'shared')
    void enter('third', 'shared')
    await turn()
    expect(through).toEqual(['second'])
    queues.leave('gate', 'shared')
    await turn()
    expect(through).toEqual(['second', 'third'])
  })

  it('keeps the order of arrival, so that neither writers nor forks starve', async () => {
    const queues = new GateQueues({ sharedMax: 9 })
    const { through, enter } = follow(queues)
    for (const [name, mode] of [
      ['w1', 'shared'],
      ['f1', 'alone'],
      ['w2', 'shared'],
      ['w3', 'shared'],
      ['f2', 'alone'],
      ['w4', 'shared'],
    ] as const) {
      void enter(name, mode)
    }
    await turn()
    expect(through).toEqual(['w1'])
    queues.leave('gate', 'shared')
    await turn()
    expect(through).toEqual(['w1', 'f1'])
    queues.leave('gate', 'alone')
    await turn()
    expect(through).toEqual(['w1', 'f1', 'w2', 'w3'])
    queues.leave('gate', 'shared')
    queues.leave('gate', 'shared')
    await turn()
    expect(through).toEqual(['w1', 'f1', 'w2', 'w3', 'f2'])
    queues.leave('gate', 'alone')
    await turn()
    expect(through.at(-1)).toBe('w4')
  })

  it('lets the writers behind a fork pass when the fork has waited too long', async () => {
    const queues = new GateQueues({ sharedMax: 9 })
    const { through, enter } = follow(queues)
    void enter('long', 'shared')
    const fork = enter('fork', 'alone', 1)
    const writer = enter('writer', 'shared')
    expect(await fork).toBe(false)
    expect(await writer).toBe(true)
    expect(through).toEqual(['long', 'writer'])
  })

  it('lets open transactions pass beside writers, and tells them of a fork that waits', async () => {
    const queues = new GateQueues({ sharedMax: 1 })
    const { through, enter } = follow(queues)
    let told = 0
    const stopWatching = queues.watch('gate', () => told++)
    void enter('o1', 'open')
    void enter('o2', 'open')
    void enter('w1', 'shared')
    await turn()
    expect([through, told]).toEqual([['o1', 'o2', 'w1'], 0])
    void enter('fork', 'alone')
    expect(told).toBe(1)
    void enter('o3', 'open')
    queues.leave('gate', 'shared')
    queues.leave('gate', 'open')
    await turn()
    expect(through).toEqual(['o1', 'o2', 'w1'])
    queues.leave('gate', 'open')
    await turn()
    expect(through.at(-1)).toBe('fork')
    queues.leave('gate', 'alone')
    await turn()
    expect(through.at(-1)).toBe('o3')
    stopWatching()
    void enter('again', 'alone')
    expect(told).toBe(1)
  })

  it('does not connect gates, and keeps none that is not in use', async () => {
    const queues = new GateQueues({ sharedMax: 1 })
    expect(queues.enter('one', 'alone', LONG_MS)).toBe(true)
    expect(queues.enter('two', 'alone', LONG_MS)).toBe(true)
    expect(await queues.enter('one', 'shared', 1)).toBe(false)
    expect(queues.size).toBe(2)
    queues.leave('one', 'alone')
    queues.leave('two', 'alone')
    expect(queues.size).toBe(0)
  })
})
