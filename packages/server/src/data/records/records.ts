import { AppError } from '@offshoot/contract/errors'
import { newRecordId } from '../../common/ids.js'
import type { Database } from '../../postgres/database.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import { parseFiles, type StoredFile } from '../../rows/columns/file-value.js'
import type { EncodedUpdate } from '../../rows/columns/record-encoder.js'
import { isFaults } from '../../rows/columns/table-codec.js'
import { textOf, writeMetadata, writeRecord } from '../../rows/reading/read-plan.js'
import { guardValues } from '../../rows/running/guard.js'
import {
  runGuardedInsert,
  runGuardedRead,
  runGuardedWrite,
  runReads,
  runSteps,
  runWrites,
} from '../../rows/running/run.js'
import type { FileWriter } from '../files/file-input.js'
import {
  invalidRecord,
  notUnique,
  recordNotFound,
  toRecordError,
  versionConflict,
} from './failures.js'
import type { BranchSession, CompiledRead, Session, Sessions, SessionTable } from './session.js'
import {
  deleteCall,
  inheritedChecks,
  insertCall,
  insertOneCall,
  onlyRow,
  type RowInput,
  replaceCall,
  updateChecks,
  updateOneCall,
  type WrittenRows,
} from './write-plan.js'

/*
 * Operations on one record. Each is one transaction, and nearly always one round trip. Answers are
 * JSON text, because the values come from PostgreSQL as texts and need not become objects between.
 */

export interface RecordContext {
  readonly database: Database
  readonly sessions: Sessions
  readonly session: Session
  readonly tableName: string
  /** undefined: answer with id and metadata alone. */
  readonly columns: readonly string[] | undefined
}

export type InputRecord = Readonly<Record<string, unknown>>

const ALL_COLUMNS = ['*'] as const

/** The record, or a refusal that names it. */
export async function readRecord(context: RecordContext, id: string): Promise<string> {
  const { database, session, tableName } = context
  const table = session.table(tableName)
  const read = planColumns(table, context.columns ?? ALL_COLUMNS)
  requireId(table, id)
  const { guard } = session
  const call = { statement: read.guarded, values: [id, ...guardValues(guard)] }
  const row =
    (await runGuardedRead(database, guard, call)) ??
    onlyRow((await runReads(database, guard, [{ statement: read.one, values: [id] }]))[0])
  if (row === undefined) throw recordNotFound(tableName, id)
  await loadContents(session, read, [row])
  return writeRecord(read.plan, row, session.metadata)
}

/** A new record; its id is generated unless it brings one that is free. */
export async function createRecord(context: RecordContext, record: InputRecord): Promise<string> {
  const { session } = context
  const table = session.table(context.tableName)
  const given = record.id
  if (given !== undefined) requireId(table, given)
  const id = given === undefined ? newRecordId() : (given as string)
  const files = fileWriter(session, table)
  const values = encode(table, record, files)
  const statements = await context.sessions.writable(session, table)
  await storeFiles(session, files)
  const row = { id, values }
  // Only a given id can be one that the branch inherits.
  const isGuarded = given === undefined || !table.isInherited
  const { written, answer } = await write(context, table, {
    isNew: given === undefined && table.uniqueColumns.length === 0,
    call: isGuarded
      ? insertOneCall(session, statements, row)
      : insertCall(session, statements, writtenRows(table, row)),
    isGuarded,
    id,
    checks: inheritedChecks(table, statements, (column) => [values[column] ?? null]),
  })
  if (written === undefined) throw notUnique('id')
  return answer
}

/** Puts a whole record under an id. Says whether it is new. */
export async function replaceRecord(
  context: RecordContext,
  options: { id: string; record: InputRecord; createOnly: boolean; ifVersion: number | undefined },
): Promise<{ answer: string; created: boolean }> {
  const { id, record, createOnly, ifVersion } = options
  const { session, tableName } = context
  const table = session.table(tableName)
  requireId(table, id)
  const present = await findPresentFiles(context, table, { id, fields: record })
  const files = fileWriter(session, table, { present: present?.files })
  const values = encode(table, record, files)
  const statements = await context.sessions.writable(session, table)
  await storeFiles(session, files)
  const rows = writtenRows(table, { id, ifVersion, values })
  const { written, answer } = await write(context, table, {
    call: createOnly
      ? insertCall(session, statements, rows)
      : replaceCall(session, statements, rows),
    id,
    checks: inheritedChecks(table, statements, (column) => [values[column] ?? null]),
  })
  if (written === undefined) {
    if (!createOnly) throw versionConflict()
    throw new AppError('already_exists', `table [${tableName}]: record [${id}] already exists`)
  }
  return { answer, created: createOnly || written[4] !== 't' }
}

/** Changes the given fields of a record. */
export async function updateRecord(
  context: RecordContext,
  options: { id: string; fields: InputRecord; ifVersion: number | undefined },
): Promise<string> {
  const { id, fields } = options
  const { session } = context
  const table = session.table(context.tableName)
  requireId(table, id)
  return onPresentFiles(context, table, options, async (present) => {
    const files = fileWriter(session, table, { present: present?.files, merges: true })
    const update = encodeUpdate(table, fields, files)
    const statements = await context.sessions.writable(session, table)
    await storeFiles(session, files)
    const ifVersion = options.ifVersion ?? present?.version
    const { written, answer } = await write(context, table, {
      call: updateOneCall(session, statements, { id, ifVersion, update }),
      isGuarded: true,
      id,
      checks: updateChecks(table, statements, [{ id, update }]),
    })
    if (written === undefined) throw await explainNoUpdate(context, { id, ifVersion }, update)
    return answer
  })
}

/** Changes the given fields, or creates the record when there is none. */
export async function upsertRecord(
  context: RecordContext,
  options: { id: string; fields: InputRecord; ifVersion: number | undefined },
): Promise<{ answer: string; created: boolean }> {
  const { id, fields } = options
  const { session } = context
  const table = session.table(context.tableName)
  requireId(table, id)
  return onPresentFiles(context, table, options, async (present) => {
    const files = fileWriter(session, table, { present: present?.files, merges: true })
    const update = encodeUpdate(table, fields, files)
    const whole = table.codec.encodeRecord(fields, now(), files?.encode)
    const statements = await context.sessions.writable(session, table)
    await storeFiles(session, files)
    const insert = isFaults(whole)
      ? undefined
      : insertCall(session, statements, writtenRows(table, { id, values: whole }))
    const ifVersion = options.ifVersion ?? present?.version
    const { written, alternative, answer } = await write(context, table, {
      call: updateOneCall(session, statements, { id, ifVersion, update }),
      // Finds the id taken when the update has found it, and then does nothing.
      otherwise: insert,
      id,
      checks: updateChecks(table, statements, [{ id, update }]),
    })
    if (written !== undefined) return { answer, created: false }
    if (alternative !== undefined) return { answer, created: true }
    const fault = await explainNoUpdate(context, { id, ifVersion }, update)
    throw fault.code === 'record_not_found' && isFaults(whole) ? invalidRecord(whole) : fault
  })
}

/** One row whose metadata goes into the answer. */
function writtenRows({ codec }: SessionTable, row: RowInput): WrittenRows {
  return { codec, rows: [row], returned: 'metadata' }
}

/** Deletes a record. Answers with it when columns were asked for. */
export async function deleteRecord(
  context: RecordContext,
  id: string,
): Promise<string | undefined> {
  const { database, session, tableName, columns } = context
  const table = session.table(tableName)
  requireId(table, id)
  const read = columns === undefined ? undefined : planColumns(table, columns)
  const statements = await context.sessions.writable(session, table)
  const calls: Call[] = [deleteCall(session, statements, [id])]
  if (read !== undefined) calls.unshift({ statement: read.one, values: [id] })
  const rows = await runWrites(database, session.guard, calls)
  if (onlyRow(rows.at(-1)) === undefined) throw recordNotFound(tableName, id)
  const row = onlyRow(rows[0])
  if (read === undefined || row === undefined) return undefined
  await loadContents(session, read, [row])
  return writeRecord(read.plan, row, session.metadata)
}

/** A record's files as they are, and the version of the record that has them. */
interface PresentFiles {
  readonly version: number
  readonly files: ReadonlyMap<number, readonly StoredFile[]>
}

/** No record has this version: an update that expects it only ever creates. */
const NO_VERSION = Number.MAX_SAFE_INTEGER
const FILE_ATTEMPTS_MAX = 20

/**
 * Runs a write that builds on the files a record has, again when they have changed in between.
 * Writes that touch no file run once, with nothing looked up.
 */
async function onPresentFiles<Result>(
  context: RecordContext,
  table: SessionTable,
  options: { id: string; fields: InputRecord; ifVersion: number | undefined },
  run: (present: PresentFiles | undefined) => Promise<Result>,
): Promise<Result> {
  for (let attempt = 1; ; attempt++) {
    const present = await findPresentFiles(context, table, options)
    try {
      return await run(present)
    } catch (error) {
      const isOutrun =
        present !== undefined &&
        options.ifVersion === undefined &&
        error instanceof AppError &&
        error.code === 'version_conflict'
      if (!isOutrun) throw error
      if (attempt === FILE_ATTEMPTS_MAX) {
        throw new AppError('retry_limit', 'the record kept changing; nothing was applied')
      }
    }
  }
}

/** undefined when the fields hold no file. */
async function findPresentFiles(
  { database, session }: RecordContext,
  table: SessionTable,
  { id, fields }: { id: string; fields: InputRecord },
): Promise<PresentFiles | undefined> {
  const { fileColumns } = table.codec
  const touched = fileColumns.filter(({ column }) => fields[column.path[0] ?? ''] != null)
  if (touched.length === 0) return undefined
  const read = planColumns(
    table,
    touched.map(({ column }) => column.path.join('.')),
  )
  const [rows] = await runReads(database, session.guard, [{ statement: read.one, values: [id] }])
  const row = onlyRow(rows)
  if (row === undefined) return { version: NO_VERSION, files: new Map() }
  const files = touched.map(
    ({ index, column }) => [column.id, parseFiles(textOf(read.plan, row, index))] as const,
  )
  return { version: Number(row[1]), files: new Map(files) }
}

/** undefined for tables without files, which pay nothing for them. */
export function fileWriter(
  session: Session,
  table: SessionTable,
  options: { present?: PresentFiles['files'] | undefined; merges?: boolean } = {},
): FileWriter | undefined {
  if (table.codec.fileColumns.length === 0) return undefined
  const { present, merges = false } = options
  const isDialect = session.metadata.key === 'xata'
  return session.files.writer({ merges, isDialect, ...(present === undefined ? {} : { present }) })
}

/** Content is durable before the row that mentions it. */
export async function storeFiles(session: Session, files: FileWriter | undefined): Promise<void> {
  if (files !== undefined) await session.files.store(files.pending)
}

/** To be called before rows are written as JSON, because contents are not in them. */
export async function loadContents(
  { files, metadata }: BranchSession,
  { hasContents, plan }: CompiledRead,
  rows: TextRows,
): Promise<void> {
  if (hasContents) await files.loadContents(metadata, plan, rows)
}

interface Written {
  readonly written: readonly (string | null)[] | undefined
  readonly alternative: readonly (string | null)[] | undefined
  readonly answer: string
}

/** Runs a write of one record and makes its answer. */
async function write(
  context: RecordContext,
  table: SessionTable,
  options: {
    call: Call
    /** The call has the guard built in. */
    isGuarded?: boolean
    /** The call inserts a row that no other can be in the way of. */
    isNew?: boolean
    otherwise?: Call | undefined
    id: string
    checks: readonly { column: number; call: Call }[]
  },
): Promise<Written> {
  const { database, session, columns } = context
  const { checks, otherwise } = options
  const read = columns === undefined ? undefined : planColumns(table, columns)
  const calls = [options.call]
  if (otherwise !== undefined) calls.push(otherwise)
  const writes = calls.length
  if (read !== undefined) calls.push({ statement: read.one, values: [options.id] })
  try {
    if (options.isGuarded && calls.length === 1 && checks.length === 0) {
      const run = options.isNew ? runGuardedInsert : runGuardedWrite
      const row = await run(database, session.guard, options.call)
      if (row !== undefined) {
        const answer = await writeAnswer(session, read, row)
        return { written: row, alternative: undefined, answer }
      }
    }
    const rows =
      checks.length === 0
        ? await runWrites(database, session.guard, calls)
        : await runChecked(context, table, { calls, writes, checks })
    const written = onlyRow(rows[0])
    const alternative = otherwise === undefined ? undefined : onlyRow(rows[1])
    const row = read === undefined ? (written ?? alternative) : onlyRow(rows[calls.length - 1])
    return { written, alternative, answer: await writeAnswer(session, read, row) }
  } catch (error) {
    throw toRecordError(error, table.codec)
  }
}

async function writeAnswer(
  session: Session,
  read: CompiledRead | undefined,
  row: readonly (string | null)[] | undefined,
): Promise<string> {
  if (row === undefined) return ''
  if (read !== undefined) {
    await loadContents(session, read, [row])
    return writeRecord(read.plan, row, session.metadata)
  }
  return `{"id":"${row[0]}",${writeMetadata(row, 0, session.metadata)}}`
}

/** A write that is only known to be allowed after it was made. One that was not made is not asked. */
function runChecked(
  { database, session }: RecordContext,
  table: SessionTable,
  options: {
    calls: readonly Call[]
    /** How many of the calls write; the rest reads. */
    writes: number
    checks: readonly { column: number; call: Call }[]
  },
): Promise<TextRows[]> {
  const { calls, checks } = options
  return runSteps(
    database,
    session.guard,
    async (_transaction, rows) => {
      const isMade = rows.slice(0, options.writes).some((written) => written.length > 0)
      for (const [index, { column }] of checks.entries()) {
        if (isMade && onlyRow(rows[calls.length + index]) !== undefined) {
          throw notUnique(table.codec.physical[column]?.path.join('.') ?? '')
        }
      }
      return rows.slice(0, calls.length)
    },
    { first: [...calls, ...checks.map((check) => check.call)] },
  )
}

/** Why an update changed nothing. */
async function explainNoUpdate(
  context: RecordContext,
  options: { id: string; ifVersion: number | undefined },
  { arithmetic }: EncodedUpdate,
): Promise<AppError> {
  const { database, session, tableName } = context
  // A record that is there by now was not when the update looked for it.
  if (options.ifVersion === undefined && arithmetic.length === 0) {
    return recordNotFound(tableName, options.id)
  }
  const read = planColumns(session.table(tableName), [])
  const call = { statement: read.one, values: [options.id] }
  const [rows] = await runReads(database, session.guard, [call])
  const row = onlyRow(rows)
  if (row === undefined) return recordNotFound(tableName, options.id)
  if (options.ifVersion !== undefined && row[1] !== String(options.ifVersion)) {
    return versionConflict()
  }
  return new AppError(
    'invalid_record',
    'invalid record: the arithmetic has no result that can be stored exactly',
  )
}

export function planColumns(table: SessionTable, columns: readonly string[]): CompiledRead {
  const read = table.readPlan(columns)
  if (!('plan' in read))
    throw invalidColumns(
      table,
      read.map((fault) => fault.message),
    )
  return read
}

function invalidColumns(table: SessionTable, faults: readonly string[]): AppError {
  return new AppError(
    'invalid_request',
    faults.map((fault) => `table [${table.codec.table.name}]: ${fault}`).join('; '),
  )
}

function requireId(table: SessionTable, id: unknown): void {
  const fault = table.codec.checkId(id)
  if (fault !== undefined) throw invalidRecord([fault])
}

function encode(
  table: SessionTable,
  record: InputRecord,
  files: FileWriter | undefined,
): (string | null)[] {
  const values = table.codec.encodeRecord(record, now(), files?.encode)
  if (isFaults(values)) throw invalidRecord(values)
  return values
}

function encodeUpdate(
  table: SessionTable,
  fields: InputRecord,
  files: FileWriter | undefined,
): EncodedUpdate {
  const update = table.codec.encodeUpdate(fields, files?.encode)
  if (isFaults(update)) throw invalidRecord(update)
  return update
}

function now(): string {
  return new Date().toISOString()
}
