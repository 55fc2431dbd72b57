import { AppError } from '@offshoot/contract/errors'
import type { LongWork } from '../../domain/long-work/long-work.js'
import type { Bounds } from '../../postgres/bounds.js'
import { type Call, type TextRows, toCall } from '../../postgres/statement.js'
import { Fault } from '../../rows/columns/fault.js'
import type { EncodedUpdate, InputRecord } from '../../rows/columns/record-encoder.js'
import { isFaults, type TableCodec } from '../../rows/columns/table-codec.js'
import type { BranchTable } from '../../rows/open-branch.js'
import { confirmed } from '../../rows/running/staleness.js'
import type { WriteTransaction } from '../../rows/running/transactions.js'
import { Refusal } from '../../rows/writing/refusals.js'
import type { RuleCheck, TableWriter } from '../../rows/writing/table-writer.js'
import type { Filter } from '../query/filter.js'
import { invalidQuery } from '../query/invalid-query.js'
import { calculatedPaths } from '../records/calculated-paths.js'
import { type FindFailing, findUnevaluated } from '../records/failing-records.js'
import { answerOnce, type IdempotencyContext, keepAnswer } from '../records/idempotency.js'
import { followUpdates } from '../records/new-numbers.js'
import {
  invalidRecord,
  invalidValue,
  naming,
  ruleBroken,
  toRecordError,
  type Violation,
} from '../session/record-errors.js'
import { originOf, type Session, withBranch } from '../session/session.js'
import { parseSet, rowSet, type SetRequest } from './row-set.js'

/*
 * Operations on all records that meet a filter. Each is one transaction with one statement, whatever the number of
 * records.
 */

export interface SetContext extends IdempotencyContext {
  readonly tableName: string
  readonly bounds: Bounds
  /** The request may be answered before the change ends. */
  readonly work: LongWork
}

interface SetOptions extends SetRequest {
  /** The change is made in a transaction that is rolled back. */
  readonly dryRun?: boolean
}

/** Changes fields of all records of a set. */
export async function updateSet(
  context: SetContext,
  options: SetOptions & { readonly set: InputRecord },
): Promise<string> {
  const { session } = context
  const table = session.table(context.tableName)
  const update = encodeSet(session, table, options.set)
  const { uniqueKeys } = table.codec
  return changeSet(context, table, {
    options,
    update,
    movesValues: update.arithmetic.some(({ column }) =>
      uniqueKeys.some(({ columns }) => columns.includes(column)),
    ),
    answerWith: (count) => `{"updated":${count}}`,
    prepare: (writer, setFrom) => ({
      call: writer.updateSet(update, setFrom),
      checks: writer.checkSet(update),
    }),
    findTaker: (writer, key, setFrom) => writer.findSetTaker(key, update, setFrom),
    findFailing: (writer, tryCall, setFrom) => writer.findFailingChange(tryCall, update, setFrom),
    settle: async ([count = '0', found = count]) => {
      if (found !== count) throw new UnstoredError(Number(found) - Number(count))
      const bytes = update.values.reduce((sum, value) => sum + (value?.length ?? 0), 0)
      await session.growth.admit(Number(count) * bytes)
    },
  })
}

/** Deletes all records of a set. */
export async function deleteSet(context: SetContext, options: SetOptions): Promise<string> {
  const table = context.session.table(context.tableName)
  return changeSet(context, table, {
    options,
    movesValues: false,
    answerWith: (count, linked) => `{"deleted":${count}${writeLinked(linked)}}`,
    prepare: (writer, setFrom) => ({ call: writer.deleteSet(setFrom), checks: [] }),
    settle: async () => undefined,
  })
}

/** The records of other tables that a deletion has deleted or changed through links, by the names of the tables. */
type LinkEffects = Awaited<ReturnType<NonNullable<WriteTransaction['settleLinks']>>>

interface SetChange {
  readonly options: SetOptions
  /** The new values. undefined: the records are deleted. */
  readonly update?: EncodedUpdate
  /** Whether a record may get the unique value that another one of the set has had. */
  readonly movesValues: boolean
  answerWith(count: string, linked: LinkEffects | undefined): string
  prepare(
    writer: TableWriter,
    setFrom: Parameters<TableWriter['deleteSet']>[0],
  ): { call: Call; checks: readonly RuleCheck[] }
  /** Returns a call that finds the record which was to get taken values of a unique key. */
  findTaker?(
    writer: TableWriter,
    key: NonNullable<Violation['key']>,
    setFrom: Parameters<TableWriter['deleteSet']>[0],
  ): Call
  /** Finds the first record for which a check cannot be evaluated. */
  findFailing?(
    writer: TableWriter,
    tryCall: Parameters<FindFailing>[1],
    setFrom: Parameters<TableWriter['deleteSet']>[0],
  ): ReturnType<FindFailing>
  /** Takes the row of the call, and refuses the change if it must not be committed. */
  settle(row: readonly string[]): Promise<void>
}

async function changeSet(
  context: SetContext,
  table: BranchTable,
  change: SetChange,
): Promise<string> {
  const { session } = context
  const filter = parseSet(session, table.codec, change.options)
  const write = () => writeSet(context, table, { change, filter })
  if (!change.options.dryRun) return answerOnce(context, write)
  return write().finally(() => session.growth.undo())
}

async function writeSet(
  context: SetContext,
  table: BranchTable,
  { change, filter }: { change: SetChange; filter: Filter | undefined },
): Promise<string> {
  const { session, bounds, work } = context
  const { branch } = session
  const { codec } = table
  const { dryRun: isDryRun = false } = change.options
  work.begin({ step: 'changing records', done: 0, total: 1 })
  await session.growth.admitBody()
  if (change.update !== undefined && !isDryRun) {
    await followUpdates(session, { table, updates: [change.update] })
  }
  const { writer } = await branch.writable(table)
  const setFrom = (firstSlot: number) => rowSet(session, { codec, filter }, firstSlot)
  const prepare = (own: Session, by: TableWriter) => {
    const { call, checks } = change.prepare(by, (firstSlot) =>
      rowSet(own, { codec, filter }, firstSlot),
    )
    return { calls: [call, ...checks.map((check) => check.call)], checks }
  }
  const finish = async (
    transaction: WriteTransaction,
    [written = [], ...checked]: readonly TextRows[],
    checks: readonly RuleCheck[],
  ) => {
    const row = firstRow(written)
    const [count = '0'] = row
    const taken = checks.find((_, index) => (checked[index]?.length ?? 0) > 0)
    if (taken !== undefined && count !== '0') throw new TakenBySetError(taken.violation)
    await change.settle(row)
    const answer = change.answerWith(count, await transaction.settleLinks?.())
    if (isDryRun) return answer
    await keepAnswer(transaction, context, answer)
    await work.keep(
      async (statement) => (await transaction.run([toCall(statement)]))[0] ?? [],
      JSON.parse(answer),
    )
    return answer
  }
  const { calls, checks } = prepare(session, writer)
  const running = {
    bounds,
    isDryRun,
    ...branch.claimOf([table], { deletes: change.update === undefined }),
  }
  try {
    return await branch.runSteps((transaction, rows) => finish(transaction, rows, checks), {
      first: calls,
      ...running,
    })
  } catch (cause) {
    if (cause instanceof UnstoredError && change.update !== undefined) {
      throw await notStorable(context, codec, {
        update: change.update,
        count: cause.count,
        call: writer.findUnstored(change.update, setFrom, SHOWN_MAX),
      })
    }
    const find = change.findFailing
    const found =
      find &&
      (await findUnevaluated(session, table, {
        error: cause,
        find: (by, tryCall) => find(by, tryCall, setFrom),
      }))
    if (found !== undefined) throw confirmed(ruleBroken(found.violation, found.record))
    const { record, violation } = Refusal.of(cause, [codec]) ?? {}
    const error = toRecordError(cause, codec, record)
    const isTaken = error instanceof AppError && error.code === 'unique_violation'
    if (!isTaken) throw error
    if (!change.movesValues || !branch.takesDrafts) {
      const key = violation?.key ?? (cause instanceof TakenBySetError ? cause.key : undefined)
      const call = key && change.findTaker?.(writer, key, setFrom)
      throw call === undefined ? error : await nameTaker(context, error, call)
    }
    return branch.runDrafted(
      [table],
      async (draft, transaction) => {
        const drafted = withBranch(session, draft)
        const own = await draft.writable(drafted.table(codec.table.name))
        const run = prepare(drafted, own.writer)
        return finish(transaction, await transaction.run(run.calls), run.checks)
      },
      running,
    )
  }
}

/** Results of arithmetic cannot be stored. */
class UnstoredError extends AppError {
  /** The number of records with such a result. */
  constructor(readonly count: number) {
    super('invalid_record', 'results of arithmetic cannot be stored')
  }
}

/** A record of a set was to get values of a unique key that an inherited record has. */
class TakenBySetError extends AppError {
  readonly key: Violation['key']

  constructor(violation: Violation) {
    const { code, message, details } = ruleBroken(violation)
    super(code, message, details && { details })
    this.key = violation.key
  }
}

/** Names the record of the set that was to get taken values. The transaction has been rolled back. */
async function nameTaker(
  { session, bounds }: SetContext,
  error: AppError,
  call: Call,
): Promise<AppError> {
  try {
    const [found = []] = await session.branch.runReads([call], bounds)
    return naming(error, found[0])
  } catch {
    // The branch may have changed since. The error is told without the record.
    return error
  }
}

/** Writes what a deletion has caused in the tables with links to the records. */
function writeLinked(effects: LinkEffects = new Map()): string {
  if (effects.size === 0) return ''
  const linked = Object.fromEntries(
    [...effects].map(([table, { deleted, cleared }]) => [
      table,
      { ...(deleted > 0 && { deleted }), ...(cleared > 0 && { cleared }) },
    ]),
  )
  return `,"linked":${JSON.stringify(linked)}`
}

function firstRow([row = []]: TextRows): string[] {
  return row.map((text) => text ?? '0')
}

const REFUSED_FILE = new Fault(
  'a file cannot be written to a set of records; only null is possible',
)

function encodeSet(
  session: SetContext['session'],
  { codec }: BranchTable,
  fields: InputRecord,
): EncodedUpdate {
  const update = codec.encodeUpdate(fields, originOf(session), () => REFUSED_FILE)
  if (isFaults(update)) throw invalidRecord(codec, update)
  if (update.columns.length + update.arithmetic.length > 0) return update
  throw invalidQuery('set: expected at least one column')
}

/** Records at fault that a message lists. */
const SHOWN_MAX = 10

/** Says which records cannot be changed, and why. The transaction has been rolled back. */
async function notStorable(
  { session, bounds }: SetContext,
  codec: TableCodec,
  { update, count, call }: { update: EncodedUpdate; count: number; call: Call },
): Promise<AppError> {
  // The branch may have changed since. The error is told without the records.
  const [rows = []] = await session.branch.runReads([call], bounds).catch(() => [])
  const columns = [...new Set(update.arithmetic.map(({ column }) => column))]
  const faults = rows.map(([record = null, ...texts]) => {
    const textOf = (column: number) => texts[columns.indexOf(column)] ?? null
    const { column, message } = codec.arithmeticFault(update, textOf)
    return { record: record ?? '', column, message }
  })
  const listed = faults.map(({ record, message }) => `record [${record}]: ${message}`)
  if (listed.length < count) listed.push(`${count - listed.length} more`)
  const records = count === 1 ? '1 record' : `${count} records`
  return confirmed(
    invalidValue(
      codec,
      `invalid record: ${records} cannot be changed: ${listed.join('; ')}; nothing was changed`,
      faults[0] ?? { column: calculatedPaths(codec, update)[0] },
    ),
  )
}
