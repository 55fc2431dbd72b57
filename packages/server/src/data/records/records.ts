import { AppError } from '@offshoot/contract/errors'
import { codeOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import type { Call, TextRow, TextRows } from '../../postgres/statement.js'
import { Fault } from '../../rows/columns/fault.js'
import type { EncodedUpdate, InputRecord } from '../../rows/columns/record-encoder.js'
import { isFaults } from '../../rows/columns/table-codec.js'
import type { BranchTable } from '../../rows/open-branch.js'
import { TableRead } from '../../rows/reading/table-read.js'
import { confirmed } from '../../rows/running/staleness.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import type { RuleCheck, TableWriter } from '../../rows/writing/table-writer.js'
import type { FileWriter } from '../files/file-input.js'
import type { Files } from '../files/files.js'
import {
  columnTaken,
  impossibleRecord,
  invalidRecord,
  invalidValue,
  recordNotFound,
  ruleBroken,
  toRecordError,
  versionConflict,
} from '../session/record-errors.js'
import { originOf, planColumns } from '../session/session.js'
import { calculatedPaths } from './calculated-paths.js'
import { amongRows, type FindFailing, findUnevaluated } from './failing-records.js'
import {
  answerOnce,
  type IdempotencyContext,
  keepAnswer,
  type RepeatOptions,
} from './idempotency.js'
import { newIds } from './new-ids.js'
import { followUpdates, originOfRecords } from './new-numbers.js'
import {
  FilesChangedError,
  fileWriter,
  findPresentFiles,
  loadContents,
  onPresentFiles,
  type PresentFiles,
  storeFiles,
} from './record-files.js'

/*
 * Operations on one record. Each is one transaction, and nearly always one round trip. Responses are JSON text:
 * values come from PostgreSQL as texts and are never parsed to objects.
 */

export interface RecordContext extends IdempotencyContext {
  readonly files: Files
  readonly tableName: string
  /** undefined: the response has only id and metadata. */
  readonly columns: readonly string[] | undefined
}

const ALL_COLUMNS = ['*'] as const

/** Reads a record. */
export async function readRecord(context: RecordContext, given: string): Promise<string> {
  const { session, tableName } = context
  const table = session.table(tableName)
  const read = planColumns(table, context.columns ?? ALL_COLUMNS)
  const id = findId(table, given)
  const row = await session.branch.runSharedRead({ statement: read.one, values: [id] })
  if (row === undefined) throw confirmed(recordNotFound(tableName, id))
  await loadContents(context, read, [row])
  return read.writeRecord(row, session.metadata)
}

/** Creates a record. Its id is generated unless the record has one. */
export async function createRecord(context: RecordContext, record: InputRecord): Promise<string> {
  const idOf = (answer: string) => (JSON.parse(answer) as { id: string }).id
  return answerOnce(context, () => insertRecord(context, record), repeatCreating(context, idOf))
}

/** How a write is repeated whose answer says that a record exists. */
function repeatCreating(
  { session, tableName }: RecordContext,
  idOf: (answer: string) => string,
): RepeatOptions {
  const createdIn = (answer: string) => [{ table: session.table(tableName), ids: [idOf(answer)] }]
  return { createdIn, isShort: true }
}

/** Precedes an answer, as it is kept for an idempotency key, that tells of a new record. JSON cannot begin with it. */
const CREATED = '+'

/** An answer, and whether the record is new. */
interface WriteOutcome {
  readonly answer: string
  readonly created: boolean
}

function toOutcome(text: string): WriteOutcome {
  const created = text.startsWith(CREATED)
  return { answer: created ? text.slice(CREATED.length) : text, created }
}

async function insertRecord(context: RecordContext, record: InputRecord): Promise<string> {
  const { session } = context
  const table = session.table(context.tableName)
  const given = record.id === undefined ? undefined : requireId(table, record.id)
  const newId = await newIds(session, table, [record])
  const id = given ?? newId()
  const files = await fileWriter(context, table, [record])
  const values = await encode(context, table, record, { files })
  const writer = await prepareWrite(context, table, files)
  const row = { id, isNewId: given === undefined, values }
  const { written, answer } = await write(context, table, {
    isNewId: given === undefined,
    call: writer.insertOne(row),
    id,
    checks: writer.checkRows([row]),
    findFailing: amongRows([row]),
  })
  if (written === undefined) throw confirmed(ruleBroken(columnTaken(table.codec), id))
  return answer
}

interface Replacement {
  readonly id: string
  readonly record: InputRecord
  readonly createOnly: boolean
  readonly ifVersion: number | undefined
}

/** Inserts or replaces a whole record. */
export async function replaceRecord(
  context: RecordContext,
  options: Replacement,
): Promise<WriteOutcome> {
  const execute = () => replace(context, options)
  return toOutcome(
    await answerOnce(
      context,
      execute,
      repeatCreating(context, () => options.id),
    ),
  )
}

async function replace(context: RecordContext, options: Replacement): Promise<string> {
  const { record, createOnly, ifVersion } = options
  const { session, tableName } = context
  const table = session.table(tableName)
  const id = requireId(table, options.id)
  await newIds(session, table, [options])
  const present = await findPresentFiles(context, table, { id, fields: record })
  const files = await fileWriter(context, table, [record], { present: present?.files })
  const values = await encode(context, table, record, { files, id })
  const writer = await prepareWrite(context, table, files)
  const row = { id, ifVersion, values }
  const { written, answer } = await write(context, table, {
    call: createOnly ? writer.insertOne(row) : writer.replaceOne(row),
    id,
    checks: writer.checkRows([row]),
    findFailing: amongRows([row]),
    isCreated: (written) => createOnly || written?.[4] !== 't',
  })
  if (written === undefined) {
    throw confirmed(
      createOnly
        ? new AppError('already_exists', `table [${tableName}]: record [${id}] already exists`)
        : versionConflict(),
    )
  }
  return answer
}

interface FieldsUpdate {
  readonly id: string
  readonly fields: InputRecord
  readonly ifVersion: number | undefined
  readonly upserts: boolean
}

/** Changes the given fields of a record. With `upserts`, creates the record if it does not exist. */
export async function updateRecord(
  context: RecordContext,
  options: FieldsUpdate,
): Promise<WriteOutcome> {
  const repeat = options.upserts ? repeatCreating(context, () => options.id) : { isShort: true }
  return toOutcome(await answerOnce(context, () => update(context, options), repeat))
}

async function update(context: RecordContext, options: FieldsUpdate): Promise<string> {
  const { fields, ifVersion, upserts } = options
  const { session } = context
  const table = session.table(context.tableName)
  const id = requireId(table, options.id)
  if (upserts) await newIds(session, table, [options])
  const origin = upserts
    ? await originOfRecords(session, { table, records: [fields] })
    : originOf(session)
  return onPresentFiles(context, table, { ...options, id }, async (present) => {
    const files = await fileWriter(context, table, [fields], {
      present: present?.files,
      merges: true,
    })
    const update = encodeUpdate(context, table, fields, { files, id })
    if (!upserts) await followUpdates(session, { table, updates: [update] })
    const whole = upserts ? table.codec.encodeRecord(fields, origin, files?.encode) : undefined
    const creates = whole !== undefined && !isFaults(whole)
    const writer = await prepareWrite(context, table, files)
    const { written, alternative, answer } = await write(context, table, {
      call: writer.updateOne({ id, ifVersion, update }),
      // If the update has found the record, its id is taken and the insert has no effect.
      otherwise: creates ? writer.insertOne({ id, values: whole }) : undefined,
      id,
      present,
      checks: writer.checkUpdates([{ id, update }]),
      findFailing: async (by, tryCall) =>
        (await by.findFailingUpdate(tryCall, { id, update })) ??
        (creates ? amongRows([{ id, values: whole }])(by, tryCall) : undefined),
      isCreated: (written) => written === undefined,
    })
    if (written !== undefined || alternative !== undefined) return answer
    const error = await explainNoUpdate(context, { id, ifVersion }, update)
    const isInvalid = error.code === 'record_not_found' && whole !== undefined && isFaults(whole)
    throw confirmed(isInvalid ? invalidRecord(table.codec, whole, id) : error)
  })
}

/** Deletes a record. Returns it if columns are requested, and an empty text otherwise. */
export async function deleteRecord(context: RecordContext, id: string): Promise<string> {
  return answerOnce(context, () => remove(context, id), { isShort: true })
}

async function remove(context: RecordContext, given: string): Promise<string> {
  const { session, tableName, columns } = context
  const table = session.table(tableName)
  const id = findId(table, given)
  const read = columns === undefined ? undefined : planColumns(table, columns)
  const { writer } = await session.branch.writable(table)
  const calls: Call[] = [writer.delete([id])]
  if (read !== undefined) calls.unshift({ statement: read.one, values: [id] })
  const describe = async (rows: readonly TextRows[]): Promise<string> => {
    if (rows.at(-1)?.[0] === undefined) throw confirmed(recordNotFound(tableName, id))
    const row = rows[0]?.[0]
    if (read === undefined || row === undefined) return ''
    await loadContents(context, read, [row])
    return read.writeRecord(row, session.metadata)
  }
  if (context.idempotent === undefined) {
    return describe(await session.branch.runWrites(calls))
  }
  const finish = async (transaction: OpenTransaction, rows: readonly TextRows[]) => {
    const answer = await describe(rows)
    await keepAnswer(transaction, context, answer)
    return answer
  }
  return session.branch.runSteps(finish, { first: calls })
}

/** Before a record is written: there is room for it, a heap, and its files are in place. */
async function prepareWrite(
  context: RecordContext,
  table: BranchTable,
  files: FileWriter | undefined,
): Promise<TableWriter> {
  const { session } = context
  await session.growth.admitBody()
  const { writer } = await session.branch.writable(table)
  await storeFiles(context, files)
  return writer
}

interface Written {
  readonly written: TextRow | undefined
  /** The row that `otherwise` returned. */
  readonly alternative: TextRow | undefined
  readonly answer: string
}

/** Runs a write of one record and creates its response. */
async function write(
  context: RecordContext,
  table: BranchTable,
  options: {
    call: Call
    /** The call inserts a row whose id was generated for it. */
    isNewId?: boolean
    otherwise?: Call | undefined
    id: string
    /** The files that the write depends on. */
    present?: PresentFiles | undefined
    checks: readonly RuleCheck[]
    findFailing: FindFailing
    /** Whether the row of a write that has taken effect is new. Such an answer is marked. */
    isCreated?(written: TextRow | undefined): boolean
  },
): Promise<Written> {
  const { session, columns } = context
  const { checks, otherwise, present, isNewId = false } = options
  const read = columns === undefined ? undefined : planColumns(table, columns)
  const calls = [options.call]
  if (otherwise !== undefined) calls.push(otherwise)
  const writes = calls.length
  if (read !== undefined) calls.push({ statement: read.one, values: [options.id] })
  const isPlain = checks.length === 0 && context.idempotent === undefined && present === undefined
  const describe = async (rows: readonly TextRows[]): Promise<Written> => {
    const written = rows[0]?.[0]
    const alternative = otherwise === undefined ? undefined : rows[1]?.[0]
    const row = read === undefined ? (written ?? alternative) : rows[calls.length - 1]?.[0]
    const mark = options.isCreated?.(written) ? CREATED : ''
    return { written, alternative, answer: mark + (await writeAnswer(context, read, row)) }
  }
  const run = async (): Promise<Written> => {
    if (isPlain) return describe(await session.branch.runWrites(calls))
    return runChecked(context, {
      id: options.id,
      calls,
      writes,
      checks,
      present,
      finish: async (transaction, rows) => {
        const made = await describe(rows)
        if (made.written !== undefined || made.alternative !== undefined) {
          await keepAnswer(transaction, context, made.answer)
        }
        return made
      },
    })
  }
  try {
    const cannotConflict = isNewId && table.codec.uniqueKeys.length === 0
    if (cannotConflict && calls.length === 1 && isPlain) {
      const written = await session.branch.runSharedInsert(options.call)
      const answer = await writeAnswer(context, read, written)
      return { written, alternative: undefined, answer }
    }
    return await run().catch((error: unknown) => {
      // The value may be taken by this very record. If two writes insert the same id at the same time, PostgreSQL can
      // report the unique value of the second, although `on conflict` would have handled its id.
      if (codeOf(error) === UNIQUE_VIOLATION && !isNewId) return run()
      throw error
    })
  } catch (error) {
    const { findFailing: find } = options
    const found = await findUnevaluated(session, table, { error, find })
    if (found !== undefined) throw confirmed(ruleBroken(found.violation, options.id))
    throw toRecordError(error, table.codec, options.id)
  }
}

async function writeAnswer(
  context: RecordContext,
  read: TableRead | undefined,
  row: TextRow | undefined,
): Promise<string> {
  const { session } = context
  if (row === undefined) return ''
  if (read !== undefined) {
    await loadContents(context, read, [row])
    return read.writeRecord(row, session.metadata)
  }
  return `{"id":"${row[0]}",${TableRead.writeMetadata(row, session.metadata)}}`
}

/**
 * Runs a write that has more steps in its transaction: the files that it depends on are compared, unique values are
 * checked afterwards, unless it wrote nothing, and `finish` runs before the commit.
 */
function runChecked<Result>(
  { session }: RecordContext,
  options: {
    id: string
    calls: readonly Call[]
    /** The number of calls that write. The others read. */
    writes: number
    checks: readonly RuleCheck[]
    present: PresentFiles | undefined
    finish(transaction: OpenTransaction, rows: readonly TextRows[]): Promise<Result>
  },
): Promise<Result> {
  const { calls, checks, present } = options
  const before = present === undefined ? [] : [present.readAgain]
  return session.branch.runSteps(
    async (transaction, found) => {
      if (present?.isSame(found[0] ?? []) === false) throw new FilesChangedError()
      const rows = found.slice(before.length)
      const isMade = rows.slice(0, options.writes).some((written) => written.length > 0)
      for (const [index, { violation }] of checks.entries()) {
        if (isMade && rows[calls.length + index]?.[0] !== undefined) {
          throw ruleBroken(violation, options.id)
        }
      }
      return options.finish(transaction, rows.slice(0, calls.length))
    },
    { first: [...before, ...calls, ...checks.map((check) => check.call)] },
  )
}

/** Returns the error that explains why an update had no effect. */
async function explainNoUpdate(
  context: RecordContext,
  options: { id: string; ifVersion: number | undefined },
  update: EncodedUpdate,
): Promise<AppError> {
  const { session, tableName } = context
  // If the record exists now, it was created after the update.
  if (options.ifVersion === undefined && update.arithmetic.length === 0) {
    return recordNotFound(tableName, options.id)
  }
  const table = session.table(tableName)
  const read = planColumns(table, calculatedPaths(table.codec, update))
  const call = { statement: read.one, values: [options.id] }
  const [rows] = await session.branch.runReads([call])
  const row = rows?.[0]
  if (row === undefined) return recordNotFound(tableName, options.id)
  const { ifVersion } = options
  if (ifVersion !== undefined && Number(row[1]) !== ifVersion) {
    return versionConflict()
  }
  const fault = table.codec.arithmeticFault(update, (column) => read.textOf(row, column))
  return invalidValue(table.codec, `invalid record: ${fault.message}`, {
    column: fault.column,
    record: options.id,
  })
}

/** Returns the id of a record to read or delete, as it is stored. No record has an id that the table cannot have. */
export function findId({ codec }: BranchTable, given: string): string {
  const text = codec.encodeId(given)
  if (text instanceof Fault) throw impossibleRecord(codec, given, text)
  return text
}

/** Returns the id of a record to write, as it is stored. */
function requireId(table: BranchTable, id: unknown): string {
  const text = table.codec.encodeId(id)
  if (text instanceof Fault) throw invalidRecord(table.codec, [text])
  return text
}

async function encode(
  { session }: RecordContext,
  table: BranchTable,
  record: InputRecord,
  { files, id }: { files: FileWriter | undefined; id?: string },
): Promise<(string | null)[]> {
  const origin = await originOfRecords(session, { table, records: [record] })
  const values = table.codec.encodeRecord(record, origin, files?.encode)
  if (isFaults(values)) throw invalidRecord(table.codec, values, id)
  return values
}

function encodeUpdate(
  { session }: RecordContext,
  table: BranchTable,
  fields: InputRecord,
  { files, id }: { files: FileWriter | undefined; id: string },
): EncodedUpdate {
  const update = table.codec.encodeUpdate(fields, originOf(session), files?.encode)
  if (isFaults(update)) throw invalidRecord(table.codec, update, id)
  return update
}
