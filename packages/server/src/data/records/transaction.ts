import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { inTurns, mapInTurns } from '../../common/in-turns.js'
import { type JsonText, listJson } from '../../common/write-json.js'
import { sql } from '../../postgres/sql.js'
import { type Call, compileStatement, type TextRows } from '../../postgres/statement.js'
import type { BranchTable } from '../../rows/open-branch.js'
import { confirmed } from '../../rows/running/staleness.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { Refusal } from '../../rows/writing/refusals.js'
import type { Files } from '../files/files.js'
import {
  findBrokenAtEnd,
  findBrokenLink,
  findViolationFields,
  mayHeal,
  type Violation,
  violationFields,
} from '../session/record-errors.js'
import type { Session } from '../session/session.js'
import { byOperation, type FailingRecord, findUnevaluatedIn } from './failing-records.js'
import {
  answerOnce,
  type CreatedRecords,
  type IdempotencyContext,
  keepAnswer,
} from './idempotency.js'
import { loadContents } from './record-files.js'
import { prepareGroup } from './run-operations.js'
import {
  cutIntoParts,
  followOperations,
  groupOperations,
  newValuesOf,
  type OperationGroup,
  type PlannedOperation,
  planOperations,
} from './transaction-plan.js'

export interface TransactionContext extends IdempotencyContext {
  readonly files: Files
  readonly limits: Limits
}

/** Runs all operations or none. */
export async function runOperations(
  context: TransactionContext,
  operations: readonly unknown[],
): Promise<JsonText> {
  const { session, limits } = context
  if (operations.length > limits.transactionOperationsMax) {
    throw new AppError(
      'invalid_request',
      `a transaction can have at most ${limits.transactionOperationsMax} operations, got ${operations.length}`,
    )
  }
  return answerOnce(
    context,
    async () => {
      const { planned, faults, failed } = await inTurns(
        planOperations(operations, await newValuesOf(session, operations)),
      )
      if (faults.length > 0) throw transactionFailed(faults, failed)
      if (planned.some(({ kind }) => kind === 'insert' || kind === 'update')) {
        await session.growth.admitBody()
      }
      await requireHeaps(context, planned)
      await followOperations(session, planned)
      return run(context, planned)
    },
    {
      createdIn: (answer) => listCreated(session, operations, answer),
      // Reads store no response, so that they would not find the response to another request.
      isShort: !operations.every(isGet),
    },
  )
}

/** Returns whether an operation only reads, if it is valid at all. */
export function isGet(operation: unknown): boolean {
  return typeof operation === 'object' && operation !== null && 'get' in operation
}

/** Lists the records that operations have created and not deleted again, from their results. */
function listCreated(
  session: Session,
  operations: readonly unknown[],
  answer: string,
): CreatedRecords[] {
  const { results } = JSON.parse(answer) as { results: { id?: string }[] }
  const created = new Map<string, Set<string>>()
  for (const [index, operation] of (operations as readonly WrittenOperation[]).entries()) {
    const { insert, update, delete: removed } = operation
    const table = (insert ?? update ?? removed)?.table ?? ''
    const ids = created.get(table) ?? new Set<string>()
    created.set(table, ids)
    if (insert !== undefined || update?.upsert) ids.add(results[index]?.id ?? '')
    if (removed !== undefined) ids.delete(removed.id)
  }
  return [...created].flatMap(([name, ids]) =>
    ids.size === 0 ? [] : [{ table: session.table(name), ids: [...ids] }],
  )
}

/** An operation that was executed before, so its form is known to be valid. */
interface WrittenOperation {
  readonly insert?: { readonly table: string }
  readonly update?: { readonly table: string; readonly upsert?: boolean }
  readonly delete?: { readonly table: string; readonly id: string }
}

/** Creates the heaps of all written tables, if necessary. */
async function requireHeaps(
  { session }: TransactionContext,
  planned: readonly PlannedOperation[],
): Promise<void> {
  const written = new Set<BranchTable>()
  for (const { kind, table } of planned) if (kind !== 'get') written.add(table)
  await session.branch.makeWritable([...written])
}

/**
 * Runs operations in groups first, which is fast and has the same result as running them one by one. If a group
 * fails, they run one by one, to find the invalid operation, or to succeed if only the grouping was the reason.
 */
async function run(
  context: TransactionContext,
  planned: readonly PlannedOperation[],
): Promise<JsonText> {
  if (planned.every((operation) => operation.kind === 'get')) return runGets(context, planned)
  try {
    return await runGroups(context, {
      planned,
      groups: groupOperations(planned),
      isStepwise: false,
    })
  } catch (error) {
    const broken = linkBroken(planned, error) ?? brokenAtEnd(planned, error)
    if (broken !== undefined) throw broken
    const isRefused = error instanceof AppError && error.code === 'transaction_failed'
    if (!isRefused && Refusal.of(error, codecsOf(planned)) === undefined) throw error
    const groups = oneByOne(planned)
    return runGroups(context, { planned, groups, isStepwise: true }).catch((again: unknown) => {
      const brokenNow = linkBroken(planned, again) ?? brokenAtEnd(planned, again)
      if (brokenNow !== undefined) throw brokenNow
      if (!takesDraft(context, planned, again)) throw again
      return runDrafted(context, planned)
    })
  }
}

function oneByOne(planned: readonly PlannedOperation[]): OperationGroup[] {
  return planned.map((operation) => ({ wave: 0, operations: [operation] }))
}

/** Returns whether an operation has broken a rule that a later one may keep again. */
function takesDraft(
  { session }: TransactionContext,
  planned: readonly PlannedOperation[],
  error: unknown,
): boolean {
  const writes = planned.filter(({ kind }) => kind !== 'get')
  const [fault] = error instanceof AppError ? (error.errors ?? []) : []
  return fault !== undefined && mayHeal(fault) && writes.length > 1 && session.branch.takesDrafts
}

/** Runs operations one by one. Rules are looked at when all have run, so that their order does not matter. */
async function runDrafted(
  context: TransactionContext,
  planned: readonly PlannedOperation[],
): Promise<JsonText> {
  const { branch } = context.session
  const written = planned.filter(({ kind }) => kind !== 'get').map(({ table }) => table)
  try {
    return await branch.runDrafted([...new Set(written)], (draft, transaction) => {
      const drafted = planned.map((operation): PlannedOperation => {
        const table = draft.findTable(operation.table.codec.table.name) ?? operation.table
        return { ...operation, table, read: operation.read?.on(draft) }
      })
      return runStepwise(context, oneByOne(drafted), transaction)
    })
  } catch (error) {
    throw linkBroken(planned, error) ?? brokenAtEnd(planned, error) ?? error
  }
}

/** Returns the error for the last operation that has written a record which breaks a rule, or undefined. */
function brokenAtEnd(planned: readonly PlannedOperation[], error: unknown): AppError | undefined {
  const violation = findBrokenAtEnd(error)
  if (violation === undefined) return undefined
  const { records, codec } = violation
  const { table } = codec
  const operation = planned.findLast(
    (each) =>
      each.kind !== 'get' &&
      each.table.codec.table.id === table.id &&
      records?.includes(each.id) === true,
  )
  const message = `table [${table.name}]: ${violation.message}`
  const index = operation?.index ?? planned.at(-1)?.index ?? 0
  return confirmed(transactionFailed([{ index, message, ...violationFields(violation) }]))
}

/**
 * Returns the error for the last operation that has written a broken link, or deleted its record. Returns undefined for
 * any other error.
 */
function linkBroken(planned: readonly PlannedOperation[], error: unknown): AppError | undefined {
  const codecs = codecsOf(planned)
  const [broken, fields] = [findBrokenLink(error), findViolationFields(error, codecs)]
  if (broken === undefined || fields === undefined) return undefined
  const { codec, link, records, target, isDeleted } = broken
  const [tableId, id] = isDeleted ? [link.tableId, target.record] : [codec.table.id, records[0]]
  const written = planned.filter(({ kind }) => kind !== 'get')
  const operation =
    written.findLast((each) => each.id === id && each.table.codec.table.id === tableId) ??
    written.at(-1)
  const message = `table [${codec.table.name}]: ${Refusal.of(error, codecs)?.message}`
  const fault = { index: operation?.index ?? 0, message, ...fields }
  return confirmed(transactionFailed([fault]))
}

async function runGroups(
  context: TransactionContext,
  request: {
    planned: readonly PlannedOperation[]
    groups: readonly OperationGroup[]
    isStepwise: boolean
  },
): Promise<JsonText> {
  const { session } = context
  const { groups, isStepwise } = request
  if (isStepwise) {
    return session.branch.runSteps((transaction) => runStepwise(context, groups, transaction))
  }
  const prepare = (group: OperationGroup) => ({
    group,
    ...prepareGroup(session, group, { explains: false }),
  })
  const results = new Array<string>(request.planned.length).fill('')
  const [first = [], ...parts] = cutIntoParts(groups)
  const firstRuns = first.map(prepare)
  return session.branch.runSteps(
    async (transaction, rows) => {
      await settleAll(context, firstRuns, { rows, results })
      for (const part of parts) {
        const runs = await mapInTurns(part, prepare)
        const rows = await transaction.run(runs.flatMap(({ calls }) => calls))
        await settleAll(context, runs, { rows, results })
      }
      return finish(context, transaction, results)
    },
    { first: firstRuns.flatMap(({ calls }) => calls) },
  )
}

/** Runs groups of one operation each, and explains why one of them fails. */
async function runStepwise(
  context: TransactionContext,
  groups: readonly OperationGroup[],
  transaction: OpenTransaction,
): Promise<JsonText> {
  const results = new Array<string>(groups.length).fill('')
  for (const group of groups) {
    const run = { group, ...prepareGroup(context.session, group, { explains: true }) }
    const isChecked = group.operations.some(({ table }) => table.codec.checks.length > 0)
    const calls = isChecked ? [SAVEPOINT, ...run.calls] : run.calls
    const found = await transaction.run(calls).catch(async (error: unknown) => {
      const failing = isChecked && (await findFailing(context, group, { transaction, error }))
      throw failing ? operationFailed(group, failing.violation) : toRunError(error, group)
    })
    const rows = isChecked ? found.slice(1) : found
    await settleAll(context, [run], { rows, results })
  }
  return finish(context, transaction, results)
}

async function finish(
  context: TransactionContext,
  transaction: OpenTransaction,
  results: readonly string[],
): Promise<JsonText> {
  const answer = listJson('{"results":[', results, ']}')
  await keepAnswer(transaction, context, answer)
  return answer
}

/**
 * Runs a read-only transaction in one round trip. Reads of several records must be serializable: on an ordinary
 * snapshot, the second of two transactions could be visible without the first. A single read cannot observe
 * such an anomaly.
 */
async function runGets(
  context: TransactionContext,
  planned: readonly PlannedOperation[],
): Promise<JsonText> {
  const { session } = context
  const runs = groupOperations(planned).map((group) => ({
    group,
    ...prepareGroup(session, group, { explains: false }),
  }))
  const results = new Array<string>(planned.length).fill('')
  const calls = runs.flatMap((group) => group.calls)
  const { branch } = session
  const rows = await (planned.length <= 1 ? branch.runReads(calls) : branch.runSerialReads(calls))
  await settleAll(context, runs, { rows, results })
  return listJson('{"results":[', results, ']}')
}

/** Writes the results of groups from their rows, which follow each other. Throws the first fault. */
async function settleAll(
  context: TransactionContext,
  runs: readonly (ReturnType<typeof prepareGroup> & { group: OperationGroup })[],
  { rows, results }: { rows: readonly TextRows[]; results: string[] },
): Promise<void> {
  let position = 0
  for (const { group, calls, settle } of runs) {
    const own = rows.slice(position, position + calls.length)
    await loadGroupContents(context, group, { calls, rows: own })
    const fault = await inTurns(settle(own, results))
    if (fault !== undefined) throw transactionFailed([fault.entry])
    position += calls.length
  }
}

/** Reads the contents of files between the statements of a group and its results. */
async function loadGroupContents(
  context: TransactionContext,
  group: OperationGroup,
  { calls, rows }: { calls: readonly Call[]; rows: readonly TextRows[] },
): Promise<void> {
  for (const read of new Set(group.operations.map((operation) => operation.read))) {
    if (!read?.hasContents) continue
    const position = calls.findIndex((call) => call.statement === read.many)
    await loadContents(context, read, rows[position] ?? [])
  }
}

/** Finds the check that could not be evaluated for the record of an operation. */
async function findFailing(
  { session }: TransactionContext,
  { operations: [operation] }: OperationGroup,
  { transaction, error }: { transaction: OpenTransaction; error: unknown },
): Promise<FailingRecord | undefined> {
  if (operation === undefined) return undefined
  const { isUnevaluated = false } = Refusal.of(error, codecsOf([operation])) ?? {}
  if (!isUnevaluated) return undefined
  await transaction.run([ROLL_BACK])
  const find = byOperation(operation)
  return findUnevaluatedIn(session, operation.table, { transaction, error, find })
}

const withoutValues = (template: Parameters<typeof compileStatement>[0]): Call => ({
  statement: compileStatement(template),
  values: [],
})
const SAVEPOINT = withoutValues(sql`savepoint operation`)
const ROLL_BACK = withoutValues(sql`rollback to savepoint operation`)

function operationFailed({ operations }: OperationGroup, violation: Violation): AppError {
  const message = `table [${violation.codec.table.name}]: ${violation.message}`
  const { index = 0 } = operations[0] ?? {}
  return transactionFailed([{ index, message, ...violationFields(violation) }])
}

function toRunError(error: unknown, group: OperationGroup): unknown {
  const [operation] = group.operations
  const codecs = codecsOf(group.operations)
  const refusal = Refusal.of(error, codecs)?.message
  if (refusal === undefined || operation === undefined) return error
  const fields = findViolationFields(error, codecs)
  const table = fields?.table ?? operation.table.codec.table.name
  const { index } = operation
  return transactionFailed([{ index, message: `table [${table}]: ${refusal}`, ...fields }])
}

function codecsOf(operations: readonly PlannedOperation[]) {
  return new Set(operations.map((operation) => operation.table.codec))
}

function transactionFailed(errors: readonly FaultEntry[], failed = 1): AppError {
  const count = failed === 1 ? '1 operation' : `${failed} operations`
  return new AppError('transaction_failed', `${count} failed; nothing was applied`, { errors })
}
