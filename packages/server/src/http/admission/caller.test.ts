import { describe, expect, it } from 'vitest'
import { Caller, Callers, KEYS_PER_USER_FACTOR } from './caller.js'

describe('a caller', () => {
  it.each([1, 2, 3, 7, 10, 1000])(
    'with %i requests per second can make them all at once, and not one more',
    (requestsPerSecond) => {
      const caller = new Caller({ requestsPerSecond })
      for (let count = 1; count <= requestsPerSecond; count++) {
        expect(caller.start(5000)).toBeUndefined()
        expect(caller.allowance(5000).remaining).toBe(requestsPerSecond - count)
      }
      expect(caller.start(5000)).toEqual({
        message: `this API key can make at most ${requestsPerSecond} requests per second`,
        afterSeconds: 1,
      })
      expect(caller.allowance(5000)).toEqual({
        limit: requestsPerSecond,
        remaining: 0,
        resetSeconds: 1,
      })
    },
  )

  it('earns requests back one by one', () => {
    const caller = new Caller({ requestsPerSecond: 10 })
    const startAll = (nowMs: number) => {
      let count = 0
      while (caller.start(nowMs) === undefined) count++
      return count
    }
    expect(startAll(0)).toBe(10)
    expect(startAll(99)).toBe(0)
    expect(startAll(100)).toBe(1)
    expect(startAll(400)).toBe(3)
    expect(startAll(60_000)).toBe(10)
  })

  it('has so many requests running at once, and not one more', () => {
    const caller = new Caller({ requestsAtOnce: 2 })
    expect([caller.start(0), caller.start(0)]).toEqual([undefined, undefined])
    expect(caller.start(0)?.message).toBe('this API key can have at most 2 concurrent requests')
    caller.end()
    expect(caller.start(0)).toBeUndefined()
    expect(caller.start(0)).toBeDefined()
  })

  it('that is not limited is never refused', () => {
    const caller = new Caller({})
    for (let count = 0; count < 10_000; count++) expect(caller.start(0)).toBeUndefined()
  })
})

describe('callers', () => {
  it('are limited by what is less, the settings or the scope of the key', () => {
    const callers = new Callers({ requestsPerSecond: 5 })
    expect(callers.learn('a', { userId: 'usr', keyId: '1', scope: {} }).allowance(0).limit).toBe(5)
    expect(
      callers
        .learn('b', { userId: 'usr', keyId: '1', scope: { requestsPerSecond: 3 } })
        .allowance(0).limit,
    ).toBe(3)
    expect(
      callers
        .learn('c', { userId: 'usr', keyId: '1', scope: { requestsPerSecond: 9 } })
        .allowance(0).limit,
    ).toBe(5)
  })

  it('are not forgotten because of any number of wrong keys', () => {
    const callers = new Callers({})
    const caller = callers.learn('right', { userId: 'usr', keyId: '1', scope: {} })
    for (let number = 0; number < 20_000; number++) callers.refuse(`wrong${number}`)
    expect(callers.find('right')).toBe(caller)
    expect(callers.isRefused('wrong19999')).toBe(true)
    expect(callers.isRefused('wrong0')).toBe(false)
  })

  it('are no longer known once their key is wrong', () => {
    const callers = new Callers({})
    callers.learn('key', { userId: 'usr', keyId: '1', scope: {} })
    callers.refuse('key')
    expect(callers.find('key')).toBeUndefined()
    expect(callers.isRefused('key')).toBe(true)
  })
})

describe('the keys of one user', () => {
  const learn = (callers: Callers, key: string, userId = 'usr') =>
    callers.learn(key, { userId, keyId: '1', scope: {} })

  it('together have a few times the concurrent requests of one, and get permits back', () => {
    const callers = new Callers({ requestsAtOnce: 2 })
    const permits = 2 * KEYS_PER_USER_FACTOR
    const keys = Array.from({ length: permits }, (_, index) => learn(callers, `key${index}`))
    for (const key of keys) expect(key.start(0)).toBeUndefined()
    expect(learn(callers, 'one more').start(0)).toEqual({
      message: `the keys of one user together can have at most ${permits} concurrent requests`,
      afterSeconds: 1,
    })
    expect(learn(callers, 'of another', 'other').start(0)).toBeUndefined()
    keys[0]?.end()
    expect(learn(callers, 'one more').start(0)).toBeUndefined()
  })

  it('together have a few times the requests per second of one', () => {
    const callers = new Callers({ requestsPerSecond: 3 })
    for (let index = 0; index < KEYS_PER_USER_FACTOR; index++) {
      const key = learn(callers, `key${index}`)
      for (let count = 0; count < 3; count++) expect(key.start(0)).toBeUndefined()
      // A request that the key itself may not make is not counted for its user.
      expect(key.start(0)?.message).toMatch(/^this API key/)
    }
    expect(learn(callers, 'one more').start(0)?.message).toMatch(/^the keys of one user together/)
  })
})
