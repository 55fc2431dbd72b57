import { invalidSql } from '../../dialect/invalid-sql.js'
import { serverOf } from '../../postgres/server.js'
import type { Sql } from '../../postgres/sql.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import type { Session } from '../session/session.js'
import { evaluatorIn } from './evaluators.js'
import { prepareAll, type RunStatement, requireLimits } from './prepare-sql.js'
import { connectionsOf } from './quick-queries.js'
import type { SqlContext } from './sql-context.js'
import type { StatementPlan } from './statement-plan.js'

/** A plan that can be explained. */
type ExplainedPlan = Exclude<StatementPlan, { kind: 'setval' }>

/** The plan of PostgreSQL for a statement, as lines with the names that callers know. */
export async function explainSql(
  context: SqlContext,
  { statement, options, runs }: { statement: RunStatement; options: Sql; runs: boolean },
): Promise<string[]> {
  const { session, readers, bounds } = context
  requireLimits(context.limits, [statement])
  const [prepared] = await prepareAll(context, [statement])
  if (prepared === undefined) throw new Error('a statement must be prepared')
  const { plan, parameters } = prepared
  if (plan.kind !== 'select' && runs) {
    throw invalidSql('EXPLAIN ANALYZE is not supported for statements that write')
  }
  if (plan.kind === 'setval' || (plan.kind === 'with' && plan.isPlain !== true)) {
    throw invalidSql('EXPLAIN is not supported for setval, nor for a statement whose WITH writes')
  }
  const query = explainedQuery(plan)
  const lines: string[] = []
  if (query !== undefined) {
    const role = await readers.find(session.branch.schemaName)
    const explain = async (transaction: OpenTransaction) => {
      const found = await evaluatorIn(context, { transaction, role, countsOn: false }).run([
        serverOf(transaction.client).explain(options, query, parameters),
      ])
      lines.push(...(found[0] ?? []).map(([line]) => line ?? ''))
    }
    const connections = connectionsOf(context, 'long')
    await session.branch.runSnapshot(explain, { bounds, connections })
  }
  const rename = namesFor(session)
  return [...target(plan), ...lines.map(rename)]
}

/** The query whose plan is shown. A statement that writes has one that finds the rows. */
function explainedQuery(plan: ExplainedPlan): Sql | undefined {
  if (plan.kind === 'select') return plan.query
  if (plan.kind === 'insert') return plan.values.rows
  if (plan.kind === 'with') return explainedQuery(plan.steps[0]?.plan ?? plan.last)
  return plan.kind === 'truncate' ? undefined : plan.rows
}

function target(plan: ExplainedPlan): string[] {
  if (plan.kind === 'select') return []
  if (plan.kind === 'with') return target(plan.last)
  const words = `${plan.kind.charAt(0).toUpperCase()}${plan.kind.slice(1)}`
  return plan.kind === 'truncate'
    ? plan.tables.map((table) => `${words} on ${table}`)
    : [`${words} on ${plan.table}`]
}

/** Tables, indexes and columns of the storage, as a plan names them. On a cluster, the number of the shard follows. */
const STORED = /\b(?:(?:heap|past)_(\d+)((?:_c\d+)?_[a-z]\w*?)?(?:_\d+)?|c(\d+))\b/g

/** Returns a function that replaces the names of the storage by those of tables and columns. */
function namesFor({ schema, branch }: Session): (line: string) => string {
  const tables = new Map<string, string>()
  const columns = new Map<string, string>()
  for (const name of schema.tableNames) {
    const codec = schema.tableByName(name)
    if (codec === undefined) continue
    for (const heapId of branch.rowsOf(codec).heapIds) tables.set(heapId, name)
    for (const { id, path } of codec.physical) columns.set(String(id), path.join('.'))
  }
  return (line) =>
    line.replace(STORED, (stored, heapId: string, rest: string | undefined, column: string) => {
      if (heapId === undefined) return columns.get(column) ?? stored
      const table = tables.get(heapId)
      if (table === undefined) return stored
      const named = rest?.replace(/c(\d+)/, (each, id: string) => columns.get(id) ?? each)
      return `${table}${named ?? ''}`
    })
}
