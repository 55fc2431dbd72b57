import { isFaults } from '../../rows/columns/table-codec.js'
import type { BranchTable, WritableTable } from '../../rows/open-branch.js'
import type { OpenTransaction } from '../../rows/running/transactions.js'
import { Refusal } from '../../rows/writing/refusals.js'
import type { TableWriter } from '../../rows/writing/table-writer.js'
import type { Violation } from '../session/record-errors.js'
import type { Session } from '../session/session.js'
import type { PlannedOperation } from './transaction-plan.js'

/*
 * If PostgreSQL fails to evaluate a check for a record, it tells neither the check nor the record. They are looked for when
 * the write has failed.
 */

type JudgedRow = Parameters<TableWriter['findFailing']>[1][number]
type TryCall = Parameters<TableWriter['findFailing']>[0]

/** How long a check that cannot be evaluated, and its record, are looked for. */
const LOOK_MS = 1_000

/** A record that fails a check, or for which it cannot be evaluated. */
export interface FailingRecord {
  readonly record: string
  readonly violation: Violation
}

/** Finds a record that a write has failed for. */
export type FindFailing = (
  writer: TableWriter,
  tryCall: TryCall,
) => Promise<FailingRecord | undefined>

/** Finds the records of a request that fail a check, or for which it cannot be evaluated, by their positions. */
export function findFailing(
  { branch }: Session,
  { writer }: WritableTable,
  rows: readonly JudgedRow[],
): ReturnType<TableWriter['findFailing']> {
  return writer.findFailing(branch.trying(), rows)
}

/** Returns whether a check may not have been evaluated. Which one, and for which record, can be looked for. */
function mayBeUnevaluated({ codec }: BranchTable, error: unknown): boolean {
  return codec.checks.length > 0 && Refusal.of(error, [codec])?.isUnevaluated === true
}

/** Finds the check that a write could not evaluate, and the record, outside of the transaction that has failed. */
export async function findUnevaluated(
  { branch }: Session,
  table: BranchTable,
  { error, find }: { error: unknown; find: FindFailing },
): Promise<FailingRecord | undefined> {
  const { writer } = table
  if (writer === undefined || !mayBeUnevaluated(table, error)) return undefined
  try {
    return await find(writer, branch.trying({ timeoutMs: LOOK_MS }))
  } catch {
    // The branch may have changed since. The error is told without the record.
    return undefined
  }
}

/** Like `findUnevaluated`, in a transaction that has been rolled back to the moment before the write. */
export async function findUnevaluatedIn(
  { branch }: Session,
  table: BranchTable,
  options: { transaction: OpenTransaction; error: unknown; find: FindFailing },
): Promise<FailingRecord | undefined> {
  const { writer } = table
  if (writer === undefined || !mayBeUnevaluated(table, options.error)) return undefined
  return options.find(writer, branch.tryingIn(options.transaction))
}

/** Finds the first of some rows that fails a check. */
export function amongRows(rows: readonly JudgedRow[]): FindFailing {
  return async (writer, tryCall) => {
    const [first] = await writer.findFailing(tryCall, rows)
    return first && { record: rows[first.row]?.id ?? '', violation: first.violation }
  }
}

/** Finds the record of an operation if it fails a check. */
export function byOperation(operation: PlannedOperation): FindFailing {
  return async (writer, tryCall) => {
    if (operation.kind === 'insert') return amongRows([operation])(writer, tryCall)
    if (operation.kind !== 'update') return undefined
    const { id, whole } = operation
    const found = await writer.findFailingUpdate(tryCall, operation)
    if (found !== undefined || whole === undefined || isFaults(whole)) return found
    return amongRows([{ id, values: whole as readonly (string | null)[] }])(writer, tryCall)
  }
}
