import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { constraintOf } from '../../postgres/failures.js'
import { arrayLiteral } from '../../rows/columns/carriers.js'
import { type InputRecord, isFaults } from '../../rows/columns/table-codec.js'
import { writeRecord } from '../../rows/read-plan.js'
import { type OpenTransaction, runReads, runSteps } from '../../rows/run.js'
import type { FileWriter } from '../files/file-input.js'
import { newRecordId } from '../ids.js'
import { describeRefusal } from './failures.js'
import {
  findAnswer,
  IDEMPOTENCY_CONSTRAINT,
  type IdempotentRequest,
  keepAnswer,
} from './idempotency.js'
import { sliceRecords } from './record-slices.js'
import { loadContents, planColumns, type RecordContext } from './records.js'
import { openSink } from './row-sink.js'
import type { SessionTable } from './session.js'
import type { RowInput } from './write-plan.js'

/** Faults that one answer lists at the most; the message says how many there are. */
export const FAULTS_LISTED_MAX = 1000

/** What is known of the records so far: the id of each, and the faults. */
export interface Batch {
  readonly ids: string[]
  readonly faults: FaultEntry[]
  faultCount: number
}

/**
 * Inserts all records or none. They go to PostgreSQL while the rest of the body is still being
 * checked; the first fault ends that, and the check goes on alone to find the others.
 */
export async function bulkInsert(
  context: RecordContext & { readonly limits: Limits },
  request: { body: Buffer; idempotent: IdempotentRequest },
): Promise<string> {
  const { database, session, limits } = context
  const table = session.table(context.tableName)
  if (context.columns !== undefined) planColumns(table, context.columns)
  const known = await findAnswer(database, session, request.idempotent)
  if (known !== undefined) return known
  await context.sessions.writable(session, table)
  try {
    return await runSteps(database, session.guard, async (transaction) => {
      const batch = await insertBody(context, table, { transaction, body: request.body, limits })
      const answer = await writeAnswer(context, table, { transaction, ids: batch.ids })
      await transaction.run(keepAnswer(session, request.idempotent, answer))
      return answer
    })
  } catch (error) {
    if (constraintOf(error) === IDEMPOTENCY_CONSTRAINT) {
      const answer = await findAnswer(database, session, request.idempotent)
      if (answer !== undefined) return answer
    }
    const refusal = describeRefusal(error, [table.codec])
    if (refusal === undefined) throw error
    throw bulkFailed(await findConflicts(context, table, { body: request.body, refusal }))
  }
}

async function insertBody(
  context: RecordContext,
  table: SessionTable,
  options: { transaction: OpenTransaction; body: Buffer; limits: Limits },
): Promise<Batch> {
  const { transaction, limits } = options
  const { session } = context
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const sink = openSink(session, table, transaction)
  let isOpen = true
  try {
    for (const records of sliceRecords(options.body)) {
      if (batch.ids.length + records.length > limits.bulkRecordsMax) {
        throw new AppError(
          'invalid_request',
          `body: field [records]: must have at most ${limits.bulkRecordsMax} items; send more as application/x-ndjson`,
        )
      }
      const files = table.codec.fileColumns.length === 0 ? undefined : session.files.writer()
      const rows = encodeSlice(table, records, batch, files)
      if (batch.faultCount === 0) {
        if (files !== undefined) await session.files.store(files.pending)
        await sink.add(rows)
      }
      // Others get their turn between slices.
      await yieldToOthers()
    }
    if (batch.faultCount > 0) throw bulkFailed(batch)
    isOpen = false
    await sink.end()
    return batch
  } finally {
    if (isOpen) await sink.abort()
  }
}

/** Checks records and gives each its id; faulty ones are noted and left out. */
export function encodeSlice(
  table: SessionTable,
  records: readonly unknown[],
  batch: Batch,
  files: FileWriter | undefined,
): RowInput[] {
  const { codec } = table
  const now = new Date().toISOString()
  const rows: RowInput[] = []
  for (const record of records) {
    const index = batch.ids.length
    if (typeof record !== 'object' || record === null || Array.isArray(record)) {
      addFault(batch, index, 'invalid record: expected an object')
      batch.ids.push('')
      continue
    }
    const given = (record as InputRecord).id
    const idFault = given === undefined ? undefined : codec.checkId(given)
    const pending = files?.pending.length ?? 0
    const values = codec.encodeRecord(record as InputRecord, now, files?.encode)
    const id = given === undefined || idFault !== undefined ? newRecordId() : (given as string)
    batch.ids.push(id)
    if (isFaults(values) || idFault !== undefined) {
      // Nothing of a refused record is kept.
      files?.pending.splice(pending)
      const faults = [
        ...(idFault === undefined ? [] : [idFault]),
        ...(isFaults(values) ? values : []),
      ]
      addFault(batch, index, `invalid record: ${faults.map((fault) => fault.message).join('; ')}`)
    } else {
      rows.push({ id, values })
    }
  }
  return rows
}

function addFault(batch: Batch, index: number, message: string): void {
  batch.faultCount++
  if (batch.faults.length < FAULTS_LISTED_MAX) batch.faults.push({ index, status: 400, message })
}

async function writeAnswer(
  context: RecordContext,
  table: SessionTable,
  options: { transaction: OpenTransaction; ids: readonly string[] },
): Promise<string> {
  const { ids } = options
  if (context.columns === undefined) {
    // Nothing that an id may hold needs escaping.
    return ids.length === 0 ? '{"recordIDs":[]}' : `{"recordIDs":["${ids.join('","')}"]}`
  }
  const read = planColumns(table, context.columns)
  const [rows = []] = await options.transaction.run([
    { statement: read.many, values: [arrayLiteral(ids)] },
  ])
  const byId = new Map(rows.map((row) => [row[0], row]))
  await loadContents(context.session, read, rows)
  const records = ids.flatMap((id) => {
    const row = byId.get(id)
    return row === undefined ? [] : [writeRecord(read.plan, row, context.session.metadata)]
  })
  return `{"records":[${records.join(',')}]}`
}

/** Which records have an id or a unique value that is taken, in the table or among themselves. */
async function findConflicts(
  context: RecordContext,
  table: SessionTable,
  options: { body: Buffer; refusal: string },
): Promise<Pick<Batch, 'faults' | 'faultCount'>> {
  const { session } = context
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const rows: RowInput[] = []
  for (const records of sliceRecords(options.body)) {
    const files = table.codec.fileColumns.length === 0 ? undefined : session.files.writer()
    rows.push(...encodeSlice(table, records, batch, files))
    await yieldToOthers()
  }
  const messages = new Map<number, string[]>()
  const note = (index: number, path: string) => {
    messages.set(index, [...(messages.get(index) ?? []), `column [${path}]: is not unique`])
  }
  const lists = [
    {
      path: 'id',
      values: rows.map((row) => row.id),
      taken: await findTakenIds(context, table, rows),
    },
    ...(await Promise.all(
      table.uniqueColumns.map(async (column) => ({
        path: table.codec.physical[column]?.path.join('.') ?? '',
        values: rows.map((row) => row.values[column] ?? null),
        taken: await findTakenValues(context, table, { column, rows }),
      })),
    )),
  ]
  for (const { path, values, taken } of lists) {
    const seen = new Set<string>()
    for (const [index, value] of values.entries()) {
      if (value === null) continue
      if (taken.has(value) || seen.has(value)) note(index, path)
      seen.add(value)
    }
  }
  for (const [index, list] of [...messages].sort(([left], [right]) => left - right)) {
    addFault(batch, index, `invalid record: ${list.join('; ')}`)
  }
  // Whoever was in the way may be gone by now.
  if (batch.faultCount === 0) addFault(batch, 0, `invalid record: ${options.refusal}`)
  return batch
}

async function findTakenIds(
  context: RecordContext,
  table: SessionTable,
  rows: readonly RowInput[],
): Promise<Set<string | null | undefined>> {
  const read = planColumns(table, [])
  const [found = []] = await runReads(context.database, context.session.guard, [
    { statement: read.many, values: [arrayLiteral(rows.map((row) => row.id))] },
  ])
  return new Set(found.map((row) => row[0]))
}

async function findTakenValues(
  context: RecordContext,
  table: SessionTable,
  options: { column: number; rows: readonly RowInput[] },
): Promise<Set<string | null | undefined>> {
  const values = options.rows.map((row) => row.values[options.column] ?? null)
  const statement = table.statements?.visibleValues(options.column)
  if (statement === undefined) return new Set()
  const [found = []] = await runReads(context.database, context.session.guard, [
    { statement, values: [arrayLiteral(values.filter((value) => value !== null))] },
  ])
  return new Set(found.map((row) => row[0]))
}

function bulkFailed({ faults, faultCount }: Pick<Batch, 'faults' | 'faultCount'>): AppError {
  const count = faultCount === 1 ? '1 record is' : `${faultCount} records are`
  return new AppError('invalid_record', `${count} invalid; nothing was inserted`, {
    errors: faults,
  })
}
