import { AppError } from '@offshoot/contract/errors'
import type { ByteShare } from '../common/byte-budget.js'
import type { Session } from '../data/session/session.js'
import type { SessionRequest } from '../data/session/sessions.js'
import type { CopyLoad } from '../data/sql/copy-load.js'
import { describeSql, judgeSql } from '../data/sql/describe-sql.js'
import type { Description, ResultColumn } from '../data/sql/evaluate.js'
import { explainSql } from '../data/sql/explain.js'
import type { ParameterTypes } from '../data/sql/parameters.js'
import type { RunStatement } from '../data/sql/prepare-sql.js'
import type { KnownQuery } from '../data/sql/quick-queries.js'
import { rowsForm } from '../data/sql/result-forms.js'
import type { RowSink } from '../data/sql/row-sink.js'
import { runKnown, runSql } from '../data/sql/run-sql.js'
import type { ChangeOptions } from '../data/sql/schema/change-schema.js'
import type { SqlContext } from '../data/sql/sql-context.js'
import type { SqlEngine } from '../data/sql/sql-engine.js'
import {
  type HoldOptions,
  holdTransaction,
  type SavepointStep,
} from '../data/sql/sql-transaction.js'
import { TEXT } from '../dialect/declared-types.js'
import type { Principal } from '../domain/access/principal.js'
import type { Need } from '../domain/access/scope.js'
import { Ticket } from '../http/admission/ticket.js'
import type { Admission } from '../http/plugins/admission.js'
import type { Services } from '../http/services.js'
import type { Queryable } from '../postgres/database.js'
import type { Sql } from '../postgres/sql.js'
import type { BranchFunction, BranchShell } from './branch-functions.js'
import type { Catalogue, CatalogueRows, CatalogueRun } from './catalogue/catalogue.js'
import { type ClientStatement, columnTypes, copiedRows } from './client-statement.js'
import type { ParsedTexts } from './parsed-texts.js'

/** What the connections of all clients share. */
export interface WireContext {
  readonly services: Services
  readonly engine: SqlEngine
  readonly admission: Admission
  readonly catalogue: Catalogue
  readonly texts: ParsedTexts
}

/** Who is connected, and to which branch. */
interface Connected {
  readonly request: Omit<SessionRequest, 'need'>
  /** The name under which the address of the client is counted. */
  readonly addressGroup: string
}

export interface StatementRun {
  readonly statement: Extract<ClientStatement, { kind: 'query' }>
  /** The table of a COPY without a list of columns: which ones it has depends on the schema. */
  readonly copied?: string | undefined
  /** The COPY that inserts rows by the statement. It is also the sink. */
  readonly load?: CopyLoad
  /** The types that the client declares. */
  readonly declared: ParameterTypes
  readonly parameters: readonly (string | null)[]
  readonly signal: AbortSignal
  /** Milliseconds; 0 for the limit of the service. */
  readonly timeoutMs: number
  readonly change: ChangeOptions
  /** The zone of times in the results; undefined for UTC. */
  readonly timeZone: string | undefined
}

/** Rows of a cursor that are asked for. */
export interface CursorFetch extends Pick<StatementRun, 'signal' | 'timeoutMs' | 'timeZone'> {
  readonly fetch: Sql
  readonly columns: readonly ResultColumn[]
}

/** A transaction that stays open between statements. */
export interface HeldTransaction {
  run(run: StatementRun, sink: RowSink): Promise<void>
  describe(run: StatementRun): Promise<Description>
  describeCatalogue(run: CatalogueRun): Promise<Description>
  runCatalogue(run: CatalogueRun): Promise<CatalogueRows>
  savepoint(step: SavepointStep): Promise<void>
  judgeLinks(): Promise<void>
  /** Creates a cursor. `words` precede its query, which is the statement. */
  declare(run: StatementRun, words: Sql, sink: Pick<RowSink, 'describe'>): Promise<void>
  fetch(fetch: CursorFetch, sink: RowSink): Promise<void>
  /** Runs a statement about cursors. */
  control(statement: Sql): Promise<void>
}

/** Runs the statements of one connection on its branch. Outside of transactions it holds nothing of PostgreSQL between them. */
export class BranchRunner {
  readonly #context: WireContext
  readonly #connected: Connected
  /** The request that each statement makes, with the branch that is checked out. */
  #request: SessionRequest
  /** The same for queries that are known. */
  #bareRequest: SessionRequest
  /** What all statements run with. */
  readonly #shared: Omit<SqlContext & SqlEngine, 'session' | 'bounds' | 'timeZone'>
  #principal: Principal | undefined
  /** The branch of the transaction that is open. */
  #heldBranchId: string | undefined
  /** The queries that the connection has run, by statement, with the types that were declared. */
  readonly #known = new WeakMap<
    StatementRun['statement'],
    { readonly declared: ParameterTypes; readonly query: KnownQuery }
  >()

  constructor(context: WireContext, connected: Connected) {
    this.#context = context
    this.#connected = connected
    this.#request = { ...connected.request, need: 'read' }
    this.#bareRequest = { ...this.#request, isBare: true }
    const { files, limits, database, storage } = context.services
    this.#shared = { files, limits, database, storage, ...context.engine, idempotent: undefined }
  }

  /** Whether PostgreSQL has cursors for statements: not on a cluster. */
  get hasCursors(): boolean {
    return this.#context.services.database.server.wrapsQueries
  }

  get branchName(): string {
    return this.#request.branchName
  }

  /** Makes another branch of the database that of the connection. */
  async checkout(branchName: string): Promise<void> {
    const request = { ...this.#request, branchName }
    await this.#context.services.sessions.run(request, async ({ branch }) => {
      await branch.runReads([])
    })
    this.#request = request
    this.#bareRequest = { ...request, isBare: true }
  }

  /** Returns the database of the connection, if the key can still reach it. */
  place(): Promise<{ readonly databaseId: string }> {
    return this.admitted(() =>
      this.#context.services.sessions.run(this.#request, async ({ access, branch }) => {
        await branch.runReads([])
        return access
      }),
    )
  }

  /** Runs a function about branches, as a request of the key. */
  callBranches(
    { run }: BranchFunction,
    given: readonly (string | null)[],
  ): Promise<string | readonly object[]> {
    const { services } = this.#context
    const shell: BranchShell = {
      services,
      branchName: this.branchName,
      checkout: (name) => this.checkout(name),
      // Merges check their target by themselves.
      onBranch: (need, operation) =>
        services.sessions.run({ ...this.#request, need, checksApprovals: true }, (session) => {
          const principal = { ...session.principal, requestId: session.requestId }
          return operation({ ...session.access, principal }, session)
        }),
    }
    return this.admitted(() => run(shell, given))
  }

  /**
   * Checks the key and the branch. A key that was invalid moments ago is refused without asking PostgreSQL. Returns the
   * share of the key in the memory of the service.
   */
  async open(): Promise<ByteShare> {
    const { admission, services } = this.#context
    const { apiKey } = this.#request
    const { callers, strangers } = admission
    if (callers.find(apiKey) === undefined) {
      const refusal = strangers.start(this.#connected.addressGroup, performance.now())
      if (refusal !== undefined) throw new AppError('rate_limited', refusal.message)
      if (callers.isRefused(apiKey)) throw new AppError('invalid_api_key', 'Invalid API key')
    }
    try {
      this.#principal = await services.sessions.admit(this.#request)
      return callers.learn(apiKey, this.#principal).held
    } catch (error) {
      if (error instanceof AppError && error.code === 'invalid_api_key') callers.refuse(apiKey)
      throw error
    }
  }

  /** Whether the key may write. */
  get canWrite(): boolean {
    return this.#principal?.scope.access !== 'read'
  }

  describe(run: StatementRun): Promise<Description> {
    return this.admitted(() =>
      this.#onSession(run, (context, statement) => describeSql(context, statement)),
    )
  }

  /** Throws if a statement names what does not exist. */
  judge(run: StatementRun): Promise<void> {
    return this.admitted(() =>
      this.#onSession(run, (context, statement) => judgeSql(context, statement)),
    )
  }

  run(run: StatementRun, sink: RowSink): Promise<void> {
    const known = this.#knownOf(run)
    return this.admitted(async () => {
      if (known !== undefined && (await this.#runKnown(run, known, sink))) return
      await this.#onSession(run, (context, statement) =>
        runSql(context, {
          statements: [statement],
          form: rowsForm(sink),
          change: run.change,
          toAnswer: () => '',
          onKnown: (query) => this.#remember(run, query),
        }),
      )
    })
  }

  /** Runs a query that has run before. Returns false if it has to run like one that has not. */
  #runKnown(run: StatementRun, known: KnownQuery, sink: RowSink): Promise<boolean> {
    const { parameters } = run
    return this.#context.services.sessions.run(this.#bareRequest, async (session) => {
      if (!known.isOn(session.branch)) return false
      return runKnown(this.#contextOf(session, run), known, { parameters, sink })
    })
  }

  /** Returns the query of a statement that was run before. */
  #knownOf({ statement, declared, copied }: StatementRun): KnownQuery | undefined {
    const known = this.#known.get(statement)
    if (copied !== undefined || known === undefined) return undefined
    const isSame =
      known.declared.length === declared.length &&
      known.declared.every((type, index) => type === declared[index])
    return isSame ? known.query : undefined
  }

  #remember({ statement, declared, copied }: StatementRun, query: KnownQuery): void {
    if (copied === undefined) this.#known.set(statement, { declared, query })
  }

  /** Returns the plan of a statement, as lines. */
  explain(
    run: StatementRun,
    { options, runs }: { options: Sql; runs: boolean },
  ): Promise<readonly string[]> {
    return this.admitted(() =>
      this.#onSession(run, (context, statement) =>
        explainSql(context, { statement, options, runs }),
      ),
    )
  }

  describeCatalogue(run: CatalogueRun): Promise<Description> {
    return this.#onCatalogue((catalogue, session) => catalogue.describe(session, run))
  }

  runCatalogue(run: CatalogueRun): Promise<CatalogueRows> {
    return this.#onCatalogue((catalogue, session) => catalogue.run(session, run))
  }

  /** Statements on the catalogue do not reach the branch, so its guard is asked before. */
  #onCatalogue<Result>(
    operation: (catalogue: Catalogue, session: Session) => Promise<Result>,
  ): Promise<Result> {
    const { services, catalogue } = this.#context
    return this.admitted(() =>
      services.sessions.run(this.#request, async (session) => {
        await session.branch.runReads([])
        return operation(catalogue, session)
      }),
    )
  }

  /**
   * Keeps a transaction open as long as `body` does. All of its statements use the session with which it began: nothing
   * that a session contains can change before the transaction ends, unless the transaction itself changes it.
   */
  async hold(
    options: HoldOptions & { readonly signal: AbortSignal },
    body: (transaction: HeldTransaction) => Promise<void>,
  ): Promise<void> {
    const bounds = { signal: options.signal, timeoutMs: 0, timeZone: undefined }
    const { catalogue, services } = this.#context
    const { sessions } = services
    await sessions.run(this.#request, async (session) => {
      this.#heldBranchId = session.access.branchId
      const context = {
        ...this.#contextOf(session, bounds),
        reopen: (known: Session, reads: Queryable) => sessions.reopen(known, reads),
      }
      await holdTransaction(context, options, (transaction) =>
        body({
          run: async (run, sink) => {
            await transaction.run(this.#contextOf(transaction.session, run), {
              statement: toRun(transaction.session, run),
              form: rowsForm(sink),
              change: run.change,
              load: run.load,
            })
          },
          describe: (run) =>
            transaction.describe(
              this.#contextOf(transaction.session, run),
              toRun(transaction.session, run),
            ),
          describeCatalogue: (run) => catalogue.describe(transaction.session, run),
          runCatalogue: (run) => catalogue.run(transaction.session, run),
          savepoint: (step) => transaction.savepoint(step),
          judgeLinks: () => transaction.settle(),
          declare: (run, words, sink) =>
            transaction.declare(this.#contextOf(transaction.session, run), {
              statement: toRun(transaction.session, run),
              words,
              sink,
            }),
          fetch: (given, sink) =>
            transaction.fetch(this.#contextOf(transaction.session, given), { ...given, sink }),
          control: (statement) => transaction.control(statement),
        }),
      )
    })
  }

  /** Checks that the key can still do what a transaction has done, on the same branch. */
  async confirm(need: Need): Promise<void> {
    await this.#context.services.sessions.run({ ...this.#request, need }, async (session) => {
      await session.branch.runReads([])
      if (session.access.branchId === this.#heldBranchId) return
      throw new AppError('branch_not_found', 'the branch was deleted')
    })
  }

  /** Creates the storage for the first writes to tables. */
  async makeWritable(tables: readonly string[]): Promise<void> {
    await this.#context.services.sessions.run(this.#request, (session) =>
      session.branch.makeWritable(tables.map((name) => session.table(name))),
    )
  }

  #onSession<Result>(
    run: StatementRun,
    operation: (context: SqlContext, statement: RunStatement) => Promise<Result>,
  ): Promise<Result> {
    const { sessions } = this.#context.services
    return sessions.run(this.#request, (session) =>
      operation(this.#contextOf(session, run), toRun(session, run)),
    )
  }

  #contextOf(
    session: Session,
    { signal, timeoutMs, timeZone }: Pick<StatementRun, 'signal' | 'timeoutMs' | 'timeZone'>,
  ): SqlContext & SqlEngine {
    const { limits } = this.#shared
    const { queryTimeoutMs } = limits
    const bounds = {
      timeoutMs: timeoutMs === 0 ? queryTimeoutMs : Math.min(timeoutMs, queryTimeoutMs),
      signal,
    }
    const { files, database, storage, connections, planner, readers, blockingWatch } = this.#shared
    // Each statement gets one, and to name the members costs less than to copy them.
    return {
      files,
      limits,
      database,
      storage,
      connections,
      planner,
      readers,
      blockingWatch,
      idempotent: undefined,
      session,
      bounds,
      timeZone,
    }
  }

  /** Runs work as a request of the key: it counts for the same limits as a request over HTTP. */
  async admitted<Result>(work: () => Promise<Result>): Promise<Result> {
    const { admission, services } = this.#context
    const { apiKey } = this.#request
    if (services.lifecycle.state !== 'ready') {
      throw new AppError('unavailable', 'the service is starting or shutting down')
    }
    if (this.#principal === undefined) throw new Error('a connection must be opened')
    const caller =
      admission.callers.find(apiKey) ?? admission.callers.learn(apiKey, this.#principal)
    const refusal = caller.start(performance.now())
    if (refusal !== undefined) {
      throw new AppError('rate_limited', `${refusal.message}; nothing was executed`)
    }
    const { work: lane } = admission.lanes
    const ticket = new Ticket({
      bearer: { key: apiKey, fault: undefined },
      lane,
      budget: admission.budget,
      address: () => this.#connected.addressGroup,
    })
    ticket.belongTo(caller)
    try {
      const entering = enterLane(ticket, lane)
      // Most enter at once, and waiting costs more than that.
      if (entering !== undefined) await entering
      return await work()
    } finally {
      ticket.close()
    }
  }
}

/** Enters a lane. Returns a promise if others come first. */
function enterLane(ticket: Ticket, lane: Ticket['lane']): Promise<void> | undefined {
  let settle = (error?: Error) => {
    if (error !== undefined) throw error
  }
  ticket.enter(lane, (error) => settle(error))
  if (ticket.admittedTo !== undefined) return undefined
  return new Promise((resolve, reject) => {
    settle = (error) => (error === undefined ? resolve() : reject(error))
  })
}

/** A declared text is a value of a column in the type of the column. */
const typeOf = (declared: string | undefined, inferred: string | undefined) =>
  declared === TEXT ? (inferred ?? TEXT) : (declared ?? inferred)

function toRun(session: Session, run: StatementRun): RunStatement {
  const { statement, declared, parameters, copied, load } = run
  const inferred = columnTypes(statement.node, session)
  const parameterTypes = parameters.map((_, index) => typeOf(declared[index], inferred[index]))
  return {
    statement: (copied && copiedRows(session, copied)) ?? statement.text,
    params: [...parameters],
    parameterTypes,
    hidesMetadata: !statement.namesMetadata,
    ...(load !== undefined && { parameterBytesMax: load.parameterBytesMax }),
  }
}
