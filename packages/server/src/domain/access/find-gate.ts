import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { isLive } from './is-live.js'

export interface BranchGate {
  readonly id: string
  readonly name: string
  readonly gate: number
  /** Whether the branch has a `ttl`, so that each use postpones its expiry. */
  readonly isSliding: boolean
}

/** Finds the gate of a branch, by which the branch is locked. The gate of a branch never changes. */
export async function findGate(
  database: Queryable,
  branch: { databaseId: string; id?: string; name?: string },
): Promise<BranchGate | undefined> {
  const [row] = await database.query<BranchGate>(sql`
    select id, name, gate, ttl_seconds is not null as "isSliding"
    from offshoot.branches
    where database_id = ${branch.databaseId}
      and (id = ${branch.id ?? null} or name = ${branch.name ?? null})
      and ${isLive}`)
  return row
}
