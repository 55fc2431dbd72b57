import { AppError } from '@offshoot/contract/errors'
import type { JsonText } from '../../common/write-json.js'
import { runBounded } from '../../postgres/bounds.js'
import type { Reader } from '../../postgres/server.js'
import type { Sql } from '../../postgres/sql.js'
import { type Parameter, toCall } from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { answerOnce, keepAnswer } from '../records/idempotency.js'
import { findBrokenAtEnd, mayHeal } from '../session/record-errors.js'
import { withBranch } from '../session/session.js'
import { asReader, lacksRights } from './as-reader.js'
import type { ResultColumn } from './evaluate.js'
import { evaluatorIn, type OpenSql, quickEvaluator } from './evaluators.js'
import { namingColumnIn } from './name-column.js'
import {
  type PreparedStatement,
  prepareAll,
  type RunStatement,
  requireLimits,
  requireSchemaChange,
  requireWritable,
} from './prepare-sql.js'
import { connectionsOf, isTimedOut, KnownQuery, runQuickCalls } from './quick-queries.js'
import { type ResultForm, rowsForm } from './result-forms.js'
import { beginAgain, type RowSink, receiverOf, TooManyRowsError } from './row-sink.js'
import { runOne, runQuery } from './run-statement.js'
import { type ChangeOptions, changeSchema } from './schema/change-schema.js'
import { parseSchema } from './schema/parse-schema.js'
import type { SqlContext } from './sql-context.js'
import { type StatementPlan, writtenTables } from './statement-plan.js'
import { inBatch } from './statement-planner.js'
import { nameTaker } from './taken-error.js'
import { grows, toSqlRefusal } from './write-records.js'

export interface SqlRun {
  readonly statements: readonly RunStatement[]
  readonly form: ResultForm
  readonly change?: ChangeOptions
  /** Joins the results of the statements. */
  toAnswer(results: readonly string[]): JsonText
  /** Called with a query that has run, if it can run again without a look at its text. */
  onKnown?(query: KnownQuery): void
}

/** Runs statements in order in one transaction. */
export async function runSql(context: SqlContext, request: SqlRun): Promise<JsonText> {
  const { session } = context
  requireLimits(context.limits, request.statements)
  const schema = await parseSchema(request.statements.map(({ statement }) => statement))
  if (schema !== undefined) {
    requireSchemaChange(context, request.statements)
    return changeSchema(context, schema, {
      ...(request.change ?? { allowDataLoss: false }),
      toAnswer: (results) => request.toAnswer(results.map((each) => request.form.change(each))),
    })
  }
  const prepared = await prepareAll(context, request.statements)
  const isWrite = prepared.some(({ plan }) => plan.kind !== 'select')
  if (!isWrite) return runPrepared(context, request, { prepared, isWrite })
  requireWritable(context)
  const execute = async () => {
    if (prepared.some(({ plan }) => grows(plan))) await session.growth.admit(0)
    const written = prepared.flatMap(({ plan }) => writtenTables(plan))
    await session.branch.makeWritable([...new Set(written)].map((name) => session.table(name)))
    return runPrepared(context, request, { prepared, isWrite })
  }
  return answerOnce(context, execute, { isShort: true })
}

/** A statement writes to tables for which the branch has no storage yet. */
export class MissingStorageError extends Error {
  constructor(readonly tables: readonly string[]) {
    super('the branch needs storage')
  }
}

/** Runs a statement in a transaction that stays open, and returns its result. An error leaves the transaction without further use. */
export async function runSqlInside(
  context: SqlContext,
  open: OpenSql,
  request: { statement: RunStatement; form: ResultForm },
): Promise<string> {
  const { session, database, bounds } = context
  const { form } = request
  const { transaction } = open
  requireLimits(context.limits, [request.statement])
  const [statement] = await prepareAll(context, [request.statement])
  if (statement === undefined) throw new Error('a statement must be prepared')
  const { plan } = statement
  if (plan.kind !== 'select') {
    requireWritable(context)
    if (grows(plan)) await session.growth.admit(0)
    const tables = writtenTables(plan)
    const missing = tables.filter((name) => session.table(name).writer === undefined)
    if (missing.length > 0) throw new MissingStorageError(missing)
  }
  const { client } = transaction
  const evaluator = evaluatorIn(context, open)
  return runBounded({ database, client, bounds, canLose: true }, () => {
    form.begin?.({ source: client })
    return runOne({ context, transaction, evaluator, statement }, form).catch(async (error) => {
      throw await nameTaker(session, error)
    })
  })
}

/** Reads rows of a cursor in a transaction that stays open. `columns` are those of its query. */
export async function fetchInside(
  context: SqlContext,
  open: OpenSql,
  { fetch, columns, sink }: { fetch: Sql; columns: readonly ResultColumn[]; sink: RowSink },
): Promise<void> {
  const { database, bounds } = context
  const { client } = open.transaction
  const evaluator = evaluatorIn(context, open)
  await runBounded({ database, client, bounds, canLose: true }, async () => {
    sink.begin({ source: client })
    sink.describe({ parameterTypeIds: [], columns })
    await evaluator.run([{ ...toCall(fetch), isUnnamed: true, ...receiverOf(sink) }])
    sink.end({ kind: 'select', written: 0 })
  })
}

async function runPrepared(
  context: SqlContext,
  request: SqlRun,
  { prepared, isWrite }: { prepared: readonly PreparedStatement[]; isWrite: boolean },
): Promise<JsonText> {
  return asReader(context, async (found) => {
    const reader = { ...found, timeZone: context.timeZone }
    const [statement] = prepared
    if (statement === undefined || isWrite || prepared.length > 1) {
      return runInTransaction(context, request, { prepared, reader, isWrite })
    }
    try {
      return await runQuick(context, request, { statement, reader })
    } catch (error) {
      // It did not end in time, or with few rows, so that it has to wait for its turn among long statements.
      if (!isLong(error)) throw error
      return runInTransaction(context, request, { prepared, reader, isWrite })
    }
  })
}

/** Runs a query on the connections for those that end soon. Lookups that arrive together share a round trip. */
async function runQuick(
  context: SqlContext,
  { form, toAnswer, onKnown }: Pick<SqlRun, 'form' | 'toAnswer' | 'onKnown'>,
  { statement, reader }: { statement: PreparedStatement; reader: Reader },
): Promise<JsonText> {
  const evaluator = quickEvaluator(context, statement, reader)
  const answer = toAnswer([await runQuery({ context, evaluator, statement }, form)])
  if (onKnown !== undefined) {
    const { branch } = context.session
    const known = KnownQuery.of(statement.planned, { branch, role: reader.role })
    if (known !== undefined) onKnown(known)
  }
  return answer
}

/**
 * Runs a query again that is known on the branch of the session. Returns false if it has to run like one that is not: its plan
 * is gone or not good for the parameters, or its role lacks a privilege.
 */
export async function runKnown(
  context: SqlContext,
  known: KnownQuery,
  { parameters, sink }: { parameters: readonly Parameter[]; sink: RowSink },
): Promise<boolean> {
  const found = known.planFor(parameters)
  if (found === undefined) return false
  const { planned, plan, description } = found
  const reader = known.reader(context.timeZone)
  const calls = [planned.plain(plan.query).call(parameters, receiverOf(sink))]
  // A sink can refuse the columns, which is no failure of PostgreSQL.
  sink.describe(description)
  try {
    await runQuickCalls(context, { plan, reader }, { calls, begin: beginAgain(sink, description) })
    sink.end({ kind: 'select', written: 0 })
    return true
  } catch (error) {
    if (isLong(error)) {
      const request = { statements: [], form: rowsForm(sink), toAnswer: () => '' }
      const prepared = [{ planned, plan, parameters }]
      await runInTransaction(context, request, { prepared, reader, isWrite: false })
      return true
    }
    if (await lacksRights(context, reader.schema, error)) return false
    throw await namingColumnIn({ context, statement: { planned, plan, parameters } }, error)
  }
}

async function runInTransaction(
  context: SqlContext,
  request: SqlRun,
  options: { prepared: readonly PreparedStatement[]; reader: Reader; isWrite: boolean },
): Promise<JsonText> {
  const { session } = context
  const { branch } = session
  const { prepared, reader } = options
  const run = async (transaction: OpenTransaction, own: PreparedRun) => {
    request.form.begin?.({ source: transaction.client })
    return request.toAnswer(
      await runAll(own.context, transaction, { ...own, reader, form: request.form }),
    )
  }
  const write = async (transaction: OpenTransaction, own: PreparedRun) => {
    const answer = await run(transaction, own)
    await keepAnswer(transaction, context, answer)
    return answer
  }
  const running = { bounds: context.bounds, connections: connectionsOf(context, 'long') }
  const own = { context, prepared }
  if (!options.isWrite) return branch.runSnapshot((each) => run(each, own), running)
  const names = new Set(prepared.flatMap(({ plan }) => writtenTables(plan)))
  const tables = [...names].map((name) => session.table(name))
  const deletes = prepared.some(({ plan }) => DELETING.has(plan.kind))
  const writing = { ...running, ...branch.claimOf(tables, { deletes }) }
  try {
    return await branch.runSteps((each) => write(each, own), writing)
  } catch (error) {
    if (!takesDraft(session, prepared, error)) throw error
    // The statements are written again, because they read what they have written from drafts.
    return branch
      .runDrafted(
        tables,
        async (draft, transaction) => {
          const drafted = { ...context, session: withBranch(session, draft) }
          const statements = await prepareAll(drafted, request.statements)
          return write(transaction, { context: drafted, prepared: statements })
        },
        writing,
      )
      .catch((failure: unknown) => {
        if (findBrokenAtEnd(failure) === undefined) throw failure
        throw toSqlRefusal(failure, [])
      })
  }
}

/** The kinds of statements that may delete records. */
const DELETING: ReadonlySet<StatementPlan['kind']> = new Set(['delete', 'truncate', 'with'])

interface PreparedRun {
  readonly context: SqlContext
  readonly prepared: readonly PreparedStatement[]
}

/** Returns whether a statement has broken a rule that later rows or statements may keep again. */
function takesDraft(
  { branch }: SqlContext['session'],
  prepared: readonly PreparedStatement[],
  error: unknown,
): boolean {
  if (!(error instanceof AppError) || !branch.takesDrafts) return false
  const writes = prepared.filter(({ plan }) => plan.kind !== 'select')
  // The rows of an update can exchange unique values. Otherwise each row is as it will stay.
  const [first] = writes
  const isUpdate = error.code === 'unique_violation' && first?.plan.kind === 'update'
  const isLone = writes.length === 1 && first?.plan.kind !== 'with'
  return (!isLone || isUpdate) && mayHeal({ ...error.details, code: error.code })
}

async function runAll(
  context: SqlContext,
  transaction: OpenTransaction,
  {
    prepared,
    form,
    reader,
  }: { prepared: readonly PreparedStatement[]; reader: Reader; form: ResultForm },
): Promise<string[]> {
  const evaluator = evaluatorIn(context, { transaction, role: reader.role, countsOn: false })
  const results: string[] = []
  // The transaction may have been tried before.
  context.session.growth.undo()
  for (const [index, statement] of prepared.entries()) {
    try {
      results.push(await runOne({ context, transaction, evaluator, statement }, form))
    } catch (error) {
      // A transaction that is tried again on drafts looks at rules in the end.
      const { session } = context
      const told = takesDraft(session, prepared, error) ? error : await nameTaker(session, error)
      throw prepared.length === 1 ? told : inBatch(told, index)
    }
  }
  return results
}

/** Returns whether a statement has to run as a long one. */
const isLong = (error: unknown): boolean => error instanceof TooManyRowsError || isTimedOut(error)
