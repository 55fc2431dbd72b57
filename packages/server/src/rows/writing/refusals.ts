import { codeOf, constraintOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import type { TableCodec } from '../columns/table-codec.js'
import { columnOfUniqueIndex } from '../layout/layout.js'

/*
 * PostgreSQL reports rejected values by a SQLSTATE and the name of an index. This module converts them to
 * messages with the names of columns.
 */

const NUMERIC_OUT_OF_RANGE = '22003'
const PROGRAM_LIMIT_EXCEEDED = '54000'

/** A unique value is taken: of the given column, or of the id if the column is undefined. */
export class TakenError extends Error {
  readonly code = UNIQUE_VIOLATION

  constructor(
    /** The number of rows that were added before the invalid one. */
    readonly row: number,
    readonly columnId: number | undefined,
  ) {
    super('a value is taken')
  }
}

/** Returns whether an id or a unique value is taken. */
export function isTaken(error: unknown): boolean {
  return codeOf(error) === UNIQUE_VIOLATION
}

/** Returns the column whose unique value is taken. undefined if it is the id, or for any other error. */
export function takenColumn(
  error: unknown,
  codecs: Iterable<TableCodec>,
): { codec: TableCodec; column: string } | undefined {
  if (codeOf(error) !== UNIQUE_VIOLATION) return undefined
  const columnId =
    error instanceof TakenError ? error.columnId : columnOfUniqueIndex(constraintOf(error) ?? '')
  for (const codec of codecs) {
    const found = codec.physical.find((column) => column.id === columnId)
    if (found !== undefined) return { codec, column: found.path.join('.') }
  }
  return undefined
}

/** The largest version of a row. */
const ROW_VERSION_MAX = 2 ** 31 - 1

/** The function of PostgreSQL that calculates the version of a row. Arithmetic of users never uses it. */
const VERSION_ROUTINE = 'int4pl'

/**
 * A node of a cluster reports the message, in English, and not the function. Arithmetic of users never yields this one:
 * their numbers are larger.
 */
function isVersionOverflow(error: unknown): boolean {
  const { routine, message } = error as { routine?: unknown; message?: unknown }
  return routine === VERSION_ROUTINE || (routine === NODE_ROUTINE && message === INTEGER_OVERFLOW)
}
const NODE_ROUTINE = 'ReportResultError'
const INTEGER_OVERFLOW = 'integer out of range'

/** Returns the reason why PostgreSQL rejected a value, or undefined for other failures. */
export function describeRefusal(error: unknown, codecs: Iterable<TableCodec>): string | undefined {
  switch (codeOf(error)) {
    case UNIQUE_VIOLATION:
      return `column [${takenColumn(error, codecs)?.column ?? 'id'}]: is not unique`
    case NUMERIC_OUT_OF_RANGE:
      return isVersionOverflow(error)
        ? `the versions of the record are used up; the last one is ${ROW_VERSION_MAX}; delete it and create it again`
        : 'the result is out of range'
    case PROGRAM_LIMIT_EXCEEDED:
      return 'a value of a unique column is too long; about 2700 bytes can be indexed'
    default:
      return undefined
  }
}

/** Returns the number of rows before the one that made a sink fail, if known. */
export function rowsBefore(error: unknown): number | undefined {
  if (error instanceof TakenError) return error.row
  const { where } = error as { where?: unknown }
  // PostgreSQL reports the line of the COPY that has a taken value.
  const line = typeof where === 'string' ? /, line (\d+)/.exec(where)?.[1] : undefined
  return line === undefined ? undefined : Number(line) - 1
}
