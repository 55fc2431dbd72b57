import type { Readable } from 'node:stream'

/** Content is addressed by its SHA-256 in hexadecimal, and is immutable. */
export interface Blob {
  readonly sha256: string
  readonly size: number
}

/** A blob that was just received, with its first bytes. */
export interface ReceivedBlob extends Blob {
  readonly head: Buffer
}

/** A byte range, inclusive at both ends. */
export interface ByteRange {
  readonly start: number
  readonly end: number
}

export interface PutOptions {
  readonly bytesMax: number
  /**
   * Called when all of the content has arrived and before it becomes visible, so that it can be
   * registered with the collector of unused content first.
   */
  claim?(blob: Blob): Promise<void>
}

/** A store for the content of files. */
export interface BlobStore {
  /** Prepares the store, and removes incomplete uploads of an earlier process. */
  prepare(): Promise<void>
  /**
   * Stores content durably: it survives a crash once the promise resolves. If it rejects, nothing
   * is stored.
   */
  put(source: AsyncIterable<Buffer>, options: PutOptions): Promise<ReceivedBlob>
  /** Returns undefined if there is no such content. */
  get(sha256: string, range?: ByteRange): Promise<Readable | undefined>
  has(sha256: string): Promise<boolean>
  /** Deletes content; a no-op if there is none. */
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

/** Checks that a text is a SHA-256, because it becomes part of a path. */
export function requireSha256(text: string): string {
  if (!SHA256.test(text)) throw new Error('the name of content must be a SHA-256')
  return text
}
