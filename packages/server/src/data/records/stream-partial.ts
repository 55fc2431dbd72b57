import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { inTurns } from '../../common/in-turns.js'
import { LineReader, type ParsedLine } from '../../common/line-reader.js'
import type { Database } from '../../postgres/database.js'
import type { WritableTable } from '../../rows/open-branch.js'
import { Refusal } from '../../rows/writing/refusals.js'
import type { StagedRow } from '../../rows/writing/staged-rows.js'
import type { Files } from '../files/files.js'
import {
  findBrokenLink,
  findViolationFields,
  type Violation,
  violationFields,
} from '../session/record-errors.js'
import type { Session } from '../session/session.js'
import type { SessionRequest, Sessions } from '../session/sessions.js'
import { findBrokenLinks } from './broken-links.js'
import { amongRows, findFailing, findUnevaluated } from './failing-records.js'
import { LoadEntry } from './load-entry.js'
import { giveBackRefused } from './new-numbers.js'
import { storeFiles } from './record-files.js'
import { recordInput } from './record-input.js'
import type { RecordContext } from './records.js'
import { encodeLines, lineBytesMax, type StreamRequest, Tally, valuesOf } from './stream-lines.js'
import { readUniqueFields, type UniqueField } from './unique-fields.js'

/** The number of lines after which a partial import commits. */
const PARTIAL_BATCH_LINES = 2000
/** The number of bytes after which a partial import commits, for long lines with files. */
const PARTIAL_BATCH_BYTES = 8 * 1024 * 1024

export interface PartialContext {
  readonly database: Database
  readonly sessions: Sessions
  readonly files: Files
  readonly limits: Limits
  readonly session: SessionRequest
  readonly tableName: string
}

/** Lines that are written together, in a transaction of their own. */
interface LineBatch {
  readonly lines: readonly ParsedLine[]
  readonly bytes: number
}

/** The results of all batches of a stream. */
interface StreamResults {
  readonly tally: Tally
  /** Returns the entry of the log for the records of a table. A table that replaces another one has its own. */
  entryOf(session: Session, table: Pick<WritableTable, 'codec'>): LoadEntry
  onStored(entry: LoadEntry): void
}

/** Writes the valid lines of a batch, and counts the results of all of them. */
export type BatchWriter = (
  context: PartialContext,
  batch: LineBatch,
  results: StreamResults,
) => Promise<void>

/**
 * Writes the valid lines of a stream in batches: inserts them, unless there is another writer. The branch may change
 * between batches; each batch uses its current schema.
 */
export async function streamPartially(
  context: PartialContext,
  request: StreamRequest,
  { write, tally }: { write: BatchWriter; tally: Tally } = {
    write: insertLines,
    tally: new Tally(),
  },
): Promise<string> {
  const { sessions, limits, tableName } = context
  const lineBytes = await sessions.run(context.session, async (session) => {
    const table = session.table(tableName)
    if (request.idempotencyKey !== undefined) {
      throw new AppError(
        'invalid_request',
        'header [Idempotency-Key]: a stream that is stored in parts cannot be repeated as a whole',
      )
    }
    await session.growth.admit(0)
    return lineBytesMax(table, limits)
  })
  const entries = new Map<number, LoadEntry>()
  const results: StreamResults = {
    tally,
    entryOf(session, { codec: { table } }) {
      const entry = entries.get(table.id) ?? new LoadEntry(session, table)
      entries.set(table.id, entry)
      return entry
    },
    onStored(entry) {
      entry.onStored()
      request.onEntry?.(entry.id)
    },
  }
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
    await write(context, { lines: waiting, bytes: waitingBytes }, results)
    waitingBytes = 0
    waiting = []
  }
  if (waiting.length > 0) {
    await write(context, { lines: waiting, bytes: waitingBytes }, results)
  }
  return tally.toJson()
}

async function insertLines(
  partial: PartialContext,
  batch: LineBatch,
  { tally, entryOf, onStored }: StreamResults,
): Promise<void> {
  const { sessions, tableName } = partial
  let pending = batch.lines
  await sessions.run(partial.session, async (session) => {
    const known = session.table(tableName)
    await session.growth.admit(batch.bytes)
    const table = await session.branch.writable(known)
    // Invalid lines are final, so they must not be validated with an outdated schema.
    await session.branch.runReads([])
    const context = { ...partial, session, columns: undefined }
    const input = await recordInput(context, table, valuesOf(pending))
    const rows = await inTurns(encodeLines(table, pending, { tally, input }))
    const left = new Set(rows.map((row) => row.line))
    const inserted: StagedRow[] = []
    try {
      await storeFiles(context, input.files)
      await insertWhatFits(context, table, {
        rows,
        tally,
        entry: entryOf(session, table),
        onStored,
        onInserted: (some) => {
          for (const row of some) inserted.push(row)
        },
        onSettled: (settled) => {
          for (const { line } of settled) left.delete(line)
        },
      })
      if (inserted.length < pending.length) {
        await giveBackRefused(session, table, { stored: inserted, broken: tally.faults })
      }
    } finally {
      pending = pending.filter(({ line }) => left.has(line))
    }
  })
}

interface Insertion {
  readonly rows: readonly StagedRow[]
  readonly tally: Tally
  readonly entry: LoadEntry
  /** Called when rows were inserted. */
  onStored(entry: LoadEntry): void
  onInserted(rows: readonly StagedRow[]): void
  /** Called with rows that were inserted or refused. */
  onSettled(rows: readonly StagedRow[]): void
}

/** How rows are inserted that are a part of those that were given. */
interface Attempt {
  readonly rows: readonly StagedRow[]
  /** Gets the rows that link to missing records, which others of the request may be. undefined: they are refused. */
  readonly defer?: ((rows: readonly StagedRow[]) => void) | undefined
  /** Whether the rows were deferred before. */
  readonly isLast?: boolean
}

/**
 * Inserts the valid rows of a batch. If one is refused, lookups find all rows that break a rule. Should they find none, the
 * batch is split in halves.
 */
async function insertWhatFits(
  context: RecordContext,
  table: WritableTable,
  insertion: Insertion & Attempt,
): Promise<void> {
  const { rows, tally, entry, onStored, onInserted, onSettled } = insertion
  const [first] = rows
  if (first === undefined) return
  const { session } = context
  try {
    await session.branch.runSteps(async (transaction) => {
      const sink = session.branch.openSink(table, transaction)
      await sink.add(rows)
      await sink.end()
      const ids = rows.map(({ id }) => id)
      const { length: inserted } = ids
      const kept = await entry.keeping(transaction, ids)
      await transaction.run([...kept, entry.growing(session, { inserted })])
    })
    onStored(entry)
    onInserted(rows)
    tally.inserted += rows.length
    onSettled(rows)
  } catch (error) {
    const refusal = Refusal.of(error, [table.codec])?.message
    if (refusal === undefined) throw error
    if (rows.length > 1) {
      const free = await refuseBroken(context, table, insertion)
      const insert = free.length < rows.length ? insertWhatFits : insertHalves
      await insert(context, table, { ...insertion, rows: free })
    } else if (insertion.defer !== undefined && findBrokenLink(error) !== undefined) {
      insertion.defer(rows)
    } else {
      const found = await findUnevaluated(session, table, { error, find: amongRows(rows) })
      const message = `invalid record: ${found?.violation.message ?? refusal}`
      const fields = found
        ? violationFields(found.violation)
        : findViolationFields(error, new Set([table.codec]))
      tally.refuse(first.line, { message, ...fields })
      onSettled(rows)
    }
  }
}

/** Inserts halves. A row that links to one of the other half is inserted when both are settled. */
async function insertHalves(
  context: RecordContext,
  table: WritableTable,
  insertion: Insertion & Attempt,
): Promise<void> {
  const { rows, isLast = false } = insertion
  const linking: StagedRow[] = []
  const collect = (some: readonly StagedRow[]) => {
    for (const row of some) linking.push(row)
  }
  const defer = insertion.defer ?? (isLast ? undefined : collect)
  const middle = Math.ceil(rows.length / 2)
  for (const half of [rows.slice(0, middle), rows.slice(middle)]) {
    await insertWhatFits(context, table, { ...insertion, rows: half, defer })
  }
  await insertWhatFits(context, table, { ...insertion, rows: linking, isLast: true })
}

/**
 * Refuses the rows that break a rule, and returns the others. A row that is refused takes no values from others, and no row
 * can link to it.
 */
async function refuseBroken(
  context: RecordContext,
  table: WritableTable,
  { rows, tally, onSettled, defer }: Insertion & Attempt,
): Promise<readonly StagedRow[]> {
  let left = rows
  const leave = (found: ReadonlyMap<number, Violation>) => {
    const refused = left.filter((_, row) => found.has(row))
    left = left.filter((_, row) => !found.has(row))
    return refused
  }
  const refuse = (found: ReadonlyMap<number, Violation>) => {
    for (const [row, violation] of found) {
      const message = `invalid record: ${violation.message}`
      tally.refuse(left[row]?.line ?? 0, { message, ...violationFields(violation) })
    }
    onSettled(leave(found))
  }
  const refuseLinking = async () => {
    const found = byRow(await findBrokenLinks(context, table, left))
    if (defer === undefined) refuse(found)
    else defer(leave(found))
  }
  refuse(byRow(await findFailing(context.session, table, left)))
  await refuseLinking()
  const fields = await readUniqueFields(context, table, left)
  const taken = await inTurns(findTaken(fields, left.length))
  refuse(byRow(taken.flatMap((violation, row) => (violation ? [{ row, violation }] : []))))
  await refuseLinking()
  return left
}

/** Returns the first rule that each row breaks. */
function byRow(
  broken: readonly { readonly row: number; readonly violation: Violation }[],
): ReadonlyMap<number, Violation> {
  return new Map(broken.toReversed().map(({ row, violation }) => [row, violation]))
}

/**
 * Returns, for each row, the rule that it breaks because its value is taken on the branch or by an earlier row. A row that is
 * refused takes no values from later ones.
 */
function* findTaken(
  fields: readonly UniqueField[],
  rowCount: number,
): Generator<undefined, (Violation | undefined)[], undefined> {
  const used = fields.map((field) => ({ field, rows: new Set<number>() }))
  const taken: (Violation | undefined)[] = []
  for (let row = 0; row < rowCount; row++) {
    const found = used.find(({ field, rows }) => {
      const first = field.first[row]
      return field.taken.has(row) || (first !== undefined && rows.has(first))
    })
    taken.push(found?.field.violation)
    if (found === undefined) {
      for (const { field, rows } of used) {
        const first = field.first[row]
        if (first !== undefined) rows.add(first)
      }
    }
    yield
  }
  return taken
}
