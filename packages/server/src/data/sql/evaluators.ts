import type { Reader } from '../../postgres/server.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { Evaluator, type RunCalls, runInside } from './evaluate.js'
import type { PreparedStatement } from './prepare-sql.js'
import { runQuickCalls } from './quick-queries.js'
import type { SqlContext } from './sql-context.js'

/** A statement, and what runs its queries. */
export interface Run {
  readonly context: SqlContext
  readonly evaluator: Evaluator
  readonly statement: PreparedStatement
}

/** A transaction that stays open. */
export interface OpenSql {
  readonly transaction: OpenTransaction
  /** The role that reads. */
  readonly role: string | undefined
  /** Whether the transaction has had cursors, which keep what they have collected. */
  readonly countsOn: boolean
}

/** Returns what runs queries in a transaction. */
export function evaluatorIn(
  { limits, session, timeZone }: SqlContext,
  { transaction, role, countsOn }: OpenSql,
): Evaluator {
  const { sqlResultBytesMax: resultBytesMax } = limits
  const reader = { schema: session.branch.schemaName, role, timeZone }
  return new Evaluator(runInside(transaction, reader, { countsOn }), { resultBytesMax })
}

/** Returns what runs queries that end soon, each on any connection. */
export function quickEvaluator(
  context: SqlContext,
  { plan }: PreparedStatement,
  reader: Reader,
): Evaluator {
  const run: RunCalls = (calls, options) =>
    runQuickCalls(context, { plan, reader }, { calls, begin: options?.begin })
  return new Evaluator(run, { resultBytesMax: context.limits.sqlResultBytesMax })
}
