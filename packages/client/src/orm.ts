import { OffshootError } from './errors.js'
import type { SqlArrays, SqlRunner, SqlStatement } from './sql.js'

/** The part of a branch that an ORM needs. A client has it as well: it uses its own branch. */
export interface SqlBranch {
  readonly sql: SqlRunner
}

/** Explains why a transaction is refused. `instead` is the way that works. */
export function interactiveTransaction(instead: string): Error {
  return new Error(
    `Offshoot runs SQL over HTTP, so a transaction cannot stay open between statements. ${instead}`,
  )
}

/** Runs statements as one transaction. Throws if the service does not return all rows of a result. */
export async function runStatements(
  { sql }: SqlBranch,
  statements: readonly SqlStatement[],
): Promise<readonly SqlArrays[]> {
  const results = await sql.arrays(
    statements.map(({ statement, params = [] }) => ({ statement, params: params.map(encode) })),
  )
  for (const { warning } of results) if (warning !== undefined) throw incomplete(warning)
  return results
}

/** Returns a value in a form that JSON can express. Dates become texts by themselves. */
function encode(value: unknown): unknown {
  if (typeof value === 'bigint') return String(value)
  if (Array.isArray(value)) return value.map(encode)
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) {
    throw new TypeError('SQL cannot write binary values: store them as a file of a record')
  }
  return value ?? null
}

/** An ORM has no place for a warning, and its caller would take the rows for all of them. */
function incomplete(warning: string): OffshootError {
  return new OffshootError(warning, { code: 'incomplete_result', status: 200 })
}
