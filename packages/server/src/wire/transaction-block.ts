import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Node } from 'libpg-query'
import type { Description, ResultColumn } from '../data/sql/evaluate.js'
import type { RowSink } from '../data/sql/row-sink.js'
import { isSchemaNode } from '../data/sql/schema/parse-schema.js'
import { contentOf, kindOf } from '../dialect/nodes.js'
import { ident, type Sql, sql } from '../postgres/sql.js'
import type { BranchRunner, CursorFetch, StatementRun } from './branch-runner.js'
import type { CatalogueRows, CatalogueRun } from './catalogue/catalogue.js'
import type { ClientStatement } from './client-statement.js'
import { ClientTransaction } from './client-transaction.js'
import { type CursorMovement, fetchSql } from './cursor-statement.js'
import { FrameContent } from './frames.js'
import { HeldCursors } from './held-cursors.js'
import type { SessionSettings } from './session-settings.js'
import type { SessionTypes } from './session-types.js'
import { unsupported, WireError } from './wire-error.js'

/** Savepoints of one transaction. */
const SAVEPOINTS_MAX = 1_000

/** Cursors of one transaction. Each keeps memory of PostgreSQL. */
export const CURSORS_MAX = 20

/** Returns the texts of a row that was read as a message. */
function textsIn(message: Buffer): (string | null)[] {
  const content = new FrameContent(message.subarray(5))
  return content.list(() => content.value()?.toString() ?? null)
}

interface CursorDeclaration {
  readonly name: string
  /** What precedes the query. */
  readonly words: Sql
  readonly isHeld: boolean
  readonly isForward: boolean
}

interface CursorStep extends Omit<CursorFetch, 'fetch'> {
  readonly name: string
  readonly movement: CursorMovement
}

/** The result of a statement about transactions. */
interface ControlAnswer {
  readonly tag: string
  readonly warning?: WireError
}

const ABORTED = 'current transaction is aborted, commands ignored until end of transaction block'

/**
 * The transaction block of a session: what BEGIN, COMMIT, ROLLBACK and savepoints mean. Nothing of PostgreSQL is held
 * before the first statement of a block.
 */
export class TransactionBlock {
  readonly #runner: BranchRunner
  readonly #limits: Limits
  /** They change with the transaction, like the types. */
  readonly #settings: SessionSettings
  readonly #types: SessionTypes
  #state: 'none' | 'open' | 'failed' = 'none'
  /** The statements of one message are a block that ends with it. */
  #isImplicit = false
  #isReadOnly = false
  #transaction: ClientTransaction | undefined
  #savepoints: string[] = []
  /** The columns of cursors, and the number of savepoints at their declaration. */
  readonly #cursors = new Map<string, { columns: readonly ResultColumn[]; depth: number }>()
  readonly #held = new HeldCursors()
  #isClosed = false

  constructor(
    runner: BranchRunner,
    limits: Limits,
    parts: { settings: SessionSettings; types: SessionTypes },
  ) {
    this.#runner = runner
    this.#limits = limits
    this.#settings = parts.settings
    this.#types = parts.types
  }

  /** The letter of ReadyForQuery. */
  get status(): 'I' | 'T' | 'E' {
    return ({ none: 'I', open: 'T', failed: 'E' } as const)[this.#state]
  }

  get isOpen(): boolean {
    return this.#state !== 'none'
  }

  /** Throws if nothing but the end of the block can follow, or nothing at all, because the client is gone. */
  requireUsable(): void {
    if (this.#isClosed) throw clientGone()
    if (this.#state === 'failed') throw new WireError('25P02', ABORTED)
  }

  /** Whether PostgreSQL can keep the rows of a portal until they are asked for. */
  get keepsPortals(): boolean {
    return this.#state === 'open' && !this.#isImplicit && this.#runner.hasCursors
  }

  /** Whether the block ends with its message. */
  get isImplicit(): boolean {
    return this.#isImplicit
  }

  /** Begins a block for the statements of one message. */
  beginImplicit(): void {
    if (this.isOpen) return
    this.#begin()
    this.#isImplicit = true
  }

  /** Ends a block whose message has ended. */
  async endImplicit(): Promise<void> {
    if (!this.#isImplicit) return
    if (this.#state === 'failed') await this.abandon()
    else await this.#commit()
  }

  /** Runs a statement, in the transaction if there is one. */
  run(run: StatementRun, sink: RowSink): Promise<void> {
    this.requireUsable()
    const { isWrite, node } = run.statement
    if (isWrite) this.requireWritable(kindOf(node).replace(/Stmt$/, '').toUpperCase())
    return this.#state === 'none' ? this.#runner.run(run, sink) : this.#runInside(run, sink)
  }

  /** Whether the transaction that is open only reads, or the next one will. */
  get isReadOnly(): boolean {
    return this.isOpen ? this.#isReadOnly : this.#settings.isReadOnlyByDefault
  }

  /** Throws if the transaction only reads. `words` name the statement. A key that cannot write is told so elsewhere. */
  requireWritable(words: string): void {
    if (!this.isReadOnly || !this.#runner.canWrite) return
    throw new WireError('25006', `cannot execute ${words} in a read-only transaction`)
  }

  async #runInside(run: StatementRun, sink: RowSink): Promise<void> {
    await this.#runner.admitted(async () => {
      const transaction = await this.#opened(run.signal, isSchemaNode(run.statement.node))
      await transaction.run(run, sink)
    })
  }

  describe(run: StatementRun): Promise<Description> {
    return this.#seen(
      (transaction) => transaction.describe(run),
      () => this.#runner.describe(run),
    )
  }

  /** Throws if a statement names what does not exist. */
  async judge(run: StatementRun): Promise<void> {
    this.requireUsable()
    await this.#seen<unknown>(
      (transaction) => transaction.describe(run),
      () => this.#runner.judge(run),
    )
  }

  describeCatalogue(run: CatalogueRun): Promise<Description> {
    return this.#seen(
      (transaction) => transaction.describeCatalogue(run),
      () => this.#runner.describeCatalogue(run),
    )
  }

  runCatalogue(run: CatalogueRun): Promise<CatalogueRows> {
    return this.#seen(
      (transaction) => transaction.runCatalogue(run),
      () => this.#runner.runCatalogue(run),
    )
  }

  /** Does what depends on the schema. A transaction that has changed it sees another one than everybody else. */
  #seen<Result>(
    inside: (transaction: ClientTransaction) => Promise<Result>,
    outside: () => Promise<Result>,
  ): Promise<Result> {
    const transaction = this.#transaction
    if (!transaction?.hasChangedSchema) return outside()
    return this.#runner.admitted(() => inside(transaction))
  }

  /** Bytes of the rows of cursors that live on after their transaction. */
  get heldBytes(): number {
    return this.#held.bytes
  }

  /** Creates a cursor, which lives as long as the transaction, or longer if it is held. */
  async declare(run: StatementRun, declaration: CursorDeclaration) {
    const { name, words, isHeld } = declaration
    this.#requireNewCursor(declaration)
    if (isHeld || !this.#runner.hasCursors) {
      await this.#keepRows(declaration, (sink) => this.run(run, sink))
      return
    }
    if (this.#cursors.size >= CURSORS_MAX) {
      throw new WireError('54000', `a transaction can have at most ${CURSORS_MAX} cursors`)
    }
    await this.#runner.admitted(async () => {
      const transaction = await this.#opened(run.signal)
      await transaction.declare(run, words, {
        describe: ({ columns }) =>
          this.#cursors.set(name, { columns, depth: this.#savepoints.length }),
      })
    })
  }

  /** Creates a cursor for a statement on the catalogue, whose rows are read at once. */
  async declareCatalogue(run: CatalogueRun, declaration: CursorDeclaration) {
    this.#requireNewCursor(declaration)
    const found = await this.runCatalogue(run)
    await this.#keepRows(declaration, async (sink) => {
      sink.describe({ parameterTypeIds: [], columns: found.columns })
      for (const row of found.take(0)) sink.row(textsIn(row))
      sink.end({ kind: 'select', written: 0 })
    })
  }

  #requireNewCursor({ name, isHeld }: CursorDeclaration): void {
    this.requireUsable()
    if (this.findCursor(name) !== undefined) {
      throw new WireError('42P03', `cursor "${name}" already exists`)
    }
    if (!isHeld) this.#requireExplicit('DECLARE CURSOR')
  }

  /** Creates a cursor whose rows are read at once and kept. */
  #keepRows(
    { name, isHeld, isForward }: CursorDeclaration,
    read: (sink: RowSink) => Promise<void>,
  ): Promise<void> {
    const depth = this.isOpen ? this.#savepoints.length : undefined
    const bytesMax = this.#limits.answerBytesMax
    return this.#held.declare(name, { isForward, bytesMax, depth, isOfTransaction: !isHeld }, read)
  }

  /** Returns the columns of a cursor. */
  cursorColumns(name: string): readonly ResultColumn[] {
    const columns = this.findCursor(name)
    if (columns === undefined) throw new WireError('34000', `cursor "${name}" does not exist`)
    return columns
  }

  findCursor(name: string): readonly ResultColumn[] | undefined {
    return this.#cursors.get(name)?.columns ?? this.#held.find(name)
  }

  /** Reads rows of a cursor. */
  async fetch({ name, movement, ...bounds }: CursorStep, sink: RowSink): Promise<void> {
    this.requireUsable()
    if (this.#held.find(name) !== undefined) {
      // The rows were read earlier, and the key may have been revoked since.
      if (this.#transaction === undefined) await this.#runner.place()
      else await this.#transaction.confirmKey()
      this.#held.fetch(name, movement, sink)
      return
    }
    await this.#runner.admitted(async () => {
      const transaction = await this.#opened(bounds.signal)
      await transaction.fetch({ ...bounds, fetch: fetchSql(name, movement) }, sink)
    })
  }

  /** Closes a cursor, or all. */
  async closeCursor(name: string | undefined): Promise<void> {
    if (name !== undefined) this.cursorColumns(name)
    for (const each of name === undefined ? this.#cursors.keys() : [name]) {
      if (!this.#cursors.has(each)) continue
      await this.#transaction?.control(sql`close ${ident(each)}`)
      this.#cursors.delete(each)
    }
    for (const each of name === undefined ? this.#held.names : [name]) this.#held.close(each)
  }

  /** Throws unless BEGIN has begun a transaction. */
  #requireExplicit(words: string): void {
    this.requireUsable()
    this.#requireBlock(words)
  }

  /** An error in a block ends it, except for a return to one of its savepoints. */
  async fail(): Promise<void> {
    if (this.#state !== 'open') return
    this.#state = 'failed'
    if (this.#savepoints.length > 0) return
    const transaction = this.#transaction
    this.#transaction = undefined
    await transaction?.rollBack()
  }

  /** Ends the block of a client that is gone, also if its transaction is only about to begin. */
  async close(): Promise<void> {
    this.#isClosed = true
    const transaction = this.#transaction
    this.#reset()
    this.#end({ isKept: false })
    await transaction?.leave()
  }

  /** Ends a block without effect. */
  async abandon(): Promise<void> {
    const transaction = this.#transaction
    this.#reset()
    this.#end({ isKept: false })
    await transaction?.rollBack()
  }

  /** Sets what SET TRANSACTION and BEGIN say. The isolation is always the highest. */
  configure(options: readonly Node[] | undefined): void {
    const isReadOnly = readOnlyOf(options)
    if (isReadOnly !== undefined) this.setReadOnly(isReadOnly)
  }

  /** Sets whether the open transaction only reads. One that has run a statement can only give writing up. */
  setReadOnly(isReadOnly: boolean): void {
    if (isReadOnly === this.#isReadOnly || !this.isOpen || !this.#runner.canWrite) return
    if (this.#transaction !== undefined && !isReadOnly) {
      throw new WireError('25001', 'transaction read-write mode must be set before any query')
    }
    this.#isReadOnly = isReadOnly
  }

  /** Judges the links that the block has written so far, instead of at its end alone. */
  async judgeLinks(): Promise<void> {
    this.requireUsable()
    const transaction = this.#transaction
    if (transaction !== undefined) await this.#runner.admitted(() => transaction.judgeLinks())
  }

  /** Runs a statement about transactions. */
  async control(
    { node }: ClientStatement,
    { signal }: { signal: AbortSignal },
  ): Promise<ControlAnswer> {
    const statement = contentOf(node, 'TransactionStmt') ?? {}
    const name = statement.savepoint_name ?? ''
    switch (statement.kind) {
      case 'TRANS_STMT_BEGIN':
      case 'TRANS_STMT_START': {
        this.requireUsable()
        const tag = statement.kind === 'TRANS_STMT_BEGIN' ? 'BEGIN' : 'START TRANSACTION'
        const isNested = this.isOpen && !this.#isImplicit
        if (!this.isOpen) this.#begin()
        this.#isImplicit = false
        this.configure(statement.options)
        return isNested
          ? { tag, warning: new WireError('25001', 'there is already a transaction in progress') }
          : { tag }
      }
      case 'TRANS_STMT_COMMIT':
      case 'TRANS_STMT_ROLLBACK':
        return this.#endBlock(statement.kind === 'TRANS_STMT_COMMIT', statement.chain === true)
      case 'TRANS_STMT_SAVEPOINT':
        this.#requireBlock('SAVEPOINT')
        this.requireUsable()
        await this.#save(name, signal)
        return { tag: 'SAVEPOINT' }
      case 'TRANS_STMT_RELEASE': {
        this.#requireBlock('RELEASE SAVEPOINT')
        this.requireUsable()
        const index = this.#find(name)
        await this.#transaction?.savepoint({ kind: 'release', name, depth: index })
        this.#savepoints.length = index
        for (const each of this.#cursors.values()) each.depth = Math.min(each.depth, index)
        this.#held.release(index)
        return { tag: 'RELEASE' }
      }
      case 'TRANS_STMT_ROLLBACK_TO': {
        this.#requireBlock('ROLLBACK TO SAVEPOINT')
        const index = this.#find(name)
        await this.#transaction?.savepoint({ kind: 'return', name, depth: index })
        this.#savepoints.length = index + 1
        this.#settings.returnTo(index)
        this.#types.returnTo(index)
        for (const [cursor, { depth }] of this.#cursors) {
          if (depth > index) this.#cursors.delete(cursor)
        }
        this.#held.returnTo(index + 1)
        this.#state = 'open'
        return { tag: 'ROLLBACK' }
      }
      default:
        throw unsupported('transactions in two phases are not supported')
    }
  }

  #begin({ isReadOnly } = { isReadOnly: this.#settings.isReadOnlyByDefault }): void {
    this.#settings.begin(this)
    this.#types.begin()
    this.#state = 'open'
    this.#isReadOnly = isReadOnly || !this.#runner.canWrite
    this.#isImplicit = false
    this.#savepoints = []
  }

  #reset(): void {
    this.#cursors.clear()
    this.#state = 'none'
    this.#isImplicit = false
    this.#transaction = undefined
    this.#savepoints = []
  }

  async #endBlock(commits: boolean, isChained: boolean): Promise<ControlAnswer> {
    if (isChained) this.#requireBlock(`${commits ? 'COMMIT' : 'ROLLBACK'} AND CHAIN`)
    const tag = commits && this.#state !== 'failed' ? 'COMMIT' : 'ROLLBACK'
    if (!this.isOpen) return { tag, warning: noTransaction() }
    const answer = this.#isImplicit ? { tag, warning: noTransaction() } : { tag }
    const isReadOnly = this.#isReadOnly
    if (tag === 'COMMIT') await this.#commit()
    else await this.abandon()
    if (isChained) this.#begin({ isReadOnly })
    return answer
  }

  async #commit(): Promise<void> {
    const transaction = this.#transaction
    this.#reset()
    try {
      await transaction?.commit()
    } catch (error) {
      this.#end({ isKept: false })
      throw error
    }
    this.#end({ isKept: true })
  }

  /** Keeps what the transaction has changed of the session, or takes it back. */
  #end(outcome: { isKept: boolean }): void {
    this.#settings.end(outcome)
    this.#types.end(outcome)
    this.#held.end(outcome)
  }

  async #save(name: string, signal: AbortSignal): Promise<void> {
    if (this.#savepoints.length >= SAVEPOINTS_MAX) {
      throw new WireError('54000', `a transaction can have at most ${SAVEPOINTS_MAX} savepoints`)
    }
    await this.#runner.admitted(async () => {
      const transaction = await this.#opened(signal)
      await transaction.savepoint({ kind: 'save', name, depth: this.#savepoints.length })
    })
    this.#settings.save(this.#savepoints.length)
    this.#types.save(this.#savepoints.length)
    this.#savepoints.push(name)
  }

  #find(name: string): number {
    const index = this.#savepoints.lastIndexOf(name)
    if (index !== -1) return index
    throw new WireError('3B001', `savepoint "${name}" does not exist`)
  }

  #requireBlock(words: string): void {
    if (this.isOpen && !this.#isImplicit) return
    throw new WireError('25P01', `${words} can only be used in transaction blocks`)
  }

  /** Returns the transaction, which begins with its first statement. */
  async #opened(signal: AbortSignal, isAlone = false): Promise<ClientTransaction> {
    this.#transaction ??= await ClientTransaction.begin(this.#runner, {
      limits: this.#limits,
      isReadOnly: this.#isReadOnly,
      isAlone: isAlone && !this.#isReadOnly,
      signal,
    })
    if (!this.#isClosed) return this.#transaction
    await this.abandon()
    throw clientGone()
  }
}

const noTransaction = () => new WireError('25P01', 'there is no transaction in progress')

const clientGone = () => new AppError('timeout', 'the client has disconnected')

/** Returns what options of a transaction say about writing. */
export function readOnlyOf(options: readonly Node[] | undefined): boolean | undefined {
  for (const option of options ?? []) {
    const { defname, arg } = contentOf(option, 'DefElem') ?? {}
    if (defname === 'transaction_read_only') return contentOf(arg, 'A_Const')?.ival?.ival === 1
  }
  return undefined
}
