import type { Readable } from 'node:stream'

/** Content is known by its sha-256, in hexadecimal, and never changes under it. */
export interface Blob {
  readonly sha256: string
  readonly size: number
}

/** A blob that has just arrived, with its first bytes. */
export interface ReceivedBlob extends Blob {
  readonly head: Buffer
}

/** Both ends belong to it. */
export interface ByteRange {
  readonly start: number
  readonly end: number
}

export interface PutOptions {
  readonly bytesMax: number
  /**
   * Runs when all of the content has arrived and before any of it can be found, so that whoever
   * removes what is not used can be told first.
   */
  claim?(blob: Blob): Promise<void>
}

/** Where the content of files is kept. */
export interface BlobStore {
  /** Makes ready to take content, and removes what an earlier process did not finish. */
  prepare(): Promise<void>
  /** When it resolves, the content survives a crash; when it rejects, nothing is left of it. */
  put(source: AsyncIterable<Buffer>, options: PutOptions): Promise<ReceivedBlob>
  /** undefined when there is no such content. */
  get(sha256: string, range?: ByteRange): Promise<Readable | undefined>
  has(sha256: string): Promise<boolean>
  /** Does nothing when there is no such content. */
  delete(sha256: string): Promise<void>
  list(): AsyncIterable<string>
}

/** The content is larger than the caller allows. */
export class BlobTooLargeError extends Error {
  constructor(readonly bytesMax: number) {
    super(`the content is larger than ${bytesMax} bytes`)
  }
}

const SHA256 = /^[0-9a-f]{64}$/

/** A name of content, never of anything else: it becomes part of a path. */
export function requireSha256(text: string): string {
  if (!SHA256.test(text)) throw new Error('content is named by its sha-256')
  return text
}
