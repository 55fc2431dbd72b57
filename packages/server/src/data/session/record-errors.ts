import { AppError } from '@offshoot/contract/errors'
import type { Fault } from '../../rows/columns/fault.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { describeRefusal, isTaken, takenColumn } from '../../rows/writing/refusals.js'

/** Reports all faults of a record in one message. */
export function invalidRecord(faults: readonly Fault[]): AppError {
  return new AppError(
    'invalid_record',
    `invalid record: ${faults.map((fault) => fault.message).join('; ')}`,
  )
}

/** The fields of an error, or of one entry of its list, about a value that is taken. */
export interface TakenFields {
  readonly code: 'unique_violation'
  readonly table: string
  readonly column: string
}

export function takenFields({ table }: TableCodec, column: string): TakenFields {
  return { code: 'unique_violation', table: table.name, column }
}

/** Returns the fields for an error of PostgreSQL, or undefined if it is not about a taken value. */
export function findTakenFields(
  error: unknown,
  codecs: ReadonlySet<TableCodec>,
): TakenFields | undefined {
  const [first] = codecs
  if (!isTaken(error) || first === undefined) return undefined
  const found = takenColumn(error, codecs)
  return takenFields(found?.codec ?? first, found?.column ?? 'id')
}

/** Returns the error for a value that is taken, whose message says so in the words of the caller. */
export function uniqueViolation(
  { code, table, column }: TakenFields,
  message: string,
  cause?: unknown,
): AppError {
  return new AppError(code, message, { cause, details: { table, column } })
}

export function notUnique(codec: TableCodec, path: string): AppError {
  return uniqueViolation(
    takenFields(codec, path),
    `invalid record: column [${path}]: is not unique`,
  )
}

export function recordNotFound(tableName: string, id: string): AppError {
  return new AppError('record_not_found', `table [${tableName}]: record [${id}] not found`)
}

export function versionConflict(): AppError {
  return new AppError('version_conflict', 'version condition not met')
}

/** Converts an error of PostgreSQL about a value to an AppError. Returns other errors unchanged. */
export function toRecordError(error: unknown, codec: TableCodec): unknown {
  const refusal = describeRefusal(error, [codec])
  if (refusal === undefined) return error
  const taken = findTakenFields(error, new Set([codec]))
  if (taken !== undefined) return uniqueViolation(taken, `invalid record: ${refusal}`, error)
  return new AppError('invalid_record', `invalid record: ${refusal}`, { cause: error })
}
