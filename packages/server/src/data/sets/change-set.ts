import { AppError } from '@offshoot/contract/errors'
import type { LongWork } from '../../domain/long-work/long-work.js'
import type { Bounds } from '../../postgres/bounds.js'
import { type Call, type TextRows, toCall } from '../../postgres/statement.js'
import { Fault } from '../../rows/columns/fault.js'
import type { EncodedUpdate, InputRecord } from '../../rows/columns/record-encoder.js'
import { isFaults } from '../../rows/columns/table-codec.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { Refusal } from '../../rows/writing/refusals.js'
import type { RuleCheck, TableWriter } from '../../rows/writing/table-writer.js'
import type { Filter } from '../query/filter.js'
import { invalidQuery } from '../query/invalid-query.js'
import { answerOnce, type IdempotencyContext, keepAnswer } from '../records/idempotency.js'
import { invalidRecord, ruleBroken, toRecordError } from '../session/record-errors.js'
import { originOf, type Session, withBranch } from '../session/session.js'
import { countCall, parseSet, rowSet, type SetRequest } from './row-set.js'

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
  /** Counts the records, and writes nothing. */
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
    movesValues: update.arithmetic.some(({ column }) =>
      uniqueKeys.some(({ columns }) => columns.includes(column)),
    ),
    answerWith: (count) => `{"updated":${count}}`,
    prepare: (writer, setFrom) => ({
      call: writer.updateSet(update, setFrom),
      checks: writer.checkSet(update),
    }),
    settle: async ([count = '0', found = count]) => {
      if (found !== count) throw notStorable(Number(found) - Number(count))
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
    answerWith: (count) => `{"deleted":${count}}`,
    prepare: (writer, setFrom) => ({ call: writer.deleteSet(setFrom), checks: [] }),
    settle: async () => undefined,
  })
}

interface SetChange {
  readonly options: SetOptions
  /** Whether a record may get the unique value that another one of the set has had. */
  readonly movesValues: boolean
  answerWith(count: string): string
  prepare(
    writer: TableWriter,
    setFrom: Parameters<TableWriter['deleteSet']>[0],
  ): { call: Call; checks: readonly RuleCheck[] }
  /** Takes the row of the call, and refuses the change if it must not be committed. */
  settle(row: readonly string[]): Promise<void>
}

async function changeSet(
  context: SetContext,
  table: BranchTable,
  change: SetChange,
): Promise<string> {
  const { session, bounds } = context
  const filter = parseSet(session, table.codec, change.options)
  if (change.options.dryRun) {
    const call = countCall(session, { codec: table.codec, filter })
    const [rows = []] = await session.branch.runReads([call], bounds)
    return change.answerWith(firstRow(rows)[0] ?? '0')
  }
  return answerOnce(context, () => writeSet(context, table, { change, filter }))
}

async function writeSet(
  context: SetContext,
  table: BranchTable,
  { change, filter }: { change: SetChange; filter: Filter | undefined },
): Promise<string> {
  const { session, bounds, work } = context
  const { branch } = session
  const { codec } = table
  work.begin({ step: 'changing records', done: 0, total: 1 })
  await session.growth.admitBody()
  const { writer } = await branch.writable(table)
  const prepare = (own: Session, by: TableWriter) => {
    const { call, checks } = change.prepare(by, (firstSlot) =>
      rowSet(own, { codec, filter }, firstSlot),
    )
    return { calls: [call, ...checks.map((check) => check.call)], checks }
  }
  const finish = async (
    transaction: OpenTransaction,
    [written = [], ...checked]: readonly TextRows[],
    checks: readonly RuleCheck[],
  ) => {
    const row = firstRow(written)
    const [count = '0'] = row
    const taken = checks.find((_, index) => (checked[index]?.length ?? 0) > 0)
    if (taken !== undefined && count !== '0') {
      throw ruleBroken(taken.violation)
    }
    await change.settle(row)
    const answer = change.answerWith(count)
    await keepAnswer(transaction, context, answer)
    await work.keep(
      async (statement) => (await transaction.run([toCall(statement)]))[0] ?? [],
      JSON.parse(answer),
    )
    return answer
  }
  const { calls, checks } = prepare(session, writer)
  try {
    return await branch.runSteps((transaction, rows) => finish(transaction, rows, checks), {
      first: calls,
      bounds,
    })
  } catch (cause) {
    const error = toRecordError(cause, codec, Refusal.of(cause, [codec])?.record)
    const isMoved = error instanceof AppError && error.code === 'unique_violation'
    if (!isMoved || !change.movesValues || !branch.takesDrafts) throw error
    return branch.runDrafted(
      [table],
      async (draft, transaction) => {
        const drafted = withBranch(session, draft)
        const own = await draft.writable(drafted.table(codec.table.name))
        const run = prepare(drafted, own.writer)
        return finish(transaction, await transaction.run(run.calls), run.checks)
      },
      { bounds },
    )
  }
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

function notStorable(count: number): AppError {
  const records = count === 1 ? '1 record' : `${count} records`
  return new AppError(
    'invalid_record',
    `invalid record: the result of the arithmetic cannot be stored exactly in ${records}; nothing was changed`,
  )
}
