import { AppError } from '@offshoot/contract/errors'
import { codeOf, constraintOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import type { Fault } from '../../rows/columns/fault.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'

const NUMERIC_OUT_OF_RANGE = '22003'
const PROGRAM_LIMIT_EXCEEDED = '54000'

/** Every fault of a record in one message. */
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

/** The column whose rule a failed statement broke; undefined when it failed for another reason. */
export function brokenRule(
  error: unknown,
  codecs: Iterable<TableCodec>,
): { codec: TableCodec; column: string } | undefined {
  if (codeOf(error) !== UNIQUE_VIOLATION) return undefined
  const match = /_c(\d+)_unique$/.exec(constraintOf(error) ?? '')
  const columnId = match === null ? undefined : Number(match[1])
  for (const codec of codecs) {
    const found = codec.physical.find((column) => column.id === columnId)
    if (found !== undefined) return { codec, column: found.path.join('.') }
  }
  return undefined
}

/** What PostgreSQL refused about values, in our words; undefined when it failed for another reason. */
export function describeRefusal(error: unknown, codecs: Iterable<TableCodec>): string | undefined {
  switch (codeOf(error)) {
    case UNIQUE_VIOLATION:
      return `column [${brokenRule(error, codecs)?.column ?? 'id'}]: is not unique`
    case NUMERIC_OUT_OF_RANGE:
      return 'the result is out of range'
    case PROGRAM_LIMIT_EXCEEDED:
      return 'a value of a unique column is too long; about 2700 bytes can be indexed'
    default:
      return undefined
  }
}

/** The public form of what PostgreSQL refused about the values of one record. */
export function toRecordError(error: unknown, codec: TableCodec): unknown {
  const refusal = describeRefusal(error, [codec])
  return refusal === undefined
    ? error
    : new AppError('invalid_record', `invalid record: ${refusal}`)
}
