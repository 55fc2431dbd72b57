import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/** The quota of a workspace, and its usage as of the last measurement. */
export interface UsageRow {
  readonly workspaceId: string
  /** The quota of the workspace, or else the default. Null means unlimited. */
  readonly bytesMax: number | null
  readonly rowBytes: number
  readonly fileBytes: number
  readonly measuredAt: Date | null
  /** A time of the clock of PostgreSQL, like `measuredAt`. */
  readonly readAt: Date
}

/** Bytes are read as doubles, which represent integers exactly up to 2^53. */
export async function listUsage(
  database: Queryable,
  options: { workspaceIds: readonly string[]; bytesMaxDefault: number | null },
): Promise<UsageRow[]> {
  const { workspaceIds, bytesMaxDefault } = options
  return database.query<UsageRow>(sql`
    select w.id as "workspaceId", u.measured_at as "measuredAt", clock_timestamp() as "readAt",
      coalesce(w.bytes_max, ${bytesMaxDefault}::bigint)::float8 as "bytesMax",
      coalesce(u.row_bytes, 0)::float8 as "rowBytes",
      coalesce(u.file_bytes, 0)::float8 as "fileBytes"
    from offshoot.workspaces w
    left join offshoot.workspace_usage u on u.workspace_id = w.id
    where w.id = any(${workspaceIds}::text[])`)
}

export async function getUsage(
  database: Queryable,
  options: { workspaceId: string; bytesMaxDefault: number | null },
): Promise<UsageRow> {
  const { workspaceId, bytesMaxDefault } = options
  const [row] = await listUsage(database, { workspaceIds: [workspaceId], bytesMaxDefault })
  if (row === undefined) {
    throw new AppError('workspace_not_found', `workspace [${workspaceId}] not found`)
  }
  return row
}

export async function updateQuota(
  database: Queryable,
  quota: { workspaceId: string; bytesMax: number | null },
): Promise<void> {
  await database.query(sql`
    update offshoot.workspaces
    set bytes_max = ${quota.bytesMax}
    where id = ${quota.workspaceId}`)
}

/** Schedules measurements of workspaces within a time, unless they are due earlier. */
export async function updateDueAt(
  database: Queryable,
  options: { workspaceIds: readonly string[]; withinSeconds: number },
): Promise<void> {
  await database.query(sql`
    update offshoot.workspace_usage
    set due_at = now() + make_interval(secs => ${options.withinSeconds})
    where workspace_id = any(${options.workspaceIds}::text[])
      and due_at > now() + make_interval(secs => ${options.withinSeconds})`)
}

/**
 * Inserts the usage rows of some new workspaces. Workspaces that are being deleted are skipped. Returns
 * whether there were any.
 */
export async function insertMissingUsage(database: Queryable, count: number): Promise<boolean> {
  const rows = await database.query(sql`
    insert into offshoot.workspace_usage (workspace_id)
    select w.id
    from offshoot.workspaces w
    where not exists (select from offshoot.workspace_usage u where u.workspace_id = w.id)
    limit ${count}
    for key share of w skip locked
    on conflict (workspace_id) do nothing
    returning workspace_id`)
  return rows.length > 0
}

/** A measurement that is in progress or about to begin. */
interface Measurement {
  readonly workspaceId: string
  readonly hasQuota: boolean
  readonly databaseIds: readonly string[]
  /** The last heap that was measured, and the sum so far. */
  readonly heapId: string
  readonly heapBytes: number
}

/** Locks the measurement that has been due for longest. Locked ones are skipped. */
export async function findDueMeasurement(
  transaction: Queryable,
  options: { bytesMaxDefault: number | null },
): Promise<Measurement | undefined> {
  const [due] = await transaction.query<{
    workspaceId: string
    heapId: string
    heapBytes: number
  }>(sql`
    update offshoot.workspace_usage u
    set started_at = coalesce(u.started_at, now())
    where u.workspace_id = (
      select workspace_id
      from offshoot.workspace_usage
      where due_at <= now()
      order by due_at
      limit 1
      for update skip locked
    )
    returning u.workspace_id as "workspaceId", u.heap_id as "heapId",
      u.heap_bytes::float8 as "heapBytes"`)
  if (due === undefined) return undefined
  const [workspace] = await transaction.query<{ hasQuota: boolean; databaseIds: string[] }>(sql`
    select coalesce(w.bytes_max, ${options.bytesMaxDefault}::bigint) is not null as "hasQuota",
      array(select d.id from offshoot.databases d where d.workspace_id = w.id) as "databaseIds"
    from offshoot.workspaces w
    where w.id = ${due.workspaceId}`)
  return workspace && { ...due, ...workspace }
}

export async function updateMeasurement(
  transaction: Queryable,
  step: { workspaceId: string; heapId: string; heapBytes: number },
): Promise<void> {
  await transaction.query(sql`
    update offshoot.workspace_usage
    set heap_id = ${step.heapId}, heap_bytes = ${step.heapBytes}
    where workspace_id = ${step.workspaceId}`)
}

/** The measurement goes on later where it is now. */
export async function postponeMeasurement(
  database: Queryable,
  { workspaceId, seconds }: { workspaceId: string; seconds: number },
): Promise<void> {
  await database.query(sql`
    update offshoot.workspace_usage
    set due_at = now() + make_interval(secs => ${seconds})
    where workspace_id = ${workspaceId}`)
}

export async function updateUsage(
  transaction: Queryable,
  result: { workspaceId: string; rowBytes: number; nextInSeconds: number },
): Promise<void> {
  const { workspaceId, rowBytes, nextInSeconds } = result
  await transaction.query(sql`
    update offshoot.workspace_usage
    set row_bytes = ${rowBytes},
      file_bytes = (
        select coalesce(sum(b.size), 0)
        from offshoot.workspace_blobs b
        where b.workspace_id = ${workspaceId}
      ),
      measured_at = started_at,
      due_at = now() + make_interval(secs => ${nextInSeconds}),
      started_at = null,
      heap_id = 0,
      heap_bytes = 0
    where workspace_id = ${workspaceId}`)
}

/** Returns the bytes that all workspaces together store. */
export async function sumUsage(
  database: Queryable,
): Promise<{ rowBytes: number; fileBytes: number }> {
  const [row] = await database.query<{ rowBytes: number; fileBytes: number }>(sql`
    select coalesce(sum(row_bytes), 0)::float8 as "rowBytes",
      coalesce(sum(file_bytes), 0)::float8 as "fileBytes"
    from offshoot.workspace_usage`)
  return row ?? { rowBytes: 0, fileBytes: 0 }
}
