import { NO_ROWS, type RowSink } from '../data/sql/row-sink.js'
import { isSchemaNode } from '../data/sql/schema/parse-schema.js'
import type { StatementRun } from './branch-runner.js'
import type { ClientStatement } from './client-statement.js'
import { CopyExecution } from './copy-execution.js'
import type { CopyIn } from './copy-in.js'
import { CursorExecution } from './cursor-execution.js'
import { planExplain } from './explain-statement.js'
import { rowMessage } from './frames.js'
import { describeLocks, lockWait, readLocks, runLocks } from './lock-statement.js'
import type { Execution, Portal, Prepared } from './portal.js'
import type { PortalAnswers } from './portal-answers.js'
import { type PreparedPlan, planPrepared } from './prepared-statement.js'
import { answerSession } from './session-answers.js'
import type { SessionContext } from './session-context.js'
import { explainColumn, type StatementDescriptions } from './statement-descriptions.js'
import { toWireError, unsupported, WireError } from './wire-error.js'

/** Executes portals: each kind of statement in its own way. */
export class PortalExecution {
  readonly #context: SessionContext
  readonly #answers: PortalAnswers
  readonly #descriptions: StatementDescriptions
  readonly #copies: CopyExecution
  readonly #cursors: CursorExecution

  constructor(
    context: SessionContext,
    parts: { answers: PortalAnswers; descriptions: StatementDescriptions },
  ) {
    this.#context = context
    this.#answers = parts.answers
    this.#descriptions = parts.descriptions
    this.#copies = new CopyExecution(context, parts.answers)
    this.#cursors = new CursorExecution(context, parts)
  }

  /** Executes a portal, and notes how its statement has ended. Returns what takes the rows of a COPY if the client has to send them. */
  async execute(portal: Portal, options: Execution): Promise<CopyIn | undefined> {
    const { statement } = portal.prepared
    if (statement === undefined) {
      this.#answers.completeEmpty(portal)
      return undefined
    }
    const startedAt = performance.now()
    const { kind } = statement
    const { connection } = this.#context
    const { tracer, output } = connection
    const span = tracer?.startRequest(undefined)
    let code: string | undefined
    let copying: CopyIn | undefined
    try {
      copying = await (tracer === undefined
        ? this.#run(portal, statement, options)
        : tracer.run(span, () => this.#run(portal, statement, options)))
    } catch (error) {
      code = toWireError(error).shown.code
      throw error
    } finally {
      connection.note({ kind, code, durationMs: performance.now() - startedAt })
      span?.end({
        name: `statement ${kind}`,
        hasFailed: code === 'XX000',
        attributes: { 'db.response.status_code': code ?? '00000' },
      })
    }
    if (output.isFull) await output.send()
    return copying
  }

  #run(
    portal: Portal,
    statement: ClientStatement,
    options: Execution,
  ): Promise<CopyIn | undefined> {
    if (statement.kind === 'transaction') return this.#control(portal, statement)
    this.#context.block.requireUsable()
    switch (statement.kind) {
      case 'session':
        return this.#answer(portal, statement, options)
      case 'locks':
        return this.#lock(portal, statement, options)
      case 'explain':
        return this.#explain(portal, statement, options)
      case 'prepared':
        return this.#runPrepared(portal, statement, options)
      case 'copy':
        return this.#copies.run(portal, statement)
      case 'catalogue':
        return this.#runCatalogue(portal, statement, options)
      case 'cursor':
        return this.#runCursor(portal, statement, options)
      case 'branches':
        return this.#runQuery(portal, options, () => this.#callBranches(portal, statement))
      default:
        return this.#hasCursor(portal, statement, options)
          ? this.#readPart(portal, statement, options)
          : this.#runQuery(portal, options, () => this.#runOf(portal, statement))
    }
  }

  /** `runOf` returns how the statement of the portal runs. Most have no values in binary form, and need not wait for it. */
  async #runQuery(
    portal: Portal,
    options: Execution,
    runOf: () => StatementRun | Promise<StatementRun>,
  ): Promise<undefined> {
    const isNew = portal.stream === undefined
    if (isNew) {
      const found = runOf()
      const run = found instanceof Promise ? await found : found
      const stream = this.#answers.streamOf(portal, options)
      await this.#context.cancellable(() => this.#context.block.run(run, stream))
      portal.stream = stream
      if (stream.changed !== undefined) this.#context.types.keep(stream.changed.types)
      for (const notice of stream.notices) this.#answers.notice(notice)
    }
    this.#sendRows(portal, options, isNew)
  }

  async #runCursor(
    portal: Portal,
    statement: ClientStatement,
    options: Execution,
  ): Promise<undefined> {
    const isNew = portal.stream === undefined
    if (isNew) await this.#cursors.run(portal, statement, options)
    if (portal.stream !== undefined) this.#sendRows(portal, options, isNew)
  }

  async #runCatalogue(
    portal: Portal,
    statement: ClientStatement,
    options: Execution,
  ): Promise<undefined> {
    const isNew = portal.stream === undefined
    if (isNew) {
      const { prepared, values, formats } = portal
      const { declaredIds } = prepared
      const run = this.#context.catalogueRunOf(statement, { declaredIds, values, formats })
      const found = await this.#context.cancellable(() => this.#context.block.runCatalogue(run))
      this.#answers.begin(portal, found.columns, options.isSimple)
      portal.stream = found
    }
    this.#sendRows(portal, options, isNew)
  }

  /** Sends the rows of a portal, or the next ones that were asked for. */
  #sendRows({ stream, verb }: Portal, { rowsMax }: Execution, isNew: boolean): void {
    if (stream === undefined) throw new Error('a portal must have rows')
    const rows = stream.take(rowsMax)
    for (const row of rows) this.#answers.write(row)
    if (rowsMax > 0 && rows.length === rowsMax) {
      this.#answers.suspend()
      return
    }
    const tags = stream.tags(rowsMax > 0 || !isNew ? rows.length : undefined)
    for (const tag of tags) {
      this.#answers.complete(verb === undefined ? tag : tag.replace('SELECT', verb))
    }
  }

  #runOf(
    portal: Portal,
    statement: StatementRun['statement'],
  ): StatementRun | Promise<StatementRun> {
    const { declaredIds } = portal.prepared
    const parameters = this.#descriptions.textsOf(portal)
    return parameters instanceof Promise
      ? parameters.then((texts) => this.#context.runOf(statement, declaredIds, texts))
      : this.#context.runOf(statement, declaredIds, parameters)
  }

  /** Runs the calls about branches of a statement, and returns the statement with their results. */
  async #callBranches(portal: Portal, statement: ClientStatement): Promise<StatementRun> {
    const { block, connection } = this.#context
    const { calls, run } = await this.#descriptions.withoutCalls(
      statement,
      portal.prepared.declaredIds,
    )
    const parameters = await this.#descriptions.textsOf(portal)
    for (const { name, definition, given } of calls) {
      if (definition.isWrite && block.isOpen) {
        throw new WireError('25001', `offshoot.${name} cannot run inside a transaction block`)
      }
      if (definition.isWrite && !definition.isOfSession) block.requireWritable(`offshoot.${name}()`)
      const values = given.map((each) =>
        typeof each === 'object' && each !== null ? (parameters[each.parameter - 1] ?? null) : each,
      )
      const result = await connection.runner.callBranches(definition, values)
      parameters.push(typeof result === 'string' ? result : JSON.stringify(result))
    }
    return { ...run, parameters }
  }

  async #explain(
    portal: Portal,
    { node, text }: ClientStatement,
    { isSimple }: Execution,
  ): Promise<undefined> {
    const { connection } = this.#context
    const plan = planExplain(node, text)
    const [statement] = await this.#context.read(plan.text)
    if (statement?.kind !== 'query' || isSchemaNode(statement.node)) {
      throw unsupported('only statements on tables of the branch can be explained')
    }
    const run = await this.#runOf(portal, statement)
    const lines = await this.#context.cancellable(() => connection.runner.explain(run, plan))
    this.#answers.begin(portal, [explainColumn(plan)], isSimple)
    for (const line of lines) this.#answers.write(rowMessage([Buffer.from(line)]))
    this.#answers.complete('EXPLAIN')
  }

  /**
   * Returns whether the rows of a portal are those of a cursor, so that they are read in parts. They are not if a single row is
   * asked for: clients do that for results which have one.
   */
  #hasCursor(
    { cursor, stream }: Portal,
    { isWrite }: StatementRun['statement'],
    { rowsMax }: Execution,
  ): boolean {
    if (cursor !== undefined) return true
    return rowsMax > 1 && stream === undefined && !isWrite && this.#context.block.keepsPortals
  }

  /** Reads the next rows of a portal from its cursor. */
  async #readPart(
    portal: Portal,
    statement: StatementRun['statement'],
    { rowsMax, isSimple }: Execution,
  ): Promise<undefined> {
    const { cursors } = this.#context
    const run = await this.#runOf(portal, statement)
    const stream = this.#answers.streamOf(portal, { rowsMax: 0, isSimple })
    await this.#context.cancellable(async () => {
      portal.cursor ??= await cursors.open(run)
      await cursors.read(portal.cursor, { run, rowsMax }, stream)
    })
    for (const row of stream.take(0)) this.#answers.write(row)
    if (rowsMax > 0 && stream.count === rowsMax) this.#answers.suspend()
    else for (const tag of stream.tags()) this.#answers.complete(tag)
  }

  /** Runs PREPARE or EXECUTE. */
  async #runPrepared(
    portal: Portal,
    { node, text }: ClientStatement,
    options: Execution,
  ): Promise<CopyIn | undefined> {
    const { items } = this.#context
    const plan = planPrepared(node, text)
    if (plan.kind === 'prepare') {
      const statements = await this.#context.read(plan.text)
      await this.#descriptions.judge(statements, plan.declaredIds)
      items.prepare(plan, statements)
      this.#answers.done(portal, 'PREPARE')
      return undefined
    }
    const prepared = items.executable(plan.name)
    portal.executed ??= {
      prepared,
      isDescribing: portal.isDescribing,
      values: await this.#valuesOf(portal, prepared, plan),
      formats: portal.formats,
    }
    portal.isDescribing = false
    if (prepared.statement !== undefined) {
      return this.#run(portal.executed, prepared.statement, options)
    }
    this.#answers.completeEmpty(portal.executed)
    return undefined
  }

  /** Returns the values of an EXECUTE. They are the row of a query, because they can be any expressions. */
  async #valuesOf(
    portal: Portal,
    { statement }: Prepared,
    { name, values }: Extract<PreparedPlan, { kind: 'execute' }>,
  ): Promise<Portal['values']> {
    const found = values === undefined ? [] : await this.#readRow(portal, values)
    const count = statement?.parameterCount ?? 0
    if (found.length !== count) {
      throw new WireError(
        '42601',
        `wrong number of parameters for prepared statement "${name}": expected ${count} parameters but got ${found.length}`,
      )
    }
    return found.map((value) => ({ bytes: value === null ? null : Buffer.from(value), format: 0 }))
  }

  /** Returns the row of a query without tables. */
  async #readRow(portal: Portal, query: string): Promise<readonly (string | null)[]> {
    const [statement] = await this.#context.read(query)
    if (statement?.kind === 'session') {
      const parameters = await this.#descriptions.textsOf(portal)
      const facts = { ...this.#context.connection.facts, parameters }
      return answerSession(statement, facts).rows[0] ?? []
    }
    if (statement?.kind !== 'query') throw unsupported('EXECUTE: a value is not supported')
    const found: (readonly (string | null)[])[] = []
    const run = await this.#runOf(portal, statement)
    // A quick statement may be run again.
    const sink: RowSink = { ...NO_ROWS, row: (row) => void found.unshift(row) }
    await this.#context.cancellable(() => this.#context.block.run(run, sink))
    return found[0] ?? []
  }

  /** Runs a statement about transactions. */
  async #control(portal: Portal, statement: ClientStatement): Promise<undefined> {
    const { block, signal } = this.#context
    const { tag, warning } = await block.control(statement, { signal })
    if (portal.isDescribing) this.#answers.begin(portal, [], false)
    if (warning !== undefined) this.#answers.warn(warning)
    this.#answers.complete(tag)
  }

  async #answer(
    portal: Portal,
    statement: ClientStatement,
    { isSimple }: Execution,
  ): Promise<undefined> {
    const { block, connection, items } = this.#context
    const parameters = await this.#descriptions.textsOf(portal)
    const answer = answerSession(statement, { ...connection.facts, parameters })
    if (answer.transactionOptions !== undefined) block.configure(answer.transactionOptions)
    if (answer.judgesLinks) await block.judgeLinks()
    if (answer.isAlone && block.isOpen) {
      throw new WireError('25001', `${answer.tag} cannot run inside a transaction block`)
    }
    if (answer.isAlone) {
      await block.closeCursor(undefined)
      await connection.locks.unlockAll()
    }
    if (answer.forgets === null) items.forgetAll()
    else if (answer.forgets !== undefined) {
      items.statement(answer.forgets)
      items.forget(answer.forgets)
    }
    this.#answers.notice(answer.notice)
    this.#answers.rows(portal, answer, isSimple)
  }

  /** Takes or gives back advisory locks. A connection waits for them without holding anything of PostgreSQL. */
  async #lock(
    portal: Portal,
    statement: ClientStatement,
    { isSimple }: Execution,
  ): Promise<undefined> {
    const { locks, runner, facts, limits } = this.#context.connection
    if (!runner.canWrite) {
      throw new WireError('42501', 'a key that only reads cannot take advisory locks')
    }
    const parameters = await this.#descriptions.textsOf(portal)
    const { calls, settings } = readLocks(statement.node) ?? { calls: [], settings: [] }
    const { columns } = describeLocks(calls, statement.parameterCount)
    const run = async () => {
      for (const node of settings) answerSession({ node }, { ...facts, parameters })
      const { databaseId } = await runner.place()
      return runLocks(calls, {
        owner: locks,
        databaseId,
        parameters,
        wait: { signal: this.#context.signal, ...lockWait(facts.settings, limits) },
        warn: (message) => this.#answers.warn(new WireError('01000', message)),
      })
    }
    const row = await this.#context.cancellable(() => facts.settings.duringTransaction(run))
    this.#answers.rows(portal, { columns, rows: [row], tag: 'SELECT 1' }, isSimple)
  }
}
