import { setImmediate as yieldToOthers } from 'node:timers/promises'
import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { newRecordId } from '../../common/ids.js'
import { arrayLiteral, type InputRecord, isFaults, type TableCodec } from '../../rows/columns.js'
import { confirmed, type OpenTransaction, runReads, writeRecord } from '../../rows/read.js'
import type { BranchTable, WritableTable } from '../../rows/tables.js'
import { describeRefusal, openSink, type RowInput, runSteps } from '../../rows/write.js'
import type { FileWriter } from '../files/file-input.js'
import { planColumns } from '../session/session.js'
import { answerOnce, type IdempotentRequest, keepAnswer } from './idempotency.js'
import { fileWriter, loadContents, storeFiles } from './record-files.js'
import { sliceRecords } from './record-slices.js'
import type { RecordContext } from './records.js'

/** Faults that one answer lists at the most; the message says how many there are. */
export const FAULTS_LISTED_MAX = 1000

/** What is known of the records so far: the id of each, and the faults. */
interface Batch {
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
  const { body, idempotent } = request
  const table = session.table(context.tableName)
  if (context.columns !== undefined) planColumns(table, context.columns)
  return answerOnce(context, idempotent, async () => {
    const writable = await context.sessions.writable(session, table)
    try {
      return await runSteps(database, session.guard, async (transaction) => {
        const batch = await insertBody(context, writable, { transaction, body, limits })
        const answer = await writeAnswer(context, table, { transaction, ids: batch.ids })
        await keepAnswer(transaction, session, { ...idempotent, answer })
        return answer
      })
    } catch (error) {
      const refusal = describeRefusal(error, [table.codec])
      if (refusal === undefined) throw error
      throw confirmed(bulkFailed(await findConflicts(context, writable, { body, limits, refusal })))
    }
  })
}

async function insertBody(
  context: RecordContext,
  table: WritableTable,
  options: { transaction: OpenTransaction; body: Buffer; limits: Limits },
): Promise<Batch> {
  const { transaction, limits } = options
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const sink = openSink(table, transaction)
  let isOpen = true
  try {
    for (const records of sliceRecords(options.body, options.limits)) {
      if (batch.ids.length + records.length > limits.bulkRecordsMax) {
        throw new AppError(
          'invalid_request',
          `body: field [records]: must have at most ${limits.bulkRecordsMax} items; send more as application/x-ndjson`,
        )
      }
      const files = fileWriter(context, table)
      const rows = encodeSlice(table, records, batch, files)
      if (batch.faultCount === 0) {
        await storeFiles(context, files)
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
function encodeSlice(
  table: BranchTable,
  records: readonly unknown[],
  batch: Batch,
  files: FileWriter | undefined,
): RowInput[] {
  const now = new Date().toISOString()
  const rows: RowInput[] = []
  for (const record of records) {
    const row = encodeInput(table.codec, record, now, files)
    if (typeof row === 'string') {
      addFault(batch, batch.ids.length, row)
      batch.ids.push('')
    } else {
      rows.push(row)
      batch.ids.push(row.id)
    }
  }
  return rows
}

/** The row for a record, with an id, or what is wrong with the record. */
export function encodeInput(
  codec: TableCodec,
  record: unknown,
  now: string,
  files: FileWriter | undefined,
): RowInput | string {
  if (typeof record !== 'object' || record === null || Array.isArray(record)) {
    return 'invalid record: expected an object'
  }
  const given = (record as InputRecord).id
  const idFault = given === undefined ? undefined : codec.checkId(given)
  const pending = files?.pending.length
  const values = codec.encodeRecord(record as InputRecord, now, files?.encode)
  if (idFault === undefined && !isFaults(values)) {
    return { id: given === undefined ? newRecordId() : (given as string), values }
  }
  // Nothing of a refused record is kept.
  if (pending !== undefined) files?.pending.splice(pending)
  const faults = [...(idFault === undefined ? [] : [idFault]), ...(isFaults(values) ? values : [])]
  return `invalid record: ${faults.map((fault) => fault.message).join('; ')}`
}

function addFault(batch: Batch, index: number, message: string): void {
  batch.faultCount++
  if (batch.faults.length < FAULTS_LISTED_MAX) batch.faults.push({ index, status: 400, message })
}

async function writeAnswer(
  context: RecordContext,
  table: BranchTable,
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
  await loadContents(context, read, rows)
  const records = ids.flatMap((id) => {
    const row = byId.get(id)
    return row === undefined ? [] : [writeRecord(read.plan, row, context.session.metadata)]
  })
  return `{"records":[${records.join(',')}]}`
}

/** Which records have an id or a unique value that is taken, in the table or among themselves. */
async function findConflicts(
  context: RecordContext,
  table: WritableTable,
  options: { body: Buffer; limits: Limits; refusal: string },
): Promise<Pick<Batch, 'faults' | 'faultCount'>> {
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const rows: RowInput[] = []
  for (const records of sliceRecords(options.body, options.limits)) {
    const files = fileWriter(context, table)
    rows.push(...encodeSlice(table, records, batch, files))
    await yieldToOthers()
  }
  const messages = new Map<number, string[]>()
  const note = (index: number, path: string) => {
    messages.set(index, [...(messages.get(index) ?? []), `column [${path}]: is not unique`])
  }
  for (const index of await findTakenIds(context, table, rows)) note(index, 'id')
  for (const column of table.writer.uniqueColumns) {
    const path = table.codec.physical[column]?.path.join('.') ?? ''
    for (const index of await findTakenValues(context, table, { column, rows })) note(index, path)
  }
  for (const [index, list] of [...messages].sort(([left], [right]) => left - right)) {
    addFault(batch, index, `invalid record: ${list.join('; ')}`)
  }
  // Whoever was in the way may be gone by now.
  if (batch.faultCount === 0) addFault(batch, 0, `invalid record: ${options.refusal}`)
  return batch
}

/** The rows whose id is taken, by another record or by a row before. */
async function findTakenIds(
  context: RecordContext,
  table: BranchTable,
  rows: readonly RowInput[],
): Promise<number[]> {
  const read = planColumns(table, [])
  const [found = []] = await runReads(context.database, context.session.guard, [
    { statement: read.many, values: [arrayLiteral(rows.map((row) => row.id))] },
  ])
  const taken = new Set(found.map((row) => row[0]))
  return rows.flatMap(({ id }, index) => {
    const isTaken = taken.has(id)
    taken.add(id)
    return isTaken ? [index] : []
  })
}

/** The same for the values of a unique column; PostgreSQL knows which of them are equal. */
async function findTakenValues(
  { database, session }: RecordContext,
  { writer }: WritableTable,
  options: { column: number; rows: readonly RowInput[] },
): Promise<number[]> {
  const { column, rows } = options
  const values = rows.map((row) => row.values[column] ?? null)
  const [found = [], repeated = []] = await runReads(database, session.guard, [
    writer.findValues(column, values),
    writer.findRepeated(column, values),
  ])
  const taken = new Set(found.map((row) => row[0]))
  const repeatedAt = new Set(repeated.map((row) => Number(row[0])))
  return values.flatMap((value, index) =>
    value !== null && (taken.has(value) || repeatedAt.has(index)) ? [index] : [],
  )
}

function bulkFailed({ faults, faultCount }: Pick<Batch, 'faults' | 'faultCount'>): AppError {
  const count = faultCount === 1 ? '1 record is' : `${faultCount} records are`
  return new AppError('invalid_record', `${count} invalid; nothing was inserted`, {
    errors: faults,
  })
}
