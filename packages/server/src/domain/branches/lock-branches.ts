import { AppError } from '@offshoot/contract/errors'
import { allDone } from '../../common/all-done.js'
import type { Database, Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { runAlone } from '../../rows/branches.js'
import { isLive } from '../access/is-live.js'
import type { BranchAccess } from '../access/resolve.js'

/** Runs a transaction during which no one else can write to the branches or delete them. */
export function withBranches<Result>(
  database: Database,
  branches: readonly BranchAccess[],
  body: (transaction: Transaction) => Promise<Result>,
): Promise<Result> {
  return readWithBranches(database, branches, { read: async () => undefined, body })
}

/** Like `withBranches`, but the first queries of `read` are sent with the locks. It must not write. */
export function readWithBranches<Read, Result>(
  database: Database,
  branches: readonly BranchAccess[],
  work: {
    read(transaction: Transaction): Promise<Read>
    body(transaction: Transaction, read: Read): Promise<Result>
  },
): Promise<Result> {
  return runAlone(
    database,
    branches.map((branch) => branch.branchId),
    async (transaction) => {
      const [, read] = await allDone([lockBranches(transaction, branches), work.read(transaction)])
      return work.body(transaction, read)
    },
    { beginsLate: true },
  )
}

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
