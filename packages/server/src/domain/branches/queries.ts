import type { BranchMetadata, StartedFrom } from '@offshoot/contract/branches'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import type { StoredSchema } from '../../rows/stored-schema.js'

export interface BranchRow {
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
      s.document as schema
    from offshoot.branches b
    join offshoot.schemas s on s.id = b.schema_id
    where b.id = ${branchId} and b.deleted_at is null`)
  return row
}

export interface BranchListRow {
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
    select id, name, created_at as "createdAt", started_from as "startedFrom"
    from offshoot.branches
    where database_id = ${databaseId} and deleted_at is null
    order by name collate "C"`)
}

export async function findBranchId(
  database: Queryable,
  branch: { databaseId: string; name: string },
): Promise<string | undefined> {
  const [row] = await database.query<{ id: string }>(sql`
    select id
    from offshoot.branches
    where database_id = ${branch.databaseId} and name = ${branch.name} and deleted_at is null`)
  return row?.id
}

export async function insertSchema(
  database: Queryable,
  schema: { databaseId: string; document: StoredSchema },
): Promise<string> {
  const [row] = await database.query<{ id: string }>(sql`
    insert into offshoot.schemas (database_id, document)
    values (${schema.databaseId}, ${JSON.stringify(schema.document)}::jsonb)
    returning id`)
  if (row === undefined) throw new Error('an inserted schema must be returned')
  return row.id
}

export async function insertMigration(
  database: Queryable,
  migration: {
    id: string
    databaseId: string
    parentId: string | null
    checksum: string
    operations: readonly unknown[]
    title?: string | undefined
    message?: string | undefined
  },
): Promise<void> {
  await database.query(sql`
    insert into offshoot.migrations
      (id, database_id, parent_id, checksum, operations, title, message)
    values (${migration.id}, ${migration.databaseId}, ${migration.parentId},
      ${migration.checksum}, ${JSON.stringify(migration.operations)}::jsonb,
      ${migration.title ?? null}, ${migration.message ?? null})`)
}

export async function insertBranch(
  database: Queryable,
  branch: {
    id: string
    databaseId: string
    name: string
    schemaId: string
    lastMigrationId: string
    metadata: BranchMetadata
    startedFrom: StartedFrom | null
    inherits: { parentId: string; forkEpoch: number } | null
  },
): Promise<boolean> {
  const startedFrom = branch.startedFrom === null ? null : JSON.stringify(branch.startedFrom)
  const rows = await database.query(sql`
    insert into offshoot.branches
      (id, database_id, name, schema_id, last_migration_id, metadata, started_from,
        parent_id, fork_epoch)
    values (${branch.id}, ${branch.databaseId}, ${branch.name}, ${branch.schemaId},
      ${branch.lastMigrationId}, ${JSON.stringify(branch.metadata)}::jsonb,
      ${startedFrom}::jsonb, ${branch.inherits?.parentId ?? null},
      ${branch.inherits?.forkEpoch ?? null})
    on conflict (database_id, name) where deleted_at is null do nothing
    returning id`)
  return rows.length > 0
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

/** Makes every process look again at the branches of a database. */
export async function updateBranchStamps(database: Queryable, databaseId: string): Promise<void> {
  await database.query(sql`
    update offshoot.branches
    set stamp = nextval('offshoot.stamps')
    where database_id = ${databaseId}`)
}

/** Takes the branch out of sight; what others inherit from it stays. Says whether it was there. */
export async function updateBranchDeleted(database: Queryable, branchId: string): Promise<boolean> {
  const rows = await database.query(sql`
    update offshoot.branches
    set deleted_at = now(), stamp = nextval('offshoot.stamps')
    where id = ${branchId} and deleted_at is null
    returning id`)
  return rows.length > 0
}

/** Removes branches that are deleted and that nothing inherits from; says whether there were any. */
export async function deleteUnusedBranches(
  database: Queryable,
  databaseId: string,
): Promise<boolean> {
  const rows = await database.query(sql`
    delete from offshoot.branches b
    where b.database_id = ${databaseId}
      and b.deleted_at is not null
      and not exists (select from offshoot.branches child where child.parent_id = b.id)
    returning b.id`)
  return rows.length > 0
}

export interface GitBranchRow {
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
    where g.database_id = ${databaseId}
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
    where g.database_id = ${entry.databaseId} and g.git_branch = ${entry.gitBranch}`)
  return row?.branchName
}

/** Says whether an entry of that name was there before. */
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

export async function deleteGitBranch(
  database: Queryable,
  entry: { databaseId: string; gitBranch: string },
): Promise<boolean> {
  const rows = await database.query(sql`
    delete from offshoot.git_branches
    where database_id = ${entry.databaseId} and git_branch = ${entry.gitBranch}
    returning git_branch`)
  return rows.length > 0
}

export async function deleteGitBranchesOf(database: Queryable, branchId: string): Promise<void> {
  await database.query(sql`delete from offshoot.git_branches where branch_id = ${branchId}`)
}

/** What is needed to lock a branch; the gate of a branch never changes. */
export async function findGate(
  database: Queryable,
  branch: { databaseId: string; id?: string; name?: string },
): Promise<{ id: string; name: string; gate: number } | undefined> {
  const [row] = await database.query<{ id: string; name: string; gate: number }>(sql`
    select id, name, gate
    from offshoot.branches
    where database_id = ${branch.databaseId}
      and (id = ${branch.id ?? null} or name = ${branch.name ?? null})
      and deleted_at is null`)
  return row
}
