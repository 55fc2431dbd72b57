import { type Fault, OffshootError } from './errors.js'
import { type ApiRequest, type CallOptions, isNothingExecuted, type Transport } from './http.js'
import { toJson } from './json.js'

type AnyRecords = Iterable<unknown> | AsyncIterable<unknown>

/** Records, or a function that returns them from the first one, each time it is called. */
export type RecordSource<Record> =
  | Iterable<Record>
  | AsyncIterable<Record>
  | (() => Iterable<Record> | AsyncIterable<Record>)

export interface InsertManyOptions extends CallOptions {
  /** Called while records are sent. */
  readonly onProgress?: (progress: InsertManyProgress) => void
  /**
   * `atomic` (the default) inserts all records or none, however many there are. `partial` inserts every valid record, in
   * batches.
   */
  readonly mode?: 'atomic' | 'partial'
  /**
   * What happens to a record whose id exists. `refuse` (the default) refuses it. `skip` leaves the existing record as it is,
   * and `replace` replaces it; both need the mode `atomic`.
   */
  readonly existing?: 'refuse' | 'skip' | 'replace'
  /**
   * Called with the entry of the log, by which `branch.revert` takes the records back. In the mode `partial`, each batch has one.
   * It is not called if the answer was lost and the records were sent again.
   */
  readonly onEntry?: (entry: string) => void
  /** Records per batch in the mode `partial`. Default: 10,000. */
  readonly batchSize?: number
}

export interface InsertManyProgress {
  /** The number of records that were sent. */
  readonly sent: number
  /** The number of records that are stored. Before the end, it is 0 in the mode `atomic`. */
  readonly inserted: number
  readonly failed: number
}

export interface InsertManyResult {
  readonly inserted: number
  /** The number of existing records that were replaced. */
  readonly updated: number
  /** The number of records that were left out, because their id exists. */
  readonly skipped: number
  /** The number of refused records; always 0 in the mode `atomic`. */
  readonly failed: number
  /** The first refused records. `line` counts from 1 over all records. */
  readonly errors: readonly Fault[]
}

/** The error of `insertMany`. It tells what is stored. An error of the given records themselves is thrown as it is. */
export class InsertManyError extends OffshootError {
  /** The number of records that are stored for certain. */
  readonly inserted: number
  /** The number of records, from the first one, that are known to be stored or refused. */
  readonly settled: number
  /** Whether no other record is stored. If false, records after the settled ones may be stored, or not. */
  readonly isCertain: boolean

  constructor(error: OffshootError, stored: Stored) {
    const { code, status, requestId, errors, body } = error
    super(`${error.message}${describe(error, stored)}`, {
      ...{ code, status, requestId, errors, body, cause: error },
    })
    this.inserted = stored.inserted
    this.settled = stored.settled
    this.isCertain = stored.isCertain
  }
}

interface Stored {
  readonly mode: 'atomic' | 'partial'
  readonly inserted: number
  readonly settled: number
  readonly isCertain: boolean
}

function describe(
  { message }: OffshootError,
  { mode, inserted, settled, isCertain }: Stored,
): string {
  if (mode === 'atomic') {
    if (!isCertain) return '; it is not known whether the records were inserted'
    return /nothing was (inserted|applied)/.test(message) ? '' : '; nothing was inserted'
  }
  const known = `of the first ${settled} records, ${inserted} were inserted`
  const rest = isCertain
    ? 'no others were inserted'
    : `it is not known whether records from ${settled + 1} on were inserted`
  return `; ${known}; ${rest}`
}

interface StreamAnswer {
  readonly inserted: number
  readonly updated?: number
  readonly skipped?: number
  readonly failed: number
  readonly errors: readonly { readonly line: number; readonly message: string }[]
}

/** Returns a callback that passes on the entry of the log, which an answer has in a header. */
const noteEntry = (onEntry: InsertManyOptions['onEntry']) => (headers: Headers) => {
  const entry = headers.get('offshoot-entry')
  if (entry !== null) onEntry?.(entry)
}

const BATCH_SIZE = 10_000
/** A batch ends at this many characters, so that memory does not depend on the size of records. */
const BATCH_LENGTH_MAX = 8 * 1024 * 1024
/** Characters of lines that are sent together. */
const CHUNK_LENGTH = 64 * 1024
/** Shorter input is sent from memory. So it can be sent again, even if the records can be read only once. */
const HELD_LENGTH_MAX = 1024 * 1024
const ERRORS_MAX = 1000

interface Input {
  readonly records: RecordSource<unknown>
  readonly options: InsertManyOptions
}

/** Inserts many records. After a lost answer, they are sent again if that is possible, and are never stored twice. */
export async function insertMany(
  transport: Transport,
  path: string,
  input: Input,
): Promise<InsertManyResult> {
  const { mode = 'atomic', existing = 'refuse' } = input.options
  if (mode === 'atomic') return insertAll(transport, path, input)
  if (existing !== 'refuse') {
    throw new TypeError(`existing: '${existing}' needs the mode 'atomic'`)
  }
  return insertBatches(transport, path, input)
}

const CONTENT_TYPE = { 'content-type': 'application/x-ndjson' }

/** Sends all records as one stream, which the service inserts as one transaction. */
async function insertAll(
  transport: Transport,
  path: string,
  { records, options: { existing, signal, onProgress, onEntry } }: Input,
): Promise<InsertManyResult> {
  // Aborted at the end, so that an input whose answer came early is not read any further.
  const ending = new AbortController()
  const attempts = new Attempts(records, {
    signal,
    onProgress: (sent) => onProgress?.({ sent, inserted: 0, failed: 0 }),
  })
  try {
    const answer = await transport.json<StreamAnswer>({
      method: 'POST',
      path,
      query: { mode: 'atomic', existing },
      body: await attempts.body(),
      headers: CONTENT_TYPE,
      isOnce: true,
      onHeaders: noteEntry(onEntry),
      signal: signal === undefined ? ending.signal : AbortSignal.any([signal, ending.signal]),
      onFailure: (error) => {
        // To send the records again would not help.
        if (attempts.inputError !== undefined) throw error
        attempts.fail(error)
      },
    })
    const { inserted, updated = 0, skipped = 0 } = answer
    onProgress?.({ sent: attempts.sent, inserted, failed: 0 })
    return { inserted, updated, skipped, failed: 0, errors: [] }
  } catch (error) {
    const { inputError } = attempts
    if (inputError !== undefined && attempts.isCertain) throw inputError.error
    const cause = inputError ? notReadAgain(inputError.error) : errorOf(error, signal)
    if (cause === undefined) throw error
    attempts.fail(cause)
    const { isCertain } = attempts
    throw new InsertManyError(cause, { mode: 'atomic', inserted: 0, settled: 0, isCertain })
  } finally {
    ending.abort()
    await attempts.close()
  }
}

/** Returns the error of a failed request, or undefined for an error that has nothing to do with the request. */
function errorOf(error: unknown, signal: AbortSignal | undefined): OffshootError | undefined {
  if (error instanceof OffshootError) return error
  if (!signal?.aborted) return undefined
  return cancelled(signal)
}

/** The answer of an earlier attempt was lost, and the records cannot be sent again. */
function notReadAgain(error: unknown): OffshootError {
  const reason = error instanceof Error ? error.message : String(error)
  const message = `the answer of the service was lost, and the records cannot be read again: ${reason}`
  return new OffshootError(message, { code: 'unreachable', status: 0, cause: error })
}

function cancelled({ reason }: AbortSignal): OffshootError {
  return new OffshootError('cancelled', { code: 'cancelled', status: 0, cause: reason })
}

/** Yields records. Ends early if the signal is aborted, even while it waits for the next record. */
async function* untilAborted(
  records: AnyRecords,
  signal: AbortSignal | undefined,
): AsyncGenerator<unknown, undefined> {
  if (signal === undefined || !(Symbol.asyncIterator in records)) {
    yield* records
    return undefined
  }
  const iterator = records[Symbol.asyncIterator]()
  try {
    while (!signal.aborted) {
      const next = await orAborted(iterator.next(), signal)
      if (next === undefined || next.done) return undefined
      yield next.value
    }
    return undefined
  } finally {
    // An iterator that still waits would not return.
    iterator.return?.().catch(() => undefined)
  }
}

function orAborted<Value>(value: Promise<Value>, signal: AbortSignal): Promise<Value | undefined> {
  return new Promise((resolve, reject) => {
    const end = () => resolve(undefined)
    signal.addEventListener('abort', end, { once: true })
    value.then(resolve, reject).finally(() => signal.removeEventListener('abort', end))
  })
}

/** The codes of errors about the records themselves, whatever the table has. */
const INVALID: ReadonlySet<string> = new Set([
  'invalid_record',
  'not_null_violation',
  'check_violation',
])

/** Errors of these codes do not tell whether the request took effect. */
const UNCERTAIN: ReadonlySet<string> = new Set([
  'unreachable',
  'unexpected_answer',
  'cancelled',
  'commit_unknown',
  'internal',
  'idempotency_conflict',
  'idempotency_mismatch',
  'idempotency_outdated',
])

/** Parts of the lines of an input, and at last whether all were read. */
type Lines = AsyncGenerator<string, 'whole' | 'early'>

/** The attempts to send an input, and what is known of their effect. */
class Attempts {
  readonly #records: RecordSource<unknown>
  readonly #onProgress: (sent: number) => void
  readonly #signal: AbortSignal | undefined
  #lines: Lines | undefined
  /** Whether the current attempt has sent everything. Before that, the service inserts nothing. */
  #isSent = false
  #mayHaveWorked = false
  sent = 0
  /** The error of the records themselves. */
  inputError: { readonly error: unknown } | undefined

  constructor(
    records: RecordSource<unknown>,
    options: { signal: AbortSignal | undefined; onProgress: (sent: number) => void },
  ) {
    this.#records = records
    this.#signal = options.signal
    this.#onProgress = options.onProgress
  }

  /** Whether no attempt has taken effect. */
  get isCertain(): boolean {
    return !this.#mayHaveWorked
  }

  /** Returns short input as a text, and long input as a stream. */
  async body(): Promise<NonNullable<ApiRequest['body']>> {
    const chunks = this.#open()
    const held: string[] = []
    let length = 0
    for (;;) {
      const { value, done } = await chunks.next()
      if (done) return held.join('')
      held.push(value)
      length += value.length
      if (length > HELD_LENGTH_MAX) break
    }
    // Browsers cannot send streams over HTTP/1.1. They keep large blobs on disk.
    if ('document' in globalThis) {
      const parts: BlobPart[] = held
      for await (const chunk of chunks) parts.push(chunk)
      return new Blob(parts)
    }
    const records = this.#records
    if (typeof records !== 'function' && !Array.isArray(records)) {
      return this.#stream(chunks, held)
    }
    let isFirst = true
    return () => {
      const stream = isFirst ? this.#stream(chunks, held) : this.#stream(this.#open(), [])
      isFirst = false
      return stream
    }
  }

  /** Notes the failure of an attempt. */
  fail(error: OffshootError): void {
    if (isNothingExecuted(error)) return
    // An earlier attempt with the same records was refused as well. Other answers say nothing about it.
    if (INVALID.has(error.code)) this.#mayHaveWorked = false
    else if (UNCERTAIN.has(error.code) && this.#isSent) this.#mayHaveWorked = true
  }

  async close(): Promise<void> {
    // The records may still be read. That must not delay the result.
    this.#lines?.return('early').catch(() => undefined)
  }

  #open(): Lines {
    this.#lines?.return('early').catch(() => undefined)
    this.#isSent = false
    this.sent = 0
    this.#lines = this.#read()
    return this.#lines
  }

  async *#read(): Lines {
    const records = this.#records
    let chunk = ''
    let count = 0
    try {
      const all = typeof records === 'function' ? records() : records
      for await (const record of untilAborted(all, this.#signal)) {
        chunk += lineOf(record)
        count++
        if (chunk.length < CHUNK_LENGTH) continue
        yield chunk
        chunk = ''
        this.sent = count
        this.#onProgress(count)
      }
    } catch (error) {
      this.inputError = { error }
      throw error
    }
    this.#signal?.throwIfAborted()
    if (chunk !== '') yield chunk
    this.#isSent = true
    this.sent = count
    this.#onProgress(count)
    return 'whole'
  }

  #stream(chunks: Lines, held: string[]): ReadableStream<Uint8Array> {
    const encoder = new TextEncoder()
    return new ReadableStream<Uint8Array>({
      pull: async (controller) => {
        const text = held.shift()
        const { value, done } = text === undefined ? await chunks.next() : { value: text }
        if (!done) controller.enqueue(encoder.encode(value))
        else if (value === 'whole') controller.close()
        // The service must not take a part of the records for all of them.
        else controller.error(new Error('the records were not read to the end'))
      },
      cancel: () => {
        chunks.return('early').catch(() => undefined)
      },
    })
  }
}

/** Writes a record as a line. A value that is no record becomes a line that the service refuses with its number. */
function lineOf(record: unknown): string {
  return `${toJson(record) ?? 'null'}\n`
}

interface Batch {
  readonly text: string
  readonly count: number
}

/** Inserts the valid records, batch by batch, so that it is known what is stored if the connection is lost. */
async function insertBatches(
  transport: Transport,
  path: string,
  { records, options }: Input,
): Promise<InsertManyResult> {
  const { onProgress, onEntry, signal, batchSize = BATCH_SIZE } = options
  const errors: Fault[] = []
  let [inserted, failed, settled] = [0, 0, 0]
  const all = typeof records === 'function' ? records() : records
  for await (const { text, count } of batchesOf(untilAborted(all, signal), batchSize)) {
    if (signal?.aborted) break
    const answer = await transport
      .json<StreamAnswer>({
        // A partial stream is several transactions, so the service cannot record its answer.
        ...{ method: 'POST', path, query: { mode: 'partial' }, body: text },
        ...{ headers: CONTENT_TYPE, signal, onHeaders: noteEntry(onEntry) },
      })
      .catch((error: unknown) => {
        const cause = errorOf(error, signal)
        if (cause === undefined) throw error
        const isCertain = isNothingExecuted(cause)
        throw new InsertManyError(shifted(cause, settled), {
          ...{ mode: 'partial', inserted, settled, isCertain },
        })
      })
    inserted += answer.inserted
    failed += answer.failed
    for (const fault of answer.errors) {
      if (errors.length < ERRORS_MAX)
        errors.push(shiftFault({ index: fault.line - 1, ...fault }, settled))
    }
    settled += count
    onProgress?.({ sent: settled, inserted, failed })
  }
  if (signal?.aborted) {
    throw new InsertManyError(cancelled(signal), {
      ...{ mode: 'partial', inserted, settled, isCertain: true },
    })
  }
  return { inserted, updated: 0, skipped: 0, failed, errors }
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

async function* batchesOf(records: AnyRecords, size: number): AsyncGenerator<Batch, undefined> {
  let text = ''
  let count = 0
  for await (const record of records) {
    text += lineOf(record)
    count++
    if (count < size && text.length < BATCH_LENGTH_MAX) continue
    yield { text, count }
    text = ''
    count = 0
  }
  if (count > 0) yield { text, count }
  return undefined
}
