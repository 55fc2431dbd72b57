import { AppError } from '@offshoot/contract/errors'
import type { ByteBudget } from './byte-budget.js'
import type { Caller } from './caller.js'
import type { Lane, Waiting } from './lane.js'

type Next = (error?: Error) => void

/**
 * What one request holds: its place in a lane, its part of a caller's limits, and bytes in memory. It
 * gives all of it back when its connection is done with it and nothing works for it any more: a client
 * that hangs up does not end the work it has asked for.
 */
export class Ticket implements Waiting {
  readonly key: string
  /** Where the work of the request is done. */
  readonly lane: Lane
  readonly #budget: ByteBudget
  #caller: Caller | undefined
  #place: Lane | undefined
  #waitingIn: Lane | undefined
  #next: Next | undefined
  #bytes = 0
  #busy = 0
  #isClosed = false

  constructor(options: { key: string; lane: Lane; budget: ByteBudget }) {
    this.key = options.key
    this.lane = options.lane
    this.#budget = options.budget
  }

  get caller(): Caller | undefined {
    return this.#caller
  }

  /** Where the request has a place now. */
  get place(): Lane | undefined {
    return this.#place
  }

  /** The caller must have counted the request in. */
  belongTo(caller: Caller): void {
    this.#caller = caller
  }

  /** Calls `next` when there is room in the lane, or with an error when there is none. */
  enter(lane: Lane, next: Next, { isReturning = false } = {}): void {
    if (this.#isClosed) {
      next(new AppError('invalid_request', 'the request cannot be read'))
      return
    }
    const state = lane.enter(this, { isReturning })
    if (state === 'inside') {
      this.#place = lane
      next()
    } else if (state === 'waiting') {
      this.#waitingIn = lane
      this.#next = next
    } else {
      next(overloaded())
    }
  }

  admit(): void {
    const next = this.#next
    this.#place = this.#waitingIn
    this.#waitingIn = undefined
    this.#next = undefined
    // Not from within the end of another request, which may be one of a thousand that end at once.
    setImmediate(() => {
      if (!this.#isClosed) next?.()
    })
  }

  refuse(): void {
    const next = this.#next
    this.#waitingIn = undefined
    this.#next = undefined
    next?.(overloaded())
  }

  /** Makes room for others. */
  leave(): void {
    const place = this.#place
    this.#place = undefined
    place?.leave()
  }

  /** Something that goes on even if the client hangs up. */
  startWork(): void {
    this.#busy++
  }

  endWork(): void {
    this.#busy--
    this.#settle()
  }

  takeBytes(bytes: number): boolean {
    if (!this.#budget.take(bytes)) return false
    this.#bytes += bytes
    return true
  }

  addBytes(bytes: number): void {
    this.#budget.add(bytes)
    this.#bytes += bytes
  }

  /** The answer has gone out, or the client has. */
  close(): void {
    if (this.#isClosed) return
    this.#isClosed = true
    this.#waitingIn?.abandon(this)
    this.#waitingIn = undefined
    this.#next = undefined
    this.#settle()
  }

  #settle(): void {
    if (!this.#isClosed || this.#busy > 0) return
    this.leave()
    this.#budget.give(this.#bytes)
    this.#bytes = 0
    this.#caller?.end()
    this.#caller = undefined
  }
}

export function overloaded(): AppError {
  return new AppError(
    'overloaded',
    'there are more requests than can be served; nothing was executed, please try again',
  )
}
