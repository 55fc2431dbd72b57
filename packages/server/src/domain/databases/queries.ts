import type { Repository } from '@offshoot/contract/databases'
import { AppError } from '@offshoot/contract/errors'
import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

export interface DatabaseRow {
  readonly id: string
  readonly name: string
  readonly region: string
  readonly color: string | null
  readonly repository: Repository | null
  readonly searchEnabled: boolean
  readonly createdAt: Date
}

const databaseColumns = sql`
  id, name, region, color, repository, search_enabled as "searchEnabled",
  created_at as "createdAt"`

export async function listDatabases(
  database: Queryable,
  workspaceId: string,
): Promise<DatabaseRow[]> {
  return database.query<DatabaseRow>(sql`
    select ${databaseColumns}
    from offshoot.databases
    where workspace_id = ${workspaceId}
    order by name collate "C"`)
}

export async function getDatabase(
  database: Queryable,
  { databaseId, databaseName }: { databaseId: string; databaseName: string },
): Promise<DatabaseRow> {
  const [row] = await database.query<DatabaseRow>(sql`
    select ${databaseColumns}
    from offshoot.databases
    where id = ${databaseId}`)
  if (row === undefined) {
    throw new AppError('database_not_found', `database [${databaseName}] not found`)
  }
  return row
}

export async function countDatabases(database: Queryable, workspaceId: string): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*)::integer as count
    from offshoot.databases
    where workspace_id = ${workspaceId}`)
  return row?.count ?? 0
}

export async function insertDatabase(
  database: Queryable,
  row: {
    workspaceId: string
    name: string
    region: string
    color: string | undefined
    defaultBranchId: string
  },
): Promise<string | undefined> {
  const [inserted] = await database.query<{ id: string }>(sql`
    insert into offshoot.databases (workspace_id, name, region, color, default_branch_id)
    values (${row.workspaceId}, ${row.name}, ${row.region}, ${row.color ?? null},
      ${row.defaultBranchId})
    on conflict (workspace_id, name) do nothing
    returning id`)
  return inserted?.id
}

export async function updateDatabaseColor(
  database: Queryable,
  row: { databaseId: string; color: string },
): Promise<void> {
  await database.query(sql`
    update offshoot.databases set color = ${row.color} where id = ${row.databaseId}`)
}

export async function updateDatabaseName(
  database: Queryable,
  row: { databaseId: string; name: string },
): Promise<void> {
  await database.query(sql`
    update offshoot.databases set name = ${row.name} where id = ${row.databaseId}`)
}

export async function updateDatabaseRepository(
  database: Queryable,
  row: { databaseId: string; repository: Repository | null },
): Promise<void> {
  const repository = row.repository === null ? null : JSON.stringify(row.repository)
  await database.query(sql`
    update offshoot.databases
    set repository = ${repository}::jsonb
    where id = ${row.databaseId}`)
}

export async function updateDatabaseSearch(
  database: Queryable,
  row: { databaseId: string; searchEnabled: boolean },
): Promise<void> {
  await database.query(sql`
    update offshoot.databases
    set search_enabled = ${row.searchEnabled}
    where id = ${row.databaseId}`)
}

/** Lists some protected branches of a database, by name. */
export async function listProtectedBranches(
  database: Queryable,
  row: { databaseId: string; limit: number },
): Promise<string[]> {
  const rows = await database.query<{ name: string }>(sql`
    select name
    from offshoot.branches
    where database_id = ${row.databaseId} and protected and deleted_at is null
    order by name
    limit ${row.limit}`)
  return rows.map(({ name }) => name)
}

export async function deleteDatabaseRow(database: Queryable, databaseId: string): Promise<void> {
  await database.query(sql`delete from offshoot.loads where database_id = ${databaseId}`)
  await database.query(sql`delete from offshoot.databases where id = ${databaseId}`)
}
