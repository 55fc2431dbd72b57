import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'

/**
 * Changes the stamps of all branches that read from a branch through its `forks`, which is a condition, so that they
 * read its layout again. `isIncluded`: and of the branch itself.
 */
export async function renewReaders(
  transaction: Queryable,
  options: { branchId: string; forks: Sql; isIncluded?: boolean },
): Promise<void> {
  const { branchId, forks, isIncluded = false } = options
  await transaction.query(sql`
    with recursive readers as (
      select id from offshoot.branches where parent_id = ${branchId} and ${forks}
      union all
      select b.id from readers r join offshoot.branches b on b.parent_id = r.id
    )
    update offshoot.branches
    set stamp = nextval('offshoot.stamps')
    where id in (
      select id
      from offshoot.branches
      where ((${isIncluded} and id = ${branchId}) or id in (select id from readers))
        and deleted_at is null
      -- A common order prevents deadlocks.
      order by id
      for no key update
    )`)
}
