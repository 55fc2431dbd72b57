import type { Queryable } from '../../postgres/database.js'
import { join, type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { isLive } from './is-live.js'

/** A branch that is neither deleted nor expired. */
export interface LiveBranch {
  readonly id: string
  readonly name: string
  /** Whether the branch has a `ttl`, so that each use postpones its expiry. */
  readonly isSliding: boolean
}

/** Identifies branches of a database by an id, by names, or both. */
export interface BranchIdentity {
  readonly databaseId: string | Sql
  readonly id?: string | Sql
  readonly names?: readonly string[]
}

export async function findLiveBranch(
  database: Queryable,
  branch: BranchIdentity,
): Promise<LiveBranch | undefined> {
  const [row] = await database.query<LiveBranch>(prepared(liveBranchSql(branch)))
  return row
}

/**
 * One lookup for each way to identify a branch: for a condition with `or`, PostgreSQL reads all branches of the database. A
 * lookup by id must not use an index on databases either, which seems as good while there are few branches.
 */
export function liveBranchSql({ databaseId, id, names }: BranchIdentity): Sql {
  const lookups: Sql[] = []
  if (id !== undefined)
    lookups.push(sql`id = ${id} and database_id is not distinct from ${databaseId}`)
  if (names !== undefined)
    lookups.push(sql`database_id = ${databaseId} and name = any(${names}::text[])`)
  const selects = lookups.map(
    (isMeant) => sql`
    select id, name, ttl_seconds is not null as "isSliding"
    from offshoot.branches
    where ${isMeant} and ${isLive}`,
  )
  return join(selects, ' union ')
}
