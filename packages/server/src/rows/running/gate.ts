import type { Queryable } from '../../postgres/database.js'
import { ident, join, sql } from '../../postgres/sql.js'

/**
 * Locks the gate of a branch: in exclusive mode with `alone`, for forks and schema edits, otherwise in the
 * mode that writers share. It must be the first statement of the transaction. `lock table` takes no snapshot,
 * so the transaction sees everything that was committed before it got the lock. A lock function called in a
 * `select` would take the snapshot before it waits, and a write could then miss a fork.
 */
export async function enterGate(
  transaction: Queryable,
  options: { gate: number; alone: boolean },
): Promise<void> {
  const gate = ident(gateName(options.gate))
  await transaction.query(
    options.alone
      ? sql`lock table offshoot.${gate} in exclusive mode`
      : sql`lock table offshoot.${gate} in row share mode`,
  )
}

/** The number of gate tables in the catalogue. */
const GATES = 64

/** Locks all gates in the mode of writers. Blocks forks and schema edits of every branch, but no writers. */
export async function enterAllGates(transaction: Queryable): Promise<void> {
  const gates = Array.from({ length: GATES }, (_, gate) => sql`offshoot.${ident(gateName(gate))}`)
  await transaction.query(sql`lock table ${join(gates, ', ')} in row share mode`)
}

export function gateName(gate: number): string {
  return `gate_${gate}`
}
