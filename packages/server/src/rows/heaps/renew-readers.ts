import type { Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'

/**
 * Changes the stamps of all branches that read from a branch through its `forks`, which is a condition, so that they
 * read its layout again. `isIncluded`: and of the branch itself. The transaction must be read committed.
 */
export async function renewReaders(
  transaction: Queryable,
  options: { branchId: string; forks: Sql; isIncluded?: boolean },
): Promise<void> {
  const ids = await lockReaders(transaction, options)
  await transaction.query(sql`
    update offshoot.branches set stamp = nextval('offshoot.stamps') where id = any(${ids}::text[])`)
}

/**
 * Locks the readers of a branch and returns their ids. A fork locks its source, too, until it has committed. So a fork of a
 * reader that was on its way has committed once its source is locked here, and the next statement sees it: the readers are
 * complete when a statement finds no further ones. Without that, the fork would keep a layout that nobody renews.
 */
async function lockReaders(
  transaction: Queryable,
  { branchId, forks, isIncluded = false }: Parameters<typeof renewReaders>[1],
): Promise<string[]> {
  for (let known = -1; ; ) {
    const readers = await transaction.query<{ id: string }>(sql`
      with recursive readers as (
        select id from offshoot.branches where parent_id = ${branchId} and ${forks}
        union all
        select b.id from readers r join offshoot.branches b on b.parent_id = r.id
      )
      select id
      from offshoot.branches
      where ((${isIncluded} and id = ${branchId}) or id in (select id from readers))
        and deleted_at is null
      -- A common order prevents deadlocks.
      order by id
      for no key update`)
    if (readers.length === 0 || readers.length === known) return readers.map(({ id }) => id)
    known = readers.length
  }
}
