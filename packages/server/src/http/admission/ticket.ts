import { AppError } from '@offshoot/contract/errors'
import {
  type Arriving,
  type ByteBudget,
  type ByteShare,
  newShare,
} from '../../common/byte-budget.js'
import type { Bearer } from '../../domain/access/bearer.js'
import type { Caller } from './caller.js'
import type { Lane, Waiting } from './lane.js'
import type { Quota } from './quota.js'

type Next = (error?: Error) => void

/**
 * The resources that a request holds: a permit in a lane, its count in the limits of the caller, and
 * bytes in memory. They are released when the connection has finished with the request and no work
 * for it is running. A client that disconnects does not end the work that it started.
 */
export class Ticket implements Waiting, Arriving {
  readonly bearer: Bearer
  /** The lane in which the request is executed. */
  readonly lane: Lane
  readonly #budget: ByteBudget
  readonly #address: () => string
  #ownShare: ByteShare | undefined
  /** Aborts the body that has not arrived completely. */
  #abortBody: (() => void) | undefined
  #caller: Caller | undefined
  #admittedTo: Lane | undefined
  /** The owner of the permit that the request holds or waits for. */
  #owner = ''
  #waitingIn: Lane | undefined
  #next: Next | undefined
  #held: [Quota, string][] | undefined
  #bytes = 0
  #busy = 0
  #isClosed = false

  /** `address` returns the name under which requests without a known key are counted. */
  constructor(options: {
    bearer: Bearer
    lane: Lane
    budget: ByteBudget
    address: () => string
  }) {
    this.bearer = options.bearer
    this.lane = options.lane
    this.#budget = options.budget
    this.#address = options.address
  }

  get caller(): Caller | undefined {
    return this.#caller
  }

  /** The key, or the address of a request without a known key. */
  get owner(): string {
    return this.#owner
  }

  /** The lane whose permit the request holds now. */
  get admittedTo(): Lane | undefined {
    return this.#admittedTo
  }

  /** Assigns the caller, which must have counted the request. */
  belongTo(caller: Caller): void {
    this.#caller = caller
    this.#ownShare = caller.held
  }

  /** A request without a caller has a share of its own. Few need one, so it is created on first use. */
  get #share(): ByteShare {
    this.#ownShare ??= newShare()
    return this.#ownShare
  }

  /** Counts the request in a quota until it ends. Returns false if the quota is used up. */
  hold(quota: Quota, { name, atOnceMax }: { name: string; atOnceMax: number }): boolean {
    if (!quota.start(name, atOnceMax)) return false
    this.#held ??= []
    this.#held.push([quota, name])
    return true
  }

  /** Calls `next` when the lane admits the request, or with an error if it is refused. */
  enter(lane: Lane, next: Next, { isReturning = false } = {}): void {
    if (this.#isClosed) {
      next(new AppError('invalid_request', 'the request was not received completely'))
      return
    }
    this.#owner = this.#caller === undefined ? this.#address() : this.bearer.key
    const state = lane.enter(this, { isReturning })
    if (state === 'inside') {
      this.#admittedTo = lane
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
    this.#admittedTo = this.#waitingIn
    this.#waitingIn = undefined
    this.#next = undefined
    // Deferred, because `leave` runs in another request, and many can end at once.
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

  /** Frees the permit in the lane. */
  leave(): void {
    const lane = this.#admittedTo
    this.#admittedTo = undefined
    lane?.leave(this.#owner)
  }

  /** Marks work that continues even if the client disconnects. */
  startWork(): void {
    this.#busy++
  }

  endWork(): void {
    this.#busy--
    this.#settle()
  }

  /** Registers the incomplete body; `abort` is called if the budget needs its bytes. */
  startBody(abort: () => void): void {
    this.#abortBody = abort
    this.#share.arriving.add(this)
  }

  /** The body is complete, or the rest is not wanted. */
  endBody(): void {
    if (this.#abortBody === undefined) return
    this.#abortBody = undefined
    this.#share.arriving.delete(this)
  }

  get heldBytes(): number {
    return this.#bytes
  }

  giveUp(): void {
    this.#abortBody?.()
  }

  /** Reserves bytes of the body. Returns false if the budget has no room. */
  takeBytes(bytes: number): boolean {
    if (!this.#budget.take(this.#share, { bytes, ownBytes: this.#bytes })) return false
    this.#bytes += bytes
    return true
  }

  addBytes(bytes: number): void {
    this.#budget.add(this.#share, bytes)
    this.#bytes += bytes
  }

  /** Releases all bytes at once, so that requests that arrive at the same moment find room. */
  giveBytes(): void {
    if (this.#bytes === 0) return
    this.#budget.give(this.#share, this.#bytes)
    this.#bytes = 0
  }

  /** Called when the answer is sent or the client has disconnected. */
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
    for (const [quota, name] of this.#held ?? []) quota.end(name)
    this.#held = undefined
    this.#caller?.end()
    this.#caller = undefined
  }
}

export function overloaded(): AppError {
  return new AppError(
    'overloaded',
    'the service is overloaded; nothing was executed, try again later',
  )
}
