import {
  type Arriving,
  type ByteBudget,
  type ByteShare,
  SMALL_ANSWER_BYTES,
} from '../common/byte-budget.js'

/** Bytes in memory for one connection, counted in the budget of its key. A connection with few is not counted. */
export class ClientBytes implements Arriving {
  readonly #budget: ByteBudget
  readonly #share: ByteShare
  readonly #abort: () => void
  /** Bytes of messages that have arrived, and of what later messages may use. */
  readonly #counted = { arriving: 0, kept: 0 }

  /** `abort` ends the connection: others need the bytes of the message that it is sending. */
  constructor(options: { budget: ByteBudget; share: ByteShare; abort: () => void }) {
    this.#budget = options.budget
    this.#share = options.share
    this.#abort = options.abort
  }

  get heldBytes(): number {
    return this.#counted.arriving
  }

  giveUp(): void {
    this.#count('arriving', 0)
    this.#abort()
  }

  /** Counts the messages that have arrived and are not handled. Returns false if the budget has no room for them. */
  holdMessages(bytes: number): boolean {
    const hasRoom = this.#count('arriving', bytes)
    if (this.#counted.arriving > 0) this.#share.arriving.add(this)
    else this.#share.arriving.delete(this)
    return hasRoom
  }

  /** Counts statements and portals. Returns false if the budget has no room for them. */
  holdNamed(bytes: number): boolean {
    return this.#count('kept', bytes)
  }

  close(): void {
    this.holdMessages(0)
    this.holdNamed(0)
  }

  #count(kind: 'arriving' | 'kept', bytes: number): boolean {
    const wanted = bytes <= SMALL_ANSWER_BYTES ? 0 : bytes
    const more = wanted - this.#counted[kind]
    if (more < 0) this.#budget.give(this.#share, -more)
    else if (more > 0) {
      // A message gets room if there is no other. What is kept could stay for as long as the connection.
      const ownBytes = kind === 'arriving' ? this.#counted.arriving : 0
      if (!this.#budget.take(this.#share, { bytes: more, ownBytes })) return false
    }
    this.#counted[kind] = wanted
    return true
  }
}
