import { runPipeline } from '../../postgres/pipeline.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { endStage, type NewLayer } from '../heaps/layers.js'
import {
  type BranchRows,
  findLayout,
  heapName,
  layoutOf,
  ownHeap,
  ownLayer,
} from '../layout/layout.js'
import { type Guard, guardCall } from '../running/guard.js'
import { toStaleError } from '../running/staleness.js'
import { BrokenRuleError } from '../writing/refusals.js'
import {
  failedCheckStatement,
  takenIdStatement,
  takenValueStatement,
} from '../writing/stage-statements.js'
import { StatementParts } from '../writing/statement-parts.js'
import { changedIds, mayDiffer } from './changed-ids.js'
import { isPinOf, isValueTaken, publishOutcomes } from './outcome-layer.js'

/*
 * A long stream is published like a large merge: its rows are compared with a pinned state, and their table becomes a layer,
 * without a gate. With a locked branch, only rows that were written since are looked at.
 */

/** The rows of a stream, in the table `stage`, and the state that they are compared with. */
interface ComparedStream {
  readonly codec: TableCodec
  readonly stage: Sql
  readonly before: BranchRows
  /** Throws if the stage has not as many rows as the stream. */
  requireAll(present: number): void
}

/** Thrown if the branch has changed in a way that the comparison does not allow for. */
export class StreamOutdatedError extends Error {}

/** Throws if a row breaks a rule in the compared state, or repeats an id or a unique value. */
export async function compareStream(
  transaction: Transaction,
  stream: ComparedStream,
): Promise<void> {
  const { codec, stage, before } = stream
  // The time depends on the length of the stream, and nobody waits for it.
  await transaction.query(sql`set local statement_timeout = 0`)
  await transaction.query(sql`analyze ${stage}`)
  const [counted] = await transaction.query<{ count: number }>(sql`
    select count(*)::integer as count from ${stage}`)
  stream.requireAll(counted?.count ?? 0)
  const heap = ownHeap(layoutOf(before), codec.table.id)
  if (heap === undefined) throw new StreamOutdatedError('the pinned state must have the heap')
  const parts = new StatementParts(layoutOf(before), codec, heap, { isLocked: true })
  const checks = [
    { rule: undefined, statement: takenIdStatement(parts, stage) },
    ...codec.uniqueKeys.map((key) => ({
      rule: key,
      statement: takenValueStatement(parts, stage, key),
    })),
    ...codec.checks.map((check) => ({
      rule: check,
      statement: failedCheckStatement(stage, check),
    })),
  ]
  for (const { rule, statement } of checks) {
    const [found] = await runPipeline(transaction.client, [
      { statement, values: [], isUnnamed: true },
    ])
    if (typeof found?.[0]?.[0] === 'string') throw new BrokenRuleError(0, rule)
  }
}

/**
 * Publishes the layer of a stream on its branch, whose gate must be locked. Takes a fixed number of statements,
 * and looks only at rows that were written since the comparison.
 */
export async function publishStream(
  transaction: Transaction,
  stream: Pick<ComparedStream, 'codec' | 'before'> & { layer: NewLayer; pinId: string },
  guard: Guard,
): Promise<void> {
  const { codec, before, layer, pinId } = stream
  const { branchId } = guard.rows
  await requireGuard(transaction, guard)
  if (!(await isPinOf(transaction, { pinId, branchId }))) {
    throw new StreamOutdatedError('the branch was reset')
  }
  const ours = await findLayout(transaction, branchId)
  if (ours === undefined || ownLayer(ours, codec.table.id) !== undefined) {
    throw new StreamOutdatedError('the table has another layer')
  }
  if (mayDiffer(before, ours, codec.table.id)) {
    const written = await transaction.query(sql`
      select
      from (${changedIds(before, ours, codec.table.id)}) c
      join ${heapName(layer)} o on o.id = c.id
      limit 1`)
    if (written.length > 0) throw new StreamOutdatedError('a row was written')
  }
  if (await isValueTaken(transaction, layer, { codec, ours, oursBefore: before })) {
    throw new StreamOutdatedError('a unique value was taken')
  }
  await endStage(transaction, layer)
  if (!(await publishOutcomes(transaction, [layer], branchId))) {
    throw new StreamOutdatedError('the layer was dropped')
  }
}

/** Fails if the session of a stream is outdated. */
export async function requireGuard(transaction: Transaction, guard: Guard): Promise<void> {
  try {
    await runPipeline(transaction.client, [guardCall(guard)])
  } catch (error) {
    throw toStaleError(error)
  }
}
