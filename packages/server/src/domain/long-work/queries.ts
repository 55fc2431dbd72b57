import type { ErrorBody } from '@offshoot/contract/errors'
import {
  OPERATION_DAYS_MAX,
  OPERATIONS_LISTED_MAX,
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

/** Whether an operation `o` has not ended. */
const isRunning = sql`not exists (
      select from offshoot_work.operation_ends e
      where e.operation_id = o.id
    )`

/** Notes how far an operation has come. Returns no row if it was cancelled or has ended. */
export const updateProgress = ({ id, progress }: { id: string; progress: Progress }): Sql => sql`
    update offshoot_work.operations o
    set progress = ${JSON.stringify(progress)}, seen_at = clock_timestamp()
    where id = ${id} and not is_cancelled and ${isRunning}
    returning 1`

/** Ends an operation. Returns no row if it has ended before. */
export function endOperation(id: string, outcome: Outcome): Sql {
  const result = outcome.state === 'done' ? JSON.stringify(outcome.result) : null
  const error = outcome.state === 'done' ? null : JSON.stringify(outcome.error)
  return sql`
    insert into offshoot_work.operation_ends (operation_id, state, result, error)
    values (${id}, ${outcome.state}, ${result}, ${error})
    on conflict do nothing
    returning 1`
}

/** The columns of an operation `o` of a database `d` that has ended as `e` says, without its result. */
const columns = sql`
    o.id, d.workspace_id as "workspaceId", d.name as database, o.branch_name as branch, o.kind,
      coalesce(e.state, 'running') as state,
      e.state is null and o.seen_at < clock_timestamp() - make_interval(secs => ${LOST_SECONDS}) as "isLost",
      o.progress, e.error, o.started_at as "startedAt", e.ended_at as "endedAt"`

/** Finds an operation in a workspace that the user is a member of. */
export async function findOperation(
  database: Queryable,
  { id, userId }: { id: string; userId: string },
): Promise<OperationRow | undefined> {
  const [row] = await database.query<OperationRow>(sql`
    select ${columns}, e.result
    from offshoot_work.operations o
    left join offshoot_work.operation_ends e on e.operation_id = o.id
    join offshoot.databases d on d.id = o.database_id
    join offshoot.members m on m.workspace_id = d.workspace_id and m.user_id = ${userId}
    where o.id = ${id}`)
  return row
}

/** Lists the newest operations of a branch, without their results. */
export function listOperationsOf(
  database: Queryable,
  { databaseId, branchName }: { databaseId: string; branchName: string },
): Promise<OperationRow[]> {
  return database.query<OperationRow>(sql`
    select ${columns}, null as result
    from offshoot_work.operations o
    left join offshoot_work.operation_ends e on e.operation_id = o.id
    join offshoot.databases d on d.id = o.database_id
    where o.database_id = ${databaseId}::bigint and o.branch_name = ${branchName}
    order by o.started_at desc, o.id
    limit ${OPERATIONS_LISTED_MAX}`)
}

/** Asks the process that does the work to stop. */
export async function markCancelled(database: Queryable, id: string): Promise<void> {
  await database.query(sql`
    update offshoot_work.operations o set is_cancelled = true where id = ${id} and ${isRunning}`)
}

/** Ends operations whose process is gone. It cannot end them itself any more. */
export async function endLost(database: Queryable, error: ErrorBody): Promise<void> {
  await database.query(sql`
    insert into offshoot_work.operation_ends (operation_id, state, error)
    select o.id, 'failed', ${JSON.stringify(error)}
    from offshoot_work.operations o
    where o.seen_at < clock_timestamp() - make_interval(secs => ${LOST_SECONDS}) and ${isRunning}
    on conflict do nothing`)
}

/** Deletes some operations that are no longer kept. Returns their number. */
export async function deleteEnded(database: Queryable, limit: number): Promise<number> {
  const rows = await database.query(sql`
    with ended as (
      delete from offshoot_work.operation_ends
      where operation_id = any(array(
        select operation_id
        from offshoot_work.operation_ends
        where ended_at < now() - make_interval(days => ${OPERATION_DAYS_MAX})
        limit ${limit}
      ))
      returning operation_id
    )
    delete from offshoot_work.operations
    where id in (select operation_id from ended)
    returning 1`)
  return rows.length
}

/** Finds the branch and the table whose rows are in a heap. */
export async function findHeapPlace(
  database: Queryable,
  heapId: string,
): Promise<{ branchName: string; tableName: string } | undefined> {
  const [row] = await database.query<{ branchName: string; tableName: string }>(sql`
    select b.name as "branchName", t ->> 'name' as "tableName"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    cross join jsonb_array_elements(s.document -> 'tables') t
    where h.id = ${heapId} and (t ->> 'id')::bigint = h.table_id`)
  return row
}

/** The progress of an index that a backend builds: in blocks, in tuples, or in lock holders that it waits for. */
export const findBuildProgress = (backendId: number): Sql => sql`
    select phase,
      (case when blocks_total > 0 then blocks_done when tuples_total > 0 then tuples_done
        else lockers_done end)::float8 as done,
      greatest(1, case when blocks_total > 0 then blocks_total when tuples_total > 0 then tuples_total
        else lockers_total end)::float8 as total
    from pg_stat_progress_create_index
    where pid = ${backendId}`

/** Stops a backend that builds an index if the operation was cancelled. Returns a row then. */
export const cancelBuild = ({ id, backendId }: { id: string; backendId: number }): Sql => sql`
    select (
      select pg_cancel_backend(pid) from pg_stat_progress_create_index where pid = ${backendId}
    )
    from offshoot_work.operations
    where id = ${id} and is_cancelled`
