import type { OpenTransaction } from '../../rows/running/transactions.js'
import { LoadEntry } from '../records/load-entry.js'
import type { Session } from '../session/session.js'
import type { RowSink } from './row-sink.js'

/** Bytes of a column of the rows that are inserted at once. The statement is planned again for larger ones. */
const COLUMN_BYTES_MAX = 1024 * 1024

/** A COPY of a client as a bulk load. Its statements insert some rows at a time. */
export class CopyLoad implements RowSink {
  readonly #tableName: string
  #entry: LoadEntry | undefined
  #ids: string[] = []

  constructor(tableName: string) {
    this.#tableName = tableName
  }

  /** The size of the parameters of its statements, each of which is a column. */
  readonly parameterBytesMax = COLUMN_BYTES_MAX

  begin(): void {
    this.#ids = []
  }

  describe(): void {}

  row(): void {}

  readonly onWritten = (ids: readonly string[]): void => {
    this.#ids.push(...ids)
  }

  end(): void {}

  /** Keeps the ids of the last statement, in its transaction. */
  async keep(session: Session, transaction: OpenTransaction): Promise<void> {
    const { length: inserted } = this.#ids
    if (inserted === 0) return
    this.#entry ??= new LoadEntry(session, session.table(this.#tableName).codec.table)
    const entry = this.#entry
    const kept = await entry.keeping(transaction, this.#ids)
    await transaction.run([...kept, entry.growing(session, { inserted })])
    entry.onStored()
  }
}
