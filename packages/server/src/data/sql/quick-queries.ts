import { codeOf, QUERY_CANCELED } from '../../postgres/failures.js'
import type { Reader } from '../../postgres/server.js'
import type { Call, Parameter, TextRows } from '../../postgres/statement.js'
import type { Lane } from '../../postgres/user-settings.js'
import { checkText } from '../../rows/columns/text-types.js'
import type { Session } from '../session/session.js'
import type { Description, RunOptions } from './evaluate.js'
import type { SqlContext } from './sql-context.js'
import { toSqlError } from './sql-errors.js'
import { requireCompared, type StatementPlan } from './statement-plan.js'
import { KEPT_PARAMETER_BYTES, type PlannedStatement } from './statement-planner.js'

/* Queries that end soon run on connections of their own, and are tried there first. */

type QueryPlan = Extract<StatementPlan, { kind: 'select' }>

/** Returns the connections for the SQL of a workspace. */
export function connectionsOf({ session, connections }: SqlContext, lane: Lane) {
  const { workspaceId } = session.access
  return {
    connect: (signal: AbortSignal | undefined) =>
      connections.connect(workspaceId, { lane, signal }),
  }
}

/** Runs the calls of a query on the connections for those that end soon. Lookups that arrive together share a round trip. */
export function runQuickCalls(
  context: SqlContext,
  query: { readonly plan: StatementPlan; readonly reader: Reader },
  { calls: given, begin }: { calls: readonly Call[] } & Pick<RunOptions, 'begin'>,
): Promise<TextRows[]> {
  const { session, bounds, database } = context
  const { plan, reader } = query
  const { before, calls } = database.server.readAs(reader, given)
  const isShared =
    plan.kind === 'select' &&
    plan.isLookup &&
    reader.timeZone === undefined &&
    !given.some((each) => each.describes)
  return session.branch.runQuery({
    before,
    calls,
    sharedAs: isShared ? (reader.role ?? '') : undefined,
    connections: connectionsOf(context, 'quick'),
    bounds,
    begin,
    explain: toSqlError,
  })
}

/** Returns whether a statement took longer than those may that end soon, or than the limit of its request. */
export function isTimedOut(error: unknown): boolean {
  return [error, (error as Error).cause].some((cause) => codeOf(cause) === QUERY_CANCELED)
}

/** The plan of a query that has run, and its description. */
interface KnownPlan {
  readonly planned: PlannedStatement
  readonly plan: QueryPlan
  readonly description: Description
}

/**
 * A query that has run on a branch. As long as sessions have the same branch, it runs again without a look at its text. The
 * guard of each run tells whether the branch is still as it was.
 */
export class KnownQuery {
  readonly #branch: Session['branch']
  readonly #role: string | undefined
  /** The planner decides how long plans are kept, because all connections share its memory. */
  readonly #planned: WeakRef<PlannedStatement>

  private constructor(
    planned: PlannedStatement,
    options: { branch: Session['branch']; role: string | undefined },
  ) {
    this.#planned = new WeakRef(planned)
    this.#branch = options.branch
    this.#role = options.role
  }

  /** undefined: the statement has to be planned each time. */
  static of(
    planned: PlannedStatement,
    options: { branch: Session['branch']; role: string | undefined },
  ): KnownQuery | undefined {
    const canRunAgain = planned.isKept && planOf(planned) !== undefined
    return canRunAgain ? new KnownQuery(planned, options) : undefined
  }

  isOn(branch: Session['branch']): boolean {
    return branch === this.#branch
  }

  /** Returns the plan, if it is still kept and good for parameters. */
  planFor(parameters: readonly Parameter[]): KnownPlan | undefined {
    const planned = this.#planned.deref()
    const isFitting = parameters.every((text) => text === null || isSmallText(text))
    if (planned === undefined || !isFitting) return undefined
    requireCompared(planned.plan, parameters)
    return planOf(planned)
  }

  reader(timeZone: string | undefined): Reader {
    return { schema: this.#branch.schemaName, role: this.#role, timeZone }
  }
}

function planOf(planned: PlannedStatement): KnownPlan | undefined {
  const { plan, description } = planned
  if (plan.kind !== 'select' || description === undefined) return undefined
  return { planned, plan, description }
}

const BYTES_PER_CHARACTER_MAX = 3

function isSmallText(text: string): boolean {
  const isSmall =
    text.length * BYTES_PER_CHARACTER_MAX <= KEPT_PARAMETER_BYTES ||
    Buffer.byteLength(text) <= KEPT_PARAMETER_BYTES
  return isSmall && checkText(text) === undefined
}
