import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import { arrayLiteral } from '../../postgres/carriers.js'
import type { Call, TextRow, TextRows } from '../../postgres/statement.js'
import { isFaults } from '../../rows/columns/table-codec.js'
import type { BranchTable } from '../../rows/open-branch.js'
import { TableRead } from '../../rows/reading/table-read.js'
import type { RowInput, RuleCheck } from '../../rows/writing/table-writer.js'
import {
  columnTaken,
  missingFields,
  type Violation,
  violationFields,
} from '../session/record-errors.js'
import type { Session } from '../session/session.js'
import { calculatedPaths } from './calculated-paths.js'
import type { OperationGroup, PlannedOperation } from './transaction-plan.js'

type Operation<Kind extends PlannedOperation['kind']> = Extract<PlannedOperation, { kind: Kind }>

/** The calls of a group, and the conversion of their rows to results. */
interface GroupRun {
  readonly calls: readonly Call[]
  /** Writes the result of each operation, with a pause after each. Returns the first fault. */
  settle(rows: readonly TextRows[], results: string[]): Generator<undefined, GroupFault | undefined>
}

/** A fault of an operation. */
export interface GroupFault {
  readonly entry: FaultEntry
  /** The rule that a record breaks, and the id of that record if it is known. */
  readonly violation?: Violation
  readonly record?: string | undefined
}

/** Prepares the calls of a group. With `explains`, also finds out why an update had no effect. */
export function prepareGroup(
  session: Session,
  group: OperationGroup,
  options: { explains: boolean },
): GroupRun {
  const { operations } = group
  const [first] = operations
  if (first === undefined) throw new Error('a group must have an operation')
  switch (first.kind) {
    case 'insert':
      return prepareInserts(session, operations as Operation<'insert'>[])
    case 'update':
      return prepareUpdates(session, operations as Operation<'update'>[], options)
    case 'delete':
      return prepareDeletes(session, operations as Operation<'delete'>[])
    case 'get':
      return prepareGets(session, operations as Operation<'get'>[])
  }
}

function prepareInserts(session: Session, operations: readonly Operation<'insert'>[]): GroupRun {
  const { writer } = writableTable(operations)
  const rows: RowInput[] = operations.map(({ id, ifVersion, values }) => ({
    id,
    ifVersion,
    values,
  }))
  // Generated ids are always new, so the insert cannot conflict.
  const isNew = operations[0]?.hasGivenId === false
  const insertGiven = () =>
    operations[0]?.createOnly ? writer.insert(rows, 'id') : writer.replace(rows, 'id')
  const checks = writer.checkRows(rows)
  const reads = readCalls(operations)
  return {
    calls: [
      isNew ? writer.insertNew(rows) : insertGiven(),
      ...checks.map((check) => check.call),
      ...reads.calls,
    ],
    *settle([written = [], ...rest], results) {
      const ids = new Set(written.map((row) => row[0]))
      const found = reads.collect(rest.slice(checks.length))
      for (const operation of operations) {
        if (!isNew && !ids.has(operation.id)) return refusedInsert(operation)
        const columns = columnsOf(session, operation, found)
        results[operation.index] =
          `{"operation":"insert","rows":1,"id":"${operation.id}"${columns ?? ''}}`
        yield
      }
      return brokenRule(operations, checks, rest)
    },
  }
}

function prepareUpdates(
  session: Session,
  operations: readonly Operation<'update'>[],
  options: { explains: boolean },
): GroupRun {
  const { table, writer } = writableTable(operations)
  const [first] = operations
  const reads = readCalls(operations)
  const isSingle = operations.length === 1 && first !== undefined
  const write = isSingle
    ? writer.updateOne(first)
    : writer.update(
        operations.map(({ id, ifVersion, update }) => ({ id, ifVersion, values: update.values })),
        first?.update.columns ?? [],
      )
  const whole = isSingle ? first.whole : undefined
  // If the update has found the record, its id is taken and the insert has no effect.
  const creates =
    whole === undefined || isFaults(whole)
      ? []
      : [writer.insert([{ id: first?.id ?? '', values: whole as TextRow }], 'id')]
  const checks = writer.checkUpdates(operations)
  const ids = arrayLiteral(operations.map(({ id }) => id))
  const calculated = operations.flatMap(({ update }) => calculatedPaths(table.codec, update))
  const probe = options.explains ? planProbe(table, calculated) : undefined
  const probes = probe === undefined ? [] : [{ statement: probe.many, values: [ids] }]
  return {
    calls: [write, ...creates, ...checks.map((check) => check.call), ...probes, ...reads.calls],
    *settle(rows, results) {
      const [written = [], ...rest] = rows
      const created = creates.length === 0 ? [] : (rest.shift() ?? [])
      const checked = rest.splice(0, checks.length)
      const probed = probes.length === 0 ? [] : (rest.shift() ?? [])
      const present = new Map(probed.map((row) => [row[0], row]))
      const changed = new Set([...written, ...created].map((row) => row[0]))
      const found = reads.collect(rest)
      for (const operation of operations) {
        const { id, index } = operation
        if (!changed.has(id)) return refusedUpdate(operation, probe, present.get(id))
        const columns = columnsOf(session, operation, found)
        results[index] = `{"operation":"update","rows":1,"id":"${id}"${columns ?? ''}}`
        yield
      }
      return brokenRule(operations, checks, checked)
    },
  }
}

function prepareDeletes(session: Session, operations: readonly Operation<'delete'>[]): GroupRun {
  const { table, writer } = writableTable(operations)
  const reads = readCalls(operations)
  const ids = operations.map(({ id }) => id)
  return {
    calls: [...reads.calls, writer.delete(ids)],
    *settle(rows, results) {
      const deleted = new Set(rows.at(-1)?.map((row) => row[0]))
      const found = reads.collect(rows)
      for (const operation of operations) {
        const { id, index, failIfMissing } = operation
        if (failIfMissing && !deleted.has(id)) {
          return { entry: { index, message: `table [${table.codec.table.name}]: no rows deleted` } }
        }
        const columns = columnsOf(session, operation, found)
        results[index] = `{"operation":"delete","rows":${deleted.has(id) ? 1 : 0}${columns ?? ''}}`
        yield
      }
      return undefined
    },
  }
}

function prepareGets(session: Session, operations: readonly Operation<'get'>[]): GroupRun {
  const { table } = tableOf(operations)
  const plain = operations.filter((operation) => operation.read === undefined)
  const reads = readCalls(operations)
  const probe = planProbe(table)
  const probeCalls: Call[] =
    plain.length === 0
      ? []
      : [{ statement: probe.many, values: [arrayLiteral(plain.map(({ id }) => id))] }]
  return {
    calls: [...probeCalls, ...reads.calls],
    *settle(rows, results) {
      const probed = new Map(probeCalls.length === 0 ? [] : rows[0]?.map((row) => [row[0], row]))
      const found = reads.collect(rows.slice(probeCalls.length))
      for (const operation of operations) {
        const { id, index, read } = operation
        const row = read === undefined ? probed.get(id) : found.get(operation)
        results[index] = `{"operation":"get","columns":${getColumns(session, operation, row)}}`
        yield
      }
      return undefined
    },
  }
}

function getColumns(
  session: Session,
  { read, id }: PlannedOperation,
  row: TextRow | undefined,
): string {
  if (row === undefined) return '{}'
  if (read !== undefined) return read.writeSelection(row, session.metadata)
  return `{"id":"${id}",${TableRead.writeMetadata(row, session.metadata)}}`
}

/** Returns the member `,"columns":{...}` of the result of a write, or an empty text. */
function columnsOf(
  session: Session,
  operation: PlannedOperation,
  found: ReadonlyMap<PlannedOperation, TextRow>,
): string | undefined {
  const { read } = operation
  if (read !== undefined) {
    const row = found.get(operation)
    return `,"columns":${row === undefined ? '{}' : read.writeSelection(row, session.metadata)}`
  }
  // The Xata client expects the key even if no columns are requested.
  const isXataClient = session.metadata.key === 'xata'
  const replaces = operation.kind === 'insert' && !operation.createOnly
  return isXataClient && (operation.kind === 'update' || replaces) ? ',"columns":{}' : undefined
}

/** Returns one call for each set of requested columns. */
function readCalls(operations: readonly PlannedOperation[]): {
  calls: Call[]
  collect(rows: readonly TextRows[]): Map<PlannedOperation, TextRow>
} {
  const byRead = new Map<TableRead, PlannedOperation[]>()
  for (const operation of operations) {
    if (operation.read === undefined) continue
    const list = byRead.get(operation.read)
    if (list === undefined) byRead.set(operation.read, [operation])
    else list.push(operation)
  }
  const lists = [...byRead]
  return {
    calls: lists.map(([read, list]) => ({
      statement: read.many,
      values: [arrayLiteral(list.map(({ id }) => id))],
    })),
    collect(rows) {
      const found = new Map<PlannedOperation, TextRow>()
      for (const [position, [, list]] of lists.entries()) {
        const byId = new Map(rows[position]?.map((row) => [row[0], row]))
        for (const operation of list) {
          const row = byId.get(operation.id)
          if (row !== undefined) found.set(operation, row)
        }
      }
      return found
    },
  }
}

function refusedInsert({ index, id, table, createOnly }: Operation<'insert'>): GroupFault {
  const prefix = `table [${table.codec.table.name}]: record [${id}]`
  if (!createOnly) return { entry: { index, message: `${prefix}: version condition not met` } }
  const violation = columnTaken(table.codec)
  const message = `${prefix} already exists`
  return { entry: { index, message, ...violationFields(violation) }, violation, record: id }
}

function refusedUpdate(
  operation: Operation<'update'>,
  probe: TableRead | undefined,
  present: TextRow | undefined,
): GroupFault {
  const { index, id, ifVersion, table, whole, update } = operation
  const prefix = `table [${table.codec.table.name}]`
  if (probe === undefined || present === undefined) {
    const faults = whole !== undefined && isFaults(whole) ? whole : undefined
    const reason = faults?.map((fault) => fault.message).join('; ')
    const message = reason ? `${prefix}: ${reason}` : `${prefix}: record [${id}] not found`
    return { entry: { index, message, ...(faults && missingFields(table.codec, faults)) } }
  }
  const reason =
    ifVersion !== undefined && Number(present[1]) !== ifVersion
      ? 'version condition not met'
      : table.codec.arithmeticFault(update, (column) => probe.textOf(present, column)).message
  return { entry: { index, message: `${prefix}: record [${id}]: ${reason}` } }
}

/**
 * Assigns a broken rule to the first operation of the group. This is exact when operations run one by one.
 */
function brokenRule(
  operations: readonly PlannedOperation[],
  checks: readonly RuleCheck[],
  rows: readonly TextRows[],
): GroupFault | undefined {
  const position = checks.findIndex((_, index) => (rows[index]?.length ?? 0) > 0)
  const check = checks[position]
  if (check === undefined) return undefined
  const { violation } = check
  const index = operations[0]?.index ?? 0
  const message = `table [${violation.codec.table.name}]: ${violation.message}`
  const [row = []] = rows[position] ?? []
  return {
    entry: { index, message, ...violationFields(violation) },
    violation,
    record: check.idOf?.(row),
  }
}

function planProbe(table: BranchTable, paths: readonly string[] = []) {
  const probe = table.read(paths)
  if (isFaults(probe)) throw new AppError('internal', 'columns of the table must be valid')
  return probe
}

function tableOf(operations: readonly PlannedOperation[]): { table: BranchTable } {
  const [first] = operations
  if (first === undefined) throw new Error('a group must have an operation')
  return { table: first.table }
}

function writableTable(operations: readonly PlannedOperation[]) {
  const { table } = tableOf(operations)
  if (table.writer === undefined) throw new Error('a written table must be writable')
  return { table, writer: table.writer }
}
