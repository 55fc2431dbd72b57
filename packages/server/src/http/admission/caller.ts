import type { KeyScope } from '@offshoot/contract/users'
import { LruMap } from '../../common/lru-map.js'
import { type ByteShare, newShare } from './byte-budget.js'

/** What one API key may ask of a process; what is undefined is not limited. */
export interface KeyLimits {
  readonly requestsPerSecond?: number | undefined
  readonly requestsAtOnce?: number | undefined
}

/** Why a request is refused, and when to try again. */
export interface Refusal {
  readonly message: string
  readonly afterSeconds: number
}

/** The allowance of a second can be used all at once. */
const BURST_MS = 1000
/** A third of a second three times is not quite a second. */
const ROUNDING_MS = 0.001

/**
 * What a key has used of its limits, in this process. The allowance is a bucket of tokens that holds
 * one second; instead of its tokens it is enough to keep when it will be full again.
 */
export class Caller {
  /** Bytes in memory for the requests of the key. */
  readonly held: ByteShare = newShare()
  readonly #limits: KeyLimits
  readonly #name: string
  readonly #intervalMs: number
  #fullAtMs = 0
  #running = 0

  constructor(limits: KeyLimits, name = 'this API key') {
    this.#limits = limits
    this.#name = name
    this.#intervalMs = 1000 / (limits.requestsPerSecond ?? Number.POSITIVE_INFINITY)
  }

  get isRateLimited(): boolean {
    return this.#limits.requestsPerSecond !== undefined
  }

  /** Counts a request in, or says why not. */
  start(nowMs: number): Refusal | undefined {
    const { requestsPerSecond, requestsAtOnce } = this.#limits
    if (requestsAtOnce !== undefined && this.#running >= requestsAtOnce) {
      const message = `${this.#name} can have at most ${requestsAtOnce} requests running at once`
      return { message, afterSeconds: 1 }
    }
    if (requestsPerSecond !== undefined) {
      const fullAtMs = Math.max(nowMs, this.#fullAtMs) + this.#intervalMs
      const lateMs = fullAtMs - nowMs - BURST_MS
      if (lateMs > ROUNDING_MS) {
        const message = `${this.#name} can make at most ${requestsPerSecond} requests per second`
        return { message, afterSeconds: Math.ceil(lateMs / 1000) }
      }
      this.#fullAtMs = fullAtMs
    }
    this.#running++
    return undefined
  }

  end(): void {
    this.#running--
  }

  /** The state of the allowance, for the headers of an answer. */
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
/** How long a wrong key is refused without looking again whether it is still wrong. */
const REFUSED_MS = 2000

/**
 * The keys that this process has met: the right ones with what they have used, and the wrong ones.
 * A flood of wrong ones only makes other wrong ones be forgotten.
 */
export class Callers {
  readonly #limits: KeyLimits
  readonly #known = new LruMap<string, Caller>(CALLERS_MAX)
  readonly #refused = new LruMap<string, number>(CALLERS_MAX)

  constructor(limits: KeyLimits) {
    this.#limits = limits
  }

  find(key: string): Caller | undefined {
    return this.#known.get(key)
  }

  /** Remembers a key that was found to be right. Its scope can only take away. */
  learn(key: string, scope: KeyScope): Caller {
    const caller =
      this.#known.get(key) ??
      new Caller({
        requestsPerSecond: least(this.#limits.requestsPerSecond, scope.requestsPerSecond),
        requestsAtOnce: least(this.#limits.requestsAtOnce, scope.requestsAtOnce),
      })
    this.#known.set(key, caller)
    this.#refused.delete(key)
    return caller
  }

  /** Remembers for a moment that a key is wrong. */
  refuse(key: string): void {
    this.#known.delete(key)
    this.#refused.set(key, performance.now() + REFUSED_MS)
  }

  isRefused(key: string): boolean {
    return (this.#refused.get(key) ?? 0) > performance.now()
  }
}

/** What addresses have used of their limit for requests without a valid key. */
export class Strangers {
  readonly #requestsPerSecond: number
  readonly #addresses = new LruMap<string, Caller>(CALLERS_MAX)

  constructor(requestsPerSecond: number) {
    this.#requestsPerSecond = requestsPerSecond
  }

  /** Counts a request, or says why not. */
  start(address: string, nowMs: number): Refusal | undefined {
    let caller = this.#addresses.get(address)
    if (caller === undefined) {
      const limits = { requestsPerSecond: this.#requestsPerSecond }
      caller = new Caller(limits, 'an address without a valid API key')
      this.#addresses.set(address, caller)
    }
    return caller.start(nowMs)
  }
}

function least(left: number | undefined, right: number | undefined): number | undefined {
  if (left === undefined || right === undefined) return left ?? right
  return Math.min(left, right)
}
