import { createHash } from 'node:crypto'
import type { Readable } from 'node:stream'
import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { runSteps } from '../../rows/run.js'
import { type Batch, encodeSlice, FAULTS_LISTED_MAX } from './bulk.js'
import { describeRefusal } from './failures.js'
import { findAnswer, keepAnswer } from './idempotency.js'
import { LineReader } from './line-reader.js'
import type { RecordContext } from './records.js'
import { openSink, type RowSink } from './row-sink.js'
import type { Session, SessionTable } from './session.js'
import type { RowInput } from './write-plan.js'

/** Rows that a partial import commits at a time. */
const PARTIAL_BATCH_ROWS = 2000

export interface StreamRequest {
  readonly source: Readable
  readonly mode: 'atomic' | 'partial'
  readonly idempotencyKey: string | undefined
  /** The address, so that a key belongs to one request. */
  readonly url: string
}

/** What has come of the lines so far. */
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

  /** Lines that are no JSON are found before those that are no record; readers expect one order. */
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

/** Inserts a stream of records, one JSON object a line, in constant memory. */
export async function streamInsert(
  context: RecordContext & { readonly limits: Limits },
  request: StreamRequest,
): Promise<string> {
  const table = context.session.table(context.tableName)
  if (request.mode === 'partial') {
    if (request.idempotencyKey !== undefined) {
      throw new AppError(
        'invalid_request',
        'header [Idempotency-Key]: a partial import cannot be repeated as a whole; use mode=atomic',
      )
    }
    await context.sessions.writable(context.session, table)
    return insertPartially(context, table, request)
  }
  await context.sessions.writable(context.session, table)
  return insertAtomically(context, table, request)
}

async function insertAtomically(
  context: RecordContext & { readonly limits: Limits },
  table: SessionTable,
  request: StreamRequest,
): Promise<string> {
  const { database, session, limits } = context
  const hash = createHash('sha256').update(request.url)
  const idempotent = () => ({ key: request.idempotencyKey, content: [hash.copy().digest()] })
  const lines = new LineReader(request.source, {
    lineBytesMax: lineBytesMax(table, limits),
    onChunk: (chunk) => hash.update(chunk),
  })
  if (request.idempotencyKey !== undefined) {
    const isKnown = await isKeyKnown(context, request)
    if (isKnown) {
      await lines.drain()
      const known = await findAnswer(database, session, idempotent())
      if (known !== undefined) return known
    }
  }
  const tally = new Tally()
  try {
    return await runSteps(
      database,
      session.guard,
      async (transaction) => {
        const sink = openSink(session, table, transaction)
        let isOpen = true
        const close = async () => {
          if (isOpen) await sink.abort()
          isOpen = false
        }
        try {
          for await (const rows of readRows(lines, {
            session: context.session,
            table,
            tally,
            mode: request.mode,
          })) {
            if (tally.failed > 0) await close()
            else await add(sink, rows)
          }
          if (tally.failed > 0) throw streamFailed(tally)
          isOpen = false
          await sink.end()
          const answer = tally.toJson()
          await transaction.run(keepAnswer(session, idempotent(), answer))
          return answer
        } finally {
          await close()
        }
      },
      // What was read of the stream cannot be read again.
      { isLong: true, isOnce: true },
    )
  } catch (error) {
    throw toStreamError(error, table, tally)
  }

  async function add(sink: RowSink, rows: readonly NumberedRow[]): Promise<void> {
    await sink.add(rows)
    tally.inserted += rows.length
  }
}

/** Whether an answer is kept under the key at all, whatever the request was. */
async function isKeyKnown(
  { database, session }: RecordContext,
  { idempotencyKey }: StreamRequest,
): Promise<boolean> {
  try {
    const answer = await findAnswer(database, session, { key: idempotencyKey, content: [] })
    return answer !== undefined
  } catch (error) {
    if (error instanceof AppError && error.code === 'idempotency_mismatch') return true
    throw error
  }
}

/** PostgreSQL says in which line of the copy it met a value that is taken. */
function toStreamError(error: unknown, table: SessionTable, tally: Tally): unknown {
  const refusal = describeRefusal(error, [table.codec])
  if (refusal === undefined) return error
  const { where } = error as { where?: string }
  const line = Number(/, line (\d+)/.exec(where ?? '')?.[1] ?? tally.inserted + 1)
  tally.refuse(line, `invalid record: ${refusal}`)
  return streamFailed(tally)
}

async function insertPartially(
  context: RecordContext & { readonly limits: Limits },
  table: SessionTable,
  request: StreamRequest,
): Promise<string> {
  const tally = new Tally()
  const lines = new LineReader(request.source, {
    lineBytesMax: lineBytesMax(table, context.limits),
  })
  let waiting: NumberedRow[] = []
  for await (const rows of readRows(lines, {
    session: context.session,
    table,
    tally,
    mode: request.mode,
  })) {
    waiting.push(...rows)
    if (waiting.length < PARTIAL_BATCH_ROWS) continue
    await insertWhatFits(context, table, { rows: waiting, tally })
    waiting = []
  }
  await insertWhatFits(context, table, { rows: waiting, tally })
  return tally.toJson()
}

/** Halves a batch that is refused until the rows at fault stand alone. */
async function insertWhatFits(
  context: RecordContext,
  table: SessionTable,
  options: { rows: readonly NumberedRow[]; tally: Tally },
): Promise<void> {
  const { rows, tally } = options
  const [first] = rows
  if (first === undefined) return
  const { database, session } = context
  try {
    await runSteps(database, session.guard, async (transaction) => {
      const sink = openSink(session, table, transaction)
      await sink.add(rows)
      await sink.end()
    })
    tally.inserted += rows.length
  } catch (error) {
    const refusal = describeRefusal(error, [table.codec])
    if (refusal === undefined) throw error
    if (rows.length === 1) {
      tally.refuse(first.line, `invalid record: ${refusal}`)
      return
    }
    const middle = Math.ceil(rows.length / 2)
    await insertWhatFits(context, table, { rows: rows.slice(0, middle), tally })
    await insertWhatFits(context, table, { rows: rows.slice(middle), tally })
  }
}

/** Parses and checks lines; those that are refused are counted and left out. */
async function* readRows(
  lines: LineReader,
  options: {
    session: Session
    table: SessionTable
    tally: Tally
    mode: StreamRequest['mode']
  },
): AsyncGenerator<NumberedRow[]> {
  const { session, table, tally } = options
  for await (const parsed of lines.batches()) {
    const records: unknown[] = []
    const numbers: number[] = []
    for (const { line, value, fault } of parsed) {
      if (fault !== undefined) {
        tally.refuse(line, fault)
        continue
      }
      records.push(value)
      numbers.push(line)
    }
    const batch: Batch = { ids: [], faults: [], faultCount: 0 }
    const files = table.codec.fileColumns.length === 0 ? undefined : session.files.writer()
    const rows = encodeSlice(table, records, batch, files)
    const isKept = tally.failed === 0 || options.mode === 'partial'
    if (files !== undefined && isKept) await session.files.store(files.pending)
    for (const { index, message } of batch.faults) tally.refuse(numbers[index] ?? 0, message)
    const faulty = new Set(batch.faults.map((fault) => fault.index))
    const valid = numbers.filter((_, index) => !faulty.has(index))
    yield rows.map((row, index) => ({ ...row, line: valid[index] ?? 0 }))
  }
}

/** JSON writes a character with up to six; a line may be that much longer than its record. */
const ESCAPE_FACTOR = 6

/** A record with files may be as long as a request. */
function lineBytesMax({ codec }: SessionTable, limits: Limits): number {
  const bytes = limits.recordBytesMax * ESCAPE_FACTOR
  return codec.fileColumns.length === 0 ? bytes : Math.max(bytes, limits.requestBytesMax)
}

function streamFailed(tally: Tally): AppError {
  const count = tally.failed === 1 ? '1 line is' : `${tally.failed} lines are`
  return new AppError('invalid_record', `${count} invalid; nothing was inserted`, {
    errors: tally.sorted,
  })
}
