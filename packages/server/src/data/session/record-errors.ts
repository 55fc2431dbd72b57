import { AppError } from '@offshoot/contract/errors'
import type { Fault, TableCodec } from '../../rows/columns.js'
import { describeRefusal } from '../../rows/write.js'

/** Reports all faults of a record in one message. */
export function invalidRecord(faults: readonly Fault[]): AppError {
  return new AppError(
    'invalid_record',
    `invalid record: ${faults.map((fault) => fault.message).join('; ')}`,
  )
}

export function notUnique(path: string): AppError {
  return new AppError('invalid_record', `invalid record: column [${path}]: is not unique`)
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
  return new AppError('invalid_record', `invalid record: ${refusal}`, { cause: error })
}
