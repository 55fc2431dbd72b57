import { AppError, type ViolationCode } from '@offshoot/contract/errors'
import type { Fault } from '../../rows/columns/fault.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { Refusal } from '../../rows/writing/refusals.js'

/** Reports all faults of a record in one message. */
export function invalidRecord(faults: readonly Fault[]): AppError {
  return new AppError(
    'invalid_record',
    `invalid record: ${faults.map((fault) => fault.message).join('; ')}`,
  )
}

export type Violation = NonNullable<Refusal['violation']>

/** The fields of an error, or of one entry of its list, about a rule that a record breaks. */
export type ViolationFields = { readonly code: ViolationCode; readonly table: string } & (
  | { readonly column: string; readonly target?: NonNullable<Violation['target']> }
  | { readonly columns: readonly string[]; readonly constraint: string }
)

const CODES: Readonly<Record<Violation['kind'], ViolationCode>> = {
  unique: 'unique_violation',
  check: 'check_violation',
  link: 'link_violation',
}

export function violationFields(violation: Violation): ViolationFields {
  const { kind, codec, columns, constraint, target } = violation
  const fields = { code: CODES[kind], table: codec.table.name }
  return constraint === undefined
    ? { ...fields, column: columns.join(), ...(target && { target }) }
    : { ...fields, columns, constraint }
}

/** Returns the fields for an error of PostgreSQL, or undefined if it is not about a rule of the tables. */
export function findViolationFields(
  error: unknown,
  codecs: ReadonlySet<TableCodec>,
): ViolationFields | undefined {
  const violation = Refusal.of(error, codecs)?.violation
  return violation && violationFields(violation)
}

/** Returns the link that a transaction would have broken, or undefined for any other error. */
export function findBrokenLink(error: unknown): Violation['broken'] {
  return Refusal.of(error, [])?.violation?.broken
}

/** Returns the error for a rule that is broken, whose message says so in the words of the caller. */
export function violationError(
  { code, ...details }: ViolationFields & { readonly record?: string },
  message: string,
  cause?: unknown,
): AppError {
  return new AppError(code, message, { cause, details })
}

/** The violation by a record whose value of a unique column, or whose id, is taken. */
export function columnTaken(codec: TableCodec, path = 'id'): Violation {
  const message = `column [${path}]: is not unique`
  return { kind: 'unique', codec, columns: [path], constraint: undefined, message }
}

export function ruleBroken(violation: Violation, record?: string): AppError {
  return violationError(
    withRecord(violationFields(violation), record),
    `invalid record: ${violation.message}`,
  )
}

function withRecord(fields: ViolationFields, record: string | undefined) {
  return record === undefined || !('constraint' in fields) ? fields : { ...fields, record }
}

export function recordNotFound(tableName: string, id: string): AppError {
  return new AppError('record_not_found', `table [${tableName}]: record [${id}] not found`)
}

export function versionConflict(): AppError {
  return new AppError('version_conflict', 'version condition not met')
}

/** Converts an error of PostgreSQL about a value to an AppError. Returns other errors unchanged. */
export function toRecordError(error: unknown, codec: TableCodec, record?: string): unknown {
  if (findBrokenLink(error) !== undefined) return error
  const refusal = Refusal.of(error, [codec])?.message
  if (refusal === undefined) return error
  const fields = findViolationFields(error, new Set([codec]))
  if (fields !== undefined) {
    return violationError(withRecord(fields, record), `invalid record: ${refusal}`, error)
  }
  return new AppError('invalid_record', `invalid record: ${refusal}`, { cause: error })
}
