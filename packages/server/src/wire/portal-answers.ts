import type { ResultColumn } from '../data/sql/evaluate.js'
import { MessageWriter } from '../postgres/message-writer.js'
import { rowMessage } from './frames.js'
import { type Execution, type Portal, requireSameColumns, toldColumns } from './portal.js'
import { formatOf, rowDescription } from './row-description.js'
import { RowStream } from './row-stream.js'
import type { ClientConnection } from './session-context.js'
import { toBinary } from './values.js'
import { errorMessage, WireError } from './wire-error.js'

/** The result of a statement that is not read from PostgreSQL. */
interface Answer {
  readonly columns: readonly ResultColumn[]
  readonly rows: readonly (readonly (string | null)[])[]
  readonly tag: string
}

/** Writes what clients are told about the portals that they execute: columns, rows and how it ended. */
export class PortalAnswers {
  readonly #connection: Pick<ClientConnection, 'output' | 'limits' | 'facts'>

  constructor(connection: Pick<ClientConnection, 'output' | 'limits' | 'facts'>) {
    this.#connection = connection
  }

  write(message: Buffer): void {
    this.#connection.output.write(message)
  }

  notice(message: string | undefined): void {
    const { settings } = this.#connection.facts
    if (message === undefined || !settings.wantsNotices) return
    this.write(errorMessage(new WireError('00000', message), 'NOTICE'))
  }

  warn(warning: WireError): void {
    this.write(errorMessage(warning, 'WARNING'))
  }

  /** Describes columns. undefined: there are no rows. */
  describe(columns: readonly ResultColumn[] | undefined, formats: readonly number[]): void {
    this.write(rowDescription(columns, formats))
  }

  /** Tells the client which columns follow, if it has asked. They must be those that the statement had before. */
  begin(portal: Portal, columns: readonly ResultColumn[], isSimple: boolean): void {
    const { prepared } = portal
    requireSameColumns(prepared, columns)
    prepared.columns ??= columns
    const shown = toldColumns(prepared, columns)
    if (portal.isDescribing || (isSimple && shown !== undefined)) {
      portal.isDescribing = false
      this.describe(shown, portal.formats)
    }
  }

  /** Answers a statement without rows. */
  done(portal: Portal, tag: string): void {
    if (portal.isDescribing) this.begin(portal, [], false)
    this.complete(tag)
  }

  /** Answers a statement whose rows are known. */
  rows(portal: Portal, { columns, rows, tag }: Answer, isSimple: boolean): void {
    this.begin(portal, columns, isSimple)
    for (const row of rows) {
      const values = row.map((text, index) => {
        if (text === null) return null
        const isBinary = formatOf(portal.formats, index) === 1
        return isBinary ? toBinary(Number(columns[index]?.typeId), text) : Buffer.from(text)
      })
      this.write(rowMessage(values))
    }
    this.complete(tag)
  }

  /** Returns what receives the rows of a portal. */
  streamOf(portal: Portal, { rowsMax, isSimple }: Execution): RowStream {
    return new RowStream({
      output: this.#connection.output,
      judge: (columns) => requireSameColumns(portal.prepared, columns),
      begin: (columns) => this.begin(portal, columns, isSimple),
      formats: portal.formats,
      isKept: rowsMax > 0,
      bytesMax: this.#connection.limits.answerBytesMax,
    })
  }

  /** As in PostgreSQL, a portal does not know that it has no more rows before it is asked for them. */
  suspend(): void {
    this.write(PORTAL_SUSPENDED)
  }

  complete(tag: string): void {
    this.write(tag === ONE_ROW ? ONE_ROW_COMPLETE : completeMessage(tag))
  }

  /** Answers a text without statements. `portal` is that of the extended protocol. */
  completeEmpty(portal?: Portal): void {
    if (portal?.isDescribing) this.begin(portal, [], false)
    this.write(EMPTY_QUERY)
  }
}

const EMPTY_QUERY = new MessageWriter('I').toBuffer()
const PORTAL_SUSPENDED = new MessageWriter('s').toBuffer()
const completeMessage = (tag: string) => new MessageWriter('C').text(tag).toBuffer()
/** The most frequent end of a statement. */
const ONE_ROW = 'SELECT 1'
const ONE_ROW_COMPLETE = completeMessage(ONE_ROW)
