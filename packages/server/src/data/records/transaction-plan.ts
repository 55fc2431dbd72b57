import type { FaultEntry } from '@offshoot/contract/errors'
import { QUERY_LIMITS } from '@offshoot/contract/limits'
import type { TextRow } from '../../postgres/statement.js'
import { Fault } from '../../rows/columns/fault.js'
import type { EncodedUpdate, FileEncoder, InputRecord } from '../../rows/columns/record-encoder.js'
import { isFaults } from '../../rows/columns/table-codec.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { TableRead } from '../../rows/reading/table-read.js'
import { missingFields } from '../session/record-errors.js'
import type { Origin, Session } from '../session/session.js'
import { type NewId, newIds } from './new-ids.js'
import { followUpdates, originOfRecords } from './new-numbers.js'

interface OperationBase {
  readonly index: number
  readonly table: BranchTable
  readonly id: string
  /** The columns of the record to return. undefined: none are requested. */
  readonly read: TableRead | undefined
}

export type PlannedOperation = OperationBase &
  (
    | {
        readonly kind: 'insert'
        /** Rejects ids that are taken. Otherwise the existing record is replaced. */
        readonly createOnly: boolean
        readonly hasGivenId: boolean
        readonly ifVersion: number | undefined
        readonly values: TextRow
      }
    | {
        readonly kind: 'update'
        readonly ifVersion: number | undefined
        readonly update: EncodedUpdate
        /** The whole record, or its faults, if the update may create the record. */
        readonly whole: TextRow | readonly Fault[] | undefined
      }
    | { readonly kind: 'delete'; readonly failIfMissing: boolean }
    | { readonly kind: 'get' }
  )

const KINDS = ['insert', 'update', 'delete', 'get'] as const
type Kind = (typeof KINDS)[number]

const FIELDS: Readonly<Record<Kind, readonly FieldCheck[]>> = {
  insert: [
    required('table', 'string'),
    required('record', 'object'),
    optional('createOnly', 'boolean'),
    optional('ifVersion', 'version'),
    optional('columns', 'strings'),
  ],
  update: [
    required('table', 'string'),
    required('id', 'id'),
    required('fields', 'object'),
    optional('ifVersion', 'version'),
    optional('upsert', 'boolean'),
    optional('columns', 'strings'),
  ],
  delete: [
    required('table', 'string'),
    required('id', 'id'),
    optional('failIfMissing', 'boolean'),
    optional('columns', 'strings'),
  ],
  get: [required('table', 'string'), required('id', 'id'), optional('columns', 'strings')],
}

type FieldType = 'string' | 'id' | 'object' | 'boolean' | 'version' | 'strings'

interface FieldCheck {
  readonly name: string
  readonly type: FieldType
  readonly isRequired: boolean
}

function required(name: string, type: FieldType): FieldCheck {
  return { name, type, isRequired: true }
}

function optional(name: string, type: FieldType): FieldCheck {
  return { name, type, isRequired: false }
}

const DESCRIPTIONS: Readonly<Record<FieldType, string>> = {
  string: 'a string',
  id: 'a string or a number',
  object: 'an object',
  boolean: 'a boolean',
  version: 'a whole number from 0',
  strings: 'a list of strings',
}

/** Maximum number of faults that a response lists. */
export const TRANSACTION_FAULTS_MAX = 1000
/** Maximum number of unknown fields that are listed for one operation. */
const UNKNOWN_FIELDS_MAX = 20

/** The operations that can be run, and the faults of the others. */
interface PlannedTransaction {
  readonly planned: PlannedOperation[]
  readonly faults: FaultEntry[]
  /** The number of operations with faults, including those that are not listed. */
  readonly failed: number
}

/** Plans operations, with a pause after each. */
export function* planOperations(
  operations: readonly unknown[],
  values: NewValues,
): Generator<undefined, PlannedTransaction> {
  const planned: PlannedOperation[] = []
  const faults: FaultEntry[] = []
  let failed = 0
  const reads = new PlannedReads()
  for (const [index, operation] of operations.entries()) {
    const result = planOperation(operation, { index, reads, values })
    if (Array.isArray(result)) {
      failed++
      const room = TRANSACTION_FAULTS_MAX - faults.length
      faults.push(...result.slice(0, room).map((fault) => ({ index, ...fault })))
    } else planned.push(result)
    yield
  }
  return { planned, faults, failed }
}

type OperationFault = Omit<FaultEntry, 'index'>

type Shape = Readonly<Record<string, unknown>>

/** What all operations are planned with. */
interface PlanContext {
  readonly values: NewValues
  readonly reads: PlannedReads
}

/** Returns the source of new ids of a table. */
type NewIdOf = (table: BranchTable) => NewId

/** The tables of operations, and the values of new records, which are read before operations are planned. */
interface NewValues {
  readonly tableOf: (name: string) => BranchTable | undefined
  readonly newIdOf: NewIdOf
  readonly origin: Origin
}

/** Takes ids and numbers for the records that the operations insert, see `newIds`. */
export async function newValuesOf(
  session: Session,
  operations: readonly unknown[],
): Promise<NewValues> {
  const tableOf = findOnce(session)
  const withIds = new Map<BranchTable, unknown[]>()
  const withNumbers = new Map<BranchTable, unknown[]>()
  for (const operation of operations) {
    const { insert, update } = (operation ?? {}) as Readonly<Record<string, Shape | undefined>>
    const given = insert ?? (update?.upsert === true ? update : undefined)
    const table = given && tableOf(String(given.table))
    if (table === undefined) continue
    const { ids, sequences } = table.codec
    if (ids.create === undefined) addTo(withIds, table, insert ? insert.record : update)
    if (sequences.length > 0) addTo(withNumbers, table, insert ? insert.record : update?.fields)
  }
  const sources = new Map<BranchTable, NewId>()
  for (const [table, records] of withIds) {
    sources.set(table, await newIds(session, table, records))
  }
  return {
    tableOf,
    newIdOf: (table) => table.codec.ids.create ?? sources.get(table) ?? (() => ''),
    origin: await originOfRecords(
      session,
      ...[...withNumbers].map(([table, records]) => ({ table, records })),
    ),
  }
}

/** Lets sequences go on after the numbers that operations give to existing records. */
export async function followOperations(
  session: Session,
  operations: readonly PlannedOperation[],
): Promise<void> {
  const byTable = new Map<BranchTable, EncodedUpdate[]>()
  for (const operation of operations) {
    if (operation.kind !== 'update' || operation.table.codec.sequences.length === 0) continue
    const { table, update } = operation
    const updates = byTable.get(table)
    if (updates === undefined) byTable.set(table, [update])
    else updates.push(update)
  }
  for (const [table, updates] of byTable) await followUpdates(session, { table, updates })
}

/** Looks up each table of a request once. */
function findOnce(session: Session): NewValues['tableOf'] {
  const known = new Map<string, BranchTable | undefined>()
  return (name) => {
    const found = known.get(name)
    if (found !== undefined || known.has(name)) return found
    const table = session.findTable(name)
    known.set(name, table)
    return table
  }
}

function addTo(records: Map<BranchTable, unknown[]>, table: BranchTable, record: unknown): void {
  const list = records.get(table)
  if (list === undefined) records.set(table, [record])
  else list.push(record)
}

function planOperation(
  operation: unknown,
  { index, reads, values: { tableOf, newIdOf, origin } }: PlanContext & { index: number },
): PlannedOperation | OperationFault[] {
  const shape = readShape(operation)
  if (Array.isArray(shape)) return shape
  const { kind, fields } = shape
  const tableName = fields.table as string
  const table = tableOf(tableName)
  if (table === undefined) return [{ message: `table [${tableName}] not found` }]
  const faults: OperationFault[] = []
  const read = reads.plan(table, fields.columns as readonly string[] | undefined, faults)
  const given = kind === 'insert' ? (fields.record as InputRecord).id : fields.id
  const encoded = given === undefined ? newIdOf(table)() : table.codec.encodeId(given)
  if (encoded instanceof Fault) faults.push(inTable(table, encoded))
  const id = String(encoded)
  const ifVersion = fields.ifVersion as number | undefined
  // Without spread syntax, because a request creates thousands of these objects.
  switch (kind) {
    case 'insert': {
      const values = table.codec.encodeRecord(fields.record as InputRecord, origin, refuseFile)
      if (isFaults(values)) faults.push(...values.map((fault) => inTable(table, fault)))
      const hasGivenId = given !== undefined
      if (ifVersion !== undefined && !hasGivenId) {
        faults.push({ message: `table [${tableName}]: field [ifVersion]: needs an id` })
      }
      if (faults.length > 0 || isFaults(values)) return faults
      const createOnly = fields.createOnly === true || !hasGivenId
      return { kind, index, table, id, read, values, createOnly, hasGivenId, ifVersion }
    }
    case 'update': {
      const input = fields.fields as InputRecord
      const update = table.codec.encodeUpdate(input, origin, refuseFile)
      if (isFaults(update)) faults.push(...update.map((fault) => inTable(table, fault)))
      if (faults.length > 0 || isFaults(update)) return faults
      const whole =
        fields.upsert === true ? table.codec.encodeRecord(input, origin, refuseFile) : undefined
      return { kind, index, table, id, read, update, whole, ifVersion }
    }
    case 'delete':
      if (faults.length > 0) return faults
      return { kind, index, table, id, read, failIfMissing: fields.failIfMissing === true }
    case 'get':
      return faults.length > 0 ? faults : { kind, index, table, id, read }
  }
}

/** Parses an operation: its only key is the kind, its value the fields. Validates the types of the fields. */
function readShape(operation: unknown): { kind: Kind; fields: Shape } | OperationFault[] {
  if (!isObject(operation)) return [{ message: 'expected an object' }]
  const kind = onlyKind(operation)
  if (kind === undefined) {
    const keys = Object.keys(operation).slice(0, UNKNOWN_FIELDS_MAX).join(', ').slice(0, 255)
    return [{ message: `expected exactly one of [${KINDS.join(', ')}], got [${keys}]` }]
  }
  const fields = operation[kind]
  if (!isObject(fields)) return [{ message: `operation [${kind}]: expected an object` }]
  const faults: string[] = []
  let known = 0
  for (const { name, type, isRequired } of FIELDS[kind]) {
    const value = fields[name]
    if (value === undefined) {
      if (isRequired) faults.push(`operation [${kind}]: field [${name}]: is required`)
      continue
    }
    known++
    if (!hasType(value, type)) {
      faults.push(`operation [${kind}]: field [${name}]: must be ${DESCRIPTIONS[type]}`)
    }
  }
  if (Object.keys(fields).length !== known) faults.push(...unknownFields(kind, fields))
  return faults.length > 0 ? faults.map((message) => ({ message })) : { kind, fields }
}

function onlyKind(operation: Shape): Kind | undefined {
  const keys = Object.keys(operation)
  const [key] = keys
  return keys.length === 1 ? KINDS.find((kind) => kind === key) : undefined
}

function unknownFields(kind: Kind, fields: Shape): string[] {
  return Object.keys(fields)
    .filter((name) => !FIELDS[kind].some((check) => check.name === name))
    .slice(0, UNKNOWN_FIELDS_MAX)
    .map((name) => `operation [${kind}]: field [${name.slice(0, 255)}]: is not known`)
}

function hasType(value: unknown, type: FieldType): boolean {
  switch (type) {
    case 'id':
      return typeof value === 'string' || typeof value === 'number'
    case 'object':
      return isObject(value)
    case 'version':
      return Number.isSafeInteger(value) && (value as number) >= 0
    case 'strings':
      return isNames(value)
    default:
      return typeof value === type
  }
}

function isObject(value: unknown): value is Shape {
  return typeof value === 'object' && value !== null && !Array.isArray(value)
}

/** Returns whether a value is a list of names. Planning checks its length. */
function isNames(value: unknown): boolean {
  if (!Array.isArray(value)) return false
  return value.length > QUERY_LIMITS.columnsMax || value.every((item) => typeof item === 'string')
}

/** The compiled reads of one transaction. Operations usually request the same columns. */
class PlannedReads {
  readonly #known = new Map<BranchTable, Map<string, TableRead | readonly Fault[]>>()
  #names = 0
  #links = 0

  plan(
    table: BranchTable,
    columns: readonly string[] | undefined,
    faults: OperationFault[],
  ): TableRead | undefined {
    if (columns === undefined || columns.length === 0) return undefined
    const read = this.#find(table, columns)
    if (!isFaults(read)) return read
    faults.push(...read.map((fault) => inTable(table, fault)))
    return undefined
  }

  #find(table: BranchTable, columns: readonly string[]): TableRead | readonly Fault[] {
    const { columnsMax, transactionColumnsMax, relationsMax } = QUERY_LIMITS
    if (columns.length > columnsMax) return table.read(columns)
    const known = this.#known.get(table) ?? new Map<string, TableRead | readonly Fault[]>()
    this.#known.set(table, known)
    const key = columns.join('\n')
    const found = known.get(key)
    if (found !== undefined) return found
    this.#names += columns.length
    if (this.#names > transactionColumnsMax) {
      return [new Fault(`a transaction cannot name more than ${transactionColumnsMax} columns`)]
    }
    const read = table.read(columns)
    if (!isFaults(read)) {
      this.#links += read.linkedTables.length
      if (this.#links > relationsMax) {
        return [new Fault(`a transaction cannot follow more than ${relationsMax} links`)]
      }
    }
    known.set(key, read)
    return read
  }
}

const FILE_REFUSED = 'file upload not permitted in transaction'

/** Rejects files. An empty list is accepted, because clients may send records as they were read. */
const refuseFile: FileEncoder = (column, value) => {
  if (column.type === 'file') return new Fault(FILE_REFUSED)
  const isEmpty = Array.isArray(value) && value.length === 0
  return isEmpty ? JSON.stringify(value) : new Fault(`file entry [0]: ${FILE_REFUSED}`)
}

/**
 * Prefixes a fault with the table. Clients compare the message about files literally, so it has no prefix.
 */
function inTable({ codec }: BranchTable, fault: Fault): OperationFault {
  const { message } = fault
  if (message.endsWith(FILE_REFUSED)) return { message }
  return { message: `table [${codec.table.name}]: ${message}`, ...missingFields(codec, [fault]) }
}

/** Operations that run as one: of one kind, on one table, and on different records. */
export interface OperationGroup {
  readonly wave: number
  readonly operations: PlannedOperation[]
}

/**
 * Groups operations into few statements, with the same result as running them one by one. Operations on
 * different records commute. Those on the same record stay in order, in different waves. In a table with unique
 * columns, records depend on each other, so the order is kept and only neighbours of one kind are grouped.
 * Reads through links stay in order with the writes to the linked tables.
 */
export function groupOperations(operations: readonly PlannedOperation[]): OperationGroup[] {
  const tables = new Map<number, TableSchedule>()
  const scheduleOf = (tableId: number): TableSchedule => {
    let schedule = tables.get(tableId)
    if (schedule === undefined) {
      schedule = {
        nextWaves: new Map(),
        last: undefined,
        afterWrites: 0,
        afterLinks: 0,
        open: new Map(),
      }
      tables.set(tableId, schedule)
    }
    return schedule
  }
  const groups: OperationGroup[] = []
  for (const operation of operations) {
    const { table, id, read } = operation
    const schedule = scheduleOf(table.codec.table.id)
    const linked = read === undefined ? NO_TABLES : read.linkedTables.map(scheduleOf)
    const form = formOf(operation)
    const alone = isAlone(operation)
    const writes = operation.kind !== 'get'
    let wave = schedule.nextWaves.get(id) ?? 0
    if (writes) wave = Math.max(wave, schedule.afterLinks)
    for (const target of linked) wave = Math.max(wave, target.afterWrites)
    if (table.codec.uniqueKeys.length > 0) {
      const { last } = schedule
      if (last !== undefined) {
        const follows = last.form === form && !alone
        wave = Math.max(wave, follows ? last.wave : last.wave + 1)
      }
      schedule.last = { wave, form }
    }
    schedule.nextWaves.set(id, wave + 1)
    if (writes) schedule.afterWrites = Math.max(schedule.afterWrites, wave + 1)
    for (const target of linked) target.afterLinks = Math.max(target.afterLinks, wave + 1)
    let open = schedule.open.get(form)
    if (open === undefined) {
      open = []
      schedule.open.set(form, open)
    }
    const group = alone ? undefined : open[wave]
    if (group !== undefined) {
      group.operations.push(operation)
      continue
    }
    const created = { wave, operations: [operation] }
    groups.push(created)
    if (!alone) open[wave] = created
  }
  return groups.sort((left, right) => left.wave - right.wave)
}

/** Characters of values in one part; more would be encoded and sent while others wait. */
const PART_LENGTH = 1024 * 1024

/**
 * Cuts groups into parts that are small enough to be sent at once. The operations of a group do not
 * depend on each other, so a group can be cut anywhere.
 */
export function cutIntoParts(groups: readonly OperationGroup[]): OperationGroup[][] {
  const parts: OperationGroup[][] = []
  let part: OperationGroup[] = []
  let length = 0
  for (const { wave, operations } of groups) {
    let own: PlannedOperation[] = []
    for (const operation of operations) {
      const added = valuesLength(operation)
      if (length > 0 && length + added > PART_LENGTH) {
        if (own.length > 0) part.push({ wave, operations: own })
        parts.push(part)
        part = []
        own = []
        length = 0
      }
      own.push(operation)
      length += added
    }
    if (own.length > 0) part.push({ wave, operations: own })
  }
  if (part.length > 0) parts.push(part)
  return parts
}

function valuesLength(operation: PlannedOperation): number {
  if (operation.kind !== 'insert' && operation.kind !== 'update') return 0
  const values = operation.kind === 'insert' ? operation.values : operation.update.values
  let length = 0
  for (let index = 0; index < values.length; index++) length += values[index]?.length ?? 0
  return length
}

const NO_TABLES: readonly TableSchedule[] = []

/** The schedule of the operations on one table. */
interface TableSchedule {
  /** The first wave that may use a record again, by record id. */
  readonly nextWaves: Map<string, number>
  last: { wave: number; form: string } | undefined
  /** The first wave after all writes to the table so far. */
  afterWrites: number
  /** The first wave after all reads of the table through links so far. */
  afterLinks: number
  /** Groups that can be extended, by form and wave. */
  readonly open: Map<string, (OperationGroup | undefined)[]>
}

/** Returns the properties that operations of one statement must share. */
function formOf(operation: PlannedOperation): string {
  switch (operation.kind) {
    case 'insert':
      if (!operation.hasGivenId) return 'new'
      return operation.createOnly ? 'create' : 'replace'
    case 'update':
      return `update ${operation.update.columns.join()}`
    case 'delete':
      return `delete ${operation.read === undefined ? '' : 'read'}`
    case 'get':
      return 'get'
  }
}

/** Arithmetic, upserts, and changes of unique keys need a statement for each record. */
function isAlone(operation: PlannedOperation): boolean {
  const { table } = operation
  // If unique values are compared after each statement, a value could not move between rows of a group.
  if (operation.kind === 'insert') {
    return !operation.createOnly && table.writer?.comparesAfterWrites === true
  }
  if (operation.kind !== 'update') return false
  const { update, whole } = operation
  if (update.arithmetic.length > 0 || whole !== undefined) return true
  return table.codec.uniqueKeys.some(({ columns }) =>
    update.columns.some((column) => columns.includes(column)),
  )
}
