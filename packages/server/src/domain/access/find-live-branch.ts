import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { isLive } from './is-live.js'

/** A branch that is neither deleted nor expired. */
export interface LiveBranch {
  readonly id: string
  readonly name: string
  /** Whether the branch has a `ttl`, so that each use postpones its expiry. */
  readonly isSliding: boolean
}

/** Identifies a branch of a database, by its id or its name. */
type BranchIdentity = { readonly databaseId: string } & (
  | { readonly id: string }
  | { readonly name: string }
)

export async function findLiveBranch(
  database: Queryable,
  branch: BranchIdentity,
): Promise<LiveBranch | undefined> {
  const [row] = await database.query<LiveBranch>(prepared(liveBranchSql(branch)))
  return row
}

/**
 * A lookup by id must not use an index on databases, which PostgreSQL takes for as good while there are few branches: no
 * index helps with `is not distinct from`.
 */
export function liveBranchSql(branch: BranchIdentity): Sql {
  const { databaseId } = branch
  const isMeant =
    'id' in branch
      ? sql`id = ${branch.id} and database_id is not distinct from ${databaseId}`
      : sql`database_id = ${databaseId} and name = ${branch.name}`
  return sql`
    select id, name, ttl_seconds is not null as "isSliding"
    from offshoot.branches
    where ${isMeant} and ${isLive}`
}
