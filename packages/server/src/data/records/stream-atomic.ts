import { createHash } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { inTurns, Turn } from '../../common/in-turns.js'
import { LineReader } from '../../common/line-reader.js'
import { PART_IDS_MAX } from '../../domain/log/loads.js'
import type { LongWork } from '../../domain/long-work/long-work.js'
import type { Queryable } from '../../postgres/database.js'
import { toCall } from '../../postgres/statement.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { BranchTable, WritableTable } from '../../rows/open-branch.js'
import { confirmed, StaleError } from '../../rows/running/staleness.js'
import type { OpenTransaction, WriteTransaction } from '../../rows/running/transactions.js'
import type { Storage } from '../../rows/storage.js'
import { Refusal } from '../../rows/writing/refusals.js'
import type { StagedRow, StagedRows, Written } from '../../rows/writing/staged-rows.js'
import {
  findBrokenLink,
  findViolationFields,
  type InvalidRecord,
  type Violation,
  violationFields,
} from '../session/record-errors.js'
import type { Session } from '../session/session.js'
import { findFailing } from './failing-records.js'
import {
  findAnswer,
  hashContent,
  type IdempotentRequest,
  isKeyUsed,
  keepAnswer,
} from './idempotency.js'
import { LoadEntry } from './load-entry.js'
import { storeFiles } from './record-files.js'
import { recordInput } from './record-input.js'
import type { RecordContext } from './records.js'
import { publishAsHeap } from './stream-heap.js'
import { publishLongStream } from './stream-layer.js'
import {
  type ExistingRecords,
  encodeLines,
  lineBytesMax,
  type StreamRequest,
  streamFailed,
  Tally,
  valuesOf,
} from './stream-lines.js'
import { READ_AHEAD_BYTES } from './stream-source.js'

/**
 * Values of the rows of a stream that are held in memory. Records without values are a hundred times as large as
 * their lines, so the length of a stream does not bound its rows.
 */
const HELD_VALUES_MAX = 200_000

const heldRowsMax = ({ codec }: BranchTable) =>
  Math.floor(HELD_VALUES_MAX / (codec.physical.length + 1))

type StreamContext = RecordContext & { readonly storage: Storage; readonly limits: Limits }

interface AtomicRequest extends StreamRequest {
  readonly existing: ExistingRecords
  /** The request may be answered before the records are inserted. */
  readonly work: LongWork
}

/** A stream that was read to its end. Its rows are valid. */
interface ReadStream {
  readonly bytes: number
  readonly tally: Tally
  readonly idempotent: IdempotentRequest | undefined
}

/** Where the rows of a stream are, and how they are inserted. */
interface HeldRows {
  readonly entry: LoadEntry
  insert(table: WritableTable, transaction: WriteTransaction): Promise<Written | undefined>
  /** Publishes the rows in another way than by inserting them. Returns whether it did. */
  publish?(
    table: WritableTable,
    finish: (transaction: OpenTransaction) => Promise<unknown>,
  ): Promise<boolean>
  /** Finds the first line whose id or value is taken, and the error that names the column. */
  findTaken(
    context: StreamContext,
    table: WritableTable,
    error: unknown,
  ): Promise<FoundLine | undefined>
  /** Finds the line of a record, which has caused an error. */
  findRow(id: string, error: unknown): Promise<FoundLine | undefined>
}

/** A line that breaks a rule, and the error or the rule. */
type FoundLine = { readonly line: number } & (
  | { readonly error: unknown }
  | { readonly violation: Violation }
)

function describeLine(found: FoundLine, codec: TableCodec): InvalidRecord {
  if ('violation' in found) {
    const { violation } = found
    return { message: `invalid record: ${violation.message}`, ...violationFields(violation) }
  }
  const reason = Refusal.of(found.error, [codec])?.message
  const fields = findViolationFields(found.error, new Set([codec]))
  return { message: `invalid record: ${reason}`, ...fields }
}

/**
 * Inserts a stream of records, all of them or none, in constant memory. A short stream is held in memory. A
 * longer one is staged: no lock is held until it is complete, so a slow client keeps nobody waiting.
 */
export class AtomicStream {
  readonly #request: AtomicRequest
  #rows: StagedRows | undefined
  /** The entry of the log for staged rows. Their ids are kept as they are staged, or when it is known which are new. */
  #entry: LoadEntry | undefined
  #stagedIds: string[] = []
  #isStored = false
  /** A staged stream, and the table that its rows were encoded for. */
  #staged: (ReadStream & { readonly definition: string; readonly session: Session }) | undefined

  constructor(request: AtomicRequest) {
    this.#request = request
  }

  /** Can be called again with another session, if the session was outdated. */
  async insert(context: StreamContext): Promise<string> {
    const table = context.session.table(context.tableName)
    const { source, work } = this.#request
    work.belongTo(context.session.access)
    if (this.#staged !== undefined) return this.#insertStaged(context, table)
    if (source.isUsed) throw branchChanged()
    const known = await this.#findEarlierAnswer(context, table)
    if (known !== undefined) return known
    await context.session.growth.admit(0)
    await source.readAhead(READ_AHEAD_BYTES)
    const writable = await context.session.branch.writable(table)
    // An attempt with an outdated session may have staged a part of a stream that was read ahead.
    await this.close(context.storage)
    const held: StagedRow[] = []
    const read = await this.#readLines(context, table, async (some) => {
      if (this.#rows === undefined) {
        for (const row of some) held.push(row)
        if (this.#canHold && held.length <= heldRowsMax(table)) return
      }
      await this.#stage(context, writable, held.length > 0 ? held.splice(0) : some)
    })
    work.endUpload()
    work.begin({ step: `publishing ${read.tally.inserted} records`, done: 1, total: 2 })
    const { session } = context
    if (this.#request.existing !== 'refuse') await this.#stage(context, writable, [])
    const staged = this.#rows as StagedRows | undefined
    if (staged === undefined)
      return this.#insertHeld(context, writable, read, holdInMemory(session, table, held))
    await this.#keepIds(context.storage.database)
    await staged.end(writable.writer, this.#request.existing)
    this.#staged = { ...read, session, definition: definitionOf(table) }
    return this.#insertStaged(context, table)
  }

  /** Whether a short stream is not staged. Only a stage can be compared with existing records. */
  get #canHold(): boolean {
    const { source, existing } = this.#request
    return source.isWhole && existing === 'refuse'
  }

  /** Adds rows to the stage, in steps. */
  async #stage(
    { session, storage }: StreamContext,
    table: WritableTable,
    rows: readonly StagedRow[],
  ): Promise<void> {
    const { codec } = table
    // Records that exist are looked for by the lines of a stage that has no rules.
    // Links can only be checked when the rows are inserted, and versions are only kept then.
    const isPlain = codec.links.length === 0 && codec.table.history === undefined
    const mayReplace = this.#request.existing === 'refuse' && isPlain
    if (this.#rows === undefined) {
      this.#entry = new LoadEntry(session, codec.table)
      // The records are created from now on.
      if (this.#keepsStagedIds) await this.#entry.keepStaged(storage.database, [])
      this.#rows = await session.branch.stageRows({ table, mayReplace })
    }
    const turn = new Turn()
    for (let start = 0; start < rows.length; start += codec.rowsPerStep) {
      const step = rows.slice(start, start + codec.rowsPerStep)
      await this.#rows.add(step)
      if (this.#keepsStagedIds) for (const { id } of step) this.#stagedIds.push(id)
      if (this.#stagedIds.length >= PART_IDS_MAX) await this.#keepIds(storage.database)
      if (turn.isOver) await turn.end()
    }
  }

  /** Whether all staged rows are new. Of others, that is known when they are inserted. */
  get #keepsStagedIds(): boolean {
    return this.#request.existing === 'refuse'
  }

  async #keepIds(database: Queryable): Promise<void> {
    const ids = this.#stagedIds
    this.#stagedIds = []
    if (ids.length > 0) await this.#entry?.keepStaged(database, ids)
  }

  /** Removes what was staged. */
  async close({ database }: { database: Queryable }): Promise<void> {
    const [rows, entry] = [this.#rows, this.#entry]
    this.#rows = undefined
    this.#entry = undefined
    this.#stagedIds = []
    await rows?.drop()
    // Ids that cannot be deleted now are deleted by their age.
    if (!this.#isStored) await entry?.forget(database).catch(() => undefined)
  }

  async #insertStaged(context: StreamContext, table: BranchTable): Promise<string> {
    const [staged, rows, entry] = [this.#staged, this.#rows, this.#entry]
    if (staged === undefined || rows === undefined || entry === undefined) {
      throw new Error('a stream must be staged')
    }
    if (staged.definition !== definitionOf(table)) throw branchChanged()
    const { session } = context
    // An outdated session has taken back what it had counted.
    if (session !== staged.session) await session.growth.admit(staged.bytes)
    const writable = await session.branch.writable(table)
    const { existing } = this.#request
    const findRow = async (id: string, error: unknown) => {
      const line = await rows.findLine(id)
      return line === undefined ? undefined : { line, error }
    }
    if (existing !== 'refuse') {
      return this.#insertHeld(context, writable, staged, {
        entry,
        insert: ({ writer }, transaction) => {
          const onNew = async (ids: readonly string[]) =>
            transaction.run(await entry.keeping(transaction, ids))
          return existing === 'skip'
            ? rows.insertNew(writer, transaction, onNew)
            : rows.replace(writer, transaction, onNew)
        },
        findTaken: ({ session }, { writer }) =>
          rows.findTakenBeside(writer, session.branch.guard, existing),
        findRow,
      })
    }
    return this.#insertHeld(context, writable, staged, {
      entry,
      async insert({ writer }, transaction) {
        await rows.insert(writer, transaction)
        return undefined
      },
      async publish(table, finish) {
        rows.requireAccepted()
        return (
          (await publishAsHeap(context, rows, finish)) ||
          (await publishLongStream(context, { table, rows }, finish))
        )
      },
      findTaken: ({ session }, { writer }) => rows.findTaken(writer, session.branch.guard),
      findRow,
    })
  }

  async #insertHeld(
    context: StreamContext,
    table: WritableTable,
    { tally, idempotent }: ReadStream,
    held: HeldRows,
  ): Promise<string> {
    const { session } = context
    const { entry } = held
    const keep = async (transaction: OpenTransaction) => {
      const { inserted, kept } = tally
      const counts = { inserted, ...(kept !== undefined && 'updated' in kept ? kept : {}) }
      await transaction.run([entry.adding(session, counts)])
      await keepAnswer(transaction, { ...context, idempotent }, tally.toJson())
      await this.#request.work.keep(
        async (statement) => (await transaction.run([toCall(statement)]))[0] ?? [],
        JSON.parse(tally.toJson()),
      )
    }
    const insert = async (transaction: WriteTransaction) => {
      const written = await held.insert(table, transaction)
      if (written !== undefined) {
        tally.inserted = written.inserted
        tally.kept = written.kept
      }
      await keep(transaction)
    }
    try {
      const isPublished = (await held.publish?.(table, keep)) ?? false
      const { bounds } = this.#request.work
      if (!isPublished) await session.branch.runSteps(insert, { isLong: true, bounds })
      this.#isStored = true
      this.#request.onEntry?.(entry.id)
      return tally.toJson()
    } catch (error) {
      // A client that has disconnected needs no response.
      if (error instanceof StaleError || this.#request.source.isAborted) throw error
      // The failure may be caused by the same request, sent twice and completed first.
      const known = await findAnswer({ ...context, idempotent })
      if (known !== undefined) return known
      const refusal = Refusal.of(error, [table.codec])
      if (refusal === undefined) throw error
      const { message, violation, isUnevaluated } = refusal
      const unexplained = () => new AppError('invalid_record', `${message}; nothing was inserted`)
      if (violation === undefined && !isUnevaluated) throw confirmed(unexplained())
      const [linking] = findBrokenLink(error)?.records ?? []
      const found =
        linking === undefined
          ? await held.findTaken(context, table, error)
          : await held.findRow(linking, error)
      if (found === undefined) throw confirmed(isUnevaluated ? unexplained() : dataChanged(error))
      const refused = new Tally()
      refused.refuse(found.line, describeLine(found, table.codec))
      throw confirmed(streamFailed(refused))
    }
  }

  /** Finds the response to an earlier request with the same content, which is known at the end of the stream. */
  async #findEarlierAnswer(
    context: StreamContext,
    table: BranchTable,
  ): Promise<string | undefined> {
    if (!(await isKeyUsed(context, this.#request.idempotencyKey))) return undefined
    const { lines, idempotent } = this.#openLines(context, table)
    await lines.drain()
    return findAnswer({ ...context, idempotent: idempotent() })
  }

  /** Validates all lines, and passes on their rows up to the first invalid line. */
  async #readLines(
    context: StreamContext,
    table: BranchTable,
    add: (rows: readonly StagedRow[]) => Promise<void>,
  ): Promise<ReadStream> {
    const { lines, idempotent, takeBytes } = this.#openLines(context, table)
    const tally = new Tally()
    let bytes = 0
    for await (const parsed of lines.batches()) {
      const input = await recordInput(context, table, valuesOf(parsed))
      const rows = await inTurns(encodeLines(table, parsed, { tally, input }))
      if (tally.failed > 0) continue
      const arrived = takeBytes()
      bytes += arrived
      await context.session.growth.admit(arrived)
      await storeFiles(context, input.files)
      await add(rows)
      tally.inserted += rows.length
      const step = `receiving records, ${tally.inserted} so far`
      this.#request.work.begin({ step, done: 0, total: 2 })
    }
    if (tally.failed > 0) throw streamFailed(tally)
    return { tally, bytes, idempotent: idempotent() }
  }

  #openLines({ limits }: StreamContext, table: BranchTable) {
    const { source, url, idempotencyKey, onHold } = this.#request
    const hash = idempotencyKey === undefined ? undefined : createHash('sha256').update(url)
    let arrivedBytes = 0
    const lines = new LineReader(source, {
      lineBytesMax: lineBytesMax(table, limits),
      limits,
      onHold,
      onChunk: (chunk) => {
        hash?.update(chunk)
        arrivedBytes += chunk.length
      },
    })
    return {
      lines,
      /** Returns the number of bytes that have arrived since the last call. */
      takeBytes: () => {
        const bytes = arrivedBytes
        arrivedBytes = 0
        return bytes
      },
      /** Call it at the end of the stream. */
      idempotent: (): IdempotentRequest | undefined =>
        idempotencyKey === undefined || hash === undefined
          ? undefined
          : {
              key: idempotencyKey,
              contentHash: hashContent(() => [hash.copy().digest(), '\0']),
            },
    }
  }
}

function holdInMemory(
  session: Session,
  { codec }: BranchTable,
  rows: readonly StagedRow[],
): HeldRows {
  const entry = new LoadEntry(session, codec.table)
  return {
    entry,
    async insert(table, transaction) {
      const sink = session.branch.openSink(table, transaction)
      try {
        await sink.add(rows)
        await sink.end()
      } catch (error) {
        await sink.abort()
        throw error
      }
      const ids = rows.map(({ id }) => id)
      await transaction.run(await entry.keeping(transaction, ids))
      return undefined
    },
    async findTaken({ session }, table, error) {
      const refusal = Refusal.of(error, [table.codec])
      if (refusal?.isUnevaluated) {
        const [failing] = await findFailing(session, table, rows)
        const row = rows[failing?.row ?? -1]
        return failing && row && { line: row.line, violation: failing.violation }
      }
      const row = rows[refusal?.rowsBefore ?? 0]
      return row && { line: row.line, error }
    },
    async findRow(wanted, error) {
      const row = rows.find(({ id }) => id === wanted)
      return row && { line: row.line, error }
    },
  }
}

/** The rows of a stream fit a table with the same name and columns. */
function definitionOf({ codec }: BranchTable): string {
  return JSON.stringify(codec.table)
}

function branchChanged(): AppError {
  return new AppError('retry_limit', 'the branch changed during the import; nothing was applied')
}

/** A value was taken, and is free again. */
function dataChanged(cause: unknown): AppError {
  return new AppError(
    'retry_limit',
    'other requests kept changing the same data; nothing was applied, please try again',
    { cause },
  )
}
