import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { Permits } from '../../common/permits.js'
import type { Session } from '../../data/session/session.js'
import type { ResultColumn } from '../../data/sql/evaluate.js'
import { sequencesOf } from '../../data/sql/sequence-names.js'
import { cutName } from '../../dialect/scope.js'
import type { Database } from '../../postgres/database.js'
import { MessageWriter } from '../../postgres/message-writer.js'
import { ident, join, literal, raw, sql } from '../../postgres/sql.js'
import { prepareForUsers } from '../../postgres/user-settings.js'
import { type Shape, ShapeDatabases } from '../../shapes/shape-databases.js'
import { SESSION_SETTING } from '../../shapes/shown-catalogue.js'
import { type Frame, FrameContent } from '../frames.js'
import type { SessionSettings } from '../session-settings.js'
import { WireError } from '../wire-error.js'
import { type RewrittenText, rewriteCatalogue } from './rewrite-catalogue.js'
import { LostShapeError, ShapeConnection } from './shape-connection.js'

/*
 * Statements on the catalogue run in the shape of a branch: in a transaction that only reads, as a role without privileges
 * elsewhere, for a short time.
 */

/** Milliseconds of a statement on the catalogue. */
const CATALOGUE_MS_MAX = 5_000
/** Connections to shapes, in all and for a workspace, and how long a statement waits for one. */
const CONNECTIONS_MAX = 4
const CONNECTIONS_PER_WORKSPACE_MAX = 2
const WAIT_MS = 20_000
/** A connection that is not used for this time is closed. */
const IDLE_MS = 10_000

/** Settings that clients ask for, beside those of a session. They are the same on each server. */
const CONSTANT_SETTINGS: Readonly<Record<string, string>> = {
  block_size: '8192',
  default_table_access_method: 'heap',
  default_tablespace: '',
  max_function_args: '100',
  max_index_keys: '32',
}

export interface CatalogueRun {
  readonly text: string
  /** The types that the client declares. */
  readonly declaredIds: readonly number[]
  readonly values: readonly { readonly bytes: Buffer | null; readonly format: number }[]
  readonly formats: readonly number[]
  /** What the catalogue tells about the caller. */
  readonly facts: {
    readonly settings: SessionSettings
    readonly user: string
    readonly database: string
    readonly processId: number
    readonly version: string
  }
  readonly signal: AbortSignal
}

interface CatalogueDescription {
  readonly parameterTypeIds: readonly string[]
  readonly columns: readonly ResultColumn[]
}

/** The rows of a statement, as messages. */
export class CatalogueRows {
  #rows: Buffer[]
  readonly #count: number

  /** The rows that were not taken. */
  get bytes(): number {
    return this.#rows.reduce((sum, { length }) => sum + length, 0)
  }

  constructor(
    readonly columns: readonly ResultColumn[],
    rows: Buffer[],
  ) {
    this.#rows = rows
    this.#count = rows.length
  }

  /** Takes rows, up to a number. 0: all. */
  take(rowsMax: number): readonly Buffer[] {
    const rows = rowsMax === 0 ? this.#rows : this.#rows.slice(0, rowsMax)
    this.#rows = this.#rows.slice(rows.length)
    return rows
  }

  tags(count = this.#count): readonly string[] {
    return [`SELECT ${count}`]
  }
}

interface IdleConnection {
  readonly connection: ShapeConnection
  readonly timer: NodeJS.Timeout
}

/** The catalogues of branches, for all connections of clients. */
export class Catalogue {
  readonly #shapes: ShapeDatabases
  readonly #limits: Limits
  readonly #idle = new Map<string, IdleConnection[]>()
  readonly #permits = new Permits(
    {
      permitsMax: CONNECTIONS_MAX,
      permitsPerOwnerMax: CONNECTIONS_PER_WORKSPACE_MAX,
      waitMs: WAIT_MS,
    },
    () => new AppError('overloaded', 'too many statements on the catalogue; try again later'),
  )
  #isClosed = false

  constructor(database: Database, limits: Limits) {
    this.#shapes = new ShapeDatabases(database)
    this.#limits = limits
  }

  /** Returns the types of the parameters of a statement, and the columns of its result. */
  async describe(session: Session, run: CatalogueRun): Promise<CatalogueDescription> {
    const { answer } = await this.#send(session, run, (text) => [
      parseMessage(text, run.declaredIds),
      new MessageWriter('D').bytes(Buffer.from('S')).text('').toBuffer(),
    ])
    const types = new FrameContent(answer.find(({ type }) => type === 't')?.body ?? NO_ITEMS)
    return {
      parameterTypeIds: types.list(() => String(types.int32())),
      columns: columnsIn(answer),
    }
  }

  async run(session: Session, run: CatalogueRun): Promise<CatalogueRows> {
    const { answer } = await this.#send(session, run, (text) => [
      parseMessage(text, run.declaredIds),
      bindMessage(run),
      new MessageWriter('D').bytes(Buffer.from('P')).text('').toBuffer(),
      new MessageWriter('E').text('').int32(0).toBuffer(),
    ])
    const rows = answer.filter(({ type }) => type === 'D').map(({ body }) => whole('D', body))
    return new CatalogueRows(columnsIn(answer), rows)
  }

  close(): void {
    this.#isClosed = true
    for (const idle of this.#idle.values()) for (const each of idle) endIdle(each)
    this.#idle.clear()
  }

  /** Sends messages in a transaction, and once more if the connection was lost. */
  async #send(
    session: Session,
    run: CatalogueRun,
    toMessages: (text: string) => Buffer[],
  ): Promise<{ answer: readonly Frame[] }> {
    this.#requireLength(run)
    const { workspaceId } = session.access
    await this.#permits.enter(workspaceId, run.signal)
    try {
      const attempt = async () => {
        const shape = await this.#shapes.find(session)
        const rewritten = await rewriteCatalogue(run.text, shape.shownSchema)
        const sequences = ASKS_NUMBERS.test(run.text) ? await lastNumbers(session) : {}
        const messages = [
          beginMessage(shape, run, sequences),
          ...toMessages(rewritten.text),
          SYNC,
          END,
        ]
        return this.#exchange(session, { shape, rewritten, messages, signal: run.signal })
      }
      const answer = await attempt().catch((error: unknown) => {
        if (!(error instanceof LostShapeError) || run.signal.aborted) throw error
        return attempt()
      })
      return { answer }
    } finally {
      this.#permits.leave(workspaceId)
    }
  }

  #requireLength({ text, values }: CatalogueRun): void {
    const { sqlLengthMax } = this.#limits
    const bytes = values.reduce((sum, value) => sum + (value.bytes?.length ?? 0), text.length)
    if (bytes > sqlLengthMax) {
      throw new WireError(
        '54000',
        `a statement on the catalogue can have at most ${sqlLengthMax} characters, with its parameters`,
      )
    }
  }

  async #exchange(
    session: Session,
    {
      shape,
      rewritten,
      messages,
      signal,
    }: { shape: Shape; rewritten: RewrittenText; messages: Buffer[]; signal: AbortSignal },
  ): Promise<Frame[]> {
    const connection = await this.#take(session, shape)
    const cancel = () => connection.end()
    signal.addEventListener('abort', cancel, { once: true })
    try {
      if (signal.aborted) cancel()
      const { answerBytesMax } = this.#limits
      const [begun = [], answer = []] = await connection.exchange(messages, {
        rounds: 3,
        bytesMax: answerBytesMax,
      })
      this.#keep(shape, connection)
      const failure = errorIn(begun)
      if (failure !== undefined) throw new Error(`a shape refused its settings: ${failure.message}`)
      const error = errorIn(answer, rewritten)
      if (error !== undefined) throw error
      return answer
    } catch (error) {
      if (!(error instanceof WireError)) connection.end()
      throw error
    } finally {
      signal.removeEventListener('abort', cancel)
    }
  }

  async #take(session: Session, { name }: Shape): Promise<ShapeConnection> {
    for (let idle = this.#idle.get(name)?.pop(); idle; idle = this.#idle.get(name)?.pop()) {
      clearTimeout(idle.timer)
      if (!idle.connection.isLost) return idle.connection
    }
    const client = await this.#shapes.open(session)
    await prepareForUsers(client, { lane: 'long', statementTimeoutMs: CATALOGUE_MS_MAX })
    return new ShapeConnection(client, { bytesMax: this.#limits.answerBytesMax })
  }

  /** Keeps a connection for the next statement. */
  #keep({ name }: Shape, connection: ShapeConnection): void {
    if (connection.isLost || this.#isClosed) {
      connection.end()
      return
    }
    const idle: IdleConnection = {
      connection,
      timer: setTimeout(() => {
        const rest = (this.#idle.get(name) ?? []).filter((each) => each !== idle)
        if (rest.length === 0) this.#idle.delete(name)
        else this.#idle.set(name, rest)
        endIdle(idle)
      }, IDLE_MS).unref(),
    }
    this.#idle.set(name, [...(this.#idle.get(name) ?? []), idle])
    const all = [...this.#idle].flatMap(([each, idles]) => idles.map((found) => ({ each, found })))
    // A shape that is not used now makes room.
    const [oldest] = all.filter(({ each }) => each !== name)
    if (all.length <= CONNECTIONS_MAX || oldest === undefined) return
    this.#idle.set(
      oldest.each,
      (this.#idle.get(oldest.each) ?? []).filter((each) => each !== oldest.found),
    )
    endIdle(oldest.found)
  }
}

function endIdle({ connection, timer }: IdleConnection): void {
  clearTimeout(timer)
  connection.end()
}

const NO_ITEMS = Buffer.alloc(2)
const SYNC = new MessageWriter('S').toBuffer()
const END = new MessageWriter('Q').text('rollback').toBuffer()

/** A statement that shows the numbers of sequences. */
const ASKS_NUMBERS = /sequence/i

/** Returns the last numbers of the sequences that have given some, by their names. */
async function lastNumbers({ schema, branch }: Session): Promise<Record<string, string>> {
  const sequences = [...sequencesOf(schema)]
  const found = await branch.lastNumbers(sequences.map(({ itemId }) => itemId))
  return Object.fromEntries(
    sequences.flatMap(({ name, itemId }) => {
      const last = found.get(itemId)
      return last === undefined ? [] : [[cutName(name), last]]
    }),
  )
}

/** Begins a transaction that only reads, for a short time, as a role without privileges. */
function beginMessage(
  { role }: Shape,
  { facts }: CatalogueRun,
  sequences: Readonly<Record<string, string>>,
): Buffer {
  const { settings, user, database, version, processId } = facts
  const wanted = settings.statementTimeoutMs
  const timeoutMs = wanted === 0 ? CATALOGUE_MS_MAX : Math.min(wanted, CATALOGUE_MS_MAX)
  const session = JSON.stringify({
    user,
    database,
    version,
    processId,
    startedAt: new Date(performance.timeOrigin).toISOString(),
    sequences,
    settings: { ...CONSTANT_SETTINGS, ...Object.fromEntries(settings.all) },
  })
  const path = schemasIn(settings.get('search_path')).map(ident)
  const statements = [
    sql`begin transaction read only`,
    sql`set local statement_timeout = ${raw(String(timeoutMs))}`,
    sql`set local search_path = ${path.length === 0 ? literal('') : join(path, ', ')}`,
    sql`set local ${raw(SESSION_SETTING)} = ${literal(session)}`,
    sql`set local role ${ident(role)}`,
  ]
  return new MessageWriter('Q').text(join(statements, ';\n').sql).toBuffer()
}

/** Lists the schemas of a search path, as clients write it. */
function schemasIn(path: string): string[] {
  return path
    .split(',')
    .map((each) => each.trim().replace(/^"(.*)"$/, '$1'))
    .filter((each) => each !== '' && Buffer.byteLength(each) <= 63)
}

function parseMessage(text: string, declaredIds: readonly number[]): Buffer {
  const writer = new MessageWriter('P').text('').text(text).int16(declaredIds.length)
  for (const typeId of declaredIds) writer.int32(typeId)
  return writer.toBuffer()
}

function bindMessage({ values, formats }: CatalogueRun): Buffer {
  const writer = new MessageWriter('B').text('').text('').int16(values.length)
  for (const { format } of values) writer.int16(format)
  writer.int16(values.length)
  for (const { bytes } of values) {
    writer.int32(bytes === null ? -1 : bytes.length)
    if (bytes !== null) writer.bytes(bytes)
  }
  writer.int16(formats.length)
  for (const format of formats) writer.int16(format)
  return writer.toBuffer()
}

/** Returns a message with its letter and length. */
function whole(type: string, body: Buffer): Buffer {
  return new MessageWriter(type).bytes(body).toBuffer()
}

function columnsIn(answer: readonly Frame[]): ResultColumn[] {
  const found = answer.find(({ type }) => type === 'T')
  if (found === undefined) return []
  const content = new FrameContent(found.body)
  return content.list(() => {
    const name = content.text()
    content.int32()
    content.int16()
    const typeId = String(content.int32() >>> 0)
    content.int16()
    content.int32()
    content.int16()
    return { name, typeId }
  })
}

/** States of errors that tell about the server and not about the statement. */
const INTERNAL = /^(?:XX|58|F0)/

function errorIn(answer: readonly Frame[], rewritten?: RewrittenText): WireError | undefined {
  const found = answer.find(({ type }) => type === 'E')
  if (found === undefined) return undefined
  const content = new FrameContent(found.body)
  const fields = new Map<string, string>()
  for (let letter = content.letter(); letter !== '\0'; letter = content.letter()) {
    fields.set(letter, content.text())
  }
  const code = fields.get('C') ?? 'XX000'
  if (INTERNAL.test(code)) return new WireError('XX000', 'internal error')
  const position = fields.get('P')
  return new WireError(code, fields.get('M') ?? '', {
    hint: fields.get('H'),
    position:
      position === undefined
        ? undefined
        : (rewritten?.originalPosition(Number(position)) ?? undefined),
  })
}
