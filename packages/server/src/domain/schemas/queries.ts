import type { SchemaOperation } from '@offshoot/contract/schema-edits'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { StoredSchema } from '../../rows/columns/stored-schema.js'
import { isPinOf } from '../checkpoints/queries.js'

export interface BranchHead {
  readonly branchId: string
  readonly schemaId: string
  readonly schema: StoredSchema
  readonly lastMigrationId: string
  readonly parentMigrationId: string | null
  readonly isProtected: boolean
}

/** Finds the schema of a branch, or of the pin of a checkpoint, and its last migration. */
export async function findHead(
  database: Queryable,
  branchId: string,
): Promise<BranchHead | undefined> {
  const [head] = await database.query<BranchHead>(sql`
    select b.id as "branchId", b.schema_id as "schemaId", s.document as schema,
      b.last_migration_id as "lastMigrationId", m.parent_id as "parentMigrationId",
      b.protected as "isProtected"
    from offshoot.branches b
    join offshoot.schemas s on s.id = b.schema_id
    join offshoot.migrations m on m.database_id = b.database_id and m.id = b.last_migration_id
    where b.id = ${branchId} and (b.deleted_at is null or ${isPinOf(sql`b.id`)})`)
  return head
}

export async function listObjectIds(database: Queryable, count: number): Promise<number[]> {
  const rows = await database.query<{ id: string }>(sql`
    select nextval('offshoot.object_ids') as id from generate_series(1, ${count})`)
  return rows.map((row) => Number(row.id))
}

export async function updateHead(
  database: Queryable,
  head: { branchId: string; schemaId: string; migrationId: string; migrations: number },
): Promise<void> {
  await database.query(sql`
    update offshoot.branches
    set schema_id = ${head.schemaId},
      last_migration_id = ${head.migrationId},
      version = version + ${head.migrations},
      stamp = nextval('offshoot.stamps')
    where id = ${head.branchId}`)
}

export async function deleteUnusedSchema(database: Queryable, schemaId: string): Promise<void> {
  await database.query(sql`
    delete from offshoot.schemas
    where id = ${schemaId}
      and not exists (select from offshoot.branches where schema_id = ${schemaId})
      and not exists (select from offshoot.branches where fork_schema_id = ${schemaId})`)
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

/**
 * Inserts a migration. Branches share migrations, so an existing one with the same id is kept. It is locked
 * then, so that the collector does not remove it before the branch refers to it.
 */
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
      ${migration.title ?? null}, ${migration.message ?? null})
    on conflict (database_id, id) do update set id = excluded.id`)
}

export interface MigrationRow {
  readonly id: string
  readonly parentId: string | null
  readonly checksum: string
  readonly operations: readonly SchemaOperation[]
  readonly title: string | null
  readonly message: string | null
  readonly createdAt: Date
}

/** Migrations of a branch that are read. No branch is expected to have more. */
const HISTORY_MAX = 100_000

/** Returns a query for a migration and its ancestors, with their positions, newest first from 1. */
function ancestry(options: { databaseId: string; fromId: string; limit: number }): Sql {
  return sql`
    select m.id, m.parent_id, m.checksum, 1 as position
    from offshoot.migrations m
    where m.database_id = ${options.databaseId} and m.id = ${options.fromId}
    union all
    select m.id, m.parent_id, m.checksum, h.position + 1
    from history h
    join offshoot.migrations m on m.database_id = ${options.databaseId} and m.id = h.parent_id
    where h.position < ${options.limit}`
}

interface FoundMigrations {
  /** The number of migrations of the branch. */
  readonly total: number
  readonly found: readonly { readonly id: string; readonly checksum: string; position: number }[]
}

/** Finds migrations by id among a migration and its ancestors. Does not read their operations. */
export async function findMigrations(
  database: Queryable,
  options: { databaseId: string; fromId: string; ids: readonly string[] },
): Promise<FoundMigrations> {
  const [row] = await database.query<FoundMigrations>(sql`
    with recursive history as (${ancestry({ ...options, limit: HISTORY_MAX })})
    select count(*)::integer as total,
      coalesce(
        json_agg(json_build_object('id', id, 'checksum', checksum, 'position', position))
          filter (where id = any(${options.ids}::text[])),
        '[]'
      ) as found
    from history`)
  return row ?? { total: 0, found: [] }
}

/** Lists the migrations from one position to another, newest first. */
export async function listMigrations(
  database: Queryable,
  options: { databaseId: string; fromId: string; first: number; last: number },
): Promise<MigrationRow[]> {
  const { databaseId, fromId, first, last } = options
  if (first > last) return []
  return database.query<MigrationRow>(sql`
    with recursive history as (${ancestry({ databaseId, fromId, limit: last })})
    select m.id, m.parent_id as "parentId", m.checksum, m.operations, m.title, m.message,
      m.created_at as "createdAt"
    from history h
    join offshoot.migrations m on m.database_id = ${databaseId} and m.id = h.id
    where h.position between ${first} and ${last}
    order by h.position`)
}

/** Finds the parent and checksum of a migration. Two migrations are the same if both are equal. */
export async function findMigration(
  database: Queryable,
  migration: { databaseId: string; id: string },
): Promise<Pick<MigrationRow, 'parentId' | 'checksum'> | undefined> {
  const [row] = await database.query<Pick<MigrationRow, 'parentId' | 'checksum'>>(sql`
    select parent_id as "parentId", checksum
    from offshoot.migrations
    where database_id = ${migration.databaseId} and id = ${migration.id}`)
  return row
}
