import type { Queryable } from '../../postgres/database.js'
import { ident, join, sql } from '../../postgres/sql.js'

/**
 * Forks and schema edits exclude writers of their branch for a moment; writers do not exclude each
 * other. The lock must be the transaction's first statement: `lock table` takes no snapshot, so what
 * the transaction reads afterwards is never older than the moment it got in. A lock function called
 * in a `select` would take the snapshot before it waits, and a write could slip into a fork that has
 * already happened.
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

/** As many as the catalogue has. */
const GATES = 64

/** Keeps forks and schema edits of every branch out for a moment; writers go on. */
export async function enterAllGates(transaction: Queryable): Promise<void> {
  const gates = Array.from({ length: GATES }, (_, gate) => sql`offshoot.${ident(gateName(gate))}`)
  await transaction.query(sql`lock table ${join(gates, ', ')} in row share mode`)
}

export function gateName(gate: number): string {
  return `gate_${gate}`
}
