import type { BranchMetadata, StartedFrom } from '@offshoot/contract/branches'
import type { CheckpointSchedule } from '@offshoot/contract/checkpoints'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import type { StoredSchema } from '../../rows/columns/stored-schema.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import { isExpired, isLive } from '../access/is-live.js'
import type { DatabaseAccess } from '../access/resolve.js'
import type { CheckpointRow } from '../checkpoints/queries.js'
import { insertEntrySql } from '../log/entries.js'

/** Expiry and protection of a branch. */
export interface BranchLife {
  readonly expiresAt: Date | null
  /** Each use postpones the expiry to this time from then. Null if the expiry is fixed. */
  readonly ttlSeconds: number | null
  readonly protected: boolean
  readonly requiredApprovals: number
  readonly checkpoints: CheckpointSchedule | null
}

const PROTECTION = sql`protected, required_approvals as "requiredApprovals"`

/** Selects the schedule of checkpoints of a branch. */
const SCHEDULE = sql`case when checkpoint_every is not null
        then jsonb_build_object('every', checkpoint_every, 'keep', checkpoint_keep) end as checkpoints`

export interface BranchRow extends BranchLife {
  readonly id: string
  readonly name: string
  readonly createdAt: Date
  readonly version: number
  readonly lastMigrationId: string
  readonly metadata: BranchMetadata
  readonly startedFrom: StartedFrom | null
  readonly schema: StoredSchema
}

export async function findBranch(
  database: Queryable,
  branchId: string,
): Promise<BranchRow | undefined> {
  const [row] = await database.query<BranchRow>(sql`
    select b.id, b.name, b.created_at as "createdAt", b.version,
      b.last_migration_id as "lastMigrationId", b.metadata, b.started_from as "startedFrom",
      b.expires_at as "expiresAt", b.ttl_seconds as "ttlSeconds", ${PROTECTION}, ${SCHEDULE},
      s.document as schema
    from offshoot.branches b
    join offshoot.schemas s on s.id = b.schema_id
    where b.id = ${branchId} and ${isLive}`)
  return row
}

interface BranchListRow extends BranchLife {
  readonly id: string
  readonly name: string
  readonly createdAt: Date
  readonly startedFrom: StartedFrom | null
}

export async function listBranches(
  database: Queryable,
  databaseId: string,
): Promise<BranchListRow[]> {
  return database.query<BranchListRow>(sql`
    select id, name, created_at as "createdAt", started_from as "startedFrom",
      expires_at as "expiresAt", ttl_seconds as "ttlSeconds", ${PROTECTION}, ${SCHEDULE}
    from offshoot.branches
    where database_id = ${databaseId} and ${isLive}
    order by name collate "C"`)
}

/** Lists the names of some other branches of the database of a branch. */
export async function listOtherNames(
  database: Queryable,
  { databaseId, branchId }: { databaseId: string; branchId: string },
  limit: number,
): Promise<string[]> {
  const rows = await database.query<{ name: string }>(sql`
    select name
    from offshoot.branches
    where database_id = ${databaseId} and id <> ${branchId} and ${isLive}
    order by name collate "C"
    limit ${limit}`)
  return rows.map(({ name }) => name)
}

/**
 * Lists the last merge between each two branches of a database that can be used. The merges are read before the
 * names: with old statistics PostgreSQL would combine all branches with each other first.
 */
export async function listLastMerges(
  database: Queryable,
  databaseId: string,
): Promise<{ readonly intoId: string; readonly from: string; readonly at: Date }[]> {
  return database.query(sql`
    with last as materialized (
      select m.into_branch_id, m.from_branch_id, max(m.merged_at) as merged_at
      from offshoot.merges m
      where m.into_branch_id in (
        select id from offshoot.branches where database_id = ${databaseId} and ${isLive}
      )
      group by m.into_branch_id, m.from_branch_id
    )
    select l.into_branch_id as "intoId", b.name as "from", l.merged_at as "at"
    from last l
    join offshoot.branches b on b.id = l.from_branch_id
    where ${isLive}
    order by b.name collate "C"`)
}

/** Inserts a branch without a source. */
export async function insertBranch(
  database: Queryable,
  branch: {
    id: string
    databaseId: string
    name: string
    schemaId: string
    lastMigrationId: string
    metadata: BranchMetadata
  },
): Promise<void> {
  const { id, databaseId, name, schemaId, lastMigrationId, metadata } = branch
  await database.query(sql`
    insert into offshoot.branches (id, database_id, name, schema_id, last_migration_id, metadata)
    values (${id}, ${databaseId}, ${name}, ${schemaId}, ${lastMigrationId},
      ${JSON.stringify(metadata)}::jsonb)`)
}

/** Forks a branch, and adds the fork to the log. Requires the exclusive gate of the source. */
export function insertForkSql(
  sourceId: string,
  fork: {
    id: string
    access: DatabaseAccess
    /** The checkpoint of the source that is forked; undefined: its present state. */
    checkpoint?: ForkedCheckpoint | undefined
    name: string
    metadata: BranchMetadata
    /** Whether the fork has the rows of its source. */
    data: boolean
    life: BranchLife
  },
): Sql {
  const { id, access, checkpoint, name, metadata, data, life } = fork
  const { databaseId, databaseName, workspaceId, principal } = access
  return StoredBranch.forkSql({
    sourceId,
    source: checkpoint && pinnedSourceSql(checkpoint),
    taken: sql`
      select from offshoot.branches
      where database_id = ${databaseId}::bigint and name = ${name} and deleted_at is null`,
    inherits: data,
    columns: sql`id, database_id, name, schema_id, last_migration_id, metadata, started_from,
      fork_schema_id, expires_at, ttl_seconds, protected, required_approvals, checkpoint_every, checkpoint_keep,
      checkpoint_due`,
    values: sql`${id}, ${databaseId}::bigint, ${name}, source.schema_id, source.last_migration_id,
      ${JSON.stringify(metadata)}::jsonb,
      jsonb_build_object('branchName', source.name, 'dbBranchID', ${sourceId}::text,
        'migrationID', source.last_migration_id),
      source.schema_id, ${expiryOf(life)}, ${life.ttlSeconds}::integer, ${life.protected}::boolean,
      ${life.requiredApprovals}::integer, ${scheduleOf(life)}`,
    effects: [
      insertEntrySql(
        {
          kind: 'fork',
          by: principal,
          workspaceId,
          databaseId,
          branchId: sql`inserted.id`,
          details: sql`jsonb_build_object('database', ${databaseName}::text, 'branch', ${name}::text,
        'from', source.name, 'data', ${data}::boolean) ||
          jsonb_strip_nulls(jsonb_build_object('at', ${checkpoint?.id ?? null}::text))`,
        },
        sql`from inserted, source`,
      ),
    ],
  })
}

/** A checkpoint that is forked. */
export type ForkedCheckpoint = Pick<CheckpointRow, 'id' | 'pinId'>

/** Selects the state of a checkpoint as the source of a fork, and keeps it until the transaction ends. */
const pinnedSourceSql = ({ pinId }: ForkedCheckpoint): Sql => sql`
      select p.parent_id as id, p.name, p.schema_id, p.last_migration_id, p.fork_epoch as epoch
      from offshoot.branches p
      where p.id = ${pinId} and not exists (select from taken)
      for key share`

/** The schedule of checkpoints, and when the first one is due. */
const scheduleOf = ({ checkpoints }: BranchLife): Sql => {
  const { every = null, keep = null } = checkpoints ?? {}
  return sql`${every}::integer, ${keep}::integer, now() + make_interval(secs => ${every}::integer)`
}

/** The time of expiry. A ttl counts from now, by the clock of PostgreSQL, which also checks it. */
function expiryOf({ ttlSeconds, expiresAt }: BranchLife): Sql {
  return sql`coalesce(
    now() + make_interval(secs => ${ttlSeconds}::integer), ${expiresAt}::timestamptz)`
}

/** Finds expiry and protection of a branch, and locks its row until the transaction ends. */
export async function findBranchLife(
  transaction: Queryable,
  branchId: string,
): Promise<BranchLife | undefined> {
  const [row] = await transaction.query<BranchLife>(
    prepared(sql`
    select expires_at as "expiresAt", ttl_seconds as "ttlSeconds", ${PROTECTION}, ${SCHEDULE}
    from offshoot.branches
    where id = ${branchId} and ${isLive}
    for no key update`),
  )
  return row
}

/** Returns the number of approvals that changes of a branch need. */
export async function getRequiredApprovals(
  database: Queryable,
  { branchId }: { branchId: string },
): Promise<number> {
  const [row] = await database.query<{ requiredApprovals: number }>(
    prepared(sql`
    select required_approvals as "requiredApprovals"
    from offshoot.branches
    where id = ${branchId}`),
  )
  if (row === undefined) throw new Error('a locked branch must exist')
  return row.requiredApprovals
}

export async function updateBranchLife(
  database: Queryable,
  branch: { branchId: string; life: BranchLife },
): Promise<void> {
  const { branchId, life } = branch
  await database.query(sql`
    update offshoot.branches
    set expires_at = ${expiryOf(life)},
      ttl_seconds = ${life.ttlSeconds},
      protected = ${life.protected},
      required_approvals = ${life.requiredApprovals},
      (checkpoint_every, checkpoint_keep, checkpoint_due) = (select ${scheduleOf(life)}),
      stamp = nextval('offshoot.stamps')
    where id = ${branchId}`)
}

/**
 * Postpones the expiry of branches with a ttl, and returns the ids of those it updated. Branches that
 * are locked are skipped, so that requests do not wait. The stamp does not change: a process that has
 * cached an earlier expiry only reads the branch again too early.
 */
export async function updateBranchExpiries(
  database: Queryable,
  branchIds: readonly string[],
): Promise<string[]> {
  const rows = await database.query<{ id: string }>(sql`
    update offshoot.branches
    set expires_at = now() + make_interval(secs => ttl_seconds)
    where id in (
      select id
      from offshoot.branches
      where id = any (${branchIds}::text[]) and ttl_seconds is not null and deleted_at is null
      for no key update skip locked
    )
    returning id`)
  return rows.map((row) => row.id)
}

/** Lists and locks expired branches. Concurrent calls get different branches. */
export async function listExpiredBranches(
  transaction: Queryable,
  options: { limit: number; exceptIds: readonly string[] },
): Promise<{ branchId: string; databaseId: string }[]> {
  return transaction.query(sql`
    select b.id as "branchId", b.database_id as "databaseId"
    from offshoot.branches b
    where ${isExpired} and b.id <> all(${options.exceptIds}::text[])
      and not exists (select from offshoot.databases d where d.default_branch_id = b.id)
    order by b.expires_at
    limit ${options.limit}
    for update skip locked`)
}

/** Finds and locks the expired branch that has a name and has not been deleted yet. */
export async function findExpiredBranch(
  transaction: Queryable,
  branch: { databaseId: string; name: string },
): Promise<{ branchId: string; databaseId: string } | undefined> {
  const [row] = await transaction.query<{ branchId: string; databaseId: string }>(sql`
    select id as "branchId", database_id as "databaseId"
    from offshoot.branches
    where database_id = ${branch.databaseId} and name = ${branch.name} and ${isExpired}
    for update`)
  return row
}

export async function updateBranchMetadata(
  database: Queryable,
  branch: { branchId: string; metadata: BranchMetadata },
): Promise<void> {
  await database.query(sql`
    update offshoot.branches
    set metadata = ${JSON.stringify(branch.metadata)}::jsonb
    where id = ${branch.branchId}`)
}

/** Invalidates the sessions of all branches of a database in every process. */
export async function updateBranchStamps(database: Queryable, databaseId: string): Promise<void> {
  await database.query(sql`
    update offshoot.branches
    set stamp = nextval('offshoot.stamps')
    where database_id = ${databaseId}`)
}

interface GitBranchRow {
  readonly gitBranch: string
  readonly branchName: string
}

export async function listGitBranches(
  database: Queryable,
  databaseId: string,
): Promise<GitBranchRow[]> {
  return database.query<GitBranchRow>(sql`
    select g.git_branch as "gitBranch", b.name as "branchName"
    from offshoot.git_branches g
    join offshoot.branches b on b.id = g.branch_id
    where g.database_id = ${databaseId} and ${isLive}
    order by g.git_branch collate "C"`)
}

export async function findGitBranch(
  database: Queryable,
  entry: { databaseId: string; gitBranch: string },
): Promise<string | undefined> {
  const [row] = await database.query<{ branchName: string }>(sql`
    select b.name as "branchName"
    from offshoot.git_branches g
    join offshoot.branches b on b.id = g.branch_id
    where g.database_id = ${entry.databaseId} and g.git_branch = ${entry.gitBranch} and ${isLive}`)
  return row?.branchName
}

/** Adds or overwrites an entry of the git mapping. Returns whether it overwrote one. */
export async function insertGitBranch(
  database: Queryable,
  entry: { databaseId: string; gitBranch: string; branchId: string },
): Promise<{ overwritten: boolean }> {
  const [row] = await database.query<{ overwritten: boolean }>(sql`
    with before as (
      select 1
      from offshoot.git_branches
      where database_id = ${entry.databaseId} and git_branch = ${entry.gitBranch}
    )
    insert into offshoot.git_branches (database_id, git_branch, branch_id)
    values (${entry.databaseId}, ${entry.gitBranch}, ${entry.branchId})
    on conflict (database_id, git_branch) do update set branch_id = excluded.branch_id
    returning exists (select from before) as overwritten`)
  return { overwritten: row?.overwritten ?? false }
}

/** Locks a git branch until the transaction ends, so that only one request creates its branch. */
export async function lockGitBranch(
  transaction: Queryable,
  entry: { databaseId: string; gitBranch: string },
): Promise<void> {
  await transaction.query(sql`
    select pg_advisory_xact_lock(
      hashtextextended(${entry.gitBranch}, hashint8(${entry.databaseId}::bigint)))`)
}

export async function deleteGitBranchRow(
  database: Queryable,
  entry: { databaseId: string; gitBranch: string },
): Promise<boolean> {
  const rows = await database.query(sql`
    delete from offshoot.git_branches
    where database_id = ${entry.databaseId} and git_branch = ${entry.gitBranch}
    returning git_branch`)
  return rows.length > 0
}
