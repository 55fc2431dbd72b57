import { codeOf, constraintOf, UNIQUE_VIOLATION } from '../../postgres/failures.js'
import type { TableCodec } from '../columns/table-codec.js'
import { columnOfUniqueIndex } from '../layout/layout.js'

/*
 * PostgreSQL reports values that cannot be stored by a SQLSTATE and the name of an index. Here they
 * become sentences about the columns that users know.
 */

const NUMERIC_OUT_OF_RANGE = '22003'
const PROGRAM_LIMIT_EXCEEDED = '54000'

/** A value that must be unique is taken: of the given column, or of the id. */
export class TakenError extends Error {
  readonly code = UNIQUE_VIOLATION

  constructor(
    /** The number of rows that were added before the one at fault. */
    readonly row: number,
    readonly columnId: number | undefined,
  ) {
    super('a value is taken')
  }
}

/** The column whose unique value is taken; undefined when it is the id, or when it failed otherwise. */
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

/** Why PostgreSQL refused values; undefined when a statement failed for another reason. */
export function describeRefusal(error: unknown, codecs: Iterable<TableCodec>): string | undefined {
  switch (codeOf(error)) {
    case UNIQUE_VIOLATION:
      return `column [${takenColumn(error, codecs)?.column ?? 'id'}]: is not unique`
    case NUMERIC_OUT_OF_RANGE:
      return 'the result is out of range'
    case PROGRAM_LIMIT_EXCEEDED:
      return 'a value of a unique column is too long; about 2700 bytes can be indexed'
    default:
      return undefined
  }
}

/** The number of rows before the one that a failed sink is about, when that is known. */
export function rowsBefore(error: unknown): number | undefined {
  if (error instanceof TakenError) return error.row
  const { where } = error as { where?: unknown }
  // PostgreSQL names the line of the copy in which it found a taken value.
  const line = typeof where === 'string' ? /, line (\d+)/.exec(where)?.[1] : undefined
  return line === undefined ? undefined : Number(line) - 1
}
