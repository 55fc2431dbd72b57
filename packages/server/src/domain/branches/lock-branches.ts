import { AppError } from '@offshoot/contract/errors'
import { allDone } from '../../common/all-done.js'
import type { Database, Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { runAlone } from '../../rows/branches.js'
import { confirmKey, keyGuardCall } from '../../rows/read.js'
import { isLive } from '../access/is-live.js'
import type { BranchAccess } from '../access/resolve.js'

/** Runs a transaction during which no one else can write to the branches or delete them. */
export function withBranches<Result>(
  database: Database,
  branches: readonly BranchAccess[],
  body: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  return runAlone(
    database,
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
  database: Database,
  branches: readonly [BranchAccess, ...BranchAccess[]],
  work: {
    read(transaction: Transaction): Promise<Read>
    body(transaction: Transaction, read: Read): Promise<Result>
  },
): Promise<Result> {
  const [{ principal }] = branches
  return confirmKey(
    runAlone(
      database,
      idsOf(branches),
      async (transaction) => {
        const [, read] = await allDone([
          lockBranches(transaction, branches),
          work.read(transaction),
        ])
        return work.body(transaction, read)
      },
      { beginsLate: true, checks: [keyGuardCall(principal)] },
    ),
  )
}

const idsOf = (branches: readonly BranchAccess[]): string[] =>
  branches.map(({ branchId }) => branchId)

async function lockBranches(
  transaction: Queryable,
  branches: readonly BranchAccess[],
): Promise<void> {
  const rows = await transaction.query<{ id: string }>(
    prepared(sql`
    select id
    from offshoot.branches
    where id = any(${branches.map((branch) => branch.branchId)}::text[]) and ${isLive}
    order by id
    for no key update`),
  )
  const ids = new Set(rows.map((row) => row.id))
  const gone = branches.find((branch) => !ids.has(branch.branchId))
  if (gone !== undefined) throw branchNotFound(gone)
}

function branchNotFound({ branchName }: BranchAccess): AppError {
  return new AppError('branch_not_found', `branch [${branchName}] not found`)
}
