import { type Fault, OffshootError } from './errors.js'
import { type CallOptions, newIdempotencyKey, type Transport } from './http.js'

export interface InsertManyOptions extends CallOptions {
  /** Called after each batch. */
  readonly onProgress?: (progress: { readonly inserted: number; readonly failed: number }) => void
  /**
   * `atomic` (the default) inserts all records of a batch or none, and sends no more batches after one
   * that is refused. `partial` inserts every valid record.
   */
  readonly mode?: 'atomic' | 'partial'
  /** Records per batch. Default: 10,000. */
  readonly batchSize?: number
  /** Batches that are sent at the same time. Default: 2. */
  readonly concurrency?: number
}

export interface InsertManyResult {
  readonly inserted: number
  /** The number of refused records; always 0 in the mode `atomic`. */
  readonly failed: number
  /** The first refused records. `line` counts from 1 over all records. */
  readonly errors: readonly Fault[]
}

interface StreamAnswer {
  readonly inserted: number
  readonly failed: number
  readonly errors: readonly { readonly line: number; readonly message: string }[]
}

const BATCH_SIZE = 10_000
/** A batch ends at this many characters, so that memory does not depend on the size of records. */
const BATCH_LENGTH_MAX = 8 * 1024 * 1024
const ERRORS_MAX = 1000

interface Batch {
  readonly text: string
  /** The number of records before this batch. */
  readonly offset: number
}

/** Inserts records in batches. A batch that is repeated after a lost answer is not applied twice. */
export async function insertMany(
  transport: Transport,
  path: string,
  input: {
    records: Iterable<unknown> | AsyncIterable<unknown>
    options: InsertManyOptions
  },
): Promise<InsertManyResult> {
  const { options } = input
  const { onProgress, mode = 'atomic', concurrency = 2, signal } = options
  const batches = batchesOf(input.records, options.batchSize ?? BATCH_SIZE)
  const errors: Fault[] = []
  let inserted = 0
  let failed = 0
  const insert = async ({ text, offset }: Batch) => {
    const answer = await transport
      .json<StreamAnswer>({
        method: 'POST',
        path,
        query: { mode },
        body: text,
        headers: { 'content-type': 'application/x-ndjson' },
        // A partial stream consists of several transactions, so the service does not record its answer.
        ...(mode === 'atomic' ? { idempotencyKey: newIdempotencyKey() } : {}),
        signal,
      })
      .catch((error: unknown) => {
        throw error instanceof OffshootError ? shifted(error, offset) : error
      })
    inserted += answer.inserted
    failed += answer.failed
    for (const fault of answer.errors) {
      if (errors.length < ERRORS_MAX)
        errors.push(shiftFault({ index: fault.line - 1, ...fault }, offset))
    }
    onProgress?.({ inserted, failed })
  }
  let isStopped = false
  const work = async () => {
    while (!isStopped) {
      signal?.throwIfAborted()
      const { value, done } = await batches.next()
      if (done) return
      await insert(value)
    }
  }
  const stopping = async () => {
    try {
      await work()
    } catch (error) {
      // The others finish what they have sent, and send no more.
      isStopped = true
      throw error
    }
  }
  const ends = await Promise.allSettled(Array.from({ length: Math.max(1, concurrency) }, stopping))
  await batches.return(undefined)
  for (const end of ends) if (end.status === 'rejected') throw end.reason
  return { inserted, failed, errors }
}

/** Changes positions in a batch to positions among all records. */
function shifted(error: OffshootError, offset: number): OffshootError {
  const { message, code, status, requestId, body } = error
  const errors = error.errors?.map((fault) => shiftFault(fault, offset))
  return new OffshootError(message, { code, status, requestId, errors, body, cause: error })
}

function shiftFault(fault: Fault, offset: number): Fault {
  const { line } = fault
  const index = line === undefined ? fault.index : line - 1
  return { ...fault, index: offset + index, ...(line === undefined ? {} : { line: offset + line }) }
}

async function* batchesOf(
  records: Iterable<unknown> | AsyncIterable<unknown>,
  size: number,
): AsyncGenerator<Batch, undefined> {
  let lines: string[] = []
  let length = 0
  let offset = 0
  for await (const record of records) {
    const line = JSON.stringify(record)
    lines.push(line)
    length += line.length
    if (lines.length < size && length < BATCH_LENGTH_MAX) continue
    yield { text: lines.join('\n'), offset }
    offset += lines.length
    lines = []
    length = 0
  }
  if (lines.length > 0) yield { text: lines.join('\n'), offset }
  return undefined
}
