import { UNIQUE_VIOLATION } from '../../postgres/failures.js'
import { arrayLiteral } from '../../rows/columns/carriers.js'
import { uniqueIndexName } from '../../rows/layout/layout.js'
import type { OpenTransaction } from '../../rows/running/run.js'
import type { TableStatements } from '../../rows/writing/table-statements.js'
import { RowCopy } from './copy-rows.js'
import type { Session, SessionTable } from './session.js'
import { copyLines, insertCall, type RowInput } from './write-plan.js'

/** Where checked rows go. */
export interface RowSink {
  add(rows: readonly RowInput[]): Promise<void>
  end(): Promise<void>
  abort(): Promise<void>
}

/** The fast way, for tables that inherit nothing: an id that is taken fails the whole. */
class CopySink implements RowSink {
  readonly #copy: RowCopy
  readonly #session: Session

  constructor(copy: RowCopy, session: Session) {
    this.#copy = copy
    this.#session = session
  }

  add(rows: readonly RowInput[]): Promise<void> {
    return this.#copy.write(copyLines(this.#session, rows))
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
  #added = 0

  constructor(session: Session, table: SessionTable, transaction: OpenTransaction) {
    this.#session = session
    this.#table = table
    this.#transaction = transaction
  }

  async add(rows: readonly RowInput[]): Promise<void> {
    const { statements, codec, uniqueColumns } = this.#table
    if (rows.length === 0 || statements === undefined) return
    const ids = rows.map((row) => row.id)
    // One statement cannot meet the same id twice.
    this.#refuse(firstRepeated(ids), undefined)
    if (uniqueColumns.length > 0) await this.#refuseTaken(statements, rows)
    const [inserted] = await this.#transaction.run([
      insertCall(this.#session, statements, { codec, rows, returned: 'id' }),
    ])
    const insertedIds = new Set(inserted?.map(([id]) => id))
    this.#refuse(
      ids.findIndex((id) => !insertedIds.has(id)),
      undefined,
    )
    this.#added += rows.length
  }

  /** Looks for the row at fault before there is one; the index of the heap would not name it. */
  async #refuseTaken(statements: TableStatements, rows: readonly RowInput[]): Promise<void> {
    const columns = this.#table.uniqueColumns.map((column) => ({
      column,
      values: rows.map((row) => row.values[column] ?? null),
    }))
    const found = await this.#transaction.run(
      columns.map(({ column, values }) => ({
        statement: statements.visibleValues(column),
        values: [arrayLiteral(values.filter((value) => value !== null))],
      })),
    )
    for (const [position, { column, values }] of columns.entries()) {
      const taken = new Set(found[position]?.map(([value]) => value))
      this.#refuse(
        values.findIndex((value) => value !== null && taken.has(value)),
        column,
      )
      this.#refuse(firstRepeated(values), column)
    }
  }

  /** Fails unless the index of the row at fault is -1. */
  #refuse(index: number, column: number | undefined): void {
    if (index === -1) return
    const columnId = column === undefined ? undefined : this.#table.codec.physical[column]?.id
    throw new TakenError(this.#added + index, columnId)
  }

  async end(): Promise<void> {
    // Every slice was written when it was added.
  }

  async abort(): Promise<void> {
    // The transaction is rolled back.
  }
}

function firstRepeated(values: readonly (string | null)[]): number {
  const seen = new Set<string>()
  return values.findIndex((value) => value !== null && seen.size === seen.add(value).size)
}

/** A value that must be unique is taken already: of the given column, or of the id. */
class TakenError extends Error {
  readonly code = UNIQUE_VIOLATION
  readonly constraint: string

  constructor(
    /** How many rows were added before the one at fault. */
    readonly row: number,
    columnId: number | undefined,
  ) {
    super('a value is taken')
    this.constraint = columnId === undefined ? 'id' : uniqueIndexName('', columnId)
  }
}

/** How many rows went in before the one that a failure of a sink is about, when that is known. */
export function rowsBefore(error: unknown): number | undefined {
  if (error instanceof TakenError) return error.row
  const { where } = error as { where?: unknown }
  // PostgreSQL says in which line of the copy it met a value that is taken.
  const line = typeof where === 'string' ? /, line (\d+)/.exec(where)?.[1] : undefined
  return line === undefined ? undefined : Number(line) - 1
}

/** The way for new rows into a table, inside a transaction. */
export function openSink(
  session: Session,
  table: SessionTable,
  transaction: OpenTransaction,
): RowSink {
  if (table.isInherited) return new StatementSink(session, table, transaction)
  const { statements } = table
  if (statements === undefined) throw new Error('a writable table must have a heap')
  return new CopySink(new RowCopy(transaction.client, statements.copy()), session)
}
