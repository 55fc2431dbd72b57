import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { BranchCache } from '../../common/branch-cache.js'
import { inTurns } from '../../common/in-turns.js'
import { Permits } from '../../common/permits.js'
import { type Conversation, OverBudgetError, WorkerThread } from '../../common/worker-thread.js'
import { PATTERN_BYTES_MAX } from '../../dialect/allowed.js'
import { tooCostly } from '../../dialect/invalid-sql.js'
import { enumNameOf } from '../../dialect/scope.js'
import {
  CELLS_AT_ONCE_MAX,
  LENGTH_AT_ONCE_MAX,
  PLANNING_MEMORY_MB_MAX,
  PLANNING_MS_MAX,
  RELATIONS_MAX,
  WRITTEN_LENGTH_MAX,
} from '../../dialect/sql-limits.js'
import type { Sql } from '../../postgres/sql.js'
import { tooManyStatements } from '../../postgres/user-connections.js'
import type { Session } from '../session/session.js'
import { BranchTables, TableNames, TooManyCellsError } from './branch-tables.js'
import { type Description, PlainQuery, SentQuery } from './evaluate.js'
import type { GivenParameters } from './parameters.js'
import { parseStatement } from './parse-statement.js'
import {
  type ErrorAnswer,
  fromWire,
  type ParseAnswer,
  type PlanAnswer,
  type PlanRequest,
  requireAnswer,
} from './plan-wire.js'
import { planStatement } from './plans/planner.js'
import { tooManyRelations, writtenTooLong } from './select-sql.js'
import { lengthOf, type SinglePlan, type StatementPlan, type WithStep } from './statement-plan.js'
import { withReferrers } from './truncated-tables.js'
import { withTypes } from './typed-plan.js'

/** A statement, and the sizes of the texts of its parameters in bytes. */
export interface GivenStatement extends GivenParameters {
  readonly text: string
  /** The size of parameters that the plan is kept for; `KEPT_PARAMETER_BYTES` by default. */
  readonly parameterBytesMax?: number
  /** Whether the tables lack the columns of metadata. */
  readonly hidesMetadata?: boolean
}

/** Plans that are kept. */
const KEPT_MAX = 10_000
/** Written characters of all plans that are kept. */
const KEPT_LENGTH_MAX = 16 * 1024 * 1024
/** A longer plan is not kept: it takes long to run, too. */
const KEPT_PLAN_LENGTH_MAX = 64 * 1024
/**
 * Plans are made for parameters of this size, so that one plan serves for all values that are not larger. It is the smallest
 * limit of an argument: a larger size would refuse statements whose values are small enough.
 */
export const KEPT_PARAMETER_BYTES = PATTERN_BYTES_MAX

/** A statement whose WITH writes, with the rows of earlier steps in its queries. */
export interface ReadySteps {
  readonly steps: readonly (WithStep & {
    /** Reads what the step returns. undefined: nothing. */
    readonly result: SentQuery | undefined
  })[]
  readonly last: SinglePlan
}

/** A plan, and its queries as they were sent. */
export class PlannedStatement {
  readonly #sent = new Map<unknown, SentQuery>()
  readonly #plain = new Map<Sql, PlainQuery>()
  /** Whether the plan serves for all small values of the parameters. */
  readonly isKept: boolean
  /** Undefined until it was described. */
  description: Description | undefined
  /** The steps of a statement whose WITH writes. Undefined until they were described. */
  steps: ReadySteps | undefined

  constructor(
    readonly plan: StatementPlan,
    /** The statement, as the client has sent it. */
    readonly text: string,
    { isKept = false } = {},
  ) {
    this.isKept = isKept
  }

  /** Returns a query of the plan in a form. A form is a function that is the same each time. */
  sent(query: Sql, form: { valueCount: number; textOf(query: Sql): Sql }): SentQuery {
    let sent = this.#sent.get(form.textOf)
    if (sent === undefined) {
      sent = new SentQuery(query, form)
      this.#sent.set(form.textOf, sent)
    }
    return sent
  }

  /** Returns a query of the plan whose rows are sent on as they are. */
  plain(query: Sql): PlainQuery {
    let plain = this.#plain.get(query)
    if (plain === undefined) {
      plain = new PlainQuery(query)
      this.#plain.set(query, plain)
    }
    return plain
  }
}

/**
 * Plans statements. A plan is kept for the session that it was made for, whose state the guard of each run checks.
 * Small requests are planned in the main thread. Large ones are planned by a worker thread,
 * one after the other and within a budget, so that no request blocks the event loop.
 */
export class StatementPlanner {
  readonly #limits: Limits
  readonly #thread = new WorkerThread(new URL('./plan-worker.js', import.meta.url), {
    budgetMs: PLANNING_MS_MAX,
    resourceLimits: { maxOldGenerationSizeMb: PLANNING_MEMORY_MB_MAX },
  })
  readonly #permits: Permits
  readonly #numbers = new WeakMap<object, number>()
  #count = 0
  readonly #kept = new BranchCache<PlannedStatement>({
    max: KEPT_MAX,
    maxSize: KEPT_LENGTH_MAX,
    sizeOf: ({ plan }, key) => key.length + lengthOf(plan),
  })

  constructor(limits: Limits) {
    this.#limits = limits
    this.#permits = new Permits(
      {
        permitsMax: 1,
        permitsPerOwnerMax: 1,
        waitingMax: limits.sqlWaitingMax,
        waitingPerOwnerMax: limits.sqlWaitingPerWorkspaceMax,
        waitMs: limits.sqlWaitMs,
      },
      tooManyStatements,
    )
  }

  close(): Promise<void> {
    return this.#thread.close()
  }

  /** Returns the plans of all statements of a request, in order. */
  async plan(
    session: Session,
    statements: readonly GivenStatement[],
    signal?: AbortSignal,
  ): Promise<PlannedStatement[]> {
    const [statement, ...others] = statements
    if (statement !== undefined && others.length === 0 && isKeepable(statement)) {
      return [await this.#planKept(session, statement, signal)]
    }
    const plans = await this.#planAll(session, statements, signal)
    return plans.map((plan, index) => {
      const { text = '', parameterTypes } = statements[index] ?? {}
      return new PlannedStatement(withTypes(plan, parameterTypes), text)
    })
  }

  /**
   * Numbers the compiled schemas and rows of sessions. A session that was read again has another number, so that no plan
   * outlives what it was made for.
   */
  #numberOf({ branch }: Session): number {
    let number = this.#numbers.get(branch)
    if (number === undefined) {
      number = ++this.#count
      this.#numbers.set(branch, number)
    }
    return number
  }

  async #planKept(
    session: Session,
    given: GivenStatement,
    signal: AbortSignal | undefined,
  ): Promise<PlannedStatement> {
    const { text, parameterSizes, parameterTypes, hidesMetadata = false } = given
    const bytesMax = keptBytesOf(given)
    const types = parameterTypes?.join() ?? 'any'
    const form = `${parameterSizes.length} ${bytesMax} ${types} ${hidesMetadata}`
    const key = `${this.#numberOf(session)} ${form} ${text}`
    const kept = this.#kept.get(key)
    if (kept !== undefined) return kept
    const statement = { ...given, parameterSizes: parameterSizes.map(() => bytesMax) }
    const [made] = await this.#planAll(session, [statement], signal)
    if (made === undefined) throw new Error('a statement must have a plan')
    const plan = withTypes(made, parameterTypes)
    const planned = new PlannedStatement(plan, text, { isKept: true })
    if (lengthOf(plan) <= KEPT_PLAN_LENGTH_MAX) this.#kept.set(key, planned)
    return planned
  }

  async #planAll(
    session: Session,
    statements: readonly GivenStatement[],
    signal: AbortSignal | undefined,
  ): Promise<StatementPlan[]> {
    const length = statements.reduce((sum, { text }) => sum + text.length, 0)
    if (length > LENGTH_AT_ONCE_MAX) return this.#planInThread(session, statements, signal)
    try {
      return await planAtOnce(session, statements)
    } catch (error) {
      if (!(error instanceof TooManyCellsError)) throw error
      return this.#planInThread(session, statements, signal)
    }
  }

  async #planInThread(
    session: Session,
    statements: readonly GivenStatement[],
    signal: AbortSignal | undefined,
  ): Promise<StatementPlan[]> {
    const { workspaceId } = session.access
    await this.#permits.enter(workspaceId, signal)
    try {
      return await this.#thread.run(async (thread) => {
        const hidesMetadata = areHidden(statements)
        const planning = new PlanningInThread(session, thread, {
          limits: this.#limits,
          metadataKey: hidesMetadata ? undefined : session.metadata.key,
        })
        return planEach(session, statements, (statement) => planning.plan(statement))
      })
    } catch (error) {
      if (!(error instanceof OverBudgetError)) throw error
      throw tooCostly('the statement is too costly: planning it takes too long', error)
    } finally {
      this.#permits.leave(workspaceId)
    }
  }
}

/** Returns whether a statement can share its plan with others. */
function isKeepable(given: GivenStatement): boolean {
  const bytesMax = keptBytesOf(given)
  return (
    given.text.length <= LENGTH_AT_ONCE_MAX &&
    given.parameterSizes.every((size) => size <= bytesMax)
  )
}

const keptBytesOf = ({ parameterBytesMax = KEPT_PARAMETER_BYTES }: GivenStatement): number =>
  parameterBytesMax

/** Lists the types of columns that are enums, with the names that the catalogue shows. */
function listEnums({ schema }: Session): ReadonlyMap<string, readonly string[]> {
  const columns = schema.tableNames.flatMap((name) =>
    (schema.storedTable(name)?.columns ?? []).map((column) => ({ name, column })),
  )
  return new Map(
    columns.flatMap(({ name, column }): [string, readonly string[]][] => {
      const list = column.enum
      return list === undefined ? [] : [[enumNameOf(name, column), list.values]]
    }),
  )
}

/** Statements that are planned together have the same tables. */
function areHidden(statements: readonly GivenStatement[]): boolean {
  return statements.every(({ hidesMetadata }) => hidesMetadata === true)
}

function planAtOnce(
  session: Session,
  statements: readonly GivenStatement[],
): Promise<StatementPlan[]> {
  const tables = new BranchTables(
    {
      tableNames: session.schema.tableNames,
      metadataKey: areHidden(statements) ? undefined : session.metadata.key,
      enums: () => listEnums(session),
      describe(name) {
        const codec = session.schema.tableByName(name)
        return codec && { codec, rows: session.branch.rowsOf(codec) }
      },
    },
    { cellsMax: CELLS_AT_ONCE_MAX },
  )
  return planEach(session, statements, async ({ text, parameterSizes, parameterTypes }) => {
    const parsed = await parseStatement(text, parameterSizes.length)
    return planStatement(parsed, { tables, parameterSizes, parameterTypes })
  })
}

class PlanningInThread {
  readonly #session: Session
  readonly #thread: Conversation
  readonly #names: TableNames
  readonly #described = new Set<string>()

  constructor(
    session: Session,
    thread: Conversation,
    options: { metadataKey: string | undefined; limits: Limits },
  ) {
    this.#session = session
    this.#thread = thread
    this.#names = new TableNames(session.schema.tableNames)
    this.#tell({ kind: 'begin', ...options })
  }

  async plan({ text, parameterSizes, parameterTypes }: GivenStatement): Promise<StatementPlan> {
    const parameterCount = parameterSizes.length
    const { names, typeNames } = await this.#ask<ParseAnswer>({
      kind: 'parse',
      text,
      parameterCount,
    })
    // The limit does not count the table that is written.
    if (names.length > RELATIONS_MAX + 1) throw tooManyRelations()
    await inTurns(this.#describe(names))
    if (typeNames.length > 0) {
      const enums = listEnums(this.#session)
      const named = typeNames.flatMap((name): [string, readonly string[]][] => {
        const values = enums.get(name)
        return values === undefined ? [] : [[name, values]]
      })
      this.#tell({ kind: 'enums', enums: new Map(named) })
    }
    const { plan } = await this.#ask<PlanAnswer>({ kind: 'plan', parameterSizes, parameterTypes })
    return fromWire(plan)
  }

  /** Describes tables in steps, because sending many large descriptions would block the event loop. */
  *#describe(names: readonly string[]): Generator<void, void> {
    const { schema, branch } = this.#session
    for (const each of names) {
      const name = this.#names.find(each)
      const table = name === undefined ? undefined : schema.storedTable(name)
      if (table === undefined || this.#described.has(table.name)) continue
      this.#described.add(table.name)
      this.#tell({ kind: 'table', table, rows: branch.narrowTo(table.id) })
      yield
    }
  }

  #tell(request: PlanRequest): void {
    this.#thread.tell(request)
  }

  async #ask<Answer extends object>(request: PlanRequest): Promise<Answer> {
    return requireAnswer(await this.#thread.ask<Answer | ErrorAnswer>(request))
  }
}

async function planEach(
  { schema }: Session,
  statements: readonly GivenStatement[],
  plan: (statement: GivenStatement) => Promise<StatementPlan>,
): Promise<StatementPlan[]> {
  const plans: StatementPlan[] = []
  let length = 0
  for (const [index, statement] of statements.entries()) {
    try {
      const planned = withReferrers(await plan(statement), schema)
      length += lengthOf(planned)
      if (length > WRITTEN_LENGTH_MAX) throw writtenTooLong()
      plans.push(planned)
    } catch (error) {
      throw statements.length === 1 ? error : inBatch(error, index)
    }
  }
  return plans
}

/** Adds the index of the invalid statement to an error of a batch. */
export function inBatch(error: unknown, index: number): unknown {
  if (!(error instanceof AppError)) return error
  const { code, message, cause, details } = error
  return new AppError(code, message, {
    cause,
    errors: [{ index, message }],
    ...(details && { details }),
  })
}
