/** Version of a key without writes. */
export const MISSING = -1

/** A version of a key that a transaction read. The value is undefined if there was no record. */
export interface Read {
  readonly key: string
  readonly version: number
  readonly value: string | undefined
}

/** A version of a key that a transaction wrote. Every written value is unique. */
export interface Write {
  readonly key: string
  /** Undefined if the outcome of the transaction is unknown. */
  readonly version: number | undefined
  readonly value: string
}

/** A transaction as seen by its client. */
export interface Observed {
  readonly id: string
  /** Whether it was committed. For unknown outcomes, reads of others may show it. */
  readonly outcome: 'committed' | 'aborted' | 'unknown'
  /** In order of execution; reads of own writes are left out. */
  readonly reads: readonly Read[]
  readonly writes: readonly Write[]
}

export type History = readonly Observed[]
