import type { Limits } from '@offshoot/contract/limits'
import { CopyLoad } from '../data/sql/copy-load.js'
import type { ResultColumn } from '../data/sql/evaluate.js'
import type { RowSink } from '../data/sql/run-sql.js'
import type { SchemaTypes } from '../data/sql/schema/enum-types.js'
import { isSchemaNode } from '../data/sql/schema/parse-schema.js'
import type { ParameterTypes } from '../data/sql/typed-plan.js'
import { MessageWriter } from '../postgres/message-writer.js'
import type { Tracer } from '../telemetry/tracer.js'
import type { LockOwner } from './advisory-locks.js'
import { findBranchCalls, withoutBranchCalls } from './branch-calls.js'
import type { BranchRunner, StatementRun } from './branch-runner.js'
import type { CatalogueRows, CatalogueRun } from './catalogue/catalogue.js'
import type { ClientBytes } from './client-bytes.js'
import type { ClientOutput } from './client-output.js'
import { type ClientStatement, joinSchemaStatements } from './client-statement.js'
import { CopyIn } from './copy-in.js'
import { copyReader, copyResponse, copyStream } from './copy-messages.js'
import { type CopyPlan, planCopy } from './copy-statement.js'
import { planCursor } from './cursor-statement.js'
import { type ExplainPlan, planExplain } from './explain-statement.js'
import { type Frame, FrameContent, ProtocolError, rowMessage, textIn } from './frames.js'
import { describeLocks, lockWait, readLocks, runLocks } from './lock-statement.js'
import { NamedItems } from './named-items.js'
import type { ParsedTexts } from './parsed-texts.js'
import { PortalCursors } from './portal-cursors.js'
import { type PreparedPlan, planPrepared } from './prepared-statement.js'
import { rowDescription } from './row-description.js'
import { RowStream } from './row-stream.js'
import { answerSession, type SessionFacts } from './session-answers.js'
import { TransactionBlock } from './transaction-block.js'
import { declaredName, fromBinary, toBinary } from './values.js'
import { errorMessage, toWireError, unsupported, WireError } from './wire-error.js'

/* The messages of a client after its start: simple queries, and statements that are prepared, bound and executed. */

/** Statements and portals of one connection. */
const NAMED_MAX = 1_000
/** Characters of all prepared statements of one connection. */
const NAMED_LENGTH_MAX = 4 * 1024 * 1024
/** Bytes that a parsed statement takes, for each character of its text. */
const PARSED_BYTES = 50
/** Bytes that a value takes beside its content. */
const VALUE_BYTES = 100

interface Prepared {
  /** undefined: the text is empty. */
  readonly statement: ClientStatement | undefined
  readonly declaredIds: readonly number[]
  /** The columns that the client was told. */
  told?: readonly ResultColumn[]
}

interface Portal {
  readonly prepared: Prepared
  /** The client waits for the columns. They are certain when the statement runs. */
  isDescribing: boolean
  readonly values: readonly { readonly bytes: Buffer | null; readonly format: number }[]
  readonly formats: readonly number[]
  /** What the portal has returned so far, if it was executed. */
  stream?: RowStream | CatalogueRows
  /** The cursor that has its rows. */
  cursor?: string
  /** For EXECUTE: the portal of the statement that was prepared. */
  executed?: Portal
  /** The first word of what the client is told at the end, if it is another than that of a query. */
  verb?: 'FETCH'
}

/** What a session needs of its connection. */
interface ClientConnection {
  readonly output: ClientOutput
  readonly bytes: ClientBytes
  readonly runner: BranchRunner
  readonly texts: ParsedTexts
  readonly limits: Limits
  readonly facts: Omit<SessionFacts, 'parameters'>
  readonly locks: LockOwner
  /** Notes a statement that has ended, for the log and for metrics. */
  note(event: { kind: string; code: string | undefined; durationMs: number }): void
  /** undefined: statements are not traced. */
  readonly tracer: Tracer | undefined
  /** Notes an error that the client must not see. */
  hide(error: unknown): void
}

/** A COPY whose rows the client is sending. */
interface Copying {
  readonly rows: CopyIn
  /** The statements behind it in the same message; undefined if it was prepared. */
  rest: readonly ClientStatement[] | undefined
}

/** The session of a client. */
export class ClientSession {
  readonly #connection: ClientConnection
  readonly #prepared = new NamedItems<Prepared>(({ statement }) => statement?.text.length ?? 0)
  readonly #portals = new NamedItems<Portal>(bytesOf)
  /** Messages are skipped until the next Sync. */
  #isSkipping = false
  #running = new AbortController()
  readonly #block: TransactionBlock
  #copying: Copying | undefined
  /** The enums that the client has created. They belong to columns, so only this connection knows their names. */
  #types: SchemaTypes = new Map()
  /** The settings that the client knows. */
  #reported: readonly (readonly [string, string])[]
  /** The portal for whose columns the client waits. */
  #described: Portal | undefined
  readonly #cursors: PortalCursors

  constructor(connection: ClientConnection) {
    this.#connection = connection
    const { runner, limits, facts } = connection
    this.#block = new TransactionBlock(runner, limits, facts.settings)
    this.#cursors = new PortalCursors(this.#block)
    this.#reported = facts.settings.reported
  }

  /** Returns the statements of a text. */
  #read(text: string): readonly ClientStatement[] | Promise<readonly ClientStatement[]> {
    const { texts, facts } = this.#connection
    return texts.read(text, facts.database)
  }

  #readMessage(text: string): readonly ClientStatement[] | Promise<readonly ClientStatement[]> {
    const { texts, facts } = this.#connection
    return texts.readMessage(text, facts.database)
  }

  /** Ends the session of a client that is gone. */
  close(): void {
    this.cancel()
    void this.#block.close().finally(() => this.#connection.locks.close())
  }

  /** Ends the statement that is running. */
  cancel(): void {
    this.#running.abort()
  }

  /** Handles a message other than the last one of a connection. Returns a promise if the next one has to wait. */
  handle({ type, body }: Frame): Promise<void> | undefined {
    const content = new FrameContent(body)
    if (this.#copying !== undefined) return this.#receiveCopy(this.#copying, type ?? '', content)
    if (type === 'S') return this.#sync()
    if (this.#isSkipping) return undefined
    if (type === 'Q') return this.#simple(content)
    if (type === 'F') return this.#refuseCall()
    try {
      return this.#extended(type ?? '', content)?.catch((error: unknown) => this.#skip(error))
    } catch (error) {
      return this.#skip(error)
    }
  }

  /** Messages up to the next Sync are skipped, because one has failed. */
  async #skip(error: unknown): Promise<void> {
    if (error instanceof ProtocolError) throw error
    await this.#fail(error)
    this.#isSkipping = true
    // A client that asks for answers by Flush reads the error before it sends Sync.
    await this.#connection.output.send()
  }

  /** Tells the client that the next statement can come. */
  start(): Promise<void> | undefined {
    return this.#ready()
  }

  #ready(): Promise<void> | undefined {
    // Portals end with their transaction.
    if (!this.#block.isOpen) {
      this.#portals.clear()
      this.#cursors.clear()
      const released = this.#connection.locks.endTransaction()
      if (released !== undefined) return released.then(() => this.#ready())
    }
    // A signal that came too late for a statement must not end the next one.
    if (this.#running.signal.aborted) this.#running = new AbortController()
    this.#count()
    this.#reportSettings()
    this.#write(READY[this.#block.status])
    return this.#connection.output.send()
  }

  /** Tells the client about settings that have changed. */
  #reportSettings(): void {
    const { reported } = this.#connection.facts.settings
    if (reported === this.#reported) return
    const known = new Map(this.#reported)
    for (const [name, value] of reported) {
      if (known.get(name) === value) continue
      this.#write(new MessageWriter('S').text(name).text(value).toBuffer())
    }
    this.#reported = reported
  }

  #write(message: Buffer): void {
    this.#connection.output.write(message)
  }

  /** Counts the statements and portals that are kept. */
  #count(): boolean {
    const named = this.#prepared.bytes * PARSED_BYTES + this.#portals.bytes + this.#block.heldBytes
    return this.#connection.bytes.holdNamed(named + (this.#copying?.rows.bytes ?? 0))
  }

  /** Keeps a portal, if there is room for its values and rows. */
  #keep(name: string, portal: Portal): void {
    this.#portals.set(name, portal)
    if (this.#count()) return
    this.#portals.delete(name)
    throw new WireError('53200', 'the portals of this API key take too much memory')
  }

  async #fail(error: unknown): Promise<void> {
    // The client is told the error instead of the columns for which it waits.
    if (this.#described !== undefined) this.#described.isDescribing = false
    this.#described = undefined
    await this.#block.fail()
    const { shown, hidden } = toWireError(error)
    if (hidden !== undefined) this.#connection.hide(hidden)
    this.#write(errorMessage(shown, 'ERROR'))
  }

  #notice(message: string | undefined): void {
    const { settings } = this.#connection.facts
    if (message === undefined || !settings.wantsNotices) return
    this.#write(errorMessage(new WireError('00000', message), 'NOTICE'))
  }

  async #simple(content: FrameContent): Promise<void> {
    try {
      const parsed = await this.#readMessage(content.text())
      const statements = this.#block.isOpen ? parsed : joinSchemaStatements(parsed)
      if (statements.length === 0) this.#write(EMPTY_QUERY)
      await this.#runAll(statements)
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      await this.#fail(error)
    }
    if (this.#copying === undefined) await this.#endMessage()
  }

  /** Refuses a call of a function. It is a message of its own, as a simple query is, so no Sync follows it. */
  async #refuseCall(): Promise<void> {
    await this.#fail(unsupported('calls of functions outside of statements are not supported'))
    await this.#endMessage()
  }

  /** Runs the statements of a message, up to a COPY whose rows the client has to send. */
  async #runAll(statements: readonly ClientStatement[]): Promise<void> {
    const areJoined = isOneTransaction(statements)
    for (const [index, statement] of statements.entries()) {
      if (areJoined && statement.kind !== 'transaction') this.#block.beginImplicit()
      if (statement.parameterCount > 0) throw new WireError('42P02', 'there is no parameter $1')
      const prepared = { statement, declaredIds: [] }
      const portal = { prepared, isDescribing: false, values: [], formats: [] }
      await this.#execute(portal, 0, { isSimple: true })
      if (this.#copying === undefined) continue
      this.#copying.rest = statements.slice(index + 1)
      return
    }
  }

  #endMessage(): Promise<void> | undefined {
    if (!this.#block.isImplicit) return this.#ready()
    const ended = this.#block.endImplicit().catch((error: unknown) => this.#fail(error))
    return ended.then(() => this.#ready())
  }

  /** Handles a message of a client that sends rows. */
  async #receiveCopy(copying: Copying, type: string, content: FrameContent): Promise<void> {
    const { rows, rest } = copying
    if (type === 'H' || type === 'S') return
    try {
      if (type === 'd') {
        await rows.push(content.rest())
        if (this.#count()) return
        throw new WireError('53200', 'the rows of this API key take too much memory')
      }
      if (type !== 'c') throw stoppedCopy(type === 'f' ? content.text() : 'unexpected message')
      const count = await rows.finish()
      if (rest === undefined) await this.#block.endImplicit()
      this.#copying = undefined
      this.#complete(`COPY ${count}`)
      await this.#runAll(rest ?? [])
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      this.#copying = undefined
      await rows.settle().catch(() => undefined)
      await this.#fail(error)
      this.#isSkipping = rest === undefined
    }
    if (rest !== undefined && this.#copying === undefined) await this.#endMessage()
  }

  #extended(type: string, content: FrameContent): Promise<void> | undefined {
    // Answers keep the order of messages.
    if (type === 'E') return this.#executeNamed(content.text(), content.int32())
    const described = this.#describePortal()
    if (described === undefined) return this.#prepareOrBind(type, content)
    return described.then(() => this.#prepareOrBind(type, content))
  }

  #prepareOrBind(type: string, content: FrameContent): Promise<void> | undefined {
    switch (type) {
      case 'P':
        return this.#parse(content)
      case 'B':
        this.#bind(content)
        return undefined
      case 'D':
        return this.#describe(content)
      case 'C':
        this.#close(content)
        return undefined
      case 'H':
        return this.#connection.output.send()
      case 'd':
      case 'c':
      case 'f':
        // A client may send the rest of a COPY that has failed.
        return undefined
      default:
        throw new ProtocolError('unknown kind of message')
    }
  }

  /** Executes a portal. Others for which the client waits come first, so that answers keep the order of messages. */
  async #executeNamed(name: string, rowsAsked: number): Promise<void> {
    const portal = this.#portal(name)
    const rowsMax = Math.max(0, rowsAsked)
    // One that goes on does not describe its columns again by itself.
    const isNew = portal.stream === undefined && portal.cursor === undefined
    const describesItself = portal === this.#described && isNew
    if (!describesItself) await this.#describePortal()
    this.#described = undefined
    const isReadInParts = rowsMax > 0 || portal.stream !== undefined
    await this.#execute(portal, rowsMax)
    // The rows that it has not returned yet take memory.
    if (isReadInParts) this.#keep(name, portal)
  }

  #sync(): Promise<void> | undefined {
    const described = this.#isSkipping ? undefined : this.#describePortal()
    this.#isSkipping = false
    if (described === undefined) return this.#endMessage()
    const settled = described.catch((error: unknown) => this.#fail(error))
    return settled.then(() => this.#endMessage())
  }

  #parse(content: FrameContent): Promise<void> | undefined {
    const [name, text] = [content.text(), content.text()]
    const declaredIds = content.list(() => content.int32())
    const keep = (statements: readonly ClientStatement[]) => {
      this.#prepare({ name, text, declaredIds }, statements)
      this.#write(PARSE_COMPLETE)
    }
    const statements = this.#readMessage(text)
    if (statements instanceof Promise) return statements.then(keep)
    keep(statements)
    return undefined
  }

  /** Keeps a statement under its name. `statements` are those of its text. */
  #prepare(
    { name, text, declaredIds }: Omit<Extract<PreparedPlan, { kind: 'prepare' }>, 'kind'>,
    [statement, ...others]: readonly ClientStatement[],
  ): void {
    if (others.length > 0) {
      throw new WireError('42601', 'cannot insert multiple commands into a prepared statement')
    }
    if (name !== '' && this.#prepared.get(name) !== undefined) {
      throw new WireError('42P05', `prepared statement "${name}" already exists`)
    }
    this.#prepared.delete(name)
    const length = this.#prepared.bytes + text.length
    if (this.#prepared.size >= NAMED_MAX || length > NAMED_LENGTH_MAX) {
      throw new WireError(
        '54000',
        `a connection can have at most ${NAMED_MAX} prepared statements of ${NAMED_LENGTH_MAX} characters in all`,
      )
    }
    this.#prepared.set(name, { statement, declaredIds })
    if (!this.#count()) {
      this.#prepared.delete(name)
      throw new WireError('53200', 'the statements of this API key take too much memory')
    }
  }

  #bind(content: FrameContent): void {
    const [portalName, statementName] = [content.text(), content.text()]
    const prepared = this.#statement(statementName)
    const formats = content.list(() => content.int16())
    const given = content.list(() => content.value())
    const resultFormats = content.list(() => content.int16())
    const count = prepared.statement?.parameterCount ?? 0
    if (given.length !== count) {
      throw new WireError(
        '08P01',
        `bind message supplies ${given.length} parameters, but the statement requires ${count}`,
      )
    }
    if (this.#portals.size >= NAMED_MAX) {
      throw new WireError('54000', `a connection can have at most ${NAMED_MAX} portals`)
    }
    const values = given.map((bytes, index) => ({
      // The buffer of the message is used again.
      bytes: bytes === null ? null : Buffer.from(bytes),
      format: (formats.length === 1 ? formats[0] : formats[index]) ?? 0,
    }))
    this.#drop(portalName)
    this.#keep(portalName, {
      prepared,
      isDescribing: false,
      values,
      formats: resultFormats,
    })
    this.#write(BIND_COMPLETE)
  }

  #describe(content: FrameContent): Promise<void> | undefined {
    const [kind, name] = [content.letter(), content.text()]
    if (kind !== 'P') return this.#describeStatement(this.#statement(name))
    // A cursor is a portal, too.
    const found = this.#portals.get(name) ?? this.#block.findCursor(name)
    if (Array.isArray(found)) this.#describeRow(found, [])
    else {
      this.#described = this.#portal(name)
      this.#described.isDescribing = true
    }
    return undefined
  }

  async #describeStatement(prepared: Prepared): Promise<void> {
    const { typeIds, columns } = await this.#descriptionOf(prepared)
    const writer = new MessageWriter('t').int16(typeIds.length)
    for (const typeId of typeIds) writer.int32(typeId)
    this.#write(writer.toBuffer())
    this.#describeRow(columns, [])
    prepared.told = columns
  }

  /** Describes the portal for which the client waits, although it does not execute it now. */
  #describePortal(): Promise<void> | undefined {
    const portal = this.#described
    this.#described = undefined
    if (!portal?.isDescribing) return undefined
    portal.isDescribing = false
    return this.#descriptionOf(portal.prepared).then(({ columns }) =>
      this.#describeRow(columns, portal.formats),
    )
  }

  #describeRow(columns: readonly ResultColumn[], formats: readonly number[]): void {
    this.#write(rowDescription(columns, formats))
  }

  #close(content: FrameContent): void {
    const [kind, name] = [content.letter(), content.text()]
    if (kind === 'S') this.#prepared.delete(name)
    else this.#drop(name)
    this.#count()
    this.#write(CLOSE_COMPLETE)
  }

  #drop(name: string): void {
    const portal = this.#portals.get(name)
    this.#cursors.spend(portal?.cursor ?? portal?.executed?.cursor)
    this.#portals.delete(name)
  }

  #statement(name: string): Prepared {
    const prepared = this.#prepared.get(name)
    if (prepared !== undefined) return prepared
    throw new WireError('26000', `prepared statement "${name}" does not exist`)
  }

  /** Returns a statement that EXECUTE can run. It could execute itself otherwise. */
  #executable(name: string): Prepared {
    const prepared = this.#statement(name)
    if (prepared.statement?.kind !== 'prepared') return prepared
    throw unsupported('EXECUTE of a PREPARE or EXECUTE is not supported')
  }

  #portal(name: string): Portal {
    const portal = this.#portals.get(name)
    if (portal !== undefined) return portal
    throw new WireError('34000', `portal "${name}" does not exist`)
  }

  /** Returns the types of parameters, and the columns of the result. */
  async #descriptionOf(
    prepared: Prepared,
  ): Promise<{ typeIds: readonly number[]; columns: readonly ResultColumn[] }> {
    const { statement, declaredIds } = prepared
    if (statement === undefined || statement.kind === 'transaction' || statement.kind === 'copy') {
      return { typeIds: [], columns: [] }
    }
    this.#block.requireUsable()
    if (statement.kind === 'prepared') return this.#describePrepared(statement)
    if (statement.kind === 'cursor') return this.#describeCursor(statement, declaredIds)
    if (statement.kind === 'branches') return this.#describeBranches(statement, declaredIds)
    if (statement.kind === 'explain') return this.#describeExplain(statement, declaredIds)
    const given = new Array<null>(statement.parameterCount).fill(null)
    const typeIdOf = (index: number, found: string | undefined) =>
      declaredIds[index] || Number(found ?? TEXT_ID)
    if (statement.kind === 'locks') {
      return describeLocks(readLocks(statement.node)?.calls ?? [], statement.parameterCount)
    }
    if (statement.kind === 'session') {
      const facts = { ...this.#connection.facts, parameters: given }
      const { columns } = answerSession(statement, facts, { isDescribed: true })
      return { typeIds: given.map((_, index) => typeIdOf(index, undefined)), columns }
    }
    const { parameterTypeIds, columns } =
      statement.kind === 'catalogue'
        ? await this.#block.describeCatalogue(this.#catalogueRunOf(statement, { declaredIds }))
        : await this.#block.describe(this.#runOf(statement, declaredIds, given))
    return { typeIds: given.map((_, index) => typeIdOf(index, parameterTypeIds[index])), columns }
  }

  async #describePrepared({ node, text }: ClientStatement) {
    const plan = planPrepared(node, text)
    if (plan.kind === 'prepare') return { typeIds: [], columns: [] }
    const { columns } = await this.#descriptionOf(this.#executable(plan.name))
    return { typeIds: [], columns }
  }

  async #describeCursor({ node, text }: ClientStatement, declaredIds: readonly number[]) {
    const plan = planCursor(node, text)
    if (plan.kind === 'fetch') {
      const columns = plan.isMove ? [] : this.#block.cursorColumns(plan.name)
      return { typeIds: [], columns }
    }
    if (plan.kind === 'close') return { typeIds: [], columns: [] }
    const [statement] = await this.#read(plan.query)
    const { typeIds } = await this.#descriptionOf({ statement, declaredIds })
    return { typeIds, columns: [] }
  }

  async #describeExplain({ node, text }: ClientStatement, declaredIds: readonly number[]) {
    const plan = planExplain(node, text)
    const [statement] = await this.#read(plan.text)
    const { typeIds } = await this.#descriptionOf({ statement, declaredIds })
    return { typeIds, columns: [explainColumn(plan)] }
  }

  async #explain(portal: Portal, { node, text }: ClientStatement, isSimple: boolean) {
    const plan = planExplain(node, text)
    const [statement] = await this.#read(plan.text)
    if (statement?.kind !== 'query' || isSchemaNode(statement.node)) {
      throw unsupported('only statements on tables of the branch can be explained')
    }
    const parameters = await this.#textsOf(portal)
    const run = this.#runOf(statement, portal.prepared.declaredIds, parameters)
    const lines = await this.#cancellable(() => this.#connection.runner.explain(run, plan))
    this.#beginRows(portal, [explainColumn(plan)], isSimple)
    for (const line of lines) this.#write(rowMessage([Buffer.from(line)]))
    this.#complete('EXPLAIN')
  }

  async #describeBranches(statement: ClientStatement, declaredIds: readonly number[]) {
    const { run } = await this.#withoutCalls(statement, declaredIds)
    const given = new Array<null>(run.statement.parameterCount).fill(null)
    const { columns } = await this.#block.describe({ ...run, parameters: given })
    // Parameters of calls are texts.
    const typeIds = Array.from(
      { length: statement.parameterCount },
      (_, index) => declaredIds[index] || TEXT_ID,
    )
    return { typeIds, columns }
  }

  /** Returns the calls about branches of a statement, and the statement without them, with their results as parameters. */
  async #withoutCalls(
    { node, text, parameterCount }: ClientStatement,
    declaredIds: readonly number[],
  ): Promise<{ calls: ReturnType<typeof findBranchCalls>; run: StatementRun }> {
    const calls = findBranchCalls(node, text)
    const written = withoutBranchCalls(text, { calls, parameterCount })
    const [statement] = await this.#read(written)
    if (statement?.kind === 'query') {
      return { calls, run: this.#runOf(statement, declaredIds, []) }
    }
    throw unsupported('functions about branches cannot be mixed with the catalogue')
  }

  /** Runs the calls about branches of a statement, and returns the statement with their results. */
  async #callBranches(portal: Portal, statement: ClientStatement): Promise<StatementRun> {
    const { calls, run } = await this.#withoutCalls(statement, portal.prepared.declaredIds)
    const parameters = await this.#textsOf(portal)
    for (const { name, definition, given } of calls) {
      if (definition.isWrite && this.#block.isOpen) {
        throw new WireError('25001', `offshoot.${name} cannot run inside a transaction block`)
      }
      if (definition.isWrite && !definition.isOfSession) {
        this.#block.requireWritable(`offshoot.${name}()`)
      }
      const values = given.map((each) =>
        typeof each === 'object' && each !== null ? (parameters[each.parameter - 1] ?? null) : each,
      )
      const result = await this.#connection.runner.callBranches(definition, values)
      parameters.push(typeof result === 'string' ? result : JSON.stringify(result))
    }
    return { ...run, parameters }
  }

  #runOf(
    statement: StatementRun['statement'],
    declaredIds: readonly number[],
    parameters: readonly (string | null)[],
  ): StatementRun {
    const { settings } = this.#connection.facts
    const { literals } = statement
    const declared = declaredIds.length === 0 ? NO_TYPES : declaredIds.map(declaredName)
    return {
      statement: literals?.query ?? statement,
      declared: literals === undefined ? declared : joinTypes(statement, declared, literals.types),
      parameters: literals === undefined ? parameters : [...parameters, ...literals.values],
      signal: this.#running.signal,
      timeoutMs: settings.statementTimeoutMs,
      change: { allowDataLoss: settings.allowsDataLoss, types: this.#types },
      timeZone: settings.timeZone,
    }
  }

  #catalogueRunOf(
    { text }: ClientStatement,
    given: { declaredIds: readonly number[] } & Partial<Pick<Portal, 'values' | 'formats'>>,
  ): CatalogueRun {
    const { facts } = this.#connection
    const { signal } = this.#running
    return { text, values: [], formats: [], ...given, facts, signal }
  }

  async #execute(portal: Portal, rowsMax: number, { isSimple = false } = {}): Promise<void> {
    const { statement } = portal.prepared
    if (statement === undefined) {
      this.#write(EMPTY_QUERY)
      return
    }
    const startedAt = performance.now()
    const { kind } = statement
    const { tracer, output } = this.#connection
    const span = tracer?.startRequest(undefined)
    const options = { rowsMax, isSimple }
    let code: string | undefined
    try {
      if (tracer === undefined) await this.#run(portal, statement, options)
      else await tracer.run(span, () => this.#run(portal, statement, options))
    } catch (error) {
      code = toWireError(error).shown.code
      throw error
    } finally {
      this.#connection.note({ kind, code, durationMs: performance.now() - startedAt })
      span?.end({
        name: `statement ${kind}`,
        hasFailed: code === 'XX000',
        attributes: { 'db.response.status_code': code ?? '00000' },
      })
    }
    if (output.isFull) await output.send()
  }

  async #run(
    portal: Portal,
    statement: ClientStatement,
    { rowsMax, isSimple }: { rowsMax: number; isSimple: boolean },
  ): Promise<void> {
    const goesOn = portal.stream !== undefined
    if (statement.kind === 'transaction') {
      await this.#control(portal, statement)
      return
    }
    this.#block.requireUsable()
    if (statement.kind === 'session') {
      await this.#answer(portal, statement, isSimple)
      return
    }
    if (statement.kind === 'locks') {
      await this.#lock(portal, statement, isSimple)
      return
    }
    if (statement.kind === 'prepared') {
      await this.#runPrepared(portal, statement, { rowsMax, isSimple })
      return
    }
    if (statement.kind === 'explain') {
      await this.#explain(portal, statement, isSimple)
      return
    }
    if (statement.kind === 'cursor') {
      if (await this.#runCursor(portal, statement, { rowsMax, isSimple })) return
    } else if (statement.kind === 'copy') {
      if (portal.isDescribing) this.#beginRows(portal, [], false)
      const plan = planCopy(statement.node, statement.text)
      await (plan.isFrom ? this.#beginCopy(plan, isSimple) : this.#copyOut(plan))
      return
    } else if (statement.kind === 'catalogue') {
      await this.#runCatalogue(portal, statement, isSimple)
    } else if (statement.kind === 'query' && this.#hasCursor(portal, statement, rowsMax)) {
      await this.#readPart(portal, statement, { rowsMax, isSimple })
      return
    } else if (portal.stream === undefined) {
      const stream = this.#streamOf(portal, { rowsMax, isSimple })
      const run =
        statement.kind === 'branches'
          ? await this.#callBranches(portal, statement)
          : this.#runOf(statement, portal.prepared.declaredIds, await this.#textsOf(portal))
      await this.#cancellable(() => this.#block.run(run, stream))
      portal.stream = stream
      if (stream.changed !== undefined) this.#types = stream.changed.types
      for (const notice of stream.notices) this.#notice(notice)
    }
    if (portal.stream === undefined) throw new Error('a portal must have rows')
    const rows = portal.stream.take(rowsMax)
    for (const row of rows) this.#write(row)
    // As in PostgreSQL, a portal does not know that it has no more rows before it is asked for them.
    if (rowsMax > 0 && rows.length === rowsMax) this.#write(PORTAL_SUSPENDED)
    else {
      const tag = portal.stream.tag(rowsMax > 0 || goesOn ? rows.length : undefined)
      this.#complete(portal.verb === undefined ? tag : tag.replace('SELECT', portal.verb))
    }
  }

  /**
   * Returns whether the rows of a portal are those of a cursor, so that they are read in parts. They are not if a single row is
   * asked for: clients do that for results which have one.
   */
  #hasCursor(
    { cursor, stream }: Portal,
    { isWrite }: StatementRun['statement'],
    rowsMax: number,
  ): boolean {
    if (cursor !== undefined) return true
    return rowsMax > 1 && stream === undefined && !isWrite && this.#block.keepsPortals
  }

  /** Reads the next rows of a portal from its cursor. */
  async #readPart(
    portal: Portal,
    statement: StatementRun['statement'],
    { rowsMax, isSimple }: { rowsMax: number; isSimple: boolean },
  ): Promise<void> {
    const run = this.#runOf(statement, portal.prepared.declaredIds, await this.#textsOf(portal))
    const stream = this.#streamOf(portal, { rowsMax: 0, isSimple })
    await this.#cancellable(async () => {
      portal.cursor ??= await this.#cursors.open(run)
      await this.#cursors.read(portal.cursor, { run, rowsMax }, stream)
    })
    for (const row of stream.take(0)) this.#write(row)
    if (rowsMax > 0 && stream.count === rowsMax) this.#write(PORTAL_SUSPENDED)
    else this.#complete(stream.tag())
  }

  #streamOf(
    portal: Portal,
    { rowsMax, isSimple }: { rowsMax: number; isSimple: boolean },
  ): RowStream {
    return new RowStream({
      output: this.#connection.output,
      begin: (columns) => this.#beginRows(portal, columns, isSimple),
      formats: portal.formats,
      isKept: rowsMax > 0,
      bytesMax: this.#connection.limits.answerBytesMax,
    })
  }

  /** Runs PREPARE or EXECUTE. */
  async #runPrepared(
    portal: Portal,
    { node, text }: ClientStatement,
    options: { rowsMax: number; isSimple: boolean },
  ): Promise<void> {
    const plan = planPrepared(node, text)
    if (plan.kind === 'prepare') {
      if (portal.isDescribing) this.#beginRows(portal, [], false)
      this.#prepare(plan, await this.#read(plan.text))
      this.#complete('PREPARE')
      return
    }
    const prepared = this.#executable(plan.name)
    portal.executed ??= {
      prepared,
      isDescribing: portal.isDescribing,
      values: await this.#valuesOf(portal, prepared, plan),
      formats: portal.formats,
    }
    portal.isDescribing = false
    if (prepared.statement === undefined) this.#write(EMPTY_QUERY)
    else await this.#run(portal.executed, prepared.statement, options)
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
    const [statement] = await this.#read(query)
    const parameters = await this.#textsOf(portal)
    if (statement?.kind === 'session') {
      return answerSession(statement, { ...this.#connection.facts, parameters }).rows[0] ?? []
    }
    if (statement?.kind !== 'query') throw unsupported('EXECUTE: a value is not supported')
    const found: (readonly (string | null)[])[] = []
    const run = this.#runOf(statement, portal.prepared.declaredIds, parameters)
    // A quick statement may be run again.
    const sink: RowSink = { ...NO_ROWS, row: (row) => void found.unshift(row) }
    await this.#cancellable(() => this.#block.run(run, sink))
    return found[0] ?? []
  }

  /** Runs a statement about cursors. Returns whether it is complete, or has rows for the client. */
  async #runCursor(
    portal: Portal,
    { node, text }: ClientStatement,
    options: { rowsMax: number; isSimple: boolean },
  ): Promise<boolean> {
    if (portal.stream !== undefined) return false
    const plan = planCursor(node, text)
    const done = (tag: string) => {
      if (portal.isDescribing) this.#beginRows(portal, [], false)
      this.#complete(tag)
      return true
    }
    if (plan.kind === 'declare') {
      const [statement] = await this.#read(plan.query)
      if (statement?.kind === 'catalogue') {
        const given = { declaredIds: portal.prepared.declaredIds, values: portal.values }
        const run = this.#catalogueRunOf(statement, given)
        await this.#cancellable(() => this.#block.declareCatalogue(run, plan))
        return done('DECLARE CURSOR')
      }
      if (statement?.kind !== 'query') {
        throw unsupported('a cursor can only have a query for tables of the branch')
      }
      if (statement.isWrite) {
        throw unsupported('DECLARE CURSOR must not contain data-modifying statements in WITH')
      }
      const run = this.#runOf(statement, portal.prepared.declaredIds, await this.#textsOf(portal))
      await this.#cancellable(() => this.#block.declare(run, plan))
      if (!this.#count()) {
        await this.#block.closeCursor(plan.name)
        throw new WireError('53200', 'the cursors of this API key take too much memory')
      }
      return done('DECLARE CURSOR')
    }
    if (plan.kind === 'close') {
      await this.#block.closeCursor(plan.name)
      this.#count()
      return done(plan.name === undefined ? 'CLOSE CURSOR ALL' : 'CLOSE CURSOR')
    }
    const { settings } = this.#connection.facts
    const fetch = {
      name: plan.name,
      movement: plan.movement,
      columns: this.#block.cursorColumns(plan.name),
      signal: this.#running.signal,
      timeoutMs: settings.statementTimeoutMs,
      timeZone: settings.timeZone,
    }
    if (!plan.isMove) {
      const stream = this.#streamOf(portal, options)
      await this.#cancellable(() => this.#block.fetch(fetch, stream))
      portal.stream = stream
      portal.verb = 'FETCH'
      return false
    }
    let count = 0
    const counting = { ...NO_ROWS, row: () => void count++ }
    await this.#cancellable(() => this.#block.fetch(fetch, counting))
    return done(`MOVE ${count}`)
  }

  /** Asks the client for the rows of a COPY. They are one transaction. */
  async #beginCopy(plan: CopyPlan, isSimple: boolean): Promise<void> {
    const { limits } = this.#connection
    this.#block.requireWritable('COPY FROM')
    const table = { ...(await this.#copyRun(plan.query, [])), copied: plan.copied }
    const { columns } = await this.#block.describe(table)
    const statement = plan.insert(columns.map(({ name }) => name))
    const inserting = await this.#copyRun(statement, new Array<null>(columns.length).fill(null))
    this.#block.beginImplicit()
    const load = new CopyLoad(plan.into)
    const insert = (parameters: readonly string[]) =>
      this.#cancellable(() =>
        this.#block.run({ ...inserting, parameters, load, signal: this.#running.signal }, load),
      )
    const rows = new CopyIn({
      reader: copyReader(plan, { columns, bytesMax: limits.transactionBytesMax }),
      columnCount: columns.length,
      insert,
    })
    this.#copying = { rows, rest: isSimple ? [] : undefined }
    this.#write(copyResponse('G', columns.length, plan))
    await this.#connection.output.send()
  }

  async #copyOut(plan: CopyPlan): Promise<void> {
    const { output, limits } = this.#connection
    const { stream, end } = copyStream(plan, { output, bytesMax: limits.answerBytesMax })
    const run = { ...(await this.#copyRun(plan.query, [])), copied: plan.copied }
    await this.#cancellable(() => this.#block.run(run, stream))
    for (const row of stream.take(0)) this.#write(row)
    for (const message of end()) this.#write(message)
    this.#complete(`COPY ${stream.count}`)
  }

  /** Returns a run of the statement that a COPY stands for. */
  async #copyRun(text: string, parameters: readonly null[]): Promise<StatementRun> {
    const [statement] = await this.#read(text)
    if (statement?.kind === 'query') return this.#runOf(statement, [], parameters)
    throw unsupported('COPY can only send the rows of a table or a query')
  }

  async #runCatalogue(
    portal: Portal,
    statement: ClientStatement,
    isSimple: boolean,
  ): Promise<void> {
    if (portal.stream !== undefined) return
    const { prepared, values, formats } = portal
    const run = this.#catalogueRunOf(statement, {
      declaredIds: prepared.declaredIds,
      values,
      formats,
    })
    const found = await this.#cancellable(() => this.#block.runCatalogue(run))
    this.#beginRows(portal, found.columns, isSimple)
    portal.stream = found
  }

  /** Runs a statement about transactions. */
  async #control(portal: Portal, statement: ClientStatement): Promise<void> {
    const { signal } = this.#running
    const { tag, warning } = await this.#block.control(statement, { signal })
    if (portal.isDescribing) this.#beginRows(portal, [], false)
    if (warning !== undefined) this.#write(errorMessage(warning, 'WARNING'))
    this.#complete(tag)
  }

  /** Tells the client which columns follow, if it has asked. What it was told before must still be true. */
  #beginRows(portal: Portal, columns: readonly ResultColumn[], isSimple: boolean): void {
    const { told } = portal.prepared
    if (portal.isDescribing || (isSimple && columns.length > 0)) {
      portal.isDescribing = false
      this.#describeRow(columns, portal.formats)
    } else if (told !== undefined && !isSame(told, columns)) {
      throw new WireError('0A000', 'cached plan must not change result type')
    }
  }

  /** Runs a statement that the client can cancel. */
  async #cancellable<Result>(work: () => Promise<Result>): Promise<Result> {
    const running = this.#running
    try {
      return await work()
    } catch (error) {
      if (!running.signal.aborted) throw error
      throw new WireError('57014', 'canceling statement due to user request')
    } finally {
      // A signal works once.
      if (running.signal.aborted) this.#running = new AbortController()
    }
  }

  async #answer(portal: Portal, statement: ClientStatement, isSimple: boolean): Promise<void> {
    const parameters = await this.#textsOf(portal)
    const answer = answerSession(statement, { ...this.#connection.facts, parameters })
    if (answer.transactionOptions !== undefined) this.#block.configure(answer.transactionOptions)
    if (answer.judgesLinks) await this.#block.judgeLinks()
    const { forgets, rows, columns } = answer
    if (answer.isAlone && this.#block.isOpen) {
      throw new WireError('25001', `${answer.tag} cannot run inside a transaction block`)
    }
    if (answer.isAlone) {
      await this.#block.closeCursor(undefined)
      await this.#connection.locks.unlockAll()
    }
    if (forgets === null) this.#prepared.clear()
    else if (forgets !== undefined) {
      this.#statement(forgets)
      this.#prepared.delete(forgets)
    }
    this.#notice(answer.notice)
    this.#answerRows(portal, { columns, rows, tag: answer.tag }, isSimple)
  }

  /** Takes or gives back advisory locks. A connection waits for them without holding anything of PostgreSQL. */
  async #lock(portal: Portal, statement: ClientStatement, isSimple: boolean): Promise<void> {
    const { locks, runner, facts, limits } = this.#connection
    if (!runner.canWrite) {
      throw new WireError('42501', 'a key that only reads cannot take advisory locks')
    }
    const parameters = await this.#textsOf(portal)
    const { calls, settings } = readLocks(statement.node) ?? { calls: [], settings: [] }
    const { columns } = describeLocks(calls, statement.parameterCount)
    const run = async () => {
      for (const node of settings) answerSession({ node }, { ...facts, parameters })
      const { databaseId } = await runner.place()
      return runLocks(calls, {
        owner: locks,
        databaseId,
        parameters,
        wait: { signal: this.#running.signal, ...lockWait(facts.settings, limits) },
        warn: (message) => this.#write(errorMessage(new WireError('01000', message), 'WARNING')),
      })
    }
    const row = await this.#cancellable(() => facts.settings.duringTransaction(run))
    this.#answerRows(portal, { columns, rows: [row], tag: 'SELECT 1' }, isSimple)
  }

  #answerRows(
    portal: Portal,
    { columns, rows, tag }: Pick<ReturnType<typeof answerSession>, 'columns' | 'rows' | 'tag'>,
    isSimple: boolean,
  ): void {
    this.#beginRows(portal, columns, isSimple)
    for (const row of rows) {
      this.#write(
        rowMessage(
          row.map((text, index) => {
            const format =
              (portal.formats.length === 1 ? portal.formats[0] : portal.formats[index]) ?? 0
            if (text === null) return null
            return format === 1 ? toBinary(Number(columns[index]?.typeId), text) : Buffer.from(text)
          }),
        ),
      )
    }
    this.#complete(tag)
  }

  #complete(tag: string): void {
    this.#write(tag === ONE_ROW ? ONE_ROW_COMPLETE : completeMessage(tag))
  }

  /** Returns the texts of the parameters of a portal. */
  async #textsOf(portal: Portal): Promise<(string | null)[]> {
    const isBinary = portal.values.some(({ bytes, format }) => bytes !== null && format === 1)
    const typeIds = isBinary ? (await this.#descriptionOf(portal.prepared)).typeIds : []
    return portal.values.map(({ bytes, format }, index) => {
      if (bytes === null) return null
      return format === 1 ? fromBinary(typeIds[index] ?? TEXT_ID, bytes) : textIn(bytes)
    })
  }
}

/** Bytes of the values and the rows of a portal. */
function bytesOf({ values, stream, executed }: Portal): number {
  const rows = (stream?.bytes ?? 0) + (executed === undefined ? 0 : bytesOf(executed))
  return values.reduce((sum, { bytes }) => sum + VALUE_BYTES + (bytes?.length ?? 0), rows)
}

const isSame = (left: readonly ResultColumn[], right: readonly ResultColumn[]): boolean =>
  left === right || JSON.stringify(left) === JSON.stringify(right)

/* Messages without content, or with one of few. */
const PARSE_COMPLETE = new MessageWriter('1').toBuffer()
const BIND_COMPLETE = new MessageWriter('2').toBuffer()
const CLOSE_COMPLETE = new MessageWriter('3').toBuffer()
const EMPTY_QUERY = new MessageWriter('I').toBuffer()
const PORTAL_SUSPENDED = new MessageWriter('s').toBuffer()
const completeMessage = (tag: string) => new MessageWriter('C').text(tag).toBuffer()
/** The most frequent end of a statement. */
const ONE_ROW = 'SELECT 1'
const ONE_ROW_COMPLETE = completeMessage(ONE_ROW)
const readyMessage = (status: string) => new MessageWriter('Z').letter(status).toBuffer()
const READY = { I: readyMessage('I'), T: readyMessage('T'), E: readyMessage('E') }

const [TEXT_ID, JSON_ID] = [25, 114]

const explainColumn = ({ isJson }: ExplainPlan): ResultColumn => ({
  name: 'QUERY PLAN',
  typeId: String(isJson ? JSON_ID : TEXT_ID),
})

const NO_TYPES: ParameterTypes = []

/** Returns the types of the parameters of a statement, and of its literals. */
const joinTypes = (
  { parameterCount }: ClientStatement,
  declared: ParameterTypes,
  literals: ParameterTypes,
): ParameterTypes => [
  ...Array.from({ length: parameterCount }, (_, index) => declared[index]),
  ...literals,
]

const NO_ROWS: RowSink = { begin() {}, describe() {}, row() {}, end() {} }

const stoppedCopy = (reason: string) => new WireError('57014', `COPY from stdin failed: ${reason}`)

/**
 * Returns whether the statements of a message are one transaction, because one of them writes. As in PostgreSQL, a BEGIN among
 * them goes on with it, and a COMMIT or ROLLBACK ends it.
 */
function isOneTransaction(statements: readonly ClientStatement[]): boolean {
  const isWrite = statements.some((each) => each.kind === 'query' && each.isWrite)
  const parts = statements.filter(({ kind }) => kind === 'query' || kind === 'transaction')
  return isWrite && parts.length > 1
}
