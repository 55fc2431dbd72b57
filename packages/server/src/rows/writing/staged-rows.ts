import { AppError } from '@offshoot/contract/errors'
import { copyLine } from '../../postgres/carriers.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { codeOf } from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type Statement } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { UniqueKey } from '../columns/table-rules.js'
import { createFilledHeap, type FilledHeap } from '../heaps/filled-heaps.js'
import { describeHeap } from '../heaps/heap-ddl.js'
import {
  dropNewLayers,
  finishStage,
  keepNewHeap,
  listNewHeap,
  type NewLayer,
} from '../heaps/layers.js'
import { type HeapAddress, heapName, layoutOf } from '../layout/layout.js'
import { brokenConnection } from '../running/connection.js'
import { type Guard, ownerOf } from '../running/guard.js'
import { runReads } from '../running/reads.js'
import { confirmed } from '../running/staleness.js'
import type { Running, WriteTransaction } from '../running/transactions.js'
import { findFirstFailing, tryingApart } from './failing-calls.js'
import { BrokenRuleError, Refusal } from './refusals.js'
import { createStageStatement } from './stage-statements.js'
import type { RowInput, TableWriter } from './table-writer.js'

/** A row of a stream, with its line. */
export interface StagedRow extends RowInput {
  readonly line: number
}

/** The rows that were written to a table that has some of them. */
export interface Written {
  readonly inserted: number
  readonly kept: { readonly updated: number } | { readonly skipped: number }
}

/** An upsert meets the same id twice. */
const CARDINALITY_VIOLATION = '21000'

/** Bytes of COPY lines that are sent together. */
const COPY_BYTES = 256 * 1024
/** Lines that are inserted together into a branch that inherits rows. */
const PART_LINES = 5000
/** How often a stream in progress says that its stage is in use. */
const SIGN_OF_LIFE_MS = 60_000

interface TakenLine {
  readonly line: number
  readonly error: unknown
}

/** The commit of a part does not wait for the disk: the statistics that are collected last do, and all rows are counted then. */
const WITHOUT_WAIT: Call = {
  statement: compileStatement(sql`select set_config('synchronous_commit', 'off', true)`),
  values: [],
}

interface StagedTable {
  readonly codec: TableCodec
  readonly writer: TableWriter
}

/**
 * The rows of a stream, in a table of their own until the stream is complete. Adding rows takes a connection
 * for a moment and enters no gate, so a slow stream keeps nobody waiting. The table is listed like a layer that is not yet
 * published. It is a heap that the branch can take, if its own has no rows and others do not know it. If the branch has
 * forks, the table can become a layer. Otherwise the rows are then inserted by one statement.
 */
export class StagedRows {
  readonly #database: Database
  readonly #owner: string
  readonly #stage: HeapAddress | FilledHeap
  /** Whether the table of the rows may become that of the branch, as its heap or as a layer. */
  readonly isLasting: boolean
  readonly #codec: TableCodec
  readonly #copy: Statement
  readonly #life: NodeJS.Timeout
  #pending: Buffer[] = []
  #pendingBytes = 0
  #pendingLines: number[] = []
  /** The last part, which is copied while further rows are added. */
  #copying: Promise<void> = Promise.resolve()
  #refused: { readonly line: number | undefined; readonly error: unknown } | undefined
  #lastLine = 0
  #count = 0
  #layer: NewLayer | undefined

  /** With `mayReplace`, the rows may become those of the branch as they are staged. */
  static async create(
    running: Running,
    guard: Guard,
    options: { table: StagedTable; mayReplace: boolean },
  ): Promise<StagedRows> {
    const { database } = running
    const { rows } = guard
    const { table, mayReplace } = options
    const heap = mayReplace
      ? await createFilledHeap(running, layoutOf(rows), table.codec.table)
      : undefined
    const create = async (transaction: Queryable) => {
      // The session may be from before the first fork.
      const [forked] = await transaction.query(sql`
        select from offshoot.branches where id = ${rows.branchId} and epoch > 1`)
      const { databaseId } = rows
      const stage = { databaseId, heapId: await listNewHeap(transaction, databaseId) }
      const { passing } = database.server
      const form = { passing, isLasting: mayReplace && forked !== undefined }
      await transaction.query(createStageStatement(table.codec.stored, heapName(stage), form))
      return { stage, isLasting: form.isLasting }
    }
    const created = heap
      ? { stage: heap, isLasting: true }
      : await runTransaction(database, create, { isolation: 'read committed' })
    return new StagedRows(database, { ...created, guard, table })
  }

  private constructor(
    database: Database,
    options: {
      stage: HeapAddress | FilledHeap
      isLasting: boolean
      guard: Guard
      table: StagedTable
    },
  ) {
    const { stage, isLasting, guard, table } = options
    this.#database = database
    this.#owner = ownerOf(guard)
    this.#stage = stage
    this.isLasting = isLasting
    this.#codec = table.codec
    this.#copy = table.writer.stage(this.name).copy
    this.#life = setInterval(() => this.#signLife(), SIGN_OF_LIFE_MS).unref()
  }

  /** The table that has the rows. */
  get name(): Sql {
    return heapName(this.#stage)
  }

  /** The heap that the branch can take. undefined: the rows must be copied. */
  get heap(): FilledHeap | undefined {
    return 'ownId' in this.#stage ? this.#stage : undefined
  }

  get count(): number {
    return this.#count
  }

  /** Makes a layer of lasting rows, for the branch to read. */
  async toLayer(): Promise<NewLayer> {
    if (this.#layer !== undefined) return this.#layer
    const { table } = this.#codec
    const layer = { ...this.#stage, table, ...describeHeap(table) }
    // A heap that the branch cannot take any more has its indexes already.
    if (this.heap === undefined) {
      await runTransaction(this.#database, (transaction) => finishStage(transaction, layer), {
        isolation: 'read committed',
      })
    }
    this.#layer = layer
    return layer
  }

  async add(rows: readonly StagedRow[]): Promise<void> {
    let lines = ''
    for (const { line, id, values } of rows) {
      const prefix = `${line}\t${id}`
      lines += values.length === 0 ? `${prefix}\n` : copyLine(values, `${prefix}\t`)
      this.#pendingLines.push(line)
      this.#lastLine = line
    }
    // A long text that is put together of many is a tree, which the garbage collector copies again and again.
    const bytes = Buffer.from(lines)
    this.#pending.push(bytes)
    this.#pendingBytes += bytes.length
    this.#count += rows.length
    if (this.#pendingBytes >= COPY_BYTES) await this.#flush()
  }

  /** Prepares the insert. Nothing may be added afterwards. */
  async end(writer: TableWriter, existing: 'refuse' | 'skip' | 'replace'): Promise<void> {
    await this.#flush()
    await this.#copying
    if (this.heap !== undefined) {
      await this.#database.query(sql`analyze ${this.name}`)
      return
    }
    // Parts of the stage are found by their lines.
    const { hasIndex } = this.#database.server.passing
    if ((!writer.takesCopies || existing !== 'refuse') && !hasIndex) {
      await this.#database.query(sql`create index on ${this.name} (line)`)
    }
  }

  /** Throws if PostgreSQL has refused a row: the stage has the rules of the heap. */
  requireAccepted(): void {
    if (this.#refused !== undefined) throw this.#refused.error
  }

  /** Inserts all rows. Fails if an id or a unique value is taken. */
  async insert(writer: TableWriter, transaction: WriteTransaction): Promise<void> {
    await this.#requireComplete(writer, transaction)
    await this.#insertRows(writer, transaction, this.#count)
  }

  /**
   * Inserts the rows whose ids are free, and calls `onNew` with these. Fails if two rows have the same id, or if a unique
   * value is taken.
   */
  async insertNew(
    writer: TableWriter,
    transaction: WriteTransaction,
    onNew: (ids: readonly string[]) => Promise<unknown>,
  ): Promise<Written> {
    const stage = writer.stage(this.name)
    await this.#requireComplete(writer, transaction)
    await this.#requireDistinct(writer, transaction)
    // If the transaction is rolled back, the stage has these rows again.
    const [dropped] = await transaction.run([
      { statement: stage.dropExisting, values: [], isUnnamed: true },
    ])
    const skipped = Number(dropped?.[0]?.[0])
    const inserted = this.#count - skipped
    await this.#insertRows(writer, transaction, inserted)
    for (const part of this.#parts()) {
      const [rows = []] = await transaction.run([stage.idsOfPart(...part)])
      await onNew(rows.map(([id]) => id ?? ''))
    }
    return { inserted, kept: { skipped } }
  }

  /**
   * Inserts or replaces all rows, and calls `onNew` with the ids that were free. Fails if two rows have the same id, or if a
   * unique value is taken.
   */
  async replace(
    writer: TableWriter,
    transaction: WriteTransaction,
    onNew: (ids: readonly string[]) => Promise<unknown>,
  ): Promise<Written> {
    const stage = writer.stage(this.name)
    await this.#requireComplete(writer, transaction)
    await this.#requireDistinct(writer, transaction)
    let updated = 0
    for (const part of this.#parts()) {
      const [rows = []] = await transaction.run([stage.replacePart(...part)])
      const added = rows.filter((row) => row.at(-1) !== 't')
      updated += rows.length - added.length
      await onNew(added.map(([id]) => id ?? ''))
    }
    await this.#requireUnique(writer, transaction)
    return { inserted: this.#count - updated, kept: { updated } }
  }

  /** The first and the last line of each part. */
  *#parts(): Generator<[number, number]> {
    for (let line = 1; line <= this.#lastLine; line += PART_LINES) {
      yield [line, line + PART_LINES - 1]
    }
  }

  async #requireComplete(writer: TableWriter, transaction: WriteTransaction): Promise<void> {
    const stage = writer.stage(this.name)
    const [counted] = await transaction.run([{ statement: stage.count, values: [] }])
    this.requireAll(Number(counted?.[0]?.[0]))
  }

  async #requireDistinct(writer: TableWriter, transaction: WriteTransaction): Promise<void> {
    const { findRepeatedId: statement } = writer.stage(this.name)
    const [found] = await transaction.run([{ statement, values: [], isUnnamed: true }])
    if (typeof found?.[0]?.[0] === 'string') throw new BrokenRuleError(0, undefined)
  }

  async #insertRows(
    writer: TableWriter,
    transaction: WriteTransaction,
    expected: number,
  ): Promise<void> {
    const stage = writer.stage(this.name)
    if (writer.takesCopies) {
      await transaction.run([stage.insert])
      return
    }
    let inserted = 0
    for (const part of this.#parts()) {
      const [ids] = await transaction.run([stage.insertPart(...part)]).catch((error: unknown) => {
        throw codeOf(error) === CARDINALITY_VIOLATION ? new BrokenRuleError(0, undefined) : error
      })
      inserted += ids?.length ?? 0
    }
    if (inserted < expected) throw new BrokenRuleError(0, undefined)
    await this.#requireUnique(writer, transaction)
  }

  /** Compares unique values with inherited rows. */
  async #requireUnique(writer: TableWriter, transaction: WriteTransaction): Promise<void> {
    const stage = writer.stage(this.name)
    for (const key of writer.uniqueKeys) {
      const statement = stage.findInherited(key)
      const [found] = await transaction.run([{ statement, values: [], isUnnamed: true }])
      if (found?.[0] !== undefined) throw new BrokenRuleError(0, key)
    }
  }

  /** Refuses a stage that has not all of the rows, outside of a transaction. */
  async requirePresent(database: Queryable): Promise<void> {
    const [counted] = await database.query<{ count: number }>(sql`
      select count(*)::integer as count from ${this.name}`)
    this.requireAll(counted?.count ?? 0)
  }

  /**
   * Refuses a stage that has not all of the rows. PostgreSQL empties unlogged tables after a crash, and loses rows whose
   * commit did not wait for the disk. The service, which goes on, would add the rest of the stream.
   */
  requireAll(present: number): void {
    if (present === this.#count) return
    throw confirmed(
      new AppError(
        'unavailable',
        'the database was restarted during the import; nothing was inserted',
      ),
    )
  }

  /** Finds the first line that breaks a rule: its id or unique value is taken, or it fails a check. Returns undefined if none is taken any more. */
  async findTaken(writer: TableWriter, guard: Guard): Promise<TakenLine | undefined> {
    const { line, error } = this.#refused ?? {}
    if (line !== undefined) return { line, error }
    const stage = writer.stage(this.name)
    return this.#findFirst(writer, guard, [
      { rule: undefined, statement: stage.findTakenId },
      ...writer.uniqueKeys.map((key) => ({ rule: key, statement: stage.findTakenValue(key) })),
    ])
  }

  /** Like `findTaken`, for rows whose ids may exist. */
  async findTakenBeside(
    writer: TableWriter,
    guard: Guard,
    existing: 'skip' | 'replace',
  ): Promise<TakenLine | undefined> {
    const stage = writer.stage(this.name)
    return this.#findFirst(writer, guard, [
      { rule: undefined, statement: stage.findRepeatedId },
      ...writer.uniqueKeys.map((key) => ({
        rule: key,
        statement: stage.findTakenBeside(key, existing),
      })),
    ])
  }

  async #findFirst(
    writer: TableWriter,
    guard: Guard,
    taken: readonly { rule: UniqueKey | undefined; statement: Statement }[],
  ): Promise<TakenLine | undefined> {
    const read = (calls: readonly Call[]) => runReads(this.#database, guard, calls)
    const found = await read(
      taken.map(({ statement }) => ({ statement, values: [], isUnnamed: true })),
    )
    const broken = taken.flatMap(({ rule }, position): TakenLine[] => {
      const line = found[position]?.[0]?.[0]
      if (typeof line !== 'string') return []
      return [{ line: Number(line), error: new BrokenRuleError(0, rule) }]
    })
    const { findFailed } = writer.stage(this.name)
    for (const check of writer.checks) {
      const failing = await findFirstFailing(tryingApart(read), {
        before: '0',
        callOf: (step) => findFailed(check, step),
      })
      if (failing === undefined) continue
      const error = new BrokenRuleError(0, check, failing.isEvaluated)
      broken.push({ line: Number(failing.key), error })
    }
    const line = Math.min(...broken.map((each) => each.line))
    return broken.find((each) => each.line === line)
  }

  /** Returns the line of a row. undefined: the stage does not have it. */
  async findLine(id: string): Promise<number | undefined> {
    const [row] = await this.#database.query<{ line: string }>(sql`
      select min(s.line) as line from ${this.name} s where s.id = ${id}`)
    return row?.line == null ? undefined : Number(row.line)
  }

  async drop(): Promise<void> {
    clearInterval(this.#life)
    await this.#copying.catch(() => undefined)
    await dropNewLayers(this.#database, [this.#stage])
  }

  /** Copies what was added, while the next rows are read. Throws the failure of the part before. */
  async #flush(): Promise<void> {
    await this.#copying
    const [input, lines] = [Buffer.concat(this.#pending), this.#pendingLines]
    this.#pending = []
    this.#pendingBytes = 0
    this.#pendingLines = []
    if (input.length === 0 || this.#refused !== undefined) return
    this.#copying = this.#copyPart(input, lines)
    // A failure is thrown by the next call.
    this.#copying.catch(() => undefined)
  }

  async #copyPart(input: Buffer, lines: readonly number[]): Promise<void> {
    const client = await this.#database.acquire({ owner: this.#owner })
    const copy = { statement: this.#copy, values: [], input, isUnnamed: true }
    let broken: Error | undefined
    try {
      const waits = !this.isLasting || this.#database.server.hasRowsApart
      await runPipeline(client, waits ? [copy] : [WITHOUT_WAIT, copy])
    } catch (error) {
      broken = brokenConnection(error)
      const refusal = Refusal.of(error, [this.#codec])
      if (refusal === undefined) throw error
      // Invalid lines are reported first, and they may follow.
      this.#refused = { line: lines[refusal.rowsBefore ?? -1], error }
    } finally {
      client.release(broken)
    }
  }

  /** A failure is ignored: the next sign is in time, too. */
  #signLife(): void {
    keepNewHeap(this.#database, this.#stage).catch(() => undefined)
  }
}
