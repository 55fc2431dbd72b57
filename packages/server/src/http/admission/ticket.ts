import { AppError } from '@offshoot/contract/errors'
import type { Bearer } from '../../domain/access/bearer.js'
import { type Arriving, type ByteBudget, type ByteShare, newShare } from './byte-budget.js'
import type { Caller } from './caller.js'
import type { Lane, Waiting } from './lane.js'
import type { Quota } from './quota.js'

type Next = (error?: Error) => void

/**
 * What one request holds: its place in a lane, its part of a caller's limits, and bytes in memory. It
 * gives all of it back when its connection is done with it and nothing works for it any more: a client
 * that hangs up does not end the work it has asked for.
 */
export class Ticket implements Waiting {
  readonly bearer: Bearer
  /** Where the work of the request is done. */
  readonly lane: Lane
  readonly #budget: ByteBudget
  #share: ByteShare = newShare()
  #body: Arriving | undefined
  #caller: Caller | undefined
  #place: Lane | undefined
  #waitingIn: Lane | undefined
  #next: Next | undefined
  readonly #held: [Quota, string][] = []
  #bytes = 0
  #busy = 0
  #isClosed = false

  constructor(options: { bearer: Bearer; lane: Lane; budget: ByteBudget }) {
    this.bearer = options.bearer
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
    this.#share = caller.held
  }

  /** Counts the request in where only so many of a name may be at once. */
  hold(quota: Quota, { name, atOnceMax }: { name: string; atOnceMax: number }): boolean {
    if (!quota.start(name, atOnceMax)) return false
    this.#held.push([quota, name])
    return true
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

  /** The body is on its way; `giveUp` ends that when others need the room. */
  startBody(giveUp: () => void): void {
    const ticket = this
    this.#body = {
      get heldBytes() {
        return ticket.#bytes
      },
      giveUp,
    }
    this.#share.arriving.add(this.#body)
  }

  /** The body is here, or nothing more of it is wanted. */
  endBody(): void {
    if (this.#body !== undefined) this.#share.arriving.delete(this.#body)
    this.#body = undefined
  }

  /** Takes room for bytes of the body that have arrived, or says that there is none. */
  takeBytes(bytes: number): boolean {
    if (!this.#budget.take(this.#share, { bytes, ownBytes: this.#bytes })) return false
    this.#bytes += bytes
    return true
  }

  addBytes(bytes: number): void {
    this.#budget.add(this.#share, bytes)
    this.#bytes += bytes
  }

  /** Gives back all bytes at once, so that those who arrive in the same moment find room. */
  giveBytes(): void {
    this.#budget.give(this.#share, this.#bytes)
    this.#bytes = 0
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
    this.endBody()
    this.giveBytes()
    for (const [quota, name] of this.#held.splice(0)) quota.end(name)
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
