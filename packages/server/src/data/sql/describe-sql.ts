import { isResultType } from '../../dialect/allowed.js'
import { invalidSql } from '../../dialect/invalid-sql.js'
import type { Sql } from '../../postgres/sql.js'
import { asReader } from './as-reader.js'
import { type Description, type ResultColumn, SentQuery } from './evaluate.js'
import { evaluatorIn, type OpenSql, quickEvaluator, type Run } from './evaluators.js'
import { namingColumnIn } from './name-column.js'
import {
  type PreparedStatement,
  prepareAll,
  type RunStatement,
  requireLimits,
} from './prepare-sql.js'
import { parseSchema } from './schema/parse-schema.js'
import type { SqlContext } from './sql-context.js'
import { type SinglePlan, type StatementPlan, singlePlans } from './statement-plan.js'
import type { PlannedStatement, ReadySteps } from './statement-planner.js'
import { findTypeNames } from './type-names.js'
import { rowsOfStep, textsOfRows, withRows } from './with-steps.js'

export type WithPlan = Extract<StatementPlan, { kind: 'with' }>

/** Returns the types of the parameters of a statement, and the columns of its result. Does not run it. */
export async function describeSql(
  context: SqlContext,
  statement: RunStatement,
): Promise<Description> {
  const { session, bounds } = context
  const prepared = await prepareDescribed(context, statement)
  if (prepared === undefined) return NO_DESCRIPTION
  if (prepared.planned.description !== undefined) {
    // Only the guard tells whether it is still the plan of the branch.
    await session.branch.runReads([], bounds)
    return prepared.planned.description
  }
  return describeQuickly(context, prepared)
}

/** Throws if a statement cannot run, because it names what does not exist. PostgreSQL is not asked about one that was described. */
export async function judgeSql(context: SqlContext, statement: RunStatement): Promise<void> {
  const prepared = await prepareDescribed(context, statement)
  if (prepared !== undefined && prepared.planned.description === undefined) {
    await describeQuickly(context, prepared)
  }
}

const describeQuickly = (context: SqlContext, statement: PreparedStatement): Promise<Description> =>
  asReader(context, (reader) =>
    describeApart({ context, evaluator: quickEvaluator(context, statement, reader), statement }),
  )

/** Describes a statement in a transaction that stays open. */
export async function describeInside(
  context: SqlContext,
  open: OpenSql,
  statement: RunStatement,
): Promise<Description> {
  const prepared = await prepareDescribed(context, statement)
  if (prepared === undefined) return NO_DESCRIPTION
  return describeApart({ context, evaluator: evaluatorIn(context, open), statement: prepared })
}

/** Describes a statement that is not run. */
async function describeApart(run: Run): Promise<Description> {
  try {
    return await describe(run)
  } catch (error) {
    throw await namingColumnIn(run, error)
  }
}

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

const NO_DESCRIPTION: Description = { parameterTypeIds: [], columns: [] }

/** Describes a statement, unless that was done before. */
export async function describe(run: Run): Promise<Description> {
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

/** Returns the numbers of parameters that a statement inserts as documents. */
function documentsOf(plan: StatementPlan): readonly number[] {
  if (plan.kind === 'with') return singlePlans(plan).flatMap(documentsOf)
  return plan.kind === 'insert' ? plan.values.documents : []
}

/** The ids of the types `json` and `jsonb`, which PostgreSQL never changes. */
const JSON_TYPE_IDS: ReadonlySet<string | undefined> = new Set(['114', '3802'])

/**
 * Refuses empty arrays where a document is expected, as PostgreSQL refuses other arrays there. It would read an empty one
 * as an empty document.
 */
export async function requireNoArrayAsJson(run: Run): Promise<void> {
  const { emptyArrays, plan } = run.statement
  if (emptyArrays === undefined) return
  const { parameterTypeIds } = await describe(run)
  const inserted = new Set(documentsOf(plan))
  const isDocument = (position: number) =>
    JSON_TYPE_IDS.has(parameterTypeIds[position]) || inserted.has(position + 1)
  if (emptyArrays.some(isDocument)) {
    throw invalidSql('invalid input syntax for type json')
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

/** Describes the steps of a statement in order, because the types of one are those of the rows of another. */
export async function readySteps(run: Run, plan: WithPlan): Promise<ReadySteps> {
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

/** Returns the names of types of results. Throws for a type whose texts tell about the server. */
export async function requireResultTypes(
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
