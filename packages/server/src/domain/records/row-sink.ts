import { copyLine } from '../../rows/columns/carriers.js'
import { ownHeap } from '../../rows/layout.js'
import type { OpenTransaction } from '../../rows/run.js'
import { RowCopy } from './copy-rows.js'
import type { Session, SessionTable } from './session.js'
import { inheritedChecks, insertCall, type RowInput } from './write-plan.js'

/** Where checked rows go. */
export interface RowSink {
  add(rows: readonly RowInput[]): Promise<void>
  end(): Promise<void>
  abort(): Promise<void>
}

/** The fast way, for tables that inherit nothing: an id that is taken fails the whole. */
class CopySink implements RowSink {
  readonly #copy: RowCopy
  readonly #epoch: string

  constructor(copy: RowCopy, session: Session) {
    this.#copy = copy
    this.#epoch = String(session.guard.layout.epoch)
  }

  async add(rows: readonly RowInput[]): Promise<void> {
    let lines = ''
    for (const { id, values } of rows) {
      const prefix = `${id}\t${this.#epoch}`
      lines += values.length === 0 ? `${prefix}\n` : copyLine(values, `${prefix}\t`)
    }
    await this.#copy.write(lines)
  }

  end(): Promise<void> {
    return this.#copy.end()
  }

  abort(): Promise<void> {
    return this.#copy.abort()
  }
}

/** For tables with inherited rows, which ids and unique values must be checked against. */
class StatementSink implements RowSink {
  readonly #session: Session
  readonly #table: SessionTable
  readonly #transaction: OpenTransaction

  constructor(session: Session, table: SessionTable, transaction: OpenTransaction) {
    this.#session = session
    this.#table = table
    this.#transaction = transaction
  }

  async add(rows: readonly RowInput[]): Promise<void> {
    const { statements, codec } = this.#table
    if (rows.length === 0 || statements === undefined) return
    const checks = inheritedChecks(this.#table, statements, (column) =>
      rows.map((row) => row.values[column] ?? null),
    )
    const [inserted, ...found] = await this.#transaction.run([
      insertCall(this.#session, statements, rows, codec),
      ...checks.map((check) => check.call),
    ])
    const taken = found.findIndex((values) => values.length > 0)
    if (taken >= 0) throw new TakenError(checks[taken]?.column)
    if (inserted?.length !== rows.length) throw new TakenError(undefined)
  }

  async end(): Promise<void> {
    // Every slice was written when it was added.
  }

  async abort(): Promise<void> {
    // The transaction is rolled back.
  }
}

/** A value that must be unique is taken already: of the given column, or of the id. */
class TakenError extends Error {
  readonly code = '23505'
  readonly constraint: string

  constructor(column: number | undefined) {
    super('a value is taken')
    this.constraint = column === undefined ? 'id' : `column_${column}`
  }
}

/** The way for new rows into a table, inside a transaction. */
export function openSink(
  session: Session,
  table: SessionTable,
  transaction: OpenTransaction,
): RowSink {
  if (table.isInherited) return new StatementSink(session, table, transaction)
  const heap = ownHeap(session.guard.layout, table.codec.table.id)
  if (heap === undefined) throw new Error('a writable table must have a heap')
  return new CopySink(new RowCopy(transaction.client, heap, table.codec), session)
}
