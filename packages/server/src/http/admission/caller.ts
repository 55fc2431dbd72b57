import type { KeyScope } from '@offshoot/contract/users'
import { BoundedCache } from '../../common/bounded-cache.js'
import { type ByteBudget, type ByteShare, newShare } from '../../common/byte-budget.js'

/** Limits of one API key in a process. A limit that is undefined does not apply. */
export interface KeyLimits {
  readonly requestsPerSecond?: number | undefined
  readonly requestsAtOnce?: number | undefined
}

/** The reason of a refusal, and the seconds until a retry can succeed. */
export interface Refusal {
  readonly message: string
  readonly afterSeconds: number
}

/** Burst size: the requests of one second can be made at once. */
const BURST_MS = 1000
/** Tolerance for rounding: 3 × (1/3) is slightly less than 1. */
const ROUNDING_MS = 0.001

/**
 * Counts the requests of a key in this process. The rate limit is a token bucket that holds one
 * second of requests. Only the time at which the bucket is full again is stored.
 */
export class Caller {
  /** Bytes in memory for requests of the key. */
  readonly held: ByteShare
  readonly #limits: KeyLimits
  readonly #name: string
  readonly #intervalMs: number
  readonly #user: Caller | undefined
  #fullAtMs = 0
  #running = 0

  /** `user` counts the requests of all keys of a user. */
  constructor(
    limits: KeyLimits,
    {
      name = 'this API key',
      user,
      held = newShare(),
    }: { name?: string; user?: Caller; held?: ByteShare } = {},
  ) {
    this.#limits = limits
    this.held = held
    this.#name = name
    this.#user = user
    this.#intervalMs = 1000 / (limits.requestsPerSecond ?? Number.POSITIVE_INFINITY)
  }

  get isRateLimited(): boolean {
    return this.#limits.requestsPerSecond !== undefined
  }

  /** Counts a request, or returns the reason for a refusal. */
  start(nowMs: number): Refusal | undefined {
    const { requestsPerSecond, requestsAtOnce } = this.#limits
    if (requestsAtOnce !== undefined && this.#running >= requestsAtOnce) {
      const message = `${this.#name} can have at most ${requestsAtOnce} concurrent requests`
      return { message, afterSeconds: 1 }
    }
    const fullAtMs = Math.max(nowMs, this.#fullAtMs) + this.#intervalMs
    const lateMs = fullAtMs - nowMs - BURST_MS
    if (requestsPerSecond !== undefined && lateMs > ROUNDING_MS) {
      const message = `${this.#name} can make at most ${requestsPerSecond} requests per second`
      return { message, afterSeconds: Math.ceil(lateMs / 1000) }
    }
    const refusal = this.#user?.start(nowMs)
    if (refusal !== undefined) return refusal
    if (requestsPerSecond !== undefined) this.#fullAtMs = fullAtMs
    this.#running++
    return undefined
  }

  end(): void {
    this.#running--
    this.#user?.end()
  }

  /** Returns the state of the rate limit, for response headers. */
  allowance(nowMs: number): { limit: number; remaining: number; resetSeconds: number } {
    const usedMs = Math.max(0, this.#fullAtMs - nowMs)
    return {
      limit: this.#limits.requestsPerSecond ?? 0,
      remaining: Math.floor((BURST_MS - usedMs + ROUNDING_MS) / this.#intervalMs),
      resetSeconds: Math.ceil((usedMs - ROUNDING_MS) / 1000),
    }
  }
}

const CALLERS_MAX = 10_000
/** All keys of a user together may make this many times the requests that one key may. */
export const KEYS_PER_USER_FACTOR = 4
/** How long an invalid key is refused from memory, without asking PostgreSQL. */
const REFUSED_MS = 2000

/**
 * Caches keys: valid ones with their counts, and invalid ones. The two caches are separate, so a
 * flood of invalid keys evicts only invalid ones.
 */
export class Callers {
  readonly #limits: KeyLimits
  readonly #budget: ByteBudget | undefined
  readonly #known = new BoundedCache<Caller>({ max: CALLERS_MAX })
  readonly #users = new BoundedCache<Caller>({ max: CALLERS_MAX })
  readonly #refused = new BoundedCache<number>({ max: CALLERS_MAX })

  constructor(limits: KeyLimits, budget?: ByteBudget) {
    this.#limits = limits
    this.#budget = budget
  }

  find(key: string): Caller | undefined {
    return this.#known.get(key)
  }

  /** Stores a valid key. The limits of its scope can only lower those of the settings. */
  learn(
    key: string,
    { userId, keyId, scope }: { userId: string; keyId: string; scope: KeyScope },
  ): Caller {
    const caller =
      this.#known.get(key) ??
      new Caller(
        {
          requestsPerSecond: least(this.#limits.requestsPerSecond, scope.requestsPerSecond),
          requestsAtOnce: least(this.#limits.requestsAtOnce, scope.requestsAtOnce),
        },
        // The rows that are read for the key are counted in the same share.
        { user: this.#userOf(userId), held: this.#budget?.shareOf(keyId) ?? newShare() },
      )
    this.#known.set(key, caller)
    this.#refused.delete(key)
    return caller
  }

  #userOf(userId: string): Caller {
    const { requestsPerSecond, requestsAtOnce } = this.#limits
    const user =
      this.#users.get(userId) ??
      new Caller(
        {
          requestsPerSecond: multiply(requestsPerSecond),
          requestsAtOnce: multiply(requestsAtOnce),
        },
        { name: 'the keys of one user together' },
      )
    this.#users.set(userId, user)
    return user
  }

  /** Caches that a key is invalid, for a short time. */
  refuse(key: string): void {
    this.#known.delete(key)
    this.#refused.set(key, performance.now() + REFUSED_MS)
  }

  isRefused(key: string): boolean {
    return (this.#refused.get(key) ?? 0) > performance.now()
  }
}

/** Counts requests without a valid key, by address. */
export class Strangers {
  readonly #requestsPerSecond: number
  readonly #addresses = new BoundedCache<Caller>({ max: CALLERS_MAX })

  constructor(requestsPerSecond: number) {
    this.#requestsPerSecond = requestsPerSecond
  }

  /** Counts a request, or says why not. */
  start(address: string, nowMs: number): Refusal | undefined {
    let caller = this.#addresses.get(address)
    if (caller === undefined) {
      const limits = { requestsPerSecond: this.#requestsPerSecond }
      caller = new Caller(limits, { name: 'an address without a valid API key' })
      this.#addresses.set(address, caller)
    }
    return caller.start(nowMs)
  }
}

function multiply(limit: number | undefined): number | undefined {
  return limit === undefined ? undefined : limit * KEYS_PER_USER_FACTOR
}

function least(left: number | undefined, right: number | undefined): number | undefined {
  if (left === undefined || right === undefined) return left ?? right
  return Math.min(left, right)
}
