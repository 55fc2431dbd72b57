import { AppError, type ViolationCode } from '@offshoot/contract/errors'
import { shownValue } from '../../common/shown-value.js'
import type { TextRow } from '../../postgres/statement.js'
import type { Fault } from '../../rows/columns/fault.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { Refusal } from '../../rows/writing/refusals.js'

/** Reports all faults of a record in one message. The error names the first column at fault. */
export function invalidRecord(
  codec: TableCodec,
  faults: readonly Fault[],
  record?: string,
): AppError {
  const { message, ...fields } = describeFaults(codec, faults)
  if (fields.code !== undefined) return violationError(fields, message)
  return invalidValue(codec, message, {
    column: faults.find(({ column }) => column)?.column,
    record,
  })
}

/** Returns the error for a value that a record of a table cannot have. */
export function invalidValue(
  { table }: TableCodec,
  message: string,
  {
    column,
    record,
    cause,
  }: { column?: string | undefined; record?: string | undefined; cause?: unknown },
): AppError {
  const details = { table: table.name, ...(column && { column }), ...(record && { record }) }
  return new AppError('invalid_record', message, { details, ...(cause !== undefined && { cause }) })
}

/** An invalid record: what is wrong, and the rule if it is nothing but that values are missing. */
export type InvalidRecord = { readonly message: string } & (
  | ViolationFields
  | { readonly code?: never }
)

export function describeFaults(codec: TableCodec, faults: readonly Fault[]): InvalidRecord {
  const message = `invalid record: ${faults.map((fault) => fault.message).join('; ')}`
  return { message, ...missingFields(codec, faults) }
}

/** Returns the fields of an error for a record whose only faults are missing values. They name the first column. */
export function missingFields(
  { table }: TableCodec,
  faults: readonly Fault[],
): ViolationFields | undefined {
  const [column] = faults.map(({ missing }) => missing)
  const areMissing = faults.every(({ missing }) => missing !== undefined)
  if (column === undefined || !areMissing) return undefined
  return { code: 'not_null_violation', table: table.name, column }
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

/** Returns the rule that a transaction would have broken when it ends, except for links, or undefined. */
export function findBrokenAtEnd(error: unknown): Violation | undefined {
  const violation = Refusal.of(error, [])?.violation
  return violation?.records === undefined ? undefined : violation
}

/** Returns whether an error, or an entry of its list, is about a rule that later writes of its transaction may keep again. */
export function mayHeal({ code, column }: { code?: string; column?: unknown }): boolean {
  return code === 'check_violation' || (code === 'unique_violation' && column !== 'id')
}

/** Returns the error for a rule that is broken, whose message says so in the words of the caller. */
export function violationError(
  { code, ...details }: ViolationFields & { readonly record?: string },
  message: string,
  cause?: unknown,
): AppError {
  return new AppError(code, message, { cause, details })
}

/**
 * Returns an error that names the record which breaks a rule, and its values of a unique key. `found` has the id and the
 * values. undefined: the record is not known.
 */
export function naming(error: AppError, found: TextRow | undefined): AppError {
  const [record, ...values] = found ?? []
  if (typeof record !== 'string') return error
  const { code, message, cause } = error
  const shown = values.length === 0 ? {} : { values: values.map(shownValue) }
  const details = { ...error.details, record, ...shown }
  return new AppError(code, message, { ...(cause !== undefined && { cause }), details })
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
  const isNamed = 'constraint' in fields || fields.code === 'check_violation'
  return record === undefined || !isNamed ? fields : { ...fields, record }
}

export function recordNotFound(tableName: string, id: string): AppError {
  return new AppError('record_not_found', `table [${tableName}]: record [${id}] not found`)
}

/** Returns the error for a request for a record whose id the table cannot have. */
export function impossibleRecord({ table }: TableCodec, id: string, fault: Fault): AppError {
  return new AppError(
    'record_not_found',
    `table [${table.name}]: record [${id}] not found: ${fault.message}`,
  )
}

export function versionConflict(): AppError {
  return new AppError('version_conflict', 'version condition not met')
}

/** Converts an error of PostgreSQL about a value to an AppError. Returns other errors unchanged. */
export function toRecordError(error: unknown, codec: TableCodec, record?: string): unknown {
  // A rule that was broken at the end of a transaction says more.
  if (error instanceof AppError) return error
  const refusal = Refusal.of(error, [codec])?.message
  if (refusal === undefined) return error
  const fields = findViolationFields(error, new Set([codec]))
  if (fields !== undefined) {
    return violationError(withRecord(fields, record), `invalid record: ${refusal}`, error)
  }
  return invalidValue(codec, `invalid record: ${refusal}`, { record, cause: error })
}
