import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Database } from '../../postgres/database.js'
import { constraintOf } from '../../postgres/failures.js'
import type { Call, TextRows } from '../../postgres/statement.js'
import { type OpenTransaction, runReads, runSteps, runWrites } from '../../rows/run.js'
import { brokenRule, describeRefusal } from './failures.js'
import {
  findAnswer,
  IDEMPOTENCY_CONSTRAINT,
  type IdempotentRequest,
  keepAnswer,
} from './idempotency.js'
import { loadContents } from './records.js'
import { prepareGroup } from './run-operations.js'
import type { Session, Sessions } from './session.js'
import {
  groupOperations,
  type OperationGroup,
  type PlannedOperation,
  planOperations,
} from './transaction-plan.js'

export interface TransactionContext {
  readonly database: Database
  readonly sessions: Sessions
  readonly session: Session
  readonly limits: Limits
}

/** What went wrong while running; the transaction is rolled back. */
class RunFault extends Error {
  constructor(readonly fault: FaultEntry) {
    super(fault.message)
  }
}

/** Runs all operations or none. */
export async function runOperations(
  context: TransactionContext,
  request: { operations: readonly unknown[]; idempotent: IdempotentRequest },
): Promise<string> {
  const { database, session, limits } = context
  const { operations, idempotent } = request
  if (operations.length > limits.transactionOperationsMax) {
    throw new AppError(
      'invalid_request',
      `a transaction can have at most ${limits.transactionOperationsMax} operations, got ${operations.length}`,
    )
  }
  const known = await findAnswer(database, session, idempotent)
  if (known !== undefined) return known
  const { planned, faults } = planOperations(session, operations)
  if (faults.length > 0) throw transactionFailed(faults)
  await requireHeaps(context, planned)
  try {
    return await run(context, { planned, idempotent })
  } catch (error) {
    if (constraintOf(error) === IDEMPOTENCY_CONSTRAINT) {
      const answer = await findAnswer(database, session, idempotent)
      if (answer !== undefined) return answer
    }
    throw error instanceof RunFault ? transactionFailed([error.fault]) : error
  }
}

/** Tables that are written need a heap; it may have to be made first. */
async function requireHeaps(
  { sessions, session }: TransactionContext,
  planned: readonly PlannedOperation[],
): Promise<void> {
  for (const { kind, table } of planned) {
    if (kind !== 'get') await sessions.writable(session, table)
  }
}

/**
 * Grouped first: that is fast, and what it does is what the operations do one by one. When something
 * is refused, running them one by one finds out which one, or that only the grouping was at fault.
 */
async function run(
  context: TransactionContext,
  request: { planned: readonly PlannedOperation[]; idempotent: IdempotentRequest },
): Promise<string> {
  const { planned } = request
  if (planned.every((operation) => operation.kind === 'get')) return runGets(context, request)
  try {
    return await runGroups(context, {
      ...request,
      groups: groupOperations(planned),
      isStepwise: false,
    })
  } catch (error) {
    const isRefused =
      error instanceof RunFault || describeRefusal(error, codecsOf(planned)) !== undefined
    if (!isRefused || constraintOf(error) === IDEMPOTENCY_CONSTRAINT) throw error
    const groups = planned.map((operation) => ({ wave: 0, operations: [operation] }))
    return runGroups(context, { ...request, groups, isStepwise: true })
  }
}

async function runGroups(
  { database, session }: TransactionContext,
  request: {
    planned: readonly PlannedOperation[]
    groups: readonly OperationGroup[]
    idempotent: IdempotentRequest
    isStepwise: boolean
  },
): Promise<string> {
  const { groups, idempotent, isStepwise } = request
  const runs = groups.map((group) => ({
    group,
    ...prepareGroup(session, group, { explains: isStepwise }),
  }))
  const results = new Array<string>(request.planned.length).fill('')
  const finish = async (transaction: OpenTransaction): Promise<string> => {
    const answer = `{"results":[${results.join(',')}]}`
    const keep = keepAnswer(session, idempotent, answer)
    if (keep.length > 0) await transaction.run(keep)
    return answer
  }
  if (isStepwise) {
    return runSteps(database, session.guard, async (transaction) => {
      for (const { group, calls, settle } of runs) {
        const rows = await transaction.run(calls).catch((error: unknown) => {
          throw toRunFault(error, group)
        })
        await loadGroupContents(session, group, { calls, rows })
        const fault = settle(rows, results)
        if (fault !== undefined) throw new RunFault(fault)
      }
      return finish(transaction)
    })
  }
  return runSteps(
    database,
    session.guard,
    async (transaction, rows) => {
      let position = 0
      for (const { group, calls, settle } of runs) {
        const own = rows.slice(position, position + calls.length)
        await loadGroupContents(session, group, { calls, rows: own })
        const fault = settle(own, results)
        if (fault !== undefined) throw new RunFault(fault)
        position += calls.length
      }
      return finish(transaction)
    },
    { first: runs.flatMap(({ calls }) => calls) },
  )
}

/** Reads alone cannot be refused, so all of it is one round trip; several must see one moment. */
async function runGets(
  { database, session }: TransactionContext,
  request: { planned: readonly PlannedOperation[] },
): Promise<string> {
  const { planned } = request
  const runs = groupOperations(planned).map((group) => ({
    group,
    ...prepareGroup(session, group, { explains: false }),
  }))
  const results = new Array<string>(planned.length).fill('')
  const calls = runs.flatMap((group) => group.calls)
  if (calls.length === 0) return '{"results":[]}'
  const runAll = calls.length === 1 ? runReads : runWrites
  const rows = await runAll(database, session.guard, calls)
  let position = 0
  for (const { group, calls: own, settle } of runs) {
    const found = rows.slice(position, position + own.length)
    await loadGroupContents(session, group, { calls: own, rows: found })
    settle(found, results)
    position += own.length
  }
  return `{"results":[${results.join(',')}]}`
}

/** Contents of files are read between the statements of a group and its results. */
async function loadGroupContents(
  session: Session,
  group: OperationGroup,
  { calls, rows }: { calls: readonly Call[]; rows: readonly TextRows[] },
): Promise<void> {
  for (const read of new Set(group.operations.map((operation) => operation.read))) {
    if (!read?.hasContents) continue
    const position = calls.findIndex((call) => call.statement === read.many)
    await loadContents(session, read, rows[position] ?? [])
  }
}

function toRunFault(error: unknown, group: OperationGroup): unknown {
  const [operation] = group.operations
  const codecs = codecsOf(group.operations)
  const refusal = describeRefusal(error, codecs)
  if (refusal === undefined || operation === undefined) return error
  const rule = brokenRule(error, codecs)
  const table = rule?.codec.table.name ?? operation.table.codec.table.name
  return new RunFault({ index: operation.index, message: `table [${table}]: ${refusal}` })
}

function codecsOf(operations: readonly PlannedOperation[]) {
  return new Set(operations.map((operation) => operation.table.codec))
}

function transactionFailed(errors: readonly FaultEntry[]): AppError {
  const count = errors.length === 1 ? '1 operation' : `${errors.length} operations`
  return new AppError('transaction_failed', `${count} failed; nothing was applied`, { errors })
}
