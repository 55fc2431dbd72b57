import { allDone } from '../../common/all-done.js'
import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { guardedByKey } from '../../rows/running/staleness.js'
import type { Storage } from '../../rows/storage.js'
import { isLive } from '../access/is-live.js'
import type { BranchAccess } from '../access/resolve.js'
import { branchNotFound, isBranchOf } from './branch-state.js'

/**
 * Runs a transaction during which no one else can write to the branches or delete them. Throws if one of them is no longer
 * the branch that the access was granted to.
 */
export function withBranches<Result>(
  storage: Storage,
  branches: readonly BranchAccess[],
  body: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  return storage.runAlone(
    idsOf(branches),
    async (transaction) => {
      await lockBranches(transaction, branches)
      return body(transaction)
    },
    { beginsLate: true },
  )
}

/**
 * Like `withBranches`, for a request whose access comes from a session: throws a `StaleError` if the rights of its key may
 * have changed. The first queries of `read` are sent with the locks. It must not write.
 */
export function confirmWithBranches<Read, Result>(
  storage: Storage,
  branches: readonly [BranchAccess, ...BranchAccess[]],
  work: {
    read(transaction: Transaction): Promise<Read>
    body(transaction: Transaction, read: Read): Promise<Result>
  },
): Promise<Result> {
  const [{ principal }] = branches
  return guardedByKey(principal, (check) =>
    storage.runAlone(
      idsOf(branches),
      async (transaction) => {
        const [, read] = await allDone([
          lockBranches(transaction, branches),
          work.read(transaction),
        ])
        return work.body(transaction, read)
      },
      { beginsLate: true, checks: [check] },
    ),
  )
}

const idsOf = (branches: readonly BranchAccess[]): string[] =>
  branches.map(({ branchId }) => branchId)

async function lockBranches(
  transaction: Queryable,
  branches: readonly BranchAccess[],
): Promise<void> {
  const rows = await transaction.query<{ id: string; name: string; databaseId: string }>(
    prepared(sql`
    select id, name, database_id as "databaseId"
    from offshoot.branches
    where id = any(${branches.map((branch) => branch.branchId)}::text[]) and ${isLive}
    order by id
    for no key update`),
  )
  const gone = branches.find((branch) => !rows.some((row) => isBranchOf(branch, row)))
  if (gone !== undefined) throw branchNotFound(gone)
}
