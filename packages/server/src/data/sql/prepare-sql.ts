import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { SqlStatement } from '@offshoot/contract/sql'
import { inTurns } from '../../common/in-turns.js'
import { invalidSql } from '../../dialect/invalid-sql.js'
import { requireDirectChanges } from '../../domain/access/approvals.js'
import { requireAccess } from '../../domain/access/scope.js'
import type { Parameter } from '../../postgres/statement.js'
import { encodeParameters } from './parameters.js'
import type { SqlContext } from './sql-context.js'
import { requireCompared, type StatementPlan } from './statement-plan.js'
import { type GivenStatement, inBatch, type PlannedStatement } from './statement-planner.js'

/** A statement, as a caller gives it. */
export type RunStatement = SqlStatement &
  Pick<GivenStatement, 'parameterTypes' | 'hidesMetadata' | 'parameterBytesMax'>

/** A planned statement with its parameters. */
export interface PreparedStatement {
  readonly planned: PlannedStatement
  readonly plan: StatementPlan
  readonly parameters: readonly Parameter[]
  /** The positions of parameters that are empty arrays. They are written as an empty document would be. */
  readonly emptyArrays?: readonly number[]
}

/** Refuses a batch with too many statements. It is cheap, and comes before the statements are validated. */
export function requireStatementCount(limits: Limits, count: number): void {
  if (count <= limits.sqlStatementsMax) return
  throw invalidSql(`a batch can have at most ${limits.sqlStatementsMax} statements`)
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

export function requireWritable({ session }: SqlContext): void {
  requireAccess(session.principal.scope, 'write')
  requireDirectChanges({ ...session, ...session.access })
  if (session.checkpoint === undefined) return
  throw new AppError(
    'invalid_request',
    'query: parameter [at]: statements on a state of the past can only read',
  )
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
    const emptyArrays = listEmptyArrays(statements[index]?.params ?? [])
    return { planned, plan, parameters, ...(emptyArrays.length > 0 && { emptyArrays }) }
  })
}

/** Returns the positions of parameters that are empty arrays. */
function listEmptyArrays(params: readonly unknown[]): number[] {
  return params.flatMap((value, position) =>
    Array.isArray(value) && value.length === 0 ? [position] : [],
  )
}
