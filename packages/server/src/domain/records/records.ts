import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import type { EncodedUpdate } from '../../rows/columns/record-encoder.js'
import { isFaults } from '../../rows/columns/table-codec.js'
import { guardValues } from '../../rows/guard.js'
import { writeMetadata, writeRecord } from '../../rows/read-plan.js'
import { runGuardedRead, runGuardedWrite, runReads, runSteps, runWrites } from '../../rows/run.js'
import { newRecordId } from '../ids.js'
import {
  invalidRecord,
  notUnique,
  recordNotFound,
  toRecordError,
  versionConflict,
} from './failures.js'
import type { CompiledRead, Session, Sessions, SessionTable } from './session.js'
import {
  deleteCall,
  inheritedChecks,
  insertCall,
  insertOneCall,
  onlyRow,
  replaceCall,
  updateChecks,
  updateOneCall,
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
  return writeRecord(read.plan, row, session.metadata)
}

/** A new record; its id is generated unless it brings one that is free. */
export async function createRecord(context: RecordContext, record: InputRecord): Promise<string> {
  const { session } = context
  const table = session.table(context.tableName)
  const given = record.id
  if (given !== undefined) requireId(table, given)
  const id = given === undefined ? newRecordId() : (given as string)
  const values = encode(table, record)
  const statements = await context.sessions.writable(session, table)
  const row = { id, values }
  // Only a given id can be one that the branch inherits.
  const isGuarded = given === undefined || !table.isInherited
  const { written, answer } = await write(context, table, {
    call: isGuarded
      ? insertOneCall(session, statements, row)
      : insertCall(session, statements, [row], table.codec),
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
  const values = encode(table, record)
  const statements = await context.sessions.writable(session, table)
  const rows = [{ id, ifVersion, values }]
  const { written, answer } = await write(context, table, {
    call: createOnly
      ? insertCall(session, statements, rows, table.codec)
      : replaceCall(session, statements, rows, table.codec),
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
  const { id, ifVersion } = options
  const { session } = context
  const table = session.table(context.tableName)
  requireId(table, id)
  const update = encodeUpdate(table, options.fields)
  const statements = await context.sessions.writable(session, table)
  const { written, answer } = await write(context, table, {
    call: updateOneCall(session, statements, { id, ifVersion, update }),
    isGuarded: true,
    id,
    checks: updateChecks(table, statements, [{ id, update }]),
  })
  if (written === undefined) throw await explainNoUpdate(context, options, update)
  return answer
}

/** Changes the given fields, or creates the record when there is none. */
export async function upsertRecord(
  context: RecordContext,
  options: { id: string; fields: InputRecord; ifVersion: number | undefined },
): Promise<{ answer: string; created: boolean }> {
  const { id, fields, ifVersion } = options
  const { session } = context
  const table = session.table(context.tableName)
  requireId(table, id)
  const update = encodeUpdate(table, fields)
  const whole = table.codec.encodeRecord(fields, now())
  const statements = await context.sessions.writable(session, table)
  const insert = isFaults(whole)
    ? undefined
    : insertCall(session, statements, [{ id, values: whole }], table.codec)
  const { written, alternative, answer } = await write(context, table, {
    call: updateOneCall(session, statements, { id, ifVersion, update }),
    // Finds the id taken when the update has found it, and then does nothing.
    otherwise: insert,
    id,
    checks: updateChecks(table, statements, [{ id, update }]),
  })
  if (written !== undefined) return { answer, created: false }
  if (alternative !== undefined) return { answer, created: true }
  const fault = await explainNoUpdate(context, options, update)
  throw fault.code === 'record_not_found' && isFaults(whole) ? invalidRecord(whole) : fault
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
  return read === undefined || row === undefined
    ? undefined
    : writeRecord(read.plan, row, session.metadata)
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
      const row = await runGuardedWrite(database, session.guard, options.call)
      if (row !== undefined) {
        return { written: row, alternative: undefined, answer: writeAnswer(session, read, row) }
      }
    }
    const rows =
      checks.length === 0
        ? await runWrites(database, session.guard, calls)
        : await runChecked(context, table, { calls, writes, checks })
    const written = onlyRow(rows[0])
    const alternative = otherwise === undefined ? undefined : onlyRow(rows[1])
    const row = read === undefined ? (written ?? alternative) : onlyRow(rows[calls.length - 1])
    return { written, alternative, answer: writeAnswer(session, read, row) }
  } catch (error) {
    throw toRecordError(error, table.codec)
  }
}

function writeAnswer(
  session: Session,
  read: CompiledRead | undefined,
  row: readonly (string | null)[] | undefined,
): string {
  if (row === undefined) return ''
  if (read !== undefined) return writeRecord(read.plan, row, session.metadata)
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

function encode(table: SessionTable, record: InputRecord): (string | null)[] {
  const values = table.codec.encodeRecord(record, now())
  if (isFaults(values)) throw invalidRecord(values)
  return values
}

function encodeUpdate(table: SessionTable, fields: InputRecord): EncodedUpdate {
  const update = table.codec.encodeUpdate(fields)
  if (isFaults(update)) throw invalidRecord(update)
  return update
}

function now(): string {
  return new Date().toISOString()
}
