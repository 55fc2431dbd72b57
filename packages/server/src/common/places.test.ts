import { describe, expect, it } from 'vitest'
import { Places } from './places.js'

const LIMITS = {
  placesMax: 1,
  placesPerOwnerMax: 1,
  waitingMax: 3,
  waitingPerOwnerMax: 2,
  waitMs: 60_000,
}

const create = (limits: Partial<typeof LIMITS> = {}) =>
  new Places({ ...LIMITS, ...limits }, () => new Error('no place'))

describe('places', () => {
  it('are given to owners in turns, whoever has asked most often', async () => {
    const places = create()
    const order: string[] = []
    const enter = (owner: string) => places.enter(owner).then(() => order.push(owner))
    await enter('a')
    const all = Promise.all([enter('a'), enter('a'), enter('b')])
    for (const owner of ['a', 'a', 'b', 'a']) {
      places.leave(owner)
      await new Promise(setImmediate)
    }
    await all
    expect(order).toEqual(['a', 'a', 'b', 'a'])
    expect([places.held, places.waiting]).toEqual([0, 0])
  })

  it('let as many wait as may, in all and of one owner', async () => {
    const places = create()
    await places.enter('a')
    const waiting = [places.enter('a'), places.enter('a')]
    await expect(places.enter('a')).rejects.toThrow('no place')
    waiting.push(places.enter('b'))
    await expect(places.enter('c')).rejects.toThrow('no place')
    expect(places.waiting).toBe(3)
    for (const owner of ['a', 'a', 'b', 'a']) {
      places.leave(owner)
      await new Promise(setImmediate)
    }
    await Promise.all(waiting)
  })

  it('are free for others when an owner has as many as it may', async () => {
    const places = create({ placesMax: 2 })
    await places.enter('a')
    const second = places.enter('a')
    await places.enter('b')
    expect([places.held, places.waiting]).toEqual([2, 1])
    places.leave('a')
    await second
  })

  it('are not waited for any more after a signal, nor after the time', async () => {
    const places = create({ waitMs: 1 })
    await places.enter('a')
    const abort = new AbortController()
    const gone = places.enter('b', abort.signal)
    abort.abort()
    await expect(gone).rejects.toThrow('no place')
    await expect(places.enter('b', abort.signal)).rejects.toThrow('no place')
    await expect(places.enter('c')).rejects.toThrow('no place')
    expect(places.waiting).toBe(0)
  })
})
