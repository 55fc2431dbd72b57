import type { Database, Queryable } from '../../postgres/database.js'
import { runStatements } from '../../postgres/run-transaction.js'
import { empty, type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { guardedByKey } from '../../rows/running/staleness.js'
import { isLive } from '../access/is-live.js'
import type { BranchAccess } from '../access/resolve.js'
import { insertEntrySql, type NewEntry } from '../log/entries.js'

/**
 * Hides a branch, deletes its checkpoints and its entries in the git mapping, and leaves the rest to the collectors: rows that others
 * inherit from it stay, the sweep deletes the branch and its rows once no other branch reads them, and compaction
 * decides whether its history is still needed.
 */
const hideSql = (
  branchId: string,
  { conditions, entry }: { conditions: Sql; entry: Pick<NewEntry, 'kind' | 'by'> },
): Sql => sql`
    with hidden as (
      update offshoot.branches
      set deleted_at = now(), stamp = nextval('offshoot.stamps')
      where id = ${branchId} and deleted_at is null ${conditions}
      returning id, name, database_id
    ),
    logged as (${insertEntrySql(entryOfHidden(entry), sql`from hidden join offshoot.databases d on d.id = hidden.database_id`)}),
    unkept as (
      delete from offshoot.checkpoints
      where branch_id in (select id from hidden)
      returning database_id, pin_id
    ),
    unmapped as (delete from offshoot.git_branches where branch_id in (select id from hidden)),
    requested as (
      insert into offshoot.work (kind, database_id, subject, details)
      select 'sweep', database_id, id, '[null]'::jsonb from hidden
      union all
      select 'sweep', database_id, pin_id, '[null]' from unkept
      union all
      select 'compact', database_id, '', '[]' from hidden
    )
    select exists (select from hidden) as "isDeleted"`

const entryOfHidden = (entry: Pick<NewEntry, 'kind' | 'by'>): NewEntry => ({
  ...entry,
  workspaceId: sql`d.workspace_id`,
  databaseId: sql`d.id`,
  branchId: sql`hidden.id`,
  details: sql`jsonb_build_object('database', d.name, 'branch', hidden.name)`,
})

/** Deletes a branch that has expired. */
export async function endExpiredBranch(
  transaction: Queryable,
  { branchId }: { branchId: string },
): Promise<void> {
  const entry = { kind: 'branchExpired', by: undefined } as const
  await transaction.query(prepared(hideSql(branchId, { conditions: empty, entry })))
}

/**
 * Deletes a branch, unless it is protected. Returns false if it is, or does not exist. Serializable, so that a git branch
 * that is mapped to it at the same time does not point nowhere. Throws a `StaleError` if the rights of the key may have
 * changed.
 */
export async function deleteUnprotected(
  database: Database,
  { branchId, principal }: BranchAccess,
): Promise<boolean> {
  const statement = hideSql(branchId, {
    conditions: sql`and not protected and ${isLive}`,
    entry: { kind: 'branchDeleted', by: principal },
  })
  const [[row] = []] = await guardedByKey(principal, (check) =>
    runStatements(database, [statement], { opening: [check] }),
  )
  return row?.[0] === 't'
}
