import { LIMITS } from '@offshoot/contract/limits'
import pg from 'pg'
import { type QueryRequest, readPage } from '../../packages/server/src/data/query/page.js'
import { cursorScope, planQuery } from '../../packages/server/src/data/query/query-records.js'
import { querySql } from '../../packages/server/src/data/query/query-sql.js'
import type { Session } from '../../packages/server/src/data/session/session.js'
import { StatementPlanner } from '../../packages/server/src/data/sql/statement-planner.js'
import { type Call, compileSharing } from '../../packages/server/src/postgres/statement.js'
import type { TestService } from './service.js'

/** The execution of a query, from EXPLAIN ANALYZE. */
export interface Explained {
  /** Tables with a sequential scan. */
  readonly sequential: readonly string[]
  /** Rows read from all tables, including those that filters removed. */
  readonly rowsRead: number
  readonly plan: string
}

interface Node {
  readonly [key: string]: unknown
  readonly 'Node Type': string
  readonly 'Relation Name'?: string
  readonly 'Actual Rows': number
  readonly 'Actual Loops': number
  readonly 'Rows Removed by Filter'?: number
  readonly 'Rows Removed by Index Recheck'?: number
  readonly Plans?: readonly Node[]
}

/** Explains the statement of a query with a generic plan, as the service would run it. */
export async function explainQuery(
  service: TestService,
  target: { database: string; branch: string; table: string },
  request: QueryRequest,
): Promise<Explained> {
  const call = await withSession(service, target, async (session) => {
    const context = { ...service, session, tableName: target.table, limits: LIMITS }
    const scope = cursorScope(session, session.table(target.table).codec.table.id)
    return querySql(planQuery(context, readPage(request, { limits: LIMITS, scope })))
  })
  return explainCall(service, call)
}

/**
 * Explains the reads of an INSERT: lookups of conflicting records, and of the returned columns.
 * `records` are the records as JSON in the statement, `keys` their unique values.
 */
export async function explainInsert(
  service: TestService,
  target: { database: string; branch: string },
  statement: string,
  { records, ids, keys }: { records: string; ids: string; keys: readonly string[] },
): Promise<Explained[]> {
  const planner = new StatementPlanner(LIMITS)
  const calls = await withSession(service, target, async (session) => {
    const [planned] = await planner.plan(session, [{ text: statement, parameterSizes: [] }])
    const plan = planned?.plan
    if (plan?.kind !== 'insert') throw new Error('only an INSERT is explained')
    const { conflict, returning } = plan
    return [
      ...(conflict === undefined ? [] : [{ query: conflict.rows, values: [records, ...keys] }]),
      ...(returning === undefined ? [] : [{ query: returning, values: [ids] }]),
    ].map(({ query, values }): Call => ({ statement: compileSharing(query), values }))
  })
  return Promise.all(calls.map((call) => explainCall(service, call)))
}

export function withSession<Result>(
  service: TestService,
  target: { database: string; branch: string },
  run: (session: Session) => Promise<Result>,
): Promise<Result> {
  return service.sessions.run(
    {
      apiKey: service.key,
      address: { workspaceId: service.workspaceId, region: 'local' },
      databaseName: target.database,
      branchName: target.branch,
      isXataClient: false,
      need: 'read',
      origin: 'http://localhost',
    },
    run,
  )
}

async function explainCall(service: TestService, call: Call): Promise<Explained> {
  const values = call.statement.slots.map((slot) =>
    typeof slot === 'string' ? slot : (call.values[slot] ?? null),
  )
  const client = new pg.Client({ connectionString: service.url })
  await client.connect()
  try {
    await client.query('set plan_cache_mode = force_generic_plan')
    await client.query(`prepare page as ${call.statement.text}`)
    const given = values.map((value) => (value === null ? 'null' : pg.escapeLiteral(value)))
    const { rows } = await client.query(
      `explain (analyze, format json) execute page${given.length > 0 ? `(${given.join(', ')})` : ''}`,
    )
    const [{ Plan: root }] = rows[0]['QUERY PLAN'] as [{ Plan: Node }]
    const nodes = listNodes(root).filter((node) => node['Relation Name'] !== undefined)
    return {
      sequential: nodes
        .filter((node) => node['Node Type'] === 'Seq Scan')
        .map((node) => node['Relation Name'] ?? ''),
      rowsRead: nodes.reduce((sum, node) => sum + rowsOf(node), 0),
      plan: describe(root),
    }
  } finally {
    await client.end()
  }
}

/** The plan as text, for the message of a failure. */
function describe(node: Node, indent = ''): string {
  const keys = ['Relation Name', 'Index Name', 'Index Cond', 'Filter', 'Sort Key', 'Actual Rows']
  const parts = [...keys, 'Actual Loops', 'Rows Removed by Filter']
    .filter((key) => node[key] !== undefined)
    .map((key) => `${key}: ${node[key]}`)
  const inner = (node.Plans ?? []).map((child) => describe(child, `${indent}  `))
  return [`${indent}${node['Node Type']} ${parts.join('; ')}`, ...inner].join('\n')
}

function listNodes(node: Node): Node[] {
  return [node, ...(node.Plans ?? []).flatMap(listNodes)]
}

function rowsOf(node: Node): number {
  const left = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0)
  return Math.ceil((node['Actual Rows'] + left) * node['Actual Loops'])
}
