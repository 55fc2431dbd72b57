import { newBranchId } from '../../common/ids.js'
import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { closeEpoch } from '../../rows/layout/fork.js'
import type { BranchAccess } from '../access/resolve.js'
import { insertSweep } from './queries.js'

/*
 * A branch comes from what it inherits and from what was merged into it, each as of an epoch, and
 * from what those came from in turn. The base of a merge is the latest state that both sides come
 * from. Every state that a branch comes from has a fork, mostly a hidden one, which keeps it readable.
 */

interface Pair {
  readonly from: Pick<BranchAccess, 'branchId' | 'databaseId'>
  readonly into: Pick<BranchAccess, 'branchId'>
}

/** As of no epoch: the branch as it is. */
const NOW = 2_147_483_647

/** The states a branch comes from: of which branch, as of which epoch, with the fork of it. */
function originsOf(branchId: string): Sql {
  return sql`(
    with recursive chain (branch_id, epoch, base_id) as (
      select ${branchId}::text, ${NOW}::integer, null::text
      union all
      select b.parent_id, b.fork_epoch, b.id
      from chain c
      join offshoot.branches b on b.id = c.branch_id
      where b.parent_id is not null
    )
    select branch_id, epoch, base_id, '{}'::bigint[] as left_out from chain
    union all
    select m.from_branch_id, m.from_epoch, m.base_branch_id, m.left_out
    from chain c
    join offshoot.merges m on m.into_branch_id = c.branch_id and m.into_epoch <= c.epoch
  )`
}

/**
 * The latest state of a table, or of all that no merge has left out, that both branches come from: as
 * the fork that started with it, which stays until the transaction ends.
 */
export async function findBase(
  transaction: Queryable,
  { from, into, tableId = null }: Pair & { tableId?: number | null },
): Promise<string | undefined> {
  const latest = (branchId: string) => sql`
    select branch_id, max(epoch) as epoch
    from ${originsOf(branchId)} o
    where (${tableId}::bigint = any(left_out)) is not true
    group by branch_id`
  const [row] = await transaction.query<{ id: string }>(sql`
    select f.id
    from (${latest(from.branchId)}) theirs
    join (${latest(into.branchId)}) ours using (branch_id)
    join offshoot.branches f
      on f.parent_id = branch_id and f.fork_epoch = least(theirs.epoch, ours.epoch)
    order by f.fork_stamp desc
    limit 1
    for key share of f`)
  return row?.id
}

/** Ids of the tables of a database that some merge has left out. */
export async function listTablesLeftOut(
  transaction: Queryable,
  databaseId: string,
): Promise<number[]> {
  const rows = await transaction.query<{ tableId: string }>(sql`
    select distinct t.id as "tableId"
    from offshoot.merges m
    join offshoot.branches b on b.id = m.into_branch_id
    cross join unnest(m.left_out) as t (id)
    where b.database_id = ${databaseId}`)
  return rows.map((row) => Number(row.tableId))
}

/**
 * Remembers that everything of a branch, as it is now, has been merged, except for some tables, and
 * with it all that the branch comes from. A hidden fork keeps that state readable. Like a fork, this
 * does not depend on what the branch holds.
 */
export async function insertMerge(
  transaction: Queryable,
  { from, into, leftOut }: Pair & { leftOut: readonly number[] },
): Promise<void> {
  const source = await closeEpoch(transaction, from.branchId)
  if (source === undefined) throw new Error('a locked branch must be there')
  const baseId = newBranchId()
  await transaction.query(sql`
    insert into offshoot.branches
      (id, database_id, name, schema_id, last_migration_id, parent_id, fork_epoch,
        fork_schema_id, deleted_at)
    values (${baseId}, ${from.databaseId}, ${source.name}, ${source.schemaId},
      ${source.lastMigrationId}, ${source.id}, ${source.epoch}, ${source.schemaId}, now())`)
  await transaction.query(sql`
    insert into offshoot.merges
      (into_branch_id, into_epoch, from_branch_id, from_epoch, base_branch_id, left_out)
    select i.id, i.epoch, o.branch_id, o.epoch, o.base_id, o.left_out || ${leftOut}::bigint[]
    from offshoot.branches i
    cross join (
      select branch_id, epoch, base_id, left_out
      from ${originsOf(from.branchId)} theirs
      where base_id is not null
      union all
      select ${source.id}, ${source.epoch}, ${baseId}, '{}'
    ) o
    join offshoot.branches b on b.id = o.branch_id
    join offshoot.branches f on f.id = o.base_id
    where i.id = ${into.branchId}
      and not exists (
        select from ${originsOf(into.branchId)} ours
        where ours.branch_id = o.branch_id
          and ours.epoch >= o.epoch
          and ours.left_out <@ (o.left_out || ${leftOut}::bigint[])
      )
    -- One that someone is just removing is waited for, and then is none to remember.
    for key share of b, f`)
  await deleteOutdatedMerges(transaction, into.branchId)
}

/**
 * Forgets what was merged into a branch when it has merged as much or more of the same since, unless
 * there are forks of the time between.
 */
export async function deleteOutdatedMerges(transaction: Queryable, intoId: string): Promise<void> {
  const outdated = await transaction.query<{ baseId: string }>(sql`
    delete from offshoot.merges m
    where m.into_branch_id = ${intoId}
      and exists (
        select from offshoot.merges n
        where n.into_branch_id = m.into_branch_id
          and n.from_branch_id = m.from_branch_id
          and n.from_epoch >= m.from_epoch
          and n.left_out <@ m.left_out
          -- Of two that are alike, the one that holds for longer stays.
          and (n.from_epoch > m.from_epoch or not m.left_out <@ n.left_out
            or (n.into_epoch, n.id) < (m.into_epoch, m.id))
          and not exists (
            select from offshoot.branches f
            where f.parent_id = m.into_branch_id
              and f.fork_epoch >= m.into_epoch
              and f.fork_epoch < n.into_epoch
              and ${isReader(sql`f`)}
          )
      )
    returning base_branch_id as "baseId"`)
  for (const { baseId } of outdated) await insertSweep(transaction, baseId)
}

/** Whether a fork is more than the base of a merge: hidden ones read only for forks of their own. */
export function isReader(fork: Sql): Sql {
  return sql`(
    ${fork}.deleted_at is null
    or exists (select from offshoot.branches g where g.parent_id = ${fork}.id)
  )`
}

/** Gives all that a branch has merged, and others of it, to another one in its place. */
export async function updateMergesOf(
  transaction: Queryable,
  options: { branchId: string; newBranchId: string },
): Promise<void> {
  const { branchId, newBranchId: to } = options
  await transaction.query(sql`
    update offshoot.merges set from_branch_id = ${to} where from_branch_id = ${branchId}`)
  await transaction.query(sql`
    update offshoot.merges set into_branch_id = ${to} where into_branch_id = ${branchId}`)
  await transaction.query(sql`
    update offshoot.merges set base_branch_id = ${to} where base_branch_id = ${branchId}`)
}

/** Forgets all merges of a branch. Returns the bases they had. */
export async function deleteMergesOf(transaction: Queryable, branchId: string): Promise<string[]> {
  const deleted = await transaction.query<{ baseId: string }>(sql`
    delete from offshoot.merges
    where from_branch_id = ${branchId} or into_branch_id = ${branchId}
    returning base_branch_id as "baseId"`)
  return [...new Set(deleted.map((merge) => merge.baseId))]
}
