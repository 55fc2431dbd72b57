import { createHash } from 'node:crypto'
import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { LineReader, type ParsedLine } from '../../common/line-reader.js'
import type { Database } from '../../postgres/database.js'
import { confirmed, runReads, StaleError } from '../../rows/read.js'
import type { BranchTable, WritableTable } from '../../rows/tables.js'
import { describeRefusal, openSink, type RowInput, rowsBefore, runSteps } from '../../rows/write.js'
import type { FileWriter } from '../files/file-input.js'
import type { Files } from '../files/files.js'
import type { SessionRequest, Sessions } from '../session/sessions.js'
import { encodeInput, FAULTS_LISTED_MAX } from './encode-input.js'
import { findAnswer, hashContent, isKeyUsed, keepAnswer } from './idempotency.js'
import { fileWriter, storeFiles } from './record-files.js'
import type { RecordContext } from './records.js'
import { READ_AHEAD_BYTES, type StreamSource } from './stream-source.js'

/** The number of lines after which a partial import commits. */
const PARTIAL_BATCH_LINES = 2000
/** The number of bytes after which a partial import commits, for long lines with files. */
const PARTIAL_BATCH_BYTES = 8 * 1024 * 1024

export interface StreamRequest {
  readonly source: StreamSource
  readonly idempotencyKey: string | undefined
  /** The URL of the request, which is part of its idempotency hash. */
  readonly url: string
  /** Called before more bytes of a long line are held; throws if there is no room for them. */
  onHold(bytes: number): void
}

/** The results of the lines so far. */
class Tally {
  inserted = 0
  failed = 0
  readonly faults: FaultEntry[] = []

  refuse(line: number, message: string): void {
    this.failed++
    if (this.faults.length < FAULTS_LISTED_MAX) {
      this.faults.push({ index: line - 1, line, status: 400, message })
    }
  }

  /** Faults by line. Lines that are not JSON are found earlier than invalid records. */
  get sorted(): FaultEntry[] {
    return this.faults.toSorted((left, right) => left.index - right.index)
  }

  toJson(): string {
    const errors = this.sorted.map(({ line, message }) => ({ line, message }))
    return JSON.stringify({ inserted: this.inserted, failed: this.failed, errors })
  }
}

interface NumberedRow extends RowInput {
  readonly line: number
}

/** Inserts a stream of records, one JSON object per line, in constant memory. Inserts all of them or none. */
export async function streamInsert(
  context: RecordContext & { readonly limits: Limits },
  request: StreamRequest,
): Promise<string> {
  const { database, session, limits } = context
  const { source, idempotencyKey } = request
  const table = session.table(context.tableName)
  if (source.isUsed) {
    throw new AppError('retry_limit', 'the branch changed during the import; nothing was applied')
  }
  const hash = createHash('sha256').update(request.url)
  let arrivedBytes = 0
  const lines = new LineReader(source, {
    lineBytesMax: lineBytesMax(table, limits),
    limits,
    onHold: request.onHold,
    onChunk: (chunk) => {
      hash.update(chunk)
      arrivedBytes += chunk.length
    },
  })
  const idempotent = () => ({
    key: idempotencyKey,
    contentHash: hashContent(() => [hash.copy().digest(), '\0']),
  })
  /** Finds the response to an earlier request with the same content, which is known at the end of the stream. */
  const findEarlierAnswer = async () => {
    if (!(await isKeyUsed(context, idempotencyKey))) return undefined
    await lines.drain()
    return findAnswer(context, idempotent())
  }
  const known = await findEarlierAnswer()
  if (known !== undefined) return known
  await session.growth.admit(0)
  await source.readAhead(READ_AHEAD_BYTES)
  const writable = await context.sessions.writable(session, table)
  const tally = new Tally()
  const numbers = new LineNumbers()
  try {
    return await runSteps(
      database,
      session.guard,
      async (transaction) => {
        // The gate is held from here on. Forks wait for it, and other writers wait behind the forks.
        source.hurry(limits.stallTimeoutMs)
        const sink = openSink(writable, transaction)
        let isOpen = true
        const close = async () => {
          if (isOpen) await sink.abort()
          isOpen = false
        }
        try {
          for await (const parsed of lines.batches()) {
            const files = fileWriter(context, table)
            const rows = encodeLines(table, parsed, { tally, files })
            if (tally.failed > 0) {
              await close()
              continue
            }
            await session.growth.admit(arrivedBytes)
            arrivedBytes = 0
            await storeFiles(context, files)
            numbers.add(rows)
            await sink.add(rows)
            tally.inserted += rows.length
          }
          if (tally.failed > 0) throw streamFailed(tally)
          isOpen = false
          await sink.end()
          const answer = tally.toJson()
          await keepAnswer(transaction, session, { ...idempotent(), answer })
          return answer
        } finally {
          await close()
        }
      },
      // Not retried, because the stream cannot be read twice.
      { isLong: true, isOnce: true },
    )
  } catch (error) {
    // A client that has disconnected needs no response.
    if (error instanceof StaleError || source.isAborted) throw error
    const answer = await findEarlierAnswer()
    if (answer !== undefined) return answer
    const refusal = describeRefusal(error, [table.codec])
    if (refusal === undefined) throw error
    tally.refuse(
      numbers.lineAfter(rowsBefore(error) ?? tally.inserted),
      `invalid record: ${refusal}`,
    )
    throw confirmed(streamFailed(tally))
  }
}

/** Maps rows to lines of the stream. They differ by the number of blank lines before. */
class LineNumbers {
  readonly #starts: { rows: number; line: number }[] = []
  #rows = 0
  #next = -1

  add(rows: readonly NumberedRow[]): void {
    for (const { line } of rows) {
      if (line !== this.#next) this.#starts.push({ rows: this.#rows, line })
      this.#rows++
      this.#next = line + 1
    }
  }

  /** Returns the line of the row that follows the given number of rows. */
  lineAfter(rows: number): number {
    const start = this.#starts.findLast((candidate) => candidate.rows <= rows)
    return start === undefined ? 1 : start.line + rows - start.rows
  }
}

export interface PartialContext {
  readonly database: Database
  readonly sessions: Sessions
  readonly files: Files
  readonly limits: Limits
  readonly session: SessionRequest
  readonly tableName: string
}

/**
 * Inserts the valid lines of a stream in batches. The branch may change between batches; each batch uses its
 * current schema.
 */
export async function streamPartially(
  context: PartialContext,
  request: StreamRequest,
): Promise<string> {
  const { sessions, limits, tableName } = context
  const lineBytes = await sessions.run(context.session, async (session) => {
    const table = session.table(tableName)
    if (request.idempotencyKey !== undefined) {
      throw new AppError(
        'invalid_request',
        'header [Idempotency-Key]: a partial import cannot be repeated as a whole; use mode=atomic',
      )
    }
    await session.growth.admit(0)
    return lineBytesMax(table, limits)
  })
  const tally = new Tally()
  let waiting: ParsedLine[] = []
  let waitingBytes = 0
  const lines = new LineReader(request.source, {
    lineBytesMax: lineBytes,
    limits,
    onHold: request.onHold,
    onChunk: (chunk) => {
      waitingBytes += chunk.length
    },
  })
  for await (const parsed of lines.batches()) {
    waiting = waiting.concat(parsed)
    if (waiting.length < PARTIAL_BATCH_LINES && waitingBytes < PARTIAL_BATCH_BYTES) continue
    await insertLines(context, { lines: waiting, bytes: waitingBytes }, tally)
    waitingBytes = 0
    waiting = []
  }
  if (waiting.length > 0) {
    await insertLines(context, { lines: waiting, bytes: waitingBytes }, tally)
  }
  return tally.toJson()
}

async function insertLines(
  partial: PartialContext,
  batch: { lines: readonly ParsedLine[]; bytes: number },
  tally: Tally,
): Promise<void> {
  const { database, sessions, tableName } = partial
  let pending = batch.lines
  await sessions.run(partial.session, async (session) => {
    const known = session.table(tableName)
    await session.growth.admit(batch.bytes)
    const table = await sessions.writable(session, known)
    // Invalid lines are final, so they must not be validated with an outdated schema.
    await runReads(database, session.guard, [])
    const context = { ...partial, session, columns: undefined }
    const files = fileWriter(context, table)
    const rows = encodeLines(table, pending, { tally, files })
    const left = new Set(rows.map((row) => row.line))
    try {
      await storeFiles(context, files)
      await insertWhatFits(context, table, {
        rows,
        tally,
        onSettled: (settled) => {
          for (const { line } of settled) left.delete(line)
        },
      })
    } finally {
      pending = pending.filter(({ line }) => left.has(line))
    }
  })
}

/** Splits a rejected batch in halves until the invalid rows are found. */
async function insertWhatFits(
  context: RecordContext,
  table: WritableTable,
  options: {
    rows: readonly NumberedRow[]
    tally: Tally
    onSettled(rows: readonly NumberedRow[]): void
  },
): Promise<void> {
  const { rows, tally, onSettled } = options
  const [first] = rows
  if (first === undefined) return
  const { database, session } = context
  try {
    await runSteps(database, session.guard, async (transaction) => {
      const sink = openSink(table, transaction)
      await sink.add(rows)
      await sink.end()
    })
    tally.inserted += rows.length
    onSettled(rows)
  } catch (error) {
    const refusal = describeRefusal(error, [table.codec])
    if (refusal === undefined) throw error
    if (rows.length === 1) {
      tally.refuse(first.line, `invalid record: ${refusal}`)
      onSettled(rows)
      return
    }
    const middle = Math.ceil(rows.length / 2)
    await insertWhatFits(context, table, { ...options, rows: rows.slice(0, middle) })
    await insertWhatFits(context, table, { ...options, rows: rows.slice(middle) })
  }
}

/** Validates and encodes lines. Counts invalid ones and leaves them out. */
function encodeLines(
  table: BranchTable,
  lines: readonly ParsedLine[],
  { tally, files }: { tally: Tally; files: FileWriter | undefined },
): NumberedRow[] {
  const now = new Date().toISOString()
  return lines.flatMap(({ line, value, fault }) => {
    const row = fault ?? encodeInput(table.codec, value, now, files)
    if (typeof row !== 'string') return [{ ...row, line }]
    tally.refuse(line, row)
    return []
  })
}

/** JSON escapes a character with up to six characters, so a line may be that much longer than its record. */
const ESCAPE_FACTOR = 6

/** Returns the maximum length of a line. A record with files may be as long as a request. */
function lineBytesMax({ codec }: BranchTable, limits: Limits): number {
  const bytes = limits.recordBytesMax * ESCAPE_FACTOR
  return codec.fileColumns.length === 0 ? bytes : Math.max(bytes, limits.requestBytesMax)
}

function streamFailed(tally: Tally): AppError {
  const count = tally.failed === 1 ? '1 line is' : `${tally.failed} lines are`
  return new AppError('invalid_record', `${count} invalid; nothing was inserted`, {
    errors: tally.sorted,
  })
}
