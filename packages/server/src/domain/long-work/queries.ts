import type { ErrorBody } from '@offshoot/contract/errors'
import {
  OPERATION_DAYS_MAX,
  type OperationKind,
  type Progress,
} from '@offshoot/contract/operations'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'

/** The process that does the work is gone if it has not said anything for this time. */
const LOST_SECONDS = 60

/** How an operation has ended. */
export type Outcome =
  | { readonly state: 'done'; readonly result: object }
  | { readonly state: 'failed' | 'cancelled'; readonly error: ErrorBody }

export interface OperationRow {
  readonly id: string
  readonly workspaceId: string
  readonly database: string
  readonly branch: string
  readonly kind: OperationKind
  readonly state: 'running' | Outcome['state']
  /** It is running, and its process is gone. */
  readonly isLost: boolean
  readonly progress: string
  readonly result: string | null
  readonly error: string | null
  readonly startedAt: Date
  readonly endedAt: Date | null
}

interface NewOperation {
  readonly id: string
  readonly databaseId: string
  readonly branchName: string
  readonly kind: OperationKind
  readonly progress: Progress
  readonly startedAt: Date
}

/*
 * The process that works on an operation runs these statements beside its pool: the work may hold a connection of it.
 */

export function insertOperation(operation: NewOperation): Sql {
  const { id, databaseId, branchName, kind, progress, startedAt } = operation
  return sql`
    insert into offshoot_work.operations
      (id, database_id, branch_name, kind, progress, started_at)
    values (${id}, ${databaseId}::bigint, ${branchName}, ${kind}, ${JSON.stringify(progress)},
      ${startedAt.toISOString()}::timestamptz)`
}

/** Notes how far an operation has come. Returns no row if it was cancelled or has ended. */
export const updateProgress = ({ id, progress }: { id: string; progress: Progress }): Sql => sql`
    update offshoot_work.operations
    set progress = ${JSON.stringify(progress)}, seen_at = clock_timestamp()
    where id = ${id} and state = 'running' and not is_cancelled
    returning 1`

/** Ends an operation. Returns no row if it has ended before. */
export function endOperation(id: string, outcome: Outcome): Sql {
  const result = outcome.state === 'done' ? JSON.stringify(outcome.result) : null
  const error = outcome.state === 'done' ? null : JSON.stringify(outcome.error)
  return sql`
    update offshoot_work.operations
    set state = ${outcome.state}, result = ${result}, error = ${error}, ended_at = clock_timestamp()
    where id = ${id} and state = 'running'
    returning 1`
}

/** Finds an operation in a workspace that the user is a member of. */
export async function findOperation(
  database: Queryable,
  { id, userId }: { id: string; userId: string },
): Promise<OperationRow | undefined> {
  const [row] = await database.query<OperationRow>(sql`
    select o.id, d.workspace_id as "workspaceId", d.name as database, o.branch_name as branch, o.kind, o.state,
      o.state = 'running' and o.seen_at < clock_timestamp() - make_interval(secs => ${LOST_SECONDS}) as "isLost",
      o.progress, o.result, o.error, o.started_at as "startedAt", o.ended_at as "endedAt"
    from offshoot_work.operations o
    join offshoot.databases d on d.id = o.database_id
    join offshoot.members m on m.workspace_id = d.workspace_id and m.user_id = ${userId}
    where o.id = ${id}`)
  return row
}

/** Asks the process that does the work to stop. */
export async function markCancelled(database: Queryable, id: string): Promise<void> {
  await database.query(sql`
    update offshoot_work.operations set is_cancelled = true where id = ${id} and state = 'running'`)
}

/** Ends operations whose process is gone. It cannot end them itself any more. */
export async function endLost(database: Queryable, error: ErrorBody): Promise<void> {
  await database.query(sql`
    update offshoot_work.operations
    set state = 'failed', error = ${JSON.stringify(error)}, ended_at = clock_timestamp()
    where state = 'running' and seen_at < clock_timestamp() - make_interval(secs => ${LOST_SECONDS})`)
}

/** Deletes some operations that are no longer kept. Returns their number. */
export async function deleteEnded(database: Queryable, limit: number): Promise<number> {
  const rows = await database.query(sql`
    delete from offshoot_work.operations
    where id = any(array(
      select id
      from offshoot_work.operations
      where ended_at < now() - make_interval(days => ${OPERATION_DAYS_MAX})
      limit ${limit}
    ))
    returning 1`)
  return rows.length
}
