import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { isLive } from './is-live.js'

/** A branch that is neither deleted nor expired. */
export interface LiveBranch {
  readonly id: string
  readonly name: string
  /** Whether the branch has a `ttl`, so that each use postpones its expiry. */
  readonly isSliding: boolean
}

export async function findLiveBranch(
  database: Queryable,
  branch: { databaseId: string; id?: string; name?: string },
): Promise<LiveBranch | undefined> {
  const [row] = await database.query<LiveBranch>(
    prepared(sql`
    select id, name, ttl_seconds is not null as "isSliding"
    from offshoot.branches
    where database_id = ${branch.databaseId}
      and (id = ${branch.id ?? null} or name = ${branch.name ?? null})
      and ${isLive}`),
  )
  return row
}
