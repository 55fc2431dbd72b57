import { sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type Statement } from '../../postgres/statement.js'

const withoutValues = (statement: Statement): Call => ({ statement, values: [] })

export const BEGIN = withoutValues(compileStatement(sql`begin isolation level serializable`))
export const BEGIN_READS = withoutValues(
  compileStatement(sql`begin isolation level serializable read only`),
)
export const BEGIN_SNAPSHOT = withoutValues(
  compileStatement(sql`begin isolation level repeatable read read only`),
)
export const NO_TIMEOUT = withoutValues(compileStatement(sql`set local statement_timeout = 0`))

/**
 * A COPY of rows, which need the epoch of the branch. It is known behind the gate, so the transaction makes
 * the lines.
 */
export interface CopyCall extends Call {
  linesIn(epoch: string): string
}

export function isCopyCall(call: Call): call is CopyCall {
  return 'linesIn' in call
}
