/** A key that nothing has been written to yet. */
export const MISSING = -1

/** A version of a key that a transaction saw. The value is undefined when there was none. */
export interface Read {
  readonly key: string
  readonly version: number
  readonly value: string | undefined
}

/** A version of a key that a transaction made, with a value that nobody else writes. */
export interface Write {
  readonly key: string
  /** undefined when the transaction did not live to tell. */
  readonly version: number | undefined
  readonly value: string
}

/** One transaction as its client saw it. */
export interface Observed {
  readonly id: string
  /** Committed, or not at all. Whether an unknown one has happened, others may show. */
  readonly outcome: 'committed' | 'aborted' | 'unknown'
  /** In the order of the transaction; what it read of its own writes is not among the reads. */
  readonly reads: readonly Read[]
  readonly writes: readonly Write[]
}

export type History = readonly Observed[]
