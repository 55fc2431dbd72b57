import type { Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'
import { closeEpoch } from '../../rows/fork.js'
import type { BranchAccess } from '../access/resolve.js'
import { newBranchId } from '../ids.js'

interface Pair {
  readonly from: Pick<BranchAccess, 'branchId' | 'databaseId'>
  readonly into: Pick<BranchAccess, 'branchId'>
}

/** A pair of branches has one last merge, whichever way it went. */
function inOrder({ from, into }: Pair): [string, string] {
  return from.branchId < into.branchId
    ? [from.branchId, into.branchId]
    : [into.branchId, from.branchId]
}

/** The hidden branch that holds what was merged last between the two. */
export async function findMergeBase(database: Queryable, pair: Pair): Promise<string | undefined> {
  const [first, second] = inOrder(pair)
  const [row] = await database.query<{ baseId: string }>(sql`
    select base_branch_id as "baseId"
    from offshoot.merges
    where first_branch_id = ${first} and second_branch_id = ${second}`)
  return row?.baseId
}

/**
 * Remembers the merged branch as it is now, in a hidden fork of it: the target has all of that, so
 * the next merge of the two begins there. Constant time, like every fork.
 */
export async function replaceMergeBase(transaction: Queryable, pair: Pair): Promise<void> {
  const [first, second] = inOrder(pair)
  const source = await closeEpoch(transaction, pair.from.branchId)
  if (source === undefined) throw new Error('a locked branch must be there')
  const baseId = newBranchId()
  await transaction.query(sql`
    insert into offshoot.branches
      (id, database_id, name, schema_id, last_migration_id, parent_id, fork_epoch,
        fork_schema_id, deleted_at)
    values (${baseId}, ${pair.from.databaseId}, ${source.name}, ${source.schemaId},
      ${source.lastMigrationId}, ${source.id}, ${source.epoch}, ${source.schemaId}, now())`)
  await transaction.query(sql`
    insert into offshoot.merges (first_branch_id, second_branch_id, base_branch_id)
    values (${first}, ${second}, ${baseId})
    on conflict (first_branch_id, second_branch_id)
    do update set base_branch_id = excluded.base_branch_id, merged_at = now()`)
}

/** A branch that is gone, or has started over, merges with nobody as before. */
export async function deleteMergeBases(database: Queryable, branchId: string): Promise<void> {
  await database.query(sql`
    delete from offshoot.merges
    where first_branch_id = ${branchId} or second_branch_id = ${branchId}`)
}
