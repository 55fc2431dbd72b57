import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SqlRequest, SqlStatement } from '@offshoot/contract/sql'
import { inTurns, mapInTurns } from '../../common/in-turns.js'
import type { JsonText } from '../../common/write-json.js'
import { isResultType } from '../../dialect/allowed.js'
import { invalidSql, tooCostly } from '../../dialect/invalid-sql.js'
import { requireAccess } from '../../domain/access/scope.js'
import type { Bounds } from '../../postgres/bounds.js'
import { codeOf, INVALID_PARAMETER_VALUE, QUERY_CANCELED } from '../../postgres/failures.js'
import type { ReaderRoles } from '../../postgres/reader-role.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { Parameter } from '../../postgres/statement.js'
import type { UserConnections } from '../../postgres/user-connections.js'
import type { Lane } from '../../postgres/user-settings.js'
import { quoteJson } from '../../rows/columns/text-types.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { answerOnce, keepAnswer } from '../records/idempotency.js'
import type { TransactionContext } from '../records/transaction.js'
import { rowSet } from '../sets/row-set.js'
import { type Evaluated, Evaluator } from './evaluate.js'
import { encodeParameters } from './parameters.js'
import { PERMISSION_DENIED } from './sql-errors.js'
import { type StatementPlan, writtenTables } from './statement-plan.js'
import {
  type GivenStatement,
  inBatch,
  type PlannedStatement,
  type StatementPlanner,
} from './statement-planner.js'
import { findTypeNames } from './type-names.js'
import { grows, writeRecords } from './write-records.js'

interface SqlContext extends TransactionContext {
  readonly readers: ReaderRoles
  readonly bounds: Bounds
  readonly connections: UserConnections
  readonly planner: StatementPlanner
}

type ResponseType = NonNullable<SqlRequest['responseType']>

/** A planned statement with its parameters. */
interface PreparedStatement {
  readonly planned: PlannedStatement
  readonly plan: StatementPlan
  readonly parameters: readonly Parameter[]
}

interface SqlRun {
  readonly statements: readonly SqlStatement[]
  readonly responseType: ResponseType | undefined
  readonly rowsMax: number | undefined
  /** Joins the results of the statements, each a JSON text. */
  toAnswer(results: readonly string[]): JsonText
}

/** Runs statements in order in one transaction. */
export async function runSql(context: SqlContext, request: SqlRun): Promise<JsonText> {
  const { session } = context
  requireLimits(context.limits, request.statements)
  const prepared = await prepareAll(context, request.statements)
  const isWrite = prepared.some(({ plan }) => plan.kind !== 'select')
  if (!isWrite) return runPrepared(context, request, { prepared, isWrite })
  requireAccess(session.principal.scope, 'write')
  if (session.checkpoint !== undefined) {
    throw new AppError(
      'invalid_request',
      'query: parameter [at]: statements on a state of the past can only read',
    )
  }
  const execute = async () => {
    if (prepared.some(({ plan }) => grows(plan))) await session.growth.admit(0)
    const written = prepared.flatMap(({ plan }) => writtenTables(plan))
    await session.branch.makeWritable([...new Set(written)].map((name) => session.table(name)))
    return runPrepared(context, request, { prepared, isWrite })
  }
  return answerOnce(context, execute, { isShort: true })
}

async function runPrepared(
  context: SqlContext,
  { responseType = 'json', toAnswer, ...request }: SqlRun,
  { prepared, isWrite }: { prepared: readonly PreparedStatement[]; isWrite: boolean },
): Promise<JsonText> {
  const { readers, session, bounds } = context
  const rowsMax = rowsMaxOf(context, request.rowsMax)
  const schema = session.branch.schemaName
  const isSingleRead = !isWrite && prepared.length === 1
  const run = async (lane: Lane) => {
    const reader = await readers.find(schema)
    const options = { schema, reader, responseType, rowsMax, isAtOnce: isSingleRead }
    const read = async (transaction: OpenTransaction) =>
      toAnswer(await runAll(context, transaction, { prepared, ...options }))
    const write = async (transaction: OpenTransaction) => {
      const answer = await read(transaction)
      await keepAnswer(transaction, context, answer)
      return answer
    }
    const { workspaceId } = session.access
    const connections = {
      connect: () => context.connections.connect(workspaceId, { lane, signal: bounds.signal }),
    }
    return isWrite
      ? session.branch.runSteps(write, { bounds, connections })
      : session.branch.runSnapshot(read, { bounds, connections, isAtOnce: isSingleRead })
  }
  const runInLane = async () => {
    if (!isSingleRead) return run('long')
    return run('quick').catch((error: unknown) => {
      // It did not end in time, so that it has to wait for its turn among long statements.
      if (!isTimedOut(error)) throw error
      return run('long')
    })
  }
  return runInLane().catch(async (error) => {
    if (!(await lacksRights(context, schema, error))) throw error
    await readers.renew(schema)
    return runInLane()
  })
}

function isTimedOut(error: unknown): boolean {
  return [error, (error as Error).cause].some((cause) => codeOf(cause) === QUERY_CANCELED)
}

/** Returns whether a statement failed because its role lacks a privilege, or was dropped by an administrator. */
async function lacksRights(
  { readers }: SqlContext,
  schema: string,
  error: unknown,
): Promise<boolean> {
  if (codeOf(error) === PERMISSION_DENIED) return true
  // Statements of callers fail with this code, too.
  if (codeOf((error as Error).cause) !== INVALID_PARAMETER_VALUE) return false
  return !(await readers.exists(schema))
}

async function runAll(
  context: SqlContext,
  transaction: OpenTransaction,
  options: {
    prepared: readonly PreparedStatement[]
    schema: string
    reader: string | undefined
    responseType: ResponseType
    rowsMax: number | undefined
    isAtOnce: boolean
  },
): Promise<string[]> {
  const { prepared, schema, reader, responseType, rowsMax, isAtOnce } = options
  const { sqlResultBytesMax: resultBytesMax } = context.limits
  const evaluator = new Evaluator(transaction, { schema, reader, resultBytesMax, isAtOnce })
  const results: string[] = []
  // The transaction may have been tried before.
  context.session.growth.undo()
  for (const [index, statement] of prepared.entries()) {
    try {
      results.push(
        await runOne(context, { transaction, evaluator, statement, responseType, rowsMax }),
      )
    } catch (error) {
      throw prepared.length === 1 ? error : inBatch(error, index)
    }
  }
  return results
}

/** Refuses a batch with too many statements. It is cheap, and comes before the statements are validated. */
export function requireStatementCount(limits: Limits, count: number): void {
  if (count <= limits.sqlStatementsMax) return
  throw invalidSql(`a batch can have at most ${limits.sqlStatementsMax} statements`)
}

/** Xata Lite returns at most this many rows, with a warning if there are more. Its clients expect that. */
const XATA_ROWS_MAX = 1000

/** Returns how many rows of a result are enough, or undefined if it must be whole. */
function rowsMaxOf({ session, limits }: SqlContext, asked: number | undefined): number | undefined {
  const enough = asked ?? (session.metadata.key === 'xata' ? XATA_ROWS_MAX : undefined)
  return enough && Math.min(enough, limits.sqlRowsMax)
}

function requireLimits(limits: Limits, statements: readonly SqlStatement[]): void {
  const length = statements.reduce((sum, { statement }) => sum + statement.length, 0)
  if (length > limits.sqlLengthMax) {
    throw invalidSql(`a request can have at most ${limits.sqlLengthMax} characters of SQL`)
  }
  for (const { params } of statements) {
    if ((params?.length ?? 0) > limits.sqlParametersMax) {
      throw invalidSql(`a statement can have at most ${limits.sqlParametersMax} parameters`)
    }
  }
}

async function prepareAll(
  { session, planner, bounds }: SqlContext,
  statements: readonly SqlStatement[],
): Promise<PreparedStatement[]> {
  const given: (GivenStatement & { parameters: Parameter[] })[] = []
  for (const [index, { statement, params }] of statements.entries()) {
    try {
      const parameters = await inTurns(encodeParameters(params ?? []))
      const parameterSizes = await mapInTurns(parameters, (each) => Buffer.byteLength(each ?? ''))
      given.push({ text: statement, parameters, parameterSizes })
    } catch (error) {
      throw statements.length === 1 ? error : inBatch(error, index)
    }
  }
  const plans = await planner.plan(session, given, bounds.signal)
  return plans.map((planned, index) => ({
    planned,
    plan: planned.plan,
    parameters: given[index]?.parameters ?? [],
  }))
}

interface Run {
  readonly transaction: OpenTransaction
  readonly evaluator: Evaluator
  readonly statement: PreparedStatement
  readonly responseType: ResponseType
  /** undefined: the result must be whole. */
  readonly rowsMax: number | undefined
}

async function runOne(context: SqlContext, run: Run): Promise<string> {
  const { evaluator, statement } = run
  const { planned, plan, parameters } = statement
  const textOf = run.responseType === 'json' ? recordText : rowText
  const read = (query: Sql, values: readonly Parameter[]) =>
    evaluator.read(planned.sent(query, { valueCount: values.length, textOf }), {
      parameters: values,
      rowsMax: run.rowsMax ?? context.limits.sqlRowsMax,
    })
  if (plan.kind === 'select') {
    const found = await read(plan.query, parameters)
    return writeResult(context, run, { found, total: found.rows.length })
  }
  if (plan.kind === 'truncate') {
    for (const name of plan.tables) await truncate(context, run.transaction, name)
    return writeResult(context, run, { found: NOTHING, total: 0 })
  }
  const { returning } = plan
  const table = context.session.table(plan.table)
  const written = await writeRecords(context, { ...run, plan, table, parameters }, (ids) =>
    returning === undefined ? undefined : read(returning, [...parameters, ids]),
  )
  const { total, found = NOTHING } = written
  return writeResult(context, run, { found, total })
}

async function truncate(
  { session }: SqlContext,
  transaction: OpenTransaction,
  name: string,
): Promise<void> {
  const { writer, codec } = session.table(name)
  if (writer === undefined) throw new Error('a written table must be writable')
  const rows = { codec, filter: undefined }
  await transaction.run([writer.deleteSet((firstSlot) => rowSet(session, rows, firstSlot))])
}

const NOTHING: Evaluated = { columns: [], rows: [], hasMore: false }

/** Converts rows to JSON objects. Of several columns with the same name, JSON parsers keep the last. */
const recordText = (query: Sql): Sql => sql`select row_to_json(q)::text as row from (${query}) as q`

/** Converts rows to JSON arrays of values. */
const rowText = (query: Sql): Sql => sql`
  select (
    select coalesce(json_agg(v.value), '[]'::json) from json_each(row_to_json(q)) v
  )::text as row
  from (${query}) as q`

async function writeResult(
  { limits }: SqlContext,
  { transaction, responseType, rowsMax }: Run,
  { found, total }: { found: Evaluated; total: number },
): Promise<string> {
  const { columns, rows, hasMore } = found
  if (hasMore && rowsMax === undefined) {
    throw tooCostly(
      `the result has more than ${limits.sqlRowsMax} rows; use LIMIT, or set [rowsMax] to get the first rows`,
    )
  }
  const typeIds = columns.map(({ typeId }) => typeId)
  const names = await findTypeNames(transaction, typeIds)
  for (const { name, typeId } of columns) {
    const type = names.get(typeId) ?? ''
    if (!isResultType(type)) throw invalidSql(`column "${name}": type [${type}] is not supported`)
  }
  const described = columns.map(
    ({ name, typeId }) =>
      `{"name":${quoteJson(name)},"type":${quoteJson(names.get(typeId) ?? '')}}`,
  )
  const key = responseType === 'json' ? 'records' : 'rows'
  const warning = hasMore
    ? `,"warning":"only the first ${rowsMax} rows are returned; use LIMIT and OFFSET for more"`
    : ''
  return `{"${key}":[${rows.join(',')}],"columns":[${described.join(',')}],"total":${total}${warning}}`
}
