import { ident, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type Statement } from '../../postgres/statement.js'
import { gateName } from './gate.js'

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

const gates = new Map<number, Call>()

/** Enters a gate as a writer, together with other writers. */
export function enterGateCall(gate: number): Call {
  let call = gates.get(gate)
  if (call === undefined) {
    call = withoutValues(
      compileStatement(sql`lock table offshoot.${ident(gateName(gate))} in row share mode`),
    )
    gates.set(gate, call)
  }
  return call
}
