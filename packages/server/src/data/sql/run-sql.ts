import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SqlRequest, SqlStatement } from '@offshoot/contract/sql'
import type pg from 'pg'
import { inTurns } from '../../common/in-turns.js'
import type { JsonText } from '../../common/write-json.js'
import { isResultType } from '../../dialect/allowed.js'
import { invalidSql, tooCostly } from '../../dialect/invalid-sql.js'
import { requireDirectChanges } from '../../domain/access/approvals.js'
import { requireAccess } from '../../domain/access/scope.js'
import { runBounded } from '../../postgres/bounds.js'
import { codeOf, INVALID_PARAMETER_VALUE } from '../../postgres/failures.js'
import type { Reader } from '../../postgres/server.js'
import { type Sql, sql } from '../../postgres/sql.js'
import {
  compileSharing,
  type Parameter,
  type RowForward,
  type TextRow,
  toCall,
} from '../../postgres/statement.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { answerOnce, keepAnswer } from '../records/idempotency.js'
import { findBrokenAtEnd, mayHeal } from '../session/record-errors.js'
import { withBranch } from '../session/session.js'
import { rowSet } from '../sets/row-set.js'
import {
  type Description,
  type Evaluated,
  Evaluator,
  type ResultColumn,
  type RowReceiver,
  type RunCalls,
  runInside,
  SentQuery,
} from './evaluate.js'
import { encodeParameters } from './parameters.js'
import { PendingWrites } from './pending-writes.js'
import { connectionsOf, isTimedOut, KnownQuery, runQuickCalls } from './quick-queries.js'
import { type ChangeOptions, changeSchema } from './schema/change-schema.js'
import { parseSchema } from './schema/parse-schema.js'
import type { SchemaPlan } from './schema/plan-schema.js'
import { type NamedSequence, sequencesOf } from './sequence-names.js'
import type { SqlContext } from './sql-context.js'
import { PERMISSION_DENIED } from './sql-errors.js'
import {
  requireCompared,
  type SinglePlan,
  type StatementPlan,
  writtenTables,
} from './statement-plan.js'
import {
  type GivenStatement,
  inBatch,
  type PlannedStatement,
  type ReadySteps,
} from './statement-planner.js'
import { nameTaker } from './taken-error.js'
import { findTypeNames } from './type-names.js'
import { rowsOfStep, textsOfRows, withRows } from './with-steps.js'
import { grows, idsOf, planOperations, toSqlRefusal, writeRecords } from './write-records.js'

/** A statement, as a caller gives it. */
export type RunStatement = SqlStatement &
  Pick<GivenStatement, 'parameterTypes' | 'hidesMetadata' | 'parameterBytesMax'>

/** A planned statement with its parameters. */
interface PreparedStatement {
  readonly planned: PlannedStatement
  readonly plan: StatementPlan
  readonly parameters: readonly Parameter[]
}

export interface SqlRun {
  readonly statements: readonly RunStatement[]
  readonly form: ResultForm
  readonly change?: ChangeOptions
  /** Joins the results of the statements. */
  toAnswer(results: readonly string[]): JsonText
  /** Called with a query that has run, if it can run again without a look at its text. */
  onKnown?(query: KnownQuery): void
}

/** What statements that change the schema have done. */
type SchemaChanged = Pick<SchemaPlan, 'tag' | 'notices' | 'types'>

interface Finished {
  readonly found: Evaluated
  /** The number of records that the statement has written, or that it returns. */
  readonly total: number
  /** In what it differs from PostgreSQL. */
  readonly notices?: readonly string[]
}

/** How the rows of a statement are read and returned. */
export interface ResultForm {
  /** Called before the statements run, which they can do more than once. */
  begin?(options: Parameters<RowSink['begin']>[0]): void
  read(run: Run, query: Sql, values: readonly Parameter[]): Promise<Evaluated>
  /** Called with the ids of records that a statement has written. */
  onWritten?: ((ids: readonly string[]) => void) | undefined
  /** Returns the result of a statement. */
  finish(run: Run, result: Finished): Promise<string>
  /** Returns the result of a text that has changed the schema. */
  change(result: SchemaChanged): string
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

/** Throws if statements cannot change the schema. */
export function requireSchemaChange(
  context: SqlContext,
  statements: readonly RunStatement[],
): void {
  requireLimits(context.limits, statements)
  if (statements.some(({ params }) => (params?.length ?? 0) > 0)) {
    throw invalidSql('a statement that changes the schema cannot have parameters')
  }
  requireWritable(context)
}

/** A statement writes to tables for which the branch has no storage yet. */
export class MissingStorageError extends Error {
  constructor(readonly tables: readonly string[]) {
    super('the branch needs storage')
  }
}

/** A transaction that stays open. */
export interface OpenSql {
  readonly transaction: OpenTransaction
  /** The role that reads. */
  readonly role: string | undefined
  /** Whether the transaction has had cursors, which keep what they have collected. */
  readonly countsOn: boolean
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

function requireWritable({ session }: SqlContext): void {
  requireAccess(session.principal.scope, 'write')
  requireDirectChanges({ ...session, ...session.access })
  if (session.checkpoint === undefined) return
  throw new AppError(
    'invalid_request',
    'query: parameter [at]: statements on a state of the past can only read',
  )
}

async function runPrepared(
  context: SqlContext,
  request: SqlRun,
  { prepared, isWrite }: { prepared: readonly PreparedStatement[]; isWrite: boolean },
): Promise<JsonText> {
  const { readers, session } = context
  const schema = session.branch.schemaName
  for (let isRenewed = false; ; isRenewed = true) {
    try {
      const reader = { schema, role: await readers.find(schema), timeZone: context.timeZone }
      const [statement] = prepared
      if (statement === undefined || isWrite || prepared.length > 1) {
        return await runInTransaction(context, request, { prepared, reader, isWrite })
      }
      try {
        return await runQuick(context, request, { statement, reader })
      } catch (error) {
        // It did not end in time, or with few rows, so that it has to wait for its turn among long statements.
        if (!isLong(error)) throw error
        return await runInTransaction(context, request, { prepared, reader, isWrite })
      }
    } catch (error) {
      if (isRenewed || !(await lacksRights(context, schema, error))) throw error
      await readers.renew(schema)
    }
  }
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
    throw error
  }
}

function quickEvaluator(
  context: SqlContext,
  { plan }: PreparedStatement,
  reader: Reader,
): Evaluator {
  const run: RunCalls = (calls, options) =>
    runQuickCalls(context, { plan, reader }, { calls, begin: options?.begin })
  return new Evaluator(run, { resultBytesMax: context.limits.sqlResultBytesMax })
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
  try {
    return await branch.runSteps((each) => write(each, own), running)
  } catch (error) {
    if (!takesDraft(session, prepared, error)) throw error
    const names = new Set(prepared.flatMap(({ plan }) => writtenTables(plan)))
    const tables = [...names].map((name) => session.table(name))
    // The statements are written again, because they read what they have written from drafts.
    return branch
      .runDrafted(
        tables,
        async (draft, transaction) => {
          const drafted = { ...context, session: withBranch(session, draft) }
          const statements = await prepareAll(drafted, request.statements)
          return write(transaction, { context: drafted, prepared: statements })
        },
        running,
      )
      .catch((failure: unknown) => {
        if (findBrokenAtEnd(failure) === undefined) throw failure
        throw toSqlRefusal(failure, [])
      })
  }
}

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

/** Returns whether a statement failed because its role lacks a privilege, or was dropped by an administrator. */
export async function lacksRights(
  { readers }: Pick<SqlContext, 'readers'>,
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

export function evaluatorIn(
  { limits, session, timeZone }: SqlContext,
  { transaction, role, countsOn }: OpenSql,
): Evaluator {
  const { sqlResultBytesMax: resultBytesMax } = limits
  const reader = { schema: session.branch.schemaName, role, timeZone }
  return new Evaluator(runInside(transaction, reader, { countsOn }), { resultBytesMax })
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

export function requireLimits(limits: Limits, statements: readonly RunStatement[]): void {
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

export async function prepareAll(
  { session, planner, bounds }: SqlContext,
  statements: readonly RunStatement[],
): Promise<PreparedStatement[]> {
  const given: (GivenStatement & { parameters: Parameter[] })[] = []
  for (const [index, { statement, params, ...options }] of statements.entries()) {
    try {
      const encoded = await inTurns(encodeParameters(params ?? []))
      given.push({ text: statement, ...encoded, ...options })
    } catch (error) {
      throw statements.length === 1 ? error : inBatch(error, index)
    }
  }
  const plans = await planner.plan(session, given, bounds.signal)
  return plans.map((planned, index) => {
    const { plan } = planned
    const parameters = given[index]?.parameters ?? []
    try {
      requireCompared(plan, parameters)
    } catch (error) {
      throw statements.length === 1 ? error : inBatch(error, index)
    }
    return { planned, plan, parameters }
  })
}

interface Run {
  readonly context: SqlContext
  readonly evaluator: Evaluator
  readonly statement: PreparedStatement
}

async function runQuery(run: Run, form: ResultForm): Promise<string> {
  const { plan, parameters } = run.statement
  if (plan.kind !== 'select') throw new Error('only a query can be run outside of a transaction')
  const found = await form.read(run, plan.query, parameters)
  return form.finish(run, { found, total: found.rows.length })
}

async function runOne(
  run: Run & { readonly transaction: OpenTransaction },
  form: ResultForm,
): Promise<string> {
  const { context, statement } = run
  const { plan, parameters } = statement
  if (plan.kind === 'select') return runQuery(run, form)
  if (plan.kind === 'with') return runWith(run, plan, form)
  if (plan.kind === 'setval') {
    const { next, notices } = await setNumber(run, plan)
    const found = await form.read(run, plan.query, [...parameters, ...next])
    return form.finish(run, { found, total: found.rows.length, notices })
  }
  if (plan.kind === 'truncate') {
    if (plan.cascades) requireNamed(context.session, plan.tables)
    for (const name of plan.tables) await truncate(context, run.transaction, name)
    const notices = plan.restarts
      ? [
          'RESTART IDENTITY has no effect: sequences never go back, because all branches use their numbers',
        ]
      : []
    return form.finish(run, { found: NOTHING, total: 0, notices })
  }
  const { returning } = plan
  const table = context.session.table(plan.table)
  const { onWritten } = form
  const write = { ...run, plan, table, parameters, onWritten }
  const written = await writeRecords(context, write, (ids) =>
    returning === undefined ? undefined : form.read(run, returning, [...parameters, ids]),
  )
  const { total, found = NOTHING } = written
  return form.finish(run, { found, total })
}

type WithPlan = Extract<StatementPlan, { kind: 'with' }>

/**
 * Runs a statement whose WITH writes. All its parts see what was there before it, except for what RETURNING has returned. So
 * everything is read before it is written.
 */
async function runWith(
  run: Run & { readonly transaction: OpenTransaction },
  plan: WithPlan,
  form: ResultForm,
): Promise<string> {
  const { context, transaction, evaluator } = run
  const { steps, last } = await readySteps(run, plan)
  const given = run.statement.parameters
  const results: Parameter[] = steps.map(() => null)
  const pending = new PendingWrites(context, transaction)
  const plannedOf = async (own: Exclude<SinglePlan, { kind: 'select' }>) => {
    const table = context.session.table(own.table)
    const parameters = [...given, ...results]
    const write = { transaction, evaluator, plan: own, table, parameters }
    const operations = await planOperations(context, write)
    pending.add(write, operations)
    return operations
  }
  for (const [index, { name, plan: own, readLater, result }] of steps.entries()) {
    const operations = own.kind === 'select' ? undefined : await plannedOf(own)
    if (result === undefined) continue
    const values = [...given, ...results, ...(operations === undefined ? [] : [idsOf(operations)])]
    const read = () => readStep(run, { name, result, values })
    const isNew = own.kind === 'insert' || own.kind === 'update'
    results[index] = isNew ? await pending.readAfter(readLater, read) : await read()
  }
  const parameters = [...given, ...results]
  const ending = { ...run, statement: { ...run.statement, plan: last, parameters } }
  if (last.kind === 'select') {
    const found = await form.read(ending, last.query, parameters)
    await pending.flush()
    return form.finish(ending, { found, total: found.rows.length })
  }
  const operations = await plannedOf(last)
  const { returning } = last
  const read = async () =>
    returning && (await form.read(ending, returning, [...parameters, idsOf(operations)]))
  const before = last.kind === 'delete' ? await read() : undefined
  await pending.flush()
  const found = last.kind === 'delete' ? before : await read()
  return form.finish(ending, { found: found ?? NOTHING, total: operations.length })
}

/** Reads what a step returns, as JSON. */
async function readStep(
  { context, evaluator }: Run,
  step: { name: string; result: SentQuery; values: readonly Parameter[] },
): Promise<string> {
  const rowsMax = context.limits.sqlRowsMax
  const { rows, hasMore } = await evaluator.read(step.result, { parameters: step.values, rowsMax })
  if (hasMore) throw tooCostly(`WITH [${step.name}]: returns more than ${rowsMax} rows`)
  return `[${rows.join(',')}]`
}

/** Describes the steps of a statement in order, because the types of one are those of the rows of another. */
async function readySteps(run: Run, plan: WithPlan): Promise<ReadySteps> {
  const { planned, parameters } = run.statement
  if (planned.steps !== undefined) return planned.steps
  const valueCount = parameters.length + plan.steps.length
  const typeIds = parameters.map((): string | undefined => undefined)
  const describeOne = async (own: SinglePlan) => {
    const queries = describedQueries(planned, own)
    const described = await run.evaluator.describe(queries, parameters.length)
    for (const [index, typeId] of described.parameterTypeIds.entries()) typeIds[index] ??= typeId
    return {
      columns: described.columns,
      typeNames: await requireResultTypes(run.context, described.columns),
    }
  }
  const steps: ReadySteps['steps'][number][] = []
  const rows: (Sql | undefined)[] = []
  for (const [index, step] of plan.steps.entries()) {
    const own = withRows(step.plan, rows)
    const query = own.kind === 'select' ? own.query : own.returning
    const { columns, typeNames } = await describeOne(own)
    // The ids of written records follow.
    const count = own.kind === 'select' ? valueCount : valueCount + 1
    const textOf = textsOfRows(columns)
    const result = query && new SentQuery(query, { valueCount: count, textOf })
    steps.push({ ...step, plan: own, result })
    rows.push(query && rowsOfStep(columns, { position: parameters.length + index, typeNames }))
  }
  const last = withRows(plan.last, rows)
  const { columns } = await describeOne(last)
  planned.description = { parameterTypeIds: typeIds, columns }
  planned.steps = { steps, last }
  return planned.steps
}

/**
 * Lets a sequence go on after a number, or returns its next one. It never goes back, because other branches may use the numbers.
 */
async function setNumber(
  { context: { session }, evaluator, statement }: Run,
  plan: Extract<StatementPlan, { kind: 'setval' }>,
): Promise<{ next: readonly string[]; notices: readonly string[] }> {
  const { parameters } = statement
  const { name, itemId, max } = findSequence(session, plan.sequence)
  const taken = { itemId, max, of: `sequence [${name}]` }
  if (plan.number === undefined) {
    const { first } = await session.branch.takeNumbers({ ...taken, count: 1, above: 0 })
    return { next: [String(first)], notices: [] }
  }
  const sent = new SentQuery(plan.number, {
    valueCount: parameters.length,
    textOf: (query) => query,
  })
  const { rows } = await evaluator.read(sent, { parameters, rowsMax: 1 })
  const [number, isTaken] = JSON.parse(rows[0] ?? '[null]') as (string | null)[]
  const above = Number(number) - (isTaken === 'true' ? 0 : 1)
  if (!(Number.isSafeInteger(above) && above <= max)) {
    throw invalidSql('setval: the number is out of range')
  }
  if (above > 0) await session.branch.takeNumbers({ ...taken, count: 0, above })
  const last = Number((await session.branch.lastNumbers([itemId])).get(itemId) ?? 0)
  const notice = `sequence [${name}] goes on after ${last}: sequences never go back, because all branches use their numbers`
  return { next: [], notices: last > above ? [notice] : [] }
}

function findSequence({ schema }: SqlContext['session'], sequence: string): NamedSequence {
  for (const found of sequencesOf(schema)) if (found.name === sequence) return found
  throw invalidSql(`sequence [${sequence}] not found: it is called {table}_{column}_seq`)
}

/** Refuses to empty tables that the statement does not name, because they link to one that it does. */
function requireNamed({ schema }: SqlContext['session'], tables: readonly string[]): void {
  for (const name of tables) {
    const tableId = schema.tableByName(name)?.table.id
    const referrers = tableId === undefined ? [] : schema.referrersOf(tableId)
    const missing = referrers.find(({ table }) => !tables.includes(table.name))
    if (missing === undefined) continue
    throw invalidSql(
      `TRUNCATE ... CASCADE: name table [${missing.table.name}], too: it links to table [${name}]`,
    )
  }
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
const recordText = (query: Sql): Sql =>
  sql`select row_to_json(q.*)::text as row from (${query}) as q`

/** Converts rows to JSON arrays of values. */
const rowText = (query: Sql): Sql => sql`
  select (
    select coalesce(json_agg(v.value), '[]'::json) from json_each(row_to_json(q.*)) v
  )::text as row
  from (${query}) as q`

/** Reads rows as JSON texts. */
export function jsonForm({
  responseType = 'json',
  rowsMax: asked,
}: {
  responseType: SqlRequest['responseType'] | undefined
  rowsMax: number | undefined
}): ResultForm {
  const textOf = responseType === 'json' ? recordText : rowText
  return {
    read({ context, evaluator, statement }, query, values) {
      return evaluator.read(statement.planned.sent(query, { valueCount: values.length, textOf }), {
        parameters: values,
        rowsMax: rowsMaxOf(context, asked) ?? context.limits.sqlRowsMax,
      })
    },
    async finish({ context }, { found, total, notices = [] }) {
      const rowsMax = rowsMaxOf(context, asked)
      const { columns, rows, hasMore } = found
      if (hasMore && rowsMax === undefined) {
        const { sqlRowsMax } = context.limits
        throw tooCostly(
          `the result has more than ${sqlRowsMax} rows; use LIMIT, or set [rowsMax] to get the first rows`,
        )
      }
      const names = await requireResultTypes(context, columns)
      const described = columns.map(
        ({ name, typeId }) =>
          `{"name":${JSON.stringify(name)},"type":${JSON.stringify(names.get(typeId) ?? '')}}`,
      )
      const key = responseType === 'json' ? 'records' : 'rows'
      const warning = hasMore
        ? `,"warning":"only the first ${rowsMax} rows are returned; use LIMIT and OFFSET for more"`
        : ''
      return `{"${key}":[${rows.join(',')}],"columns":[${described.join(',')}],"total":${total}${warning}${noticesJson(notices)}}`
    },
    change({ notices }) {
      const key = responseType === 'json' ? 'records' : 'rows'
      return `{"${key}":[],"columns":[],"total":0${noticesJson(notices)}}`
    },
  }
}

const noticesJson = (notices: readonly string[]): string =>
  notices.length === 0 ? '' : `,"notices":${JSON.stringify(notices)}`

/** Returns the names of types of results. Throws for a type whose texts tell about the server. */
async function requireResultTypes(
  { database }: SqlContext,
  columns: readonly ResultColumn[],
): Promise<ReadonlyMap<string, string>> {
  const names = await findTypeNames(
    database,
    columns.map(({ typeId }) => typeId),
  )
  for (const { name, typeId } of columns) {
    const type = names.get(typeId) ?? ''
    if (!isResultType(type)) throw invalidSql(`column "${name}": type [${type}] is not supported`)
  }
  return names
}

/** Receives the result of a statement while it runs. */
export interface RowSink {
  /**
   * Called before the statement runs, which it can do more than once. `source` is the connection that rows come from, which
   * can be paused. undefined: the statement ends soon, and may then be run again.
   */
  begin(options: { source: pg.ClientBase | undefined }): void
  /** Called before the rows, with what they are. */
  describe(description: Description): void
  row(row: TextRow): void
  /** Receives rows as messages instead, from connections that can hand them on. undefined: all are texts. */
  readonly forward?: RowForward | undefined
  /** Receives the ids of records that the statement has written. */
  readonly onWritten?: ((ids: readonly string[]) => void) | undefined
  /** `written` is the number of records that a statement has written, and undefined for a query. */
  end(
    result:
      | {
          kind: Exclude<StatementPlan['kind'], 'with' | 'setval'>
          written: number
          notices?: readonly string[]
        }
      /** The statement has changed the schema. */
      | ({ kind: 'schema' } & SchemaChanged),
  ): void
}

const receiverOf = (sink: RowSink): RowReceiver => ({
  receiveRow: (row) => sink.row(row),
  forward: sink.forward,
})

/** A sink does not keep more rows of a quick statement. It runs again as a long one, whose rows are not kept. */
export class TooManyRowsError extends Error {
  constructor() {
    super('the rows of a quick statement take too much memory')
  }
}

/** Returns whether a statement has to run as a long one. */
const isLong = (error: unknown): boolean => error instanceof TooManyRowsError || isTimedOut(error)

/** Tells a sink that a quick statement begins, perhaps not for the first time. */
const beginAgain = (sink: RowSink, description: Description) => () => {
  sink.begin({ source: undefined })
  sink.describe(description)
}

/** Hands on rows as PostgreSQL sends them. */
export function rowsForm(sink: RowSink): ResultForm {
  return {
    begin: (options) => sink.begin(options),
    onWritten: sink.onWritten,
    async read(run, query, parameters) {
      const description = await describe(run)
      sink.describe(description)
      await run.evaluator.stream(run.statement.planned.plain(query), {
        parameters,
        receiver: receiverOf(sink),
        begin: beginAgain(sink, description),
      })
      return NOTHING
    },
    async finish({ statement: { plan } }, { total, notices = [] }) {
      if (plan.kind === 'with') throw new Error('the last part of a statement has its result')
      sink.end({ kind: plan.kind === 'setval' ? 'select' : plan.kind, written: total, notices })
      return ''
    },
    change(result) {
      sink.end({ kind: 'schema', ...result })
      return ''
    },
  }
}

/** Makes a query that of a cursor. `words` are what precedes the query. */
export function cursorForm(words: Sql, sink: Pick<RowSink, 'describe'>): ResultForm {
  return {
    async read(run, query, values) {
      sink.describe(await describe(run))
      const statement = compileSharing(sql`${words} ${query}`)
      await run.evaluator.run([{ statement, values, isUnnamed: true }])
      return NOTHING
    },
    finish: async () => '',
    change: () => '',
  }
}

/** Returns the queries that have the parameters of a statement, and the one that has its result. */
function describedQueries(
  planned: PlannedStatement,
  plan: Exclude<StatementPlan, { kind: 'with' }>,
) {
  const plain = (query: Sql | undefined) => query && planned.plain(query)
  const plainOnes = (...queries: (Sql | undefined)[]) =>
    queries.flatMap((query) => plain(query) ?? [])
  switch (plan.kind) {
    case 'select':
    case 'setval':
      return { parameters: plainOnes(plan.query), result: plain(plan.query) }
    case 'truncate':
      return { parameters: [], result: undefined }
    case 'insert':
      return {
        parameters: plainOnes(plan.values.rows, plan.conflict?.rows),
        result: plain(plan.returning),
      }
    default:
      return { parameters: plainOnes(plan.rows), result: plain(plan.returning) }
  }
}

/** Describes a statement, unless that was done before. */
async function describe(run: Run): Promise<Description> {
  const { planned, plan, parameters } = run.statement
  if (planned.description !== undefined) return planned.description
  if (plan.kind === 'with') {
    await readySteps(run, plan)
    return planned.description ?? NO_DESCRIPTION
  }
  const queries = describedQueries(planned, plan)
  const description = await run.evaluator.describe(queries, parameters.length)
  await requireResultTypes(run.context, description.columns)
  planned.description = description
  return description
}

/** Returns the types of the parameters of a statement, and the columns of its result. Does not run it. */
export async function describeSql(
  context: SqlContext,
  statement: RunStatement,
): Promise<Description> {
  const { session, readers, bounds } = context
  const prepared = await prepareDescribed(context, statement)
  if (prepared === undefined) return NO_DESCRIPTION
  if (prepared.planned.description !== undefined) {
    // Only the guard tells whether it is still the plan of the branch.
    await session.branch.runReads([], bounds)
    return prepared.planned.description
  }
  const schema = session.branch.schemaName
  const reader = { schema, role: await readers.find(schema) }
  const evaluator = quickEvaluator(context, prepared, reader)
  return describe({ context, evaluator, statement: prepared })
}

const NO_DESCRIPTION: Description = { parameterTypeIds: [], columns: [] }

/** Returns undefined for a statement that changes the schema: it has neither parameters nor a result. */
async function prepareDescribed(
  context: SqlContext,
  statement: RunStatement,
): Promise<PreparedStatement | undefined> {
  requireLimits(context.limits, [statement])
  if ((await parseSchema([statement.statement])) !== undefined) return undefined
  const [prepared] = await prepareAll(context, [statement])
  return prepared
}

/** Describes a statement in a transaction that stays open. */
export async function describeInside(
  context: SqlContext,
  open: OpenSql,
  statement: RunStatement,
): Promise<Description> {
  const prepared = await prepareDescribed(context, statement)
  if (prepared === undefined) return NO_DESCRIPTION
  return describe({ context, evaluator: evaluatorIn(context, open), statement: prepared })
}
