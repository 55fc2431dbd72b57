import { MessageWriter } from '../postgres/message-writer.js'
import { type ClientStatement, joinSchemaStatements } from './client-statement.js'
import type { CopyIn } from './copy-in.js'
import { type Frame, FrameContent, ProtocolError } from './frames.js'
import { type Portal, requireSameColumns, toldColumns } from './portal.js'
import { PortalAnswers } from './portal-answers.js'
import { PortalExecution } from './portal-execution.js'
import { formatOf } from './row-description.js'
import { type ClientConnection, SessionContext } from './session-context.js'
import { StatementDescriptions } from './statement-descriptions.js'
import { errorMessage, toWireError, unsupported, WireError } from './wire-error.js'

/* The messages of a client after its start: simple queries, and statements that are prepared, bound and executed. */

/** A COPY whose rows the client is sending. */
interface Copying {
  readonly rows: CopyIn
  /** The statements behind it in the same message; undefined if it was prepared. */
  rest: readonly ClientStatement[] | undefined
}

/** The session of a client. */
export class ClientSession {
  readonly #context: SessionContext
  readonly #answers: PortalAnswers
  readonly #descriptions: StatementDescriptions
  readonly #execution: PortalExecution
  /** Messages are skipped until the next Sync. */
  #isSkipping = false
  #copying: Copying | undefined
  /** The settings that the client knows. */
  #reported: readonly (readonly [string, string])[]
  /** The portal for whose columns the client waits. */
  #described: Portal | undefined

  constructor(connection: ClientConnection) {
    const context = new SessionContext(connection, {
      copyBytes: () => this.#copying?.rows.bytes ?? 0,
    })
    const answers = new PortalAnswers(connection)
    const descriptions = new StatementDescriptions(context)
    this.#context = context
    this.#answers = answers
    this.#descriptions = descriptions
    this.#execution = new PortalExecution(context, { answers, descriptions })
    this.#reported = connection.facts.settings.reported
  }

  /** Ends the session of a client that is gone. */
  close(): void {
    this.cancel()
    const { block, connection } = this.#context
    void block.close().finally(() => connection.locks.close())
  }

  /** Ends the statement that is running. */
  cancel(): void {
    this.#context.cancel()
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
    await this.#context.connection.output.send()
  }

  /** Tells the client that the next statement can come. */
  start(): Promise<void> | undefined {
    return this.#ready()
  }

  #ready(): Promise<void> | undefined {
    const { block, connection, cursors, items } = this.#context
    // Portals end with their transaction.
    if (!block.isOpen) {
      items.clearPortals()
      cursors.clear()
      const released = connection.locks.endTransaction()
      if (released !== undefined) return released.then(() => this.#ready())
    }
    this.#context.forgetCancel()
    items.count()
    this.#reportSettings()
    this.#answers.write(READY[block.status])
    return connection.output.send()
  }

  /** Tells the client about settings that have changed. */
  #reportSettings(): void {
    const { reported } = this.#context.connection.facts.settings
    if (reported === this.#reported) return
    const known = new Map(this.#reported)
    for (const [name, value] of reported) {
      if (known.get(name) === value) continue
      this.#answers.write(new MessageWriter('S').text(name).text(value).toBuffer())
    }
    this.#reported = reported
  }

  async #fail(error: unknown): Promise<void> {
    // The client is told the error instead of the columns for which it waits.
    if (this.#described !== undefined) this.#described.isDescribing = false
    this.#described = undefined
    await this.#context.block.fail()
    const { shown, hidden } = toWireError(error)
    if (hidden !== undefined) this.#context.connection.hide(hidden)
    this.#answers.write(errorMessage(shown, 'ERROR'))
  }

  async #simple(content: FrameContent): Promise<void> {
    try {
      const statements = joinSchemaStatements(await this.#context.readMessage(content.text()))
      if (statements.length === 0) this.#answers.completeEmpty()
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
      if (areJoined && statement.kind !== 'transaction') this.#context.block.beginImplicit()
      if (statement.parameterCount > 0) throw new WireError('42P02', 'there is no parameter $1')
      const prepared = { statement, declaredIds: [] }
      const portal = { prepared, isDescribing: false, values: [], formats: [] }
      const rows = await this.#execution.execute(portal, { rowsMax: 0, isSimple: true })
      if (rows === undefined) continue
      this.#copying = { rows, rest: statements.slice(index + 1) }
      return
    }
  }

  #endMessage(): Promise<void> | undefined {
    const { block } = this.#context
    if (!block.isImplicit) return this.#ready()
    const ended = block.endImplicit().catch((error: unknown) => this.#fail(error))
    return ended.then(() => this.#ready())
  }

  /** Handles a message of a client that sends rows. */
  async #receiveCopy(copying: Copying, type: string, content: FrameContent): Promise<void> {
    const { rows, rest } = copying
    if (type === 'H' || type === 'S') return
    try {
      if (type === 'd') {
        await rows.push(content.rest())
        if (this.#context.items.count()) return
        throw new WireError('53200', 'the rows of this API key take too much memory')
      }
      if (type !== 'c') throw stoppedCopy(type === 'f' ? content.text() : 'unexpected message')
      const count = await rows.finish()
      if (rest === undefined) await this.#context.block.endImplicit()
      this.#copying = undefined
      this.#answers.complete(`COPY ${count}`)
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
        return this.#context.connection.output.send()
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
    const { items } = this.#context
    const portal = items.portal(name)
    const rowsMax = Math.max(0, rowsAsked)
    // One that goes on does not describe its columns again by itself.
    const isNew = portal.stream === undefined && portal.cursor === undefined
    const describesItself = portal === this.#described && isNew
    if (!describesItself) await this.#describePortal()
    this.#described = undefined
    const isReadInParts = rowsMax > 0 || portal.stream !== undefined
    const rows = await this.#execution.execute(portal, { rowsMax, isSimple: false })
    if (rows !== undefined) this.#copying = { rows, rest: undefined }
    // The rows that it has not returned yet take memory.
    if (isReadInParts) items.keep(name, portal)
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
      this.#context.items.prepare({ name, text, declaredIds }, statements)
      this.#answers.write(PARSE_COMPLETE)
    }
    const statements = this.#context.readMessage(text)
    if (name !== '') return this.#judge(statements, declaredIds).then(keep)
    if (statements instanceof Promise) return statements.then(keep)
    keep(statements)
    return undefined
  }

  /** Returns statements that get a name. One that cannot run must not keep it. */
  async #judge(
    given: readonly ClientStatement[] | Promise<readonly ClientStatement[]>,
    declaredIds: readonly number[],
  ): Promise<readonly ClientStatement[]> {
    const statements = await given
    await this.#descriptions.judge(statements, declaredIds)
    return statements
  }

  #bind(content: FrameContent): void {
    const { items } = this.#context
    const [portalName, statementName] = [content.text(), content.text()]
    const prepared = items.statement(statementName)
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
    const values = given.map((bytes, index) => ({
      // The buffer of the message is used again.
      bytes: bytes === null ? null : Buffer.from(bytes),
      format: formatOf(formats, index),
    }))
    items.bind(portalName, { prepared, isDescribing: false, values, formats: resultFormats })
    this.#answers.write(BIND_COMPLETE)
  }

  #describe(content: FrameContent): Promise<void> | undefined {
    const { block, items } = this.#context
    const [kind, name] = [content.letter(), content.text()]
    if (kind !== 'P') return this.#describeStatement(name)
    // A cursor is a portal, too.
    const found = items.findPortal(name) ?? block.findCursor(name)
    if (Array.isArray(found)) this.#answers.describe(found, [])
    else {
      this.#described = items.portal(name)
      this.#described.isDescribing = true
    }
    return undefined
  }

  async #describeStatement(name: string): Promise<void> {
    const prepared = this.#context.items.statement(name)
    const { typeIds, columns, executed } = await this.#descriptions.describe(prepared)
    const writer = new MessageWriter('t').int16(typeIds.length)
    for (const typeId of typeIds) writer.int32(typeId)
    this.#answers.write(writer.toBuffer())
    this.#answers.describe(toldColumns(executed ?? prepared, columns), [])
    prepared.columns = columns
  }

  /** Describes the portal for which the client waits, although it does not execute it now. */
  #describePortal(): Promise<void> | undefined {
    const portal = this.#described
    this.#described = undefined
    if (!portal?.isDescribing) return undefined
    portal.isDescribing = false
    const { prepared, formats } = portal
    return this.#descriptions.describe(prepared).then(({ columns, executed = prepared }) => {
      requireSameColumns(executed, columns)
      this.#answers.describe(toldColumns(executed, columns), formats)
    })
  }

  #close(content: FrameContent): void {
    const { items } = this.#context
    const [kind, name] = [content.letter(), content.text()]
    if (kind === 'S') items.forget(name)
    else items.drop(name)
    items.count()
    this.#answers.write(CLOSE_COMPLETE)
  }
}

/* Messages without content, or with one of few. */
const PARSE_COMPLETE = new MessageWriter('1').toBuffer()
const BIND_COMPLETE = new MessageWriter('2').toBuffer()
const CLOSE_COMPLETE = new MessageWriter('3').toBuffer()
const readyMessage = (status: string) => new MessageWriter('Z').letter(status).toBuffer()
const READY = { I: readyMessage('I'), T: readyMessage('T'), E: readyMessage('E') }

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
