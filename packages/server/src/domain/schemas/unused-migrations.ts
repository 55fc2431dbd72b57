import type { Database, Queryable } from '../../postgres/database.js'
import { REPEATABLE_WORK, runTransaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { Work } from '../../postgres/work.js'
import { collected } from '../../telemetry/events.js'

/*
 * Migrations form a tree, and each branch refers to one of them. When a branch is gone, the collector removes
 * its last migration and the ancestors of it, up to the first one that another branch or migration refers to.
 */

/** Maximum number of migrations that one step removes. */
const STEP_MIGRATIONS = 1000

/** Queues a migration that may have lost its last branch. */
export async function insertUnusedMigration(
  transaction: Queryable,
  { databaseId, migrationId }: MigrationId,
): Promise<void> {
  await transaction.query(sql`
    insert into offshoot.work (kind, database_id, subject)
    select 'migrations', ${databaseId}::bigint, ${migrationId}::text
    where not ${isHead({ databaseId, id: sql`${migrationId}` })}`)
}

interface MigrationId {
  readonly databaseId: string
  readonly migrationId: string
}

/** Removes a migration that no branch refers to, and some of its ancestors. Queues the rest of them. */
export async function collectMigrations(
  database: Database,
  { databaseId, subject: migrationId }: Pick<Work, 'databaseId' | 'subject'>,
): Promise<void> {
  const count = await runTransaction(
    database,
    (transaction) => removeSome(transaction, { databaseId, migrationId }),
    // After waiting for a lock, each statement must see what was committed meanwhile.
    REPEATABLE_WORK,
  )
  collected.add('migration', count)
}

/** Returns the number of migrations that it has removed. */
async function removeSome(transaction: Queryable, request: MigrationId): Promise<number> {
  const { databaseId } = request
  // A branch that is pushed the same migration locks it before it refers to it. The second statement sees
  // what was committed before the locks were granted.
  const locked = await transaction.query<{ id: string }>(sql`
    ${unusedMigrations(request)}
    select m.id
    from offshoot.migrations m
    where m.database_id = ${databaseId} and m.id in (select id from unused)
    order by m.id
    for update`)
  const removed = await transaction.query<{ id: string; parentId: string | null }>(sql`
    ${unusedMigrations(request)}
    delete from offshoot.migrations
    where database_id = ${databaseId} and id in (select id from unused)
      and id = any(${locked.map((migration) => migration.id)}::text[])
    returning id, parent_id as "parentId"`)
  const ids = new Set(removed.map((migration) => migration.id))
  const last = removed.find(({ parentId }) => parentId === null || !ids.has(parentId))
  if (removed.length === STEP_MIGRATIONS && last?.parentId) {
    await insertUnusedMigration(transaction, { databaseId, migrationId: last.parentId })
  }
  return removed.length
}

/**
 * Returns a clause for a migration and its ancestors, up to the first one that is in use. Subqueries with a limit
 * are probes of an index; PostgreSQL would join the whole tables for each of the ancestors.
 */
function unusedMigrations({ databaseId, migrationId }: MigrationId): Sql {
  return sql`
    with recursive unused as (
      select m.id, m.parent_id, 1 as position
      from offshoot.migrations m
      where m.database_id = ${databaseId} and m.id = ${migrationId}
        and not ${isHead({ databaseId, id: sql`m.id` })}
        and not ${hasChild({ databaseId, exceptId: sql`''` })}
      union all
      select m.id, m.parent_id, u.position + 1
      from unused u
      cross join lateral (
        select id, parent_id
        from offshoot.migrations
        where database_id = ${databaseId} and id = u.parent_id
        limit 1
      ) m
      where u.position < ${STEP_MIGRATIONS}
        and not ${isHead({ databaseId, id: sql`m.id` })}
        and not ${hasChild({ databaseId, exceptId: sql`u.id` })}
    )`
}

/** Returns the condition that a migration is the last one of a branch, deleted branches included. */
function isHead({ databaseId, id }: { databaseId: string; id: Sql }): Sql {
  return sql`coalesce((
          select true
          from offshoot.branches b
          where b.database_id = ${databaseId} and b.last_migration_id = ${id}
          limit 1
        ), false)`
}

/** Returns the condition that another migration follows the migration `m`. */
function hasChild({ databaseId, exceptId }: { databaseId: string; exceptId: Sql }): Sql {
  return sql`coalesce((
          select true
          from offshoot.migrations c
          where c.database_id = ${databaseId} and c.parent_id = m.id and c.id <> ${exceptId}
          limit 1
        ), false)`
}
