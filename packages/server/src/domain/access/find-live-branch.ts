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

/** Identifies a branch of a database by its id or its name, or several by their names. */
export interface BranchIdentity {
  readonly databaseId: string | Sql
  readonly id?: string | Sql
  readonly name?: string
  readonly names?: readonly string[]
}

export async function findLiveBranch(
  database: Queryable,
  branch: BranchIdentity,
): Promise<LiveBranch | undefined> {
  const [row] = await database.query<LiveBranch>(prepared(liveBranchSql(branch)))
  return row
}

export function liveBranchSql({ databaseId, id, name, names }: BranchIdentity): Sql {
  const isNamed =
    names === undefined ? sql`name = ${name ?? null}` : sql`name = any(${names}::text[])`
  return sql`
    select id, name, ttl_seconds is not null as "isSliding"
    from offshoot.branches
    where database_id = ${databaseId}
      and (id = ${id ?? null} or ${isNamed})
      and ${isLive}`
}
