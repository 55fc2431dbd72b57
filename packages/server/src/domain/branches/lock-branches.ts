import { AppError } from '@offshoot/contract/errors'
import type { Database, Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { enterGate } from '../../rows/branches.js'
import { findGate } from '../access/find-gate.js'
import { isLive } from '../access/is-live.js'
import type { BranchAccess } from '../access/resolve.js'

/** Lists the gates of branches in ascending order. A common lock order prevents deadlocks. */
export async function listGates(
  database: Database,
  branches: readonly BranchAccess[],
): Promise<number[]> {
  const gates = new Set<number>()
  for (const branch of branches) {
    const found = await findGate(database, { databaseId: branch.databaseId, id: branch.branchId })
    if (found === undefined) throw branchNotFound(branch)
    gates.add(found.gate)
  }
  return [...gates].sort((left, right) => left - right)
}

/** Locks the branches until the transaction ends: no one else can write to them or delete them. */
export async function lockBranches(
  transaction: Queryable,
  branches: readonly BranchAccess[],
  gates: readonly number[],
): Promise<void> {
  for (const gate of gates) await enterGate(transaction, { gate, alone: true })
  const rows = await transaction.query<{ id: string }>(sql`
    select id
    from offshoot.branches
    where id = any(${branches.map((branch) => branch.branchId)}::text[]) and ${isLive}
    order by id
    for no key update`)
  const ids = new Set(rows.map((row) => row.id))
  const gone = branches.find((branch) => !ids.has(branch.branchId))
  if (gone !== undefined) throw branchNotFound(gone)
}

function branchNotFound({ branchName }: BranchAccess): AppError {
  return new AppError('branch_not_found', `branch [${branchName}] not found`)
}
