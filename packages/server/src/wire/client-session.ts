import type { Limits } from '@offshoot/contract/limits'
import type { ResultColumn } from '../data/sql/evaluate.js'
import type { RowSink } from '../data/sql/run-sql.js'
import { isSchemaNode } from '../data/sql/schema/parse-schema.js'
import type { BranchRunner, StatementRun } from './branch-runner.js'
import type { CatalogueRows, CatalogueRun } from './catalogue/catalogue.js'
import type { ClientBytes } from './client-bytes.js'
import type { ClientOutput } from './client-output.js'
import { type ClientStatement, joinSchemaStatements, parseStatements } from './client-statement.js'
import { CopyReader, type CopyRow, formatRow } from './copy-format.js'
import { CopyIn } from './copy-in.js'
import { type CopyPlan, planCopy } from './copy-statement.js'
import { type Frame, FrameContent, MessageWriter, ProtocolError, rowMessage } from './frames.js'
import { NamedItems } from './named-items.js'
import { RowStream } from './row-stream.js'
import { answerSession, type SessionAnswer, type SessionFacts } from './session-answers.js'
import { TransactionBlock } from './transaction-block.js'
import { declaredName, fromBinary, sizeOf, toBinary } from './values.js'
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
  told?: string
}

interface Portal {
  readonly prepared: Prepared
  /** The client waits for the columns. They are certain when the statement runs. */
  isDescribing: boolean
  readonly values: readonly { readonly bytes: Buffer | null; readonly format: number }[]
  readonly formats: readonly number[]
  /** What the portal has returned so far, if it was executed. */
  stream?: RowStream | CatalogueRows
  answer?: SessionAnswer
  sent: number
}

/** What a session needs of its connection. */
interface ClientConnection {
  readonly output: ClientOutput
  readonly bytes: ClientBytes
  readonly runner: BranchRunner
  readonly limits: Limits
  readonly facts: Omit<SessionFacts, 'parameters'>
  /** Notes a statement that has ended, for the log and for metrics. */
  note(event: { kind: string; code: string | undefined; durationMs: number }): void
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
  readonly #portals = new NamedItems<Portal>(({ values, stream }) =>
    values.reduce((sum, { bytes }) => sum + VALUE_BYTES + (bytes?.length ?? 0), stream?.bytes ?? 0),
  )
  /** Messages are skipped until the next Sync. */
  #isSkipping = false
  #running = new AbortController()
  readonly #block: TransactionBlock
  #copying: Copying | undefined

  constructor(connection: ClientConnection) {
    this.#connection = connection
    this.#block = new TransactionBlock(connection.runner, connection.limits)
  }

  /** Ends the session of a client that is gone. */
  close(): void {
    this.cancel()
    void this.#block.close()
  }

  /** Ends the statement that is running. */
  cancel(): void {
    this.#running.abort()
  }

  /** Handles a message. Returns false if the client has ended the connection. */
  async handle({ type, body }: Frame): Promise<boolean> {
    const content = new FrameContent(body)
    if (type === 'X') return false
    if (this.#copying !== undefined) {
      await this.#receiveCopy(this.#copying, type ?? '', content)
      return true
    }
    if (type === 'S') {
      await this.#sync()
      return true
    }
    if (this.#isSkipping) return true
    if (type === 'Q') {
      await this.#simple(content.text())
      return true
    }
    try {
      await this.#extended(type ?? '', content)
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      await this.#fail(error)
      this.#isSkipping = true
    }
    return true
  }

  /** Tells the client that the next statement can come. */
  start(): Promise<void> {
    return this.#ready()
  }

  async #ready(): Promise<void> {
    // Portals end with their transaction.
    if (!this.#block.isOpen) this.#portals.clear()
    this.#count()
    this.#write(new MessageWriter('Z').bytes(Buffer.from(this.#block.status)).toBuffer())
    await this.#connection.output.send()
  }

  #write(message: Buffer): void {
    this.#connection.output.write(message)
  }

  /** Counts the statements and portals that are kept. */
  #count(): boolean {
    const named = this.#prepared.bytes * PARSED_BYTES + this.#portals.bytes
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
    await this.#block.fail()
    const { shown, hidden } = toWireError(error)
    if (hidden !== undefined) this.#connection.hide(hidden)
    this.#write(errorMessage(shown, 'ERROR'))
  }

  #notice(message: string | undefined): void {
    if (message !== undefined) this.#write(errorMessage(new WireError('01000', message), 'NOTICE'))
  }

  async #simple(text: string): Promise<void> {
    try {
      const parsed = await parseStatements(text, this.#connection.limits)
      const statements = joinSchemaStatements(parsed, text)
      if (statements.length === 0) this.#write(new MessageWriter('I').toBuffer())
      await this.#runAll(statements)
    } catch (error) {
      if (error instanceof ProtocolError) throw error
      await this.#fail(error)
    }
    if (this.#copying === undefined) await this.#endMessage()
  }

  /** Runs the statements of a message, up to a COPY whose rows the client has to send. */
  async #runAll(statements: readonly ClientStatement[]): Promise<void> {
    for (const [index, statement] of statements.entries()) {
      this.#joinOthers(statements.slice(index))
      if (statement.parameterCount > 0) throw new WireError('42P02', 'there is no parameter $1')
      const prepared = { statement, declaredIds: [] }
      const portal = { prepared, isDescribing: false, values: [], formats: [], sent: 0 }
      await this.#execute(portal, 0, { isSimple: true })
      if (this.#copying === undefined) continue
      this.#copying.rest = statements.slice(index + 1)
      return
    }
  }

  async #endMessage(): Promise<void> {
    await this.#block.endImplicit().catch((error: unknown) => this.#fail(error))
    await this.#ready()
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
      await this.#fail(error)
      this.#isSkipping = rest === undefined
    }
    if (rest !== undefined && this.#copying === undefined) await this.#endMessage()
  }

  /** Statements of one message that write are one transaction, up to the next one about transactions. */
  #joinOthers(rest: readonly ClientStatement[]): void {
    const end = rest.findIndex(({ kind }) => kind === 'transaction')
    const queries = rest.slice(0, end === -1 ? undefined : end).filter(isQuery)
    // A change of the schema is a transaction of its own.
    if (queries.length < 2 || queries.some(({ node }) => isSchemaNode(node))) return
    if (queries.some(({ isWrite }) => isWrite)) this.#block.beginImplicit()
  }

  async #extended(type: string, content: FrameContent): Promise<void> {
    if (type !== 'E') await this.#describePortals()
    switch (type) {
      case 'P':
        return this.#parse(content)
      case 'B':
        return this.#bind(content)
      case 'D':
        return this.#describe(content)
      case 'E':
        return this.#executeNamed(content.text(), content.int32())
      case 'C':
        return this.#close(content)
      case 'H':
        await this.#connection.output.send()
        return
      case 'd':
      case 'c':
      case 'f':
        // A client may send the rest of a COPY that has failed.
        return
      case 'F':
        throw unsupported('calls of functions outside of statements are not supported')
      default:
        throw new ProtocolError('unknown kind of message')
    }
  }

  /** Executes a portal. Others for which the client waits come first, so that answers keep the order of messages. */
  async #executeNamed(name: string, rowsMax: number): Promise<void> {
    const portal = this.#portal(name)
    await this.#describePortals(portal)
    await this.#execute(portal, rowsMax)
    this.#keep(name, portal)
  }

  async #sync(): Promise<void> {
    if (!this.#isSkipping) {
      await this.#describePortals().catch((error: unknown) => this.#fail(error))
    }
    this.#isSkipping = false
    await this.#endMessage()
  }

  async #parse(content: FrameContent): Promise<void> {
    const [name, text] = [content.text(), content.text()]
    const declaredIds = content.list(() => content.int32())
    const [statement, ...others] = await parseStatements(text, this.#connection.limits)
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
    this.#write(new MessageWriter('1').toBuffer())
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
    this.#keep(portalName, {
      prepared,
      isDescribing: false,
      values,
      formats: resultFormats,
      sent: 0,
    })
    this.#write(new MessageWriter('2').toBuffer())
  }

  async #describe(content: FrameContent): Promise<void> {
    const [kind, name] = [content.letter(), content.text()]
    if (kind === 'P') {
      this.#portal(name).isDescribing = true
      return
    }
    const prepared = this.#statement(name)
    const { typeIds, columns } = await this.#descriptionOf(prepared)
    const writer = new MessageWriter('t').int16(typeIds.length)
    for (const typeId of typeIds) writer.int32(typeId)
    this.#write(writer.toBuffer())
    this.#describeRow(columns, [])
    prepared.told = JSON.stringify(columns)
  }

  /** Describes portals for which the client waits, although it does not execute them now. */
  async #describePortals(except?: Portal): Promise<void> {
    for (const portal of this.#portals.values()) {
      if (!portal.isDescribing || portal === except) continue
      portal.isDescribing = false
      const { columns } = await this.#descriptionOf(portal.prepared)
      this.#describeRow(columns, portal.formats)
    }
  }

  #describeRow(columns: readonly ResultColumn[], formats: readonly number[]): void {
    if (columns.length === 0) {
      this.#write(new MessageWriter('n').toBuffer())
      return
    }
    const writer = new MessageWriter('T').int16(columns.length)
    for (const [index, { name, typeId }] of columns.entries()) {
      const format = (formats.length === 1 ? formats[0] : formats[index]) ?? 0
      writer.text(name).int32(0).int16(0).int32(Number(typeId))
      writer
        .int16(sizeOf(Number(typeId)))
        .int32(-1)
        .int16(format)
    }
    this.#write(writer.toBuffer())
  }

  #close(content: FrameContent): void {
    const [kind, name] = [content.letter(), content.text()]
    if (kind === 'S') this.#prepared.delete(name)
    else this.#portals.delete(name)
    this.#count()
    this.#write(new MessageWriter('3').toBuffer())
  }

  #statement(name: string): Prepared {
    const prepared = this.#prepared.get(name)
    if (prepared !== undefined) return prepared
    throw new WireError('26000', `prepared statement "${name}" does not exist`)
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
    const given = new Array<null>(statement.parameterCount).fill(null)
    const typeIdOf = (index: number, found: string | undefined) =>
      declaredIds[index] || Number(found ?? TEXT_ID)
    if (statement.kind === 'session') {
      const facts = { ...this.#connection.facts, parameters: given }
      const { columns } = answerSession(statement, facts, { isDescribed: true })
      return { typeIds: given.map((_, index) => typeIdOf(index, undefined)), columns }
    }
    const { runner } = this.#connection
    const { parameterTypeIds, columns } =
      statement.kind === 'catalogue'
        ? await runner.describeCatalogue(this.#catalogueRunOf(statement, { declaredIds }))
        : await runner.describe(this.#runOf(statement, declaredIds, given))
    return { typeIds: given.map((_, index) => typeIdOf(index, parameterTypeIds[index])), columns }
  }

  #runOf(
    statement: StatementRun['statement'],
    declaredIds: readonly number[],
    parameters: readonly (string | null)[],
  ): StatementRun {
    const { settings } = this.#connection.facts
    return {
      statement,
      declared: declaredIds.map(declaredName),
      parameters,
      signal: this.#running.signal,
      timeoutMs: settings.statementTimeoutMs,
      allowDataLoss: settings.allowsDataLoss,
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
      this.#write(new MessageWriter('I').toBuffer())
      return
    }
    const startedAt = performance.now()
    const note = (code: string | undefined) =>
      this.#connection.note({
        kind: statement.kind,
        code,
        durationMs: performance.now() - startedAt,
      })
    try {
      await this.#run(portal, statement, { rowsMax, isSimple })
      note(undefined)
      const { output } = this.#connection
      if (output.isFull) await output.send()
    } catch (error) {
      note(toWireError(error).shown.code)
      throw error
    }
  }

  async #run(
    portal: Portal,
    statement: ClientStatement,
    { rowsMax, isSimple }: { rowsMax: number; isSimple: boolean },
  ): Promise<void> {
    if (statement.kind === 'transaction') {
      await this.#control(portal, statement)
      return
    }
    this.#block.requireUsable()
    if (statement.kind === 'session') {
      await this.#answer(portal, statement, isSimple)
      return
    }
    if (statement.kind === 'copy') {
      if (portal.isDescribing) this.#beginRows(portal, [], false)
      const plan = planCopy(statement.node, statement.text)
      await (plan.isFrom ? this.#beginCopy(plan, isSimple) : this.#copyOut(plan))
      return
    }
    if (statement.kind === 'catalogue') {
      await this.#runCatalogue(portal, statement, isSimple)
    } else if (portal.stream === undefined) {
      const stream = new RowStream({
        output: this.#connection.output,
        begin: (columns) => this.#beginRows(portal, columns, isSimple),
        formats: portal.formats,
        isKept: rowsMax > 0,
        bytesMax: this.#connection.limits.answerBytesMax,
      })
      const parameters = await this.#textsOf(portal)
      const run = this.#runOf(statement, portal.prepared.declaredIds, parameters)
      await this.#cancellable(() => this.#block.run(run, stream))
      portal.stream = stream
    }
    if (portal.stream === undefined) throw new Error('a portal must have rows')
    const { rows, hasMore } = portal.stream.take(rowsMax)
    portal.sent += rows.length
    for (const row of rows) this.#write(row)
    if (hasMore) this.#write(new MessageWriter('s').toBuffer())
    else this.#complete(portal.stream.tag(rowsMax > 0 ? portal.sent : undefined))
  }

  /** Asks the client for the rows of a COPY. They are one transaction. */
  async #beginCopy(plan: CopyPlan, isSimple: boolean): Promise<void> {
    const { runner, limits } = this.#connection
    const table = await this.#copyRun(plan.query, [])
    const { columns } = await runner.describe(table)
    const inserting = await this.#copyRun(plan.insert(columns.map(({ name }) => name)), [null])
    this.#block.beginImplicit()
    const insert = (parameters: readonly string[]) =>
      this.#cancellable(() =>
        this.#block.run({ ...inserting, parameters, signal: this.#running.signal }, NO_ROWS),
      )
    const rows = new CopyIn({
      reader: new CopyReader(plan.format, limits.transactionBytesMax),
      columnCount: columns.length,
      insert: (json) => insert([json]),
    })
    this.#copying = { rows, rest: isSimple ? [] : undefined }
    this.#write(copyResponse('G', columns.length))
    await this.#connection.output.send()
  }

  async #copyOut({ query, format }: CopyPlan): Promise<void> {
    const { output, limits } = this.#connection
    const toMessage = (row: CopyRow) =>
      new MessageWriter('d').bytes(Buffer.from(formatRow(row, format))).toBuffer()
    const stream = new RowStream({
      output,
      begin: (columns) => {
        this.#write(copyResponse('H', columns.length))
        if (format.hasHeader) this.#write(toMessage(columns.map(({ name }) => name)))
      },
      formats: [],
      isKept: false,
      bytesMax: limits.answerBytesMax,
      toMessage,
    })
    const run = await this.#copyRun(query, [])
    await this.#cancellable(() => this.#block.run(run, stream))
    for (const row of stream.take(0).rows) this.#write(row)
    this.#write(new MessageWriter('c').toBuffer())
    this.#complete(`COPY ${stream.count}`)
  }

  /** Returns a run of the statement that a COPY stands for. */
  async #copyRun(text: string, parameters: readonly null[]): Promise<StatementRun> {
    const [statement] = await parseStatements(text, this.#connection.limits)
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
    const found = await this.#cancellable(() => this.#connection.runner.runCatalogue(run))
    this.#beginRows(portal, found.columns, isSimple)
    portal.stream = found
  }

  /** Runs a statement about transactions. */
  async #control(portal: Portal, statement: ClientStatement): Promise<void> {
    const { settings } = this.#connection.facts
    const { tag, warning } = await this.#block.control(statement, {
      isReadOnly: settings.get('default_transaction_read_only') === 'on',
      signal: this.#running.signal,
    })
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
    } else if (told !== undefined && told !== JSON.stringify(columns)) {
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
    const { forgets, rows, columns } = answer
    if (forgets === null) this.#prepared.clear()
    else if (forgets !== undefined) this.#prepared.delete(forgets)
    this.#notice(answer.notice)
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
    this.#complete(answer.tag)
  }

  #complete(tag: string): void {
    this.#write(new MessageWriter('C').text(tag).toBuffer())
  }

  /** Returns the texts of the parameters of a portal. */
  async #textsOf(portal: Portal): Promise<(string | null)[]> {
    const isBinary = portal.values.some(({ bytes, format }) => bytes !== null && format === 1)
    const typeIds = isBinary ? (await this.#descriptionOf(portal.prepared)).typeIds : []
    return portal.values.map(({ bytes, format }, index) => {
      if (bytes === null) return null
      return format === 1 ? fromBinary(typeIds[index] ?? TEXT_ID, bytes) : bytes.toString()
    })
  }
}

const TEXT_ID = 25

const NO_ROWS: RowSink = { begin() {}, describe() {}, row() {}, end() {} }

const stoppedCopy = (reason: string) => new WireError('57014', `COPY from stdin failed: ${reason}`)

/** Tells the client that rows follow, or that it can send them. All values are texts. */
function copyResponse(type: 'G' | 'H', columnCount: number): Buffer {
  const writer = new MessageWriter(type).bytes(Buffer.from([0])).int16(columnCount)
  for (let column = 0; column < columnCount; column++) writer.int16(0)
  return writer.toBuffer()
}

const isQuery = (statement: ClientStatement) => statement.kind === 'query'
