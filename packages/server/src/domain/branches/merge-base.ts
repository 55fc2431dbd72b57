import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { closeEpoch } from '../../rows/fork.js'
import type { BranchAccess } from '../access/resolve.js'
import { newBranchId } from '../ids.js'
import { insertSweep } from './queries.js'

/*
 * A branch comes from what it inherits and from what was merged into it, each as of an epoch, and
 * from what those come from in turn: a graph like that of commits. The base of a merge is the latest
 * state that both sides come from. States can be read as long as a fork of them is there.
 */

interface Pair {
  readonly from: Pick<BranchAccess, 'branchId' | 'databaseId'>
  readonly into: Pick<BranchAccess, 'branchId'>
}

/** As of no epoch: the branch as it is. */
const NOW = 2_147_483_647

/**
 * The latest state of a table, or of all that no merge has left out, that both branches come from: as
 * the fork that started with it, which stays until the transaction ends.
 */
export async function findBase(
  transaction: Queryable,
  { from, into, tableId = null }: Pair & { tableId?: number | null },
): Promise<string | undefined> {
  const [row] = await transaction.query<{ id: string }>(sql`
    with recursive known (side, id, as_of) as (
      select *
      from (values (0, ${from.branchId}, ${NOW}::integer), (1, ${into.branchId}, ${NOW})) sides
      union
      select k.side, s.id, s.epoch
      from known k
      cross join lateral (
        select b.parent_id, b.fork_epoch
        from offshoot.branches b
        where b.id = k.id and b.parent_id is not null
        union all
        select m.from_branch_id, m.from_epoch
        from offshoot.merges m
        where m.into_branch_id = k.id
          and m.into_epoch <= k.as_of
          and (${tableId}::bigint = any(m.left_out)) is not true
      ) s (id, epoch)
    ),
    latest as (
      select side, id, max(as_of) as as_of from known group by side, id
    ),
    common as (
      select id, min(as_of) as epoch from latest group by id having count(*) = 2
    )
    select f.id
    from common c
    join offshoot.branches f on f.parent_id = c.id and f.fork_epoch = c.epoch
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
 * Remembers that everything of a branch, as it is now, has been merged, except for some tables. A
 * hidden fork keeps that state readable. Constant time, like every fork.
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
    select id, epoch, ${from.branchId}, ${source.epoch}, ${baseId}, ${leftOut}::bigint[]
    from offshoot.branches
    where id = ${into.branchId}`)
  await deleteOutdatedMerges(transaction, into.branchId)
}

/**
 * Forgets what was merged into a branch when it has merged as much or more of the same since, unless
 * there are forks of the time between.
 */
async function deleteOutdatedMerges(transaction: Queryable, intoId: string): Promise<void> {
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
          )
      )
    returning base_branch_id as "baseId"`)
  for (const { baseId } of outdated) await insertSweep(transaction, baseId)
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
}

/**
 * Takes a hidden branch out of the graph: those that have merged it come directly from what it came
 * from. It may become the base of its parent's state that way.
 */
export async function bypassMergesOf(transaction: Queryable, branchId: string): Promise<string[]> {
  await transaction.query(sql`
    insert into offshoot.merges
      (into_branch_id, into_epoch, from_branch_id, from_epoch, base_branch_id, left_out)
    select m.into_branch_id, m.into_epoch, s.branch_id, s.epoch, s.base_id, m.left_out || s.left_out
    from offshoot.merges m
    join offshoot.branches i on i.id = m.into_branch_id
    cross join lateral (
      select o.from_branch_id, o.from_epoch, o.base_branch_id, o.left_out
      from offshoot.merges o
      where o.into_branch_id = m.from_branch_id and o.into_epoch <= m.from_epoch
      union all
      select b.parent_id, b.fork_epoch, b.id, '{}'
      from offshoot.branches b
      where b.id = m.from_branch_id and b.parent_id is not null
        and (b.parent_id is distinct from i.parent_id or b.fork_epoch > i.fork_epoch)
    ) s (branch_id, epoch, base_id, left_out)
    where m.from_branch_id = ${branchId} and s.branch_id <> m.into_branch_id`)
  const deleted = await transaction.query<{ intoId: string; baseId: string }>(sql`
    delete from offshoot.merges
    where from_branch_id = ${branchId} or into_branch_id = ${branchId}
    returning into_branch_id as "intoId", base_branch_id as "baseId"`)
  for (const intoId of new Set(deleted.map((merge) => merge.intoId))) {
    if (intoId !== branchId) await deleteOutdatedMerges(transaction, intoId)
  }
  return [...new Set(deleted.map((merge) => merge.baseId))]
}
