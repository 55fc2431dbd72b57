import { Turn } from '../../common/in-turns.js'
import { serverOf } from '../../postgres/server.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { CheckRule, UniqueKey } from '../columns/table-rules.js'
import type { OpenTransaction, WriteTransaction } from '../running/transactions.js'
import { RowCopy } from './copy-rows.js'
import { BrokenRuleError } from './refusals.js'
import type { RowInput, TableWriter } from './table-writer.js'

/** Inserts validated rows, slice by slice, in one transaction. */
export interface RowSink {
  add(rows: readonly RowInput[]): Promise<void>
  end(): Promise<void>
  abort(): Promise<void>
}

/** Opens the fastest sink that the table allows. */
export function openSink(
  table: { readonly codec: TableCodec; readonly writer: TableWriter },
  transaction: WriteTransaction,
): RowSink {
  const { codec, writer } = table
  const sink =
    writer.takesCopies && serverOf(transaction.client).explainsCopies
      ? new CopySink(writer, transaction)
      : new StatementSink(writer, transaction)
  return new SteppedSink(sink, codec.rowsPerStep)
}

/** Passes rows on in steps, and lets the event loop run in between. */
class SteppedSink implements RowSink {
  readonly #sink: RowSink
  readonly #stepRows: number

  constructor(sink: RowSink, stepRows: number) {
    this.#sink = sink
    this.#stepRows = stepRows
  }

  async add(rows: readonly RowInput[]): Promise<void> {
    if (rows.length <= this.#stepRows) return this.#sink.add(rows)
    const turn = new Turn()
    for (let start = 0; start < rows.length; start += this.#stepRows) {
      await this.#sink.add(rows.slice(start, start + this.#stepRows))
      if (turn.isOver) await turn.end()
    }
  }

  end(): Promise<void> {
    return this.#sink.end()
  }

  abort(): Promise<void> {
    return this.#sink.abort()
  }
}

/** Inserts rows with COPY. A taken id makes the whole COPY fail. */
class CopySink implements RowSink {
  readonly #copy: RowCopy
  readonly #writer: TableWriter
  readonly #epoch: number
  readonly #noteLinks: WriteTransaction['noteLinks']

  constructor(writer: TableWriter, { client, epoch, noteLinks }: WriteTransaction) {
    this.#copy = new RowCopy(client, writer.copyStatement)
    this.#writer = writer
    this.#epoch = epoch
    this.#noteLinks = noteLinks
  }

  add(rows: readonly RowInput[]): Promise<void> {
    const linking = this.#writer.linkingOf(rows)
    if (linking !== undefined) this.#noteLinks?.(linking)
    return this.#copy.write(this.#writer.copyLines(rows, this.#epoch))
  }

  end(): Promise<void> {
    return this.#copy.end()
  }

  abort(): Promise<void> {
    return this.#copy.abort()
  }
}

/**
 * Inserts each slice with a statement. Used if rows must be compared with inherited ones.
 */
class StatementSink implements RowSink {
  readonly #writer: TableWriter
  readonly #transaction: OpenTransaction
  #added = 0

  constructor(writer: TableWriter, transaction: OpenTransaction) {
    this.#writer = writer
    this.#transaction = transaction
  }

  async add(rows: readonly RowInput[]): Promise<void> {
    if (rows.length === 0) return
    const ids = rows.map((row) => row.id)
    // One statement cannot insert the same id twice.
    this.#refuse(firstRepeated(ids), undefined)
    if (this.#writer.uniqueKeys.length > 0) await this.#refuseTaken(rows)
    if (this.#writer.checks.length > 0) await this.#refuseFailed(rows)
    const given = rows.filter(({ isNewId }) => !isNewId)
    const made = rows.filter(({ isNewId }) => isNewId)
    const [inserted = []] = await this.#transaction.run([
      ...(given.length === 0 ? [] : [this.#writer.insert(given, 'id')]),
      ...(made.length === 0 ? [] : [this.#writer.insertNew(made)]),
    ])
    const insertedIds = new Set(given.length === 0 ? [] : inserted.map(([id]) => id))
    this.#refuse(
      rows.findIndex(({ id, isNewId }) => !isNewId && !insertedIds.has(id)),
      undefined,
    )
    this.#added += rows.length
  }

  /**
   * Checks unique values before the insert, because an error of the unique index does not tell which row
   * failed.
   */
  async #refuseTaken(rows: readonly RowInput[]): Promise<void> {
    const keys = this.#writer.uniqueKeys
    const found = await this.#transaction.run(keys.map((key) => this.#writer.findValues(key, rows)))
    for (const [position, key] of keys.entries()) {
      const taken = (found[position] ?? []).map(([row]) => Number(row))
      this.#refuse(taken.length === 0 ? -1 : Math.min(...taken), key)
      const values = rows.map((row) =>
        this.#writer.hasValue(key, row.values)
          ? JSON.stringify(key.columns.map((column) => row.values[column]))
          : null,
      )
      this.#refuse(firstRepeated(values), key)
    }
  }

  /** Like `#refuseTaken`, for checks. */
  async #refuseFailed(rows: readonly RowInput[]): Promise<void> {
    const { checks } = this.#writer
    const calls = checks.map((check) => this.#writer.findFailed(check, rows))
    const found = await this.#transaction.run(calls)
    for (const [position, check] of checks.entries()) {
      const failed = (found[position] ?? []).map(([row]) => Number(row))
      this.#refuse(failed.length === 0 ? -1 : Math.min(...failed), check)
    }
  }

  /** Throws unless the index of the invalid row is -1. */
  #refuse(index: number, rule: UniqueKey | CheckRule | undefined): void {
    if (index !== -1) throw new BrokenRuleError(this.#added + index, rule)
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
