import { AppError } from '@offshoot/contract/errors'
import { invalidSql } from '../../dialect/invalid-sql.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { TableWriter } from '../../rows/writing/table-writer.js'
import { amongRows, findUnevaluated } from '../records/failing-records.js'
import type { PlannedOperation } from '../records/transaction-plan.js'
import {
  naming,
  type Violation,
  violationError,
  violationFields,
} from '../session/record-errors.js'
import type { Session } from '../session/session.js'

type UniqueKey = NonNullable<Violation['key']>
type TakingRow = Parameters<TableWriter['findTaker']>[1][number]

/** Operations of which one was to get the values of a unique key that are taken. */
export interface TakingOperations {
  readonly table: BranchTable
  readonly operations: readonly PlannedOperation[]
  readonly key: UniqueKey
  /** The values as PostgreSQL reports them, if it does. */
  readonly taken: string | undefined
}

/** The value of a unique key is taken. Which record was to get it is not known yet. */
export class TakenError extends AppError {
  constructor(
    { code, message, cause, details }: AppError,
    readonly by: TakingOperations,
  ) {
    super(code, message, { ...(cause !== undefined && { cause }), ...(details && { details }) })
  }
}

/** Operations for one of which a check could not be evaluated. */
interface UnevaluatedOperations {
  readonly table: BranchTable
  readonly operations: readonly PlannedOperation[]
  readonly failure: unknown
}

/** A check could not be evaluated. Which one, and for which record, is not known yet. */
export class UnevaluatedError extends AppError {
  constructor(
    { message, cause }: AppError,
    readonly by: UnevaluatedOperations,
  ) {
    const details = { table: by.table.codec.table.name }
    super('check_violation', message, { ...(cause !== undefined && { cause }), details })
  }
}

/** How long the record of an error is looked for. */
const LOOK_MS = 1_000

/**
 * Names the record of an error, which is looked for outside of the transaction that has failed. Returns other errors
 * unchanged.
 */
export async function nameTaker(session: Session, error: unknown): Promise<unknown> {
  if (error instanceof UnevaluatedError) return nameUnevaluated(session, error)
  if (!(error instanceof TakenError)) return error
  const { branch } = session
  const { table, operations, key, taken } = error.by
  const rows = operations.flatMap((operation) => takingRow(operation, key) ?? [])
  if (table.writer === undefined || rows.length === 0) return error
  // Of several records, only what PostgreSQL says tells which one it is.
  if (taken === undefined && rows.length > 1) return error
  try {
    const call = table.writer.findTaker(key, rows, taken)
    const [found = []] = await branch.runReads([call], { timeoutMs: LOOK_MS })
    return naming(error, found[0])
  } catch {
    // The branch may have changed since, or the transaction may have locked what is read. The error is told without the record.
    return error
  }
}

async function nameUnevaluated(session: Session, error: UnevaluatedError): Promise<AppError> {
  const { table, operations, failure } = error.by
  const find = amongRows(operations.flatMap((operation) => judgedRow(operation, table) ?? []))
  const found = await findUnevaluated(session, table, { error: failure, find })
  if (found === undefined) return error
  const { violation, record } = found
  const { message } = invalidSql(`table [${table.codec.table.name}]: ${violation.message}`)
  return violationError({ ...violationFields(violation), record }, message)
}

/** Returns the values that an operation of SQL writes. */
function judgedRow(operation: PlannedOperation, { codec }: BranchTable) {
  if (operation.kind === 'insert') return operation
  if (operation.kind !== 'update') return undefined
  const { id, update } = operation
  const values = codec.stored.physical.map((_, index) => {
    return update.values[update.columns.indexOf(index)] ?? null
  })
  return { id, values, columns: update.columns }
}

/** Returns undefined for an operation that writes no column of the key. */
function takingRow(operation: PlannedOperation, { columns }: UniqueKey): TakingRow | undefined {
  const { kind, id } = operation
  if (kind === 'insert') {
    const values = columns.map((column) => operation.values[column] ?? null)
    return { id, exists: false, values }
  }
  if (kind !== 'update') return undefined
  const { update } = operation
  if (!columns.some((column) => update.columns.includes(column))) return undefined
  const values = columns.map((column) => {
    const position = update.columns.indexOf(column)
    return position === -1 ? undefined : (update.values[position] ?? null)
  })
  return { id, exists: true, values }
}
