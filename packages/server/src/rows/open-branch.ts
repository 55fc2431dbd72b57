import type { Limits } from '@offshoot/contract/limits'
import type pg from 'pg'
import type { CachePart, SharedCache } from '../common/shared-cache.js'
import type { Bounds } from '../postgres/bounds.js'
import type { Database } from '../postgres/database.js'
import { isForeignKeyViolation } from '../postgres/failures.js'
import type { Transaction } from '../postgres/run-transaction.js'
import type { Call, Statement, TextRow, TextRows } from '../postgres/statement.js'
import type { Fault } from './columns/fault.js'
import type { StoredSchema } from './columns/stored-schema.js'
import type { TableCodec } from './columns/table-codec.js'
import { ensureHeaps, type NewHeaps } from './heaps/ensure-heaps.js'
import { takeFilledHeap } from './heaps/filled-heaps.js'
import { schemaName } from './layout/database-schema.js'
import { type BranchRows, layoutOf, ownHeap, withTable } from './layout/layout.js'
import {
  findLastNumbers,
  giveBackNumbers,
  type Taken,
  takeNumbers,
  type Wanted,
} from './layout/sequences.js'
import { requireGuard, StreamLayer, type StreamPin } from './merging/publish-stream.js'
import { refuseColumns, type TableLookup } from './reading/read-plan.js'
import { RecordVersions } from './reading/record-versions.js'
import { TableRead } from './reading/table-read.js'
import { TableRows } from './reading/table-rows.js'
import { isLinkingCall } from './running/calls.js'
import { type Guard, isLinkBroken, ownerOf } from './running/guard.js'
import { runReads, runSnapshot, type SnapshotOptions } from './running/reads.js'
import type { SharedCalls, UserQuery } from './running/shared-calls.js'
import { StaleError } from './running/staleness.js'
import {
  goOnWriting,
  type HeldWrites,
  type OpenTransaction,
  openTransaction,
  type Running,
  runSerialReads,
  runSteps,
  runWrites,
  type StepsOptions,
  type WriteTransaction,
} from './running/transactions.js'
import { Draft } from './writing/draft.js'
import { type TryCall, tryingApart, tryingInside } from './writing/failing-calls.js'
import { KeptLinks, type LinkedTables, linkChecks } from './writing/kept-links.js'
import { openSink, type RowSink } from './writing/row-sink.js'
import { StagedRows } from './writing/staged-rows.js'
import { TableWriter } from './writing/table-writer.js'

/*
 * A branch as a session uses it: its tables, the statements that read and write them, and the ways to run these. Callers
 * do not know whether a branch has a parent.
 */

/** A level takes about as much memory as this number of columns. */
const COLUMNS_OF_LEVEL = 10

/** A table on a branch. */
export interface BranchTable {
  readonly codec: TableCodec
  /** undefined until `makeWritable` has created the branch's own storage for the table. */
  readonly writer: TableWriter | undefined
  /**
   * Compiles statements that read the given columns (dotted paths). Returns faults if columns are invalid.
   */
  read(columns: readonly string[]): TableRead | readonly Fault[]
}

/** A table that the branch can write to. */
export type WritableTable = BranchTable & { readonly writer: TableWriter }

/** The tables of a schema. */
export interface SchemaTables {
  readonly limits: Limits
  tableByName(name: string): TableCodec | undefined
  tableById(id: number): TableCodec | undefined
  /** Whether any table keeps versions of records. */
  readonly hasHistory: boolean
  /** Ids that tables and columns have had. */
  readonly formerIds: Pick<StoredSchema, 'sameIds' | 'removedIds'>
  /** Whether any column requires that linked records exist. */
  readonly hasRequiredLinks: boolean
  /** Returns the tables with columns that require that linked records of a table exist. */
  referrersOf(tableId: number): readonly TableCodec[]
}

/** What the branches of one storage share. */
export interface SharedByBranches extends Running, NewHeaps {
  readonly database: Database
  readonly sharedCalls: SharedCalls
  /** Reads of all tables, because there is no limit to the combinations of columns. */
  readonly reads: SharedCache<TableRead>
  /** Statements that write to all tables, because an update needs one for each combination of columns. */
  readonly statements: SharedCache<Statement>
}

/**
 * A branch with its rows at one moment, and the key of its requests. Each table is compiled on first use. What runs on
 * the branch throws a `StaleError` if the branch or the key has changed since.
 */
export class OpenBranch implements TableLookup {
  readonly guard: Guard
  readonly #shared: SharedByBranches
  readonly #schema: SchemaTables
  readonly #tables = new Map<string, BranchTable>()
  readonly #tableRows = new Map<number, TableRows>()
  readonly #isDraft: boolean
  #linkStatements: CachePart<Statement> | undefined

  /** With `isDraft`, writers do not look at unique keys and checks. */
  constructor(
    shared: SharedByBranches,
    guard: Guard,
    schema: SchemaTables,
    { isDraft = false } = {},
  ) {
    this.#isDraft = isDraft
    this.guard = schema.hasHistory ? { ...guard, isNoted: true } : guard
    this.#shared = shared
    this.#schema = schema
  }

  get rows(): BranchRows {
    return this.guard.rows
  }

  /** Returns the branch with rows that were read later. */
  withRows(rows: BranchRows): OpenBranch {
    return new OpenBranch(this.#shared, { ...this.guard, rows }, this.#schema)
  }

  /** Whether the branch was ever forked, so that its writers keep old versions. */
  get hasForks(): boolean {
    return layoutOf(this.rows).hasForks
  }

  /** The schema of PostgreSQL that has the rows. */
  get schemaName(): string {
    return schemaName(this.rows.databaseId)
  }

  /** The number of columns of all physical tables that rows of the branch come from. */
  get columnCount(): number {
    const { levels } = layoutOf(this.rows)
    const heaps = levels.flatMap(({ heaps, layers }) => [...heaps.values(), ...layers.values()])
    return heaps.reduce(
      (count, { columnIds }) => count + 1 + columnIds.size,
      levels.length * COLUMNS_OF_LEVEL,
    )
  }

  /** Returns the last numbers that sequences have given, by the ids of their tables or columns. */
  lastNumbers(itemIds: readonly number[]): Promise<ReadonlyMap<number, string>> {
    const { databaseId } = this.rows
    return findLastNumbers(this.#shared.database, { databaseId, itemIds })
  }

  /** Takes numbers of the sequence of a table or column. */
  async takeNumbers(wanted: Wanted): Promise<Taken> {
    const { databaseId } = this.rows
    try {
      return await takeNumbers(this.#shared.database, { databaseId, ...wanted })
    } catch (error) {
      // The database was deleted. There may be another one of its name.
      if (!isForeignKeyViolation(error)) throw error
      throw new StaleError('the database of the sequence is gone', { cause: error })
    }
  }

  /** Sets a sequence back to a number, if nobody has used it since it had the stamp. */
  giveBackNumbers(options: { itemId: number; stamp: string; last: number }): Promise<void> {
    const { databaseId } = this.rows
    return giveBackNumbers(this.#shared.database, { databaseId, ...options })
  }

  tableById(id: number): TableCodec | undefined {
    return this.#schema.tableById(id)
  }

  rowsOf(codec: TableCodec): TableRows {
    const { id } = codec.table
    let rows = this.#tableRows.get(id)
    if (rows === undefined) {
      rows = new TableRows(this.rows, codec)
      this.#tableRows.set(id, rows)
    }
    return rows
  }

  /** Returns the versions of the records of a table. `read` reads all columns. */
  versionsOf({ codec }: BranchTable, read: TableRead): RecordVersions {
    return new RecordVersions(this.rows, { codec, read, ids: this.#schema.formerIds })
  }

  /** Returns the rows of one table only, so that less data is sent to a worker thread. */
  narrowTo(tableId: number): BranchRows {
    return withTable(layoutOf(this.rows), tableId)
  }

  findTable(name: string): BranchTable | undefined {
    const known = this.#tables.get(name)
    if (known !== undefined) return known
    const codec = this.#schema.tableByName(name)
    if (codec === undefined) return undefined
    const table = this.#createTable(codec)
    this.#tables.set(name, table)
    return table
  }

  #createTable(codec: TableCodec): BranchTable {
    const { reads, statements } = this.#shared
    const layout = layoutOf(this.rows)
    const heap = ownHeap(layout, codec.table.id)
    const known: CachePart<TableRead> = reads.createPart()
    return {
      codec,
      writer:
        heap &&
        new TableWriter(layout, this.#isDraft ? withoutRules(codec.stored) : codec.stored, {
          heap,
          statements: statements.createPart(),
          isLinked: this.#schema.referrersOf(codec.table.id).length > 0,
          nameOf: (tableId) => this.#schema.tableById(tableId)?.table.name ?? '',
        }),
      read: (columns) => {
        const refused = refuseColumns(columns)
        if (refused !== undefined) return [refused]
        const key = columns.join()
        const found = known.get(key)
        if (found !== undefined) return found
        const read = TableRead.plan(this, codec, columns)
        if (read instanceof TableRead) known.set(key, read)
        return read
      },
    }
  }

  /** Returns a table, ready for writes, see `makeWritable`. */
  async writable(table: BranchTable): Promise<WritableTable> {
    if (isWritable(table)) return table
    const [writable] = await this.makeWritable([table])
    if (writable === undefined) throw new Error('a writable table must be returned')
    return writable
  }

  /**
   * Returns the tables, ready for writes. The first write of a branch to a table creates its own storage. In
   * that case, throws a `StaleError`, so that the request starts over with the new layout.
   */
  async makeWritable(tables: readonly BranchTable[]): Promise<WritableTable[]> {
    const writable = tables.filter(isWritable)
    if (writable.length === tables.length) return writable
    const missing = tables.filter((table) => !isWritable(table))
    const stored = missing.map(({ codec }) => codec.table)
    const options = { tables: stored, owner: ownerOf(this.guard) }
    const rows = await ensureHeaps(this.#shared, layoutOf(this.rows), options)
    throw new StaleError('the branch has new storage', { rows })
  }

  /** Runs reads in one round trip. Each sees what was committed when it started (read committed). */
  runReads(calls: readonly Call[], bounds?: Bounds): Promise<TextRows[]> {
    return runReads(this.#shared.database, this.guard, calls, bounds)
  }

  /**
   * Finds which ids no row of a table had a moment ago, so that it is worthwhile to insert their rows with COPY. None, if the
   * table does not take COPY.
   */
  async findFreeIds({ writer }: WritableTable, ids: readonly string[]): Promise<Set<string>> {
    if (!writer.takesCopies || !this.#shared.database.server.explainsCopies) return new Set()
    const [[[present] = []] = []] = await this.runReads([writer.findPresent(ids)])
    const free = new Set(ids)
    for (const id of present?.split(' ') ?? []) free.delete(id)
    return free
  }

  /** Runs a read of one row by its id, together with others that arrive at the same time. */
  runSharedRead(call: Call): Promise<TextRow | undefined> {
    return this.#shared.sharedCalls.read(this.guard, call)
  }

  /** Runs a query of a user in one round trip, together with others that arrive at the same time. */
  runQuery(query: UserQuery): Promise<TextRows[]> {
    return this.#shared.sharedCalls.query(this.guard, query)
  }

  /** Runs reads in one round trip, on a snapshot that is consistent with the serial order of the writes. */
  runSerialReads(calls: readonly Call[]): Promise<TextRows[]> {
    return runSerialReads(this.#shared.database, this.guard, calls)
  }

  /** Runs reads on one snapshot. */
  runSnapshot<Result>(
    body: (transaction: OpenTransaction) => Promise<Result>,
    options?: SnapshotOptions,
  ): Promise<Result> {
    return runSnapshot(this.#shared.database, this.guard, body, options)
  }

  /** Inserts a row with a generated id into a table without unique columns, together with others. */
  async runSharedInsert(call: Call): Promise<TextRow | undefined> {
    const checks = this.#linkChecks([call])
    if (checks !== undefined) {
      try {
        return await this.#shared.sharedCalls.insert(this.guard, call, checks)
      } catch (error) {
        if (!isLinkBroken(error)) throw error
      }
    }
    const [rows] = await this.#runWatched([call])
    return rows?.[0]
  }

  /** Returns calls that look for broken links after others. undefined: these have to run in steps. */
  #linkChecks(calls: readonly Call[]): readonly Call[] | undefined {
    if (!this.#schema.hasRequiredLinks || !calls.some(isLinkingCall)) return NO_CALLS
    // Nodes of a cluster do not have the function by which checks fail.
    return this.#shared.database.server.hasRowsApart ? undefined : linkChecks(this.#links, calls)
  }

  /** Runs writes in steps, so that links are kept, and a broken one is explained. */
  #runWatched(calls: readonly Call[]): Promise<TextRows[]> {
    return this.runSteps(async (_, rows) => [...rows], { first: calls })
  }

  get #links(): LinkedTables {
    this.#linkStatements ??= this.#shared.statements.createPart()
    const { limits } = this.#schema
    return {
      layout: layoutOf(this.rows),
      limits,
      statements: this.#linkStatements,
      tableById: (id) => this.#schema.tableById(id),
      referrersOf: (tableId) => this.#schema.referrersOf(tableId),
      writerOf: (codec) => {
        const table = this.findTable(codec.table.name)
        if (table === undefined) throw new Error('a table with a link must exist')
        if (table.writer === undefined) throw new LackingHeapError(table)
        return table.writer
      },
    }
  }

  /** Runs writes as one transaction in a single round trip. */
  async runWrites(calls: readonly Call[]): Promise<TextRows[]> {
    const checks = this.#linkChecks(calls)
    if (checks === undefined) return this.#runWatched(calls)
    if (checks.length === 0) return runWrites(this.#shared, this.guard, calls)
    try {
      const rows = await runWrites(this.#shared, this.guard, [...calls, ...checks])
      return rows.slice(0, calls.length)
    } catch (error) {
      if (!isLinkBroken(error)) throw error
      return this.#runWatched(calls)
    }
  }

  /** Runs a transaction in several steps. `body` may run more than once. Links are kept when it ends. */
  async runSteps<Result>(
    body: (transaction: WriteTransaction, first: readonly TextRows[]) => Promise<Result>,
    options: StepsOptions = {},
  ): Promise<Result> {
    if (!this.#schema.hasRequiredLinks) return runSteps(this.#shared, this.guard, body, options)
    const watched = async (transaction: WriteTransaction, first: readonly TextRows[]) => {
      const links = new KeptLinks(this.#links, transaction)
      links.note(options.first ?? [], first)
      const result = await body(links.watch(transaction), first)
      await links.settle()
      return result
    }
    try {
      return await runSteps(this.#shared, this.guard, watched, options)
    } catch (error) {
      if (!(error instanceof LackingHeapError)) throw error
      await this.makeWritable([error.table])
      throw error
    }
  }

  /** Runs a transaction once that stays open while its client has its turn. `body` keeps links by `watchLinks`. */
  hold(
    body: (transaction: HeldWrites) => Promise<void>,
    options: Omit<StepsOptions, 'first' | 'isOnce'>,
  ): Promise<void> {
    return runSteps(this.#shared, this.guard, body, { ...options, isOnce: true })
  }

  /** Goes on with a held transaction that has made the schema that of this branch. */
  goOn(client: pg.PoolClient): Promise<WriteTransaction> {
    return goOnWriting(this.#shared, this.guard, client)
  }

  /** Returns a transaction whose links `settle` keeps. It names a table that has no storage for what that writes. */
  watchLinks(transaction: WriteTransaction): {
    readonly transaction: WriteTransaction
    settle(): Promise<{ readonly lacking?: string }>
  } {
    if (!this.#schema.hasRequiredLinks) return { transaction, settle: async () => ({}) }
    const links = new KeptLinks(this.#links, transaction)
    const settle = async () => {
      try {
        await links.settle()
        return {}
      } catch (error) {
        if (!(error instanceof LackingHeapError)) throw error
        return { lacking: error.table.codec.table.name }
      }
    }
    return { transaction: links.watch(transaction), settle }
  }

  /** Whether a transaction can be judged when it ends. Nodes of a cluster cannot create tables in a transaction. */
  get takesDrafts(): boolean {
    return !this.#shared.database.server.hasRowsApart
  }

  /**
   * Runs a transaction that writes to the given tables. Unique keys and checks are looked at when it ends, so that the
   * order of its writes does not matter. `body` gets the branch that it writes to, and may run more than once.
   */
  async runDrafted<Result>(
    tables: readonly BranchTable[],
    body: (branch: OpenBranch, transaction: WriteTransaction) => Promise<Result>,
    options: StepsOptions = {},
  ): Promise<Result> {
    const drafted = await this.makeWritable(this.#withReferrers(tables))
    return runSteps(
      this.#shared,
      this.guard,
      async (transaction) => {
        const stored = drafted.map(({ codec, writer }) => ({ codec: codec.stored, writer }))
        const draft = await Draft.create(transaction, layoutOf(this.rows), stored)
        const guard = { ...this.guard, rows: draft.layout }
        const branch = new OpenBranch(this.#shared, guard, this.#schema, { isDraft: true })
        const links = new KeptLinks(branch.#links, draft.transaction)
        const result = await body(branch, links.watch(draft.transaction))
        await links.settle()
        await draft.publish()
        return result
      },
      options,
    )
  }

  /** Returns what a transaction that writes many rows to tables keeps other writers out of, see `StepsOptions`. */
  claimOf(
    tables: readonly BranchTable[],
    { deletes }: { deletes: boolean },
  ): Pick<StepsOptions, 'claimed'> {
    const layout = layoutOf(this.rows)
    const written = deletes ? this.#withReferrers(tables) : tables
    return { claimed: written.flatMap(({ codec }) => ownHeap(layout, codec.table.id) ?? []) }
  }

  /** Returns tables, and those whose rows change if rows of them are deleted. */
  #withReferrers(tables: readonly BranchTable[]): BranchTable[] {
    const found = new Set(tables)
    for (const { codec } of found) {
      for (const { table } of this.#schema.referrersOf(codec.table.id)) {
        const referrer = this.findTable(table.name)
        if (referrer !== undefined) found.add(referrer)
      }
    }
    return [...found]
  }

  /** Tries reads, each in a transaction of its own, that may fail to evaluate an expression. */
  trying(bounds?: Bounds): TryCall {
    return tryingApart((calls) => this.runReads(calls, bounds))
  }

  /** Tries calls in a transaction that goes on if they fail to evaluate an expression. */
  tryingIn(transaction: OpenTransaction): TryCall {
    return tryingInside(transaction)
  }

  /** Returns a transaction that was begun elsewhere, for calls of a request on the branch. */
  inTransaction(client: pg.PoolClient): OpenTransaction {
    return openTransaction(this.#shared.database, this.guard, { client })
  }

  /** Opens the fastest sink for rows that a table allows. */
  openSink(table: WritableTable, transaction: WriteTransaction): RowSink {
    return openSink(table, transaction)
  }

  /** Returns the staged rows of a stream as a layer of a table, which is compared with a pinned state of the branch. */
  streamLayer(stream: { table: WritableTable; rows: StagedRows; pin: StreamPin }): StreamLayer {
    return new StreamLayer(this.guard, { ...stream, codec: stream.table.codec.stored })
  }

  /**
   * Gives the branch, whose gate must be locked, the heap that a stream has filled. Returns false, and has no effect, if
   * the rows must be inserted instead.
   */
  async takeHeap(transaction: Transaction, rows: StagedRows): Promise<boolean> {
    const { heap } = rows
    if (heap === undefined) return false
    await requireGuard(transaction, this.guard)
    return takeFilledHeap(transaction, heap)
  }

  /**
   * Creates a stage for the rows of a stream. With `mayReplace`, they may become those of the branch as they are staged.
   */
  stageRows(options: { table: WritableTable; mayReplace: boolean }): Promise<StagedRows> {
    return StagedRows.create(this.#shared, this.guard, options)
  }
}

/** A deletion changes rows of a table that the branch has not written to yet. */
class LackingHeapError extends StaleError {
  constructor(readonly table: BranchTable) {
    super('the branch has no storage for the table')
  }
}

const NO_CALLS: readonly Call[] = []

function withoutRules(codec: TableCodec): TableCodec {
  return { ...codec, uniqueKeys: [], checks: [] }
}

function isWritable(table: BranchTable): table is WritableTable {
  return table.writer !== undefined
}
