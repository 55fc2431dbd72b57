import { describe, expect, it } from 'vitest'
import { Permits } from './permits.js'

const LIMITS = {
  permitsMax: 1,
  permitsPerOwnerMax: 1,
  waitingMax: 3,
  waitingPerOwnerMax: 2,
  waitMs: 60_000,
}

const create = (limits: Partial<typeof LIMITS> = {}) =>
  new Permits({ ...LIMITS, ...limits }, () => new Error('no permit'))

describe('permits', () => {
  it('are given to owners in turns, whoever has asked most often', async () => {
    const permits = create()
    const order: string[] = []
    const enter = (owner: string) => permits.enter(owner).then(() => order.push(owner))
    await enter('a')
    const all = Promise.all([enter('a'), enter('a'), enter('b')])
    for (const owner of ['a', 'a', 'b', 'a']) {
      permits.leave(owner)
      await new Promise(setImmediate)
    }
    await all
    expect(order).toEqual(['a', 'a', 'b', 'a'])
    expect([permits.held, permits.waiting]).toEqual([0, 0])
  })

  it('let as many wait as may, in all and of one owner', async () => {
    const permits = create()
    await permits.enter('a')
    const waiting = [permits.enter('a'), permits.enter('a')]
    await expect(permits.enter('a')).rejects.toThrow('no permit')
    waiting.push(permits.enter('b'))
    await expect(permits.enter('c')).rejects.toThrow('no permit')
    expect(permits.waiting).toBe(3)
    for (const owner of ['a', 'a', 'b', 'a']) {
      permits.leave(owner)
      await new Promise(setImmediate)
    }
    await Promise.all(waiting)
  })

  it('are free for others when an owner has as many as it may', async () => {
    const permits = create({ permitsMax: 2 })
    await permits.enter('a')
    const second = permits.enter('a')
    await permits.enter('b')
    expect([permits.held, permits.waiting]).toEqual([2, 1])
    permits.leave('a')
    await second
  })

  it('are not waited for any more after a signal, nor after the time', async () => {
    const permits = create({ waitMs: 1 })
    await permits.enter('a')
    const abort = new AbortController()
    const gone = permits.enter('b', abort.signal)
    abort.abort()
    await expect(gone).rejects.toThrow('no permit')
    await expect(permits.enter('b', abort.signal)).rejects.toThrow('no permit')
    await expect(permits.enter('c')).rejects.toThrow('no permit')
    expect(permits.waiting).toBe(0)
  })
})
