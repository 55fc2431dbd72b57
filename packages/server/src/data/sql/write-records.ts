import { AppError } from '@offshoot/contract/errors'
import { inTurns, mapInTurns } from '../../common/in-turns.js'
import { invalidSql, tooCostly } from '../../dialect/invalid-sql.js'
import { arrayLiteral } from '../../postgres/carriers.js'
import { serverOf } from '../../postgres/server.js'
import { ident, integer, type Sql, sql } from '../../postgres/sql.js'
import {
  type Call,
  compileSharing,
  type Parameter,
  type TextRow,
  toCall,
} from '../../postgres/statement.js'
import { Fault } from '../../rows/columns/fault.js'
import { isFaults, type TableCodec } from '../../rows/columns/table-codec.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { Refusal } from '../../rows/writing/refusals.js'
import { type NewId, newIds } from '../records/new-ids.js'
import { originOfRecords } from '../records/new-numbers.js'
import { type GroupFault, prepareGroup } from '../records/run-operations.js'
import type { TransactionContext } from '../records/transaction.js'
import {
  followOperations,
  groupOperations,
  type PlannedOperation,
} from '../records/transaction-plan.js'
import {
  findViolationFields,
  missingFields,
  naming,
  type ViolationFields,
  violationError,
} from '../session/record-errors.js'
import { type Origin, originOf } from '../session/session.js'
import { newRecord, putValue, type WrittenColumn, type WrittenKey } from './branch-tables.js'
import { type Evaluated, type Evaluator, SentQuery } from './evaluate.js'
import {
  type ConflictPlan,
  defaultKey,
  type SinglePlan,
  type StatementPlan,
  singlePlans,
} from './statement-plan.js'
import { TakenError, type TakingOperations, UnevaluatedError } from './taken-error.js'

/*
 * Statements of users never write directly. Their values are read as JSON and then written by the operations of
 * a transaction, so that all rules of transactions apply.
 */

type WritePlan = Exclude<SinglePlan, { kind: 'select' }>

export interface Write {
  readonly transaction: OpenTransaction
  readonly evaluator: Evaluator
  readonly plan: WritePlan
  readonly table: BranchTable
  readonly parameters: readonly Parameter[]
  /** Whether a cursor of the statement is open, which keeps what it has collected. */
  readonly countsOn?: boolean
  /** Called with the ids of records that are written. */
  readonly onWritten?: ((ids: readonly string[]) => void) | undefined
}

/** JSON values from a statement. */
type Row = readonly unknown[]

/** Returns whether a statement can increase the stored data. */
export function grows(plan: StatementPlan): boolean {
  if (plan.kind === 'with') return singlePlans(plan).some(grows)
  return plan.kind === 'insert' || plan.kind === 'update'
}

/** Writes the records of a statement. `read` reads the result of RETURNING by the ids of records. */
export async function writeRecords(
  context: TransactionContext,
  write: Write,
  read: (ids: string) => Promise<Evaluated> | undefined,
): Promise<{ total: number; found: Evaluated | undefined }> {
  const isAtOnce = !canBeParted(write)
  const rowsMax = isAtOnce ? context.limits.sqlRowsMax : PART_RECORDS
  const rows = await readRows(context, write, rowsMax)
  if (rows === undefined && isAtOnce) throw tooManyRecords(rowsMax)
  if (rows === undefined) return { total: await writeParts(context, write), found: undefined }
  const operations = await settleConflicts(context, write, await planRows(context, write, rows))
  const ids = idsOf(operations)
  // Deleted records must be read before the write.
  const before = write.plan.kind === 'delete' ? await read(ids) : undefined
  await runOperations(context, write, operations)
  write.onWritten?.(operations.map(({ id }) => id))
  const found = write.plan.kind === 'delete' ? before : await read(ids)
  return { total: operations.length, found }
}

/** Returns the ids of written records, as an array of PostgreSQL. */
export const idsOf = (operations: readonly PlannedOperation[]): string =>
  arrayLiteral(operations.map(({ id }) => id))

/** Reads what a statement writes. */
export async function planOperations(
  context: TransactionContext,
  write: Write,
): Promise<readonly PlannedOperation[]> {
  const rowsMax = context.limits.sqlRowsMax
  const rows = await readRows(context, write, rowsMax)
  if (rows === undefined) throw tooManyRecords(rowsMax)
  return settleConflicts(context, write, await planRows(context, write, rows))
}

const tooManyRecords = (rowsMax: number): AppError =>
  invalidSql(
    `a statement with RETURNING, ON CONFLICT DO UPDATE or a WITH that writes can write at most ${rowsMax} records`,
  )

/**
 * Returns whether a statement can be written in parts: nothing has to be known of all its records together. A cursor keeps
 * what the statement has seen at first.
 */
function canBeParted({ plan, transaction }: Write): boolean {
  const isChange = plan.kind === 'insert' && plan.conflict?.update !== undefined
  return plan.returning === undefined && !isChange && serverOf(transaction.client).wrapsQueries
}

/** Writes the records of a statement in parts, of which only one is in memory. Returns their number. */
async function writeParts(context: TransactionContext, write: Write): Promise<number> {
  const { evaluator, parameters, plan } = write
  const query = rowsOf(plan)
  if (query === undefined) throw new Error('a statement with many records must have a query')
  const statement = compileSharing(sql`declare ${CURSOR} no scroll cursor for ${query}`)
  await evaluator.run([{ statement, values: parameters, isUnnamed: true }])
  const bytesMax = context.limits.sqlResultBytesMax
  let [count, start, total] = [PART_RECORDS, 0, 0]
  while (true) {
    const { rows, bytes } = await fetchRows(evaluator, { count, bytesMax })
    if (rows.length === 0) break
    if (grows(plan)) await context.session.growth.admit(bytes)
    const values = await mapInTurns(rows, (text) => JSON.parse(text) as Row)
    const planned = await planRows(context, write, values, start)
    const operations = await settleConflicts(context, { ...write, countsOn: true }, planned)
    await runOperations(context, write, operations)
    write.onWritten?.(operations.map(({ id }) => id))
    start += rows.length
    total += operations.length
    // Large rows are read in smaller parts.
    const fitting = Math.floor((rows.length * bytesMax) / (2 * Math.max(bytes, 1)))
    count = Math.max(1, Math.min(PART_RECORDS, fitting))
  }
  await write.transaction.run([toCall(sql`close ${CURSOR}`)])
  return total
}

/** The cursor of a statement that is written in parts. */
const CURSOR = ident('written rows')

/** Reads the next rows of a statement. Throws if they are too large, without keeping them. */
async function fetchRows(
  evaluator: Evaluator,
  { count, bytesMax }: { count: number; bytesMax: number },
): Promise<{ rows: readonly string[]; bytes: number }> {
  const rows: string[] = []
  let bytes = 0
  const receiveRow = ([text]: TextRow) => {
    bytes += Buffer.byteLength(text ?? '')
    if (bytes <= bytesMax) rows.push(text ?? '')
  }
  const fetch = toCall(sql`fetch forward ${integer(count)} from ${CURSOR}`)
  await evaluator.run([{ ...fetch, isUnnamed: true, receiveRow }], { countsOn: true })
  if (bytes > bytesMax) {
    throw tooCostly(`${count} records of the statement have more than ${bytesMax} bytes`)
  }
  return { rows, bytes }
}

/** The query for the values of the records. */
const rowsOf = (plan: WritePlan): Sql | undefined =>
  plan.kind === 'insert' ? plan.values.rows : plan.rows

/** Returns undefined if there are more rows. */
async function readRows(
  context: TransactionContext,
  write: Write,
  rowsMax: number,
): Promise<Row[] | undefined> {
  const { plan, evaluator, parameters } = write
  const query = rowsOf(plan)
  // One record with only default values.
  if (query === undefined) return [[]]
  const sent = new SentQuery(query, { valueCount: parameters.length, textOf: (own) => own })
  const { rows, hasMore } = await evaluator.read(sent, { parameters, rowsMax })
  if (hasMore) return undefined
  if (grows(plan)) {
    await context.session.growth.admit(rows.reduce((bytes, text) => bytes + text.length, 0))
  }
  return mapInTurns(rows, (text) => JSON.parse(text) as Row)
}

/** Plans what is written. `start` is the number of rows before these. */
async function planRows(
  { session }: TransactionContext,
  { plan, table }: Write,
  rows: readonly Row[],
  start = 0,
): Promise<PlannedOperation[]> {
  let count = 0
  switch (plan.kind) {
    case 'insert': {
      const records = rows.map((row, index) => recordOf(plan.values, row, start + index))
      const newId = await newIds(session, table, records)
      const origin = inTransaction(await originOfRecords(session, { table, records }))
      return mapInTurns(records, (record) =>
        planInsert(table, record, { index: count++, origin, newId }),
      )
    }
    case 'update': {
      const origin = inTransaction(originOf(session))
      return mapInTurns(rows, (row) =>
        planUpdate(table, plan.columns, row, { index: count++, origin }),
      )
    }
    case 'delete':
      return rows.map(([id], index) => ({
        kind: 'delete',
        index,
        table,
        id: String(id),
        read: undefined,
        failIfMissing: false,
      }))
  }
}

/** All that a transaction writes has one time, which is also that of `now()` in its statements. */
const inTransaction = (origin: Origin): Origin => ({ ...origin, now: undefined })

type InsertPlan = Extract<WritePlan, { kind: 'insert' }>
type PlannedInsert = Extract<PlannedOperation, { kind: 'insert' }>

/** An existing record that conflicts with one to insert: its id, whether to change it, and its new values. */
type Other = readonly [id: unknown, isWanted?: unknown, ...values: unknown[]]

/**
 * Applies ON CONFLICT: a record that conflicts with an existing one is left out, or updates the existing one.
 * The conflicts found stay valid, because the transaction is serializable.
 */
async function settleConflicts(
  { session }: TransactionContext,
  write: Write,
  planned: readonly PlannedOperation[],
): Promise<readonly PlannedOperation[]> {
  const { plan } = write
  if (plan.kind !== 'insert' || plan.conflict === undefined) return planned
  const { conflict } = plan
  const inserts = planned.filter((operation) => operation.kind === 'insert')
  const others = await findOthers(write, conflict, inserts)
  const place = { table: write.table, origin: inTransaction(originOf(session)) }
  const settled =
    conflict.update === undefined
      ? leaveOut(conflict, inserts, others)
      : changeInstead(place, conflict, inserts, others)
  return settled.map((operation, index) => ({ ...operation, index }))
}

/** Finds the existing records that are in conflict, before anything is written, in steps. */
async function findOthers(
  { evaluator, parameters, countsOn = false }: Write,
  { keys, rows: query }: ConflictPlan,
  inserts: readonly PlannedInsert[],
): Promise<Map<number, Other>> {
  const others = new Map<number, Other>()
  const columns = keys.flatMap((key) => key.columns)
  const valueCount = parameters.length + 1 + columns.length
  const sent = new SentQuery(query, { valueCount, textOf: (own) => own })
  for (const [start, part] of partsOf(inserts)) {
    const records = JSON.stringify(part.map(({ id, values }) => [id, ...values]))
    const texts = columns.map((column) =>
      arrayLiteral(part.map((insert) => keyValue(column, insert))),
    )
    const { rows } = await evaluator.read(sent, {
      parameters: [...parameters, records, ...texts],
      rowsMax: part.length * keys.length,
      countsOn,
    })
    for (const text of rows) {
      const [position, ...other] = JSON.parse(text) as [number, ...Other]
      others.set(start + position - 1, other)
    }
  }
  return others
}

/** Records that are written by the statements of one round trip. */
const PART_RECORDS = 1000

function* partsOf<Item>(items: readonly Item[]): Generator<[start: number, part: readonly Item[]]> {
  for (let start = 0; start < items.length; start += PART_RECORDS) {
    yield [start, items.slice(start, start + PART_RECORDS)]
  }
}

function leaveOut(
  conflict: ConflictPlan,
  inserts: readonly PlannedInsert[],
  others: ReadonlyMap<number, Other>,
): PlannedOperation[] {
  const taken = new Set<string>()
  return inserts.filter((insert, index) => {
    const keys = keysOf(conflict, insert)
    if (others.has(index) || keys.some((key) => taken.has(key))) return false
    for (const key of keys) taken.add(key)
    return true
  })
}

function changeInstead(
  { table, origin }: { table: BranchTable; origin: Origin },
  conflict: ConflictPlan,
  inserts: readonly PlannedInsert[],
  others: ReadonlyMap<number, Other>,
): PlannedOperation[] {
  const taken = new Set<string>()
  return inserts.flatMap((insert, index): PlannedOperation[] => {
    const other = others.get(index)
    const [key = ''] = other === undefined ? keysOf(conflict, insert) : [keyText('id', other[0])]
    // Null never conflicts.
    if (key !== '' && taken.has(key)) {
      throw invalidSql('ON CONFLICT DO UPDATE cannot change a record a second time')
    }
    taken.add(key)
    if (other === undefined) return [insert]
    const [id, isWanted, ...values] = other
    const columns = conflict.update ?? []
    return isWanted === true ? [planUpdate(table, columns, [id, ...values], { index, origin })] : []
  })
}

const keyText = (name: string, value: unknown) => JSON.stringify([name, value])

function keyValue(
  { index }: WrittenKey['columns'][number],
  { id, values }: PlannedInsert,
): string | null {
  return index === undefined ? id : (values[index] ?? null)
}

/**
 * Returns the unique values of a record, which no other record of the statement may have. Nulls are left out.
 */
function keysOf({ keys }: ConflictPlan, insert: PlannedInsert): string[] {
  return keys.flatMap(({ columns }) => {
    const values = columns.map((column) => keyValue(column, insert))
    if (values.includes(null)) return []
    const [value] = values
    const names = columns.map(({ name }) => name).join('.')
    return [keyText(names, values.length === 1 ? value : values)]
  })
}

/** Returns the record that a row of an insert stands for. */
function recordOf(values: InsertPlan['values'], row: Row, index: number): Record<string, unknown> {
  const { columns, defaults } = values
  const record = newRecord()
  for (const [position, column] of columns.entries()) {
    if (defaults.size > 0 && defaults.has(defaultKey(index, position))) continue
    putValue(record, column, row[position] ?? null)
  }
  return record
}

function planInsert(
  table: BranchTable,
  record: Record<string, unknown>,
  { index, origin, newId }: { index: number; origin: Origin; newId: NewId },
): PlannedOperation {
  const given = record.id
  const hasGivenId = given !== undefined
  const id = hasGivenId ? givenId(table, given) : newId()
  const encoded = table.codec.encodeRecord(record, origin, refuseFile)
  if (isFaults(encoded)) throw invalidValues(table, encoded)
  return {
    kind: 'insert',
    index,
    table,
    id,
    read: undefined,
    createOnly: true,
    hasGivenId,
    ifVersion: undefined,
    values: encoded,
  }
}

function planUpdate(
  table: BranchTable,
  columns: readonly WrittenColumn[],
  [id, ...values]: Row,
  { index, origin }: { index: number; origin: Origin },
): PlannedOperation {
  const fields = newRecord()
  for (const [position, column] of columns.entries()) {
    const value = values[position] ?? null
    if (column.name === 'id') requireSameId(table, String(id), value)
    else putValue(fields, column, value)
  }
  const update = table.codec.encodeUpdate(fields, origin, refuseFile)
  if (isFaults(update)) throw invalidValues(table, update)
  return {
    kind: 'update',
    index,
    table,
    id: String(id),
    read: undefined,
    update,
    whole: undefined,
    ifVersion: undefined,
  }
}

/** Throws if a record would get another id. ORMs assign all columns, also those that stay as they are. */
function requireSameId(table: BranchTable, id: string, given: unknown): void {
  const other = givenId(table, given)
  if (other === id) return
  throw invalidValues(table, [
    new Fault(`column [id]: cannot be changed, from [${id}] to [${other}]`),
  ])
}

function givenId(table: BranchTable, given: unknown): string {
  const id = table.codec.encodeId(given)
  if (!(id instanceof Fault)) return id
  throw invalidValues(table, [given === null ? new Fault(id.message, 'id') : id])
}

const refuseFile = () => new Fault('files cannot be written by SQL')

function invalidValues({ codec }: BranchTable, faults: readonly Fault[]) {
  const error = invalidSql(
    `table [${codec.table.name}]: ${faults.map(({ message }) => message).join('; ')}`,
  )
  const fields = missingFields(codec, faults)
  return fields === undefined ? error : violationError(fields, error.message)
}

/** Runs operations on different records, in parts. */
export async function runOperations(
  context: TransactionContext,
  write: Pick<Write, 'transaction' | 'table'>,
  operations: readonly PlannedOperation[],
): Promise<void> {
  await followOperations(context.session, operations)
  for (const [, part] of partsOf(operations)) await runPart(context, write, part)
}

async function runPart(
  { session }: TransactionContext,
  { transaction, table }: Pick<Write, 'transaction' | 'table'>,
  operations: readonly PlannedOperation[],
): Promise<void> {
  // The results have no use: they are read by the ids of records.
  const results: string[] = []
  const runs = groupOperations(operations).map((group) =>
    prepareGroup(session, group, { explains: false }),
  )
  const rows = await transaction
    .run(runs.flatMap(({ calls }): readonly Call[] => calls))
    .catch((error: unknown) => {
      const { violation, taken, isUnevaluated } = Refusal.of(error, [table.codec]) ?? {}
      const refusal = toSqlRefusal(error, [table.codec])
      if (isUnevaluated && refusal instanceof AppError) {
        throw new UnevaluatedError(refusal, { table, operations, failure: error })
      }
      if (violation?.key === undefined || !(refusal instanceof AppError)) throw refusal
      throw new TakenError(refusal, { table, operations, key: violation.key, taken })
    })
  let position = 0
  for (const { calls, settle } of runs) {
    const fault = await inTurns(settle(rows.slice(position, position + calls.length), results))
    if (fault !== undefined) {
      const { index: _, message, ...fields } = fault.entry
      const refusal = refused(message, fields.code && (fields as ViolationFields))
      throw withFault(refusal, { table, operations, fault })
    }
    position += calls.length
  }
}

/** Names the record of a fault, or what is needed to find it. */
function withFault(
  refusal: AppError,
  {
    table,
    operations,
    fault: { violation, record },
  }: Pick<TakingOperations, 'table' | 'operations'> & { fault: GroupFault },
): AppError {
  if (violation?.kind !== 'unique') return refusal
  const { key } = violation
  if (key === undefined) return naming(refusal, record === undefined ? undefined : [record, record])
  const own = record === undefined ? operations : operations.filter(({ id }) => id === record)
  return new TakenError(refusal, { table, operations: own, key, taken: undefined })
}

/** Returns the error of a statement whose rows break a rule of one of the tables. Other errors stay as they are. */
export function toSqlRefusal(error: unknown, codecs: readonly TableCodec[]): unknown {
  const { message: refusal, record, violation } = Refusal.of(error, codecs) ?? {}
  if (refusal === undefined) return error
  const fields = findViolationFields(error, new Set(codecs))
  const invalid = refused(`table [${fields?.table ?? codecs[0]?.table.name}]: ${refusal}`, fields)
  const named = record ?? violation?.records?.[0]
  return named === undefined ? invalid : naming(invalid, [named, ...(violation?.values ?? [])])
}

function refused(message: string, fields: ViolationFields | undefined): AppError {
  const invalid = invalidSql(message)
  return fields === undefined ? invalid : violationError(fields, invalid.message)
}
