import { runPipeline } from '../../postgres/pipeline.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { NewLayer } from '../heaps/layers.js'
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
import { TakenError } from '../writing/refusals.js'
import { takenIdStatement, takenValueStatement } from '../writing/stage-statements.js'
import { StatementParts } from '../writing/statement-parts.js'
import { changedIds, mayDiffer } from './changed-ids.js'
import {
  amendOutcome,
  buildOutcome,
  isPinOf,
  type OutcomeStage,
  publishOutcomes,
} from './outcome-layer.js'

/*
 * A long stream is published like a large merge: its rows are compared with a pinned state and written to a layer
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

/** The stage in the form of a merge that inserts all of its rows. */
function asMerge({ codec, stage }: ComparedStream): OutcomeStage {
  const columns = codec.physical.map(({ physicalName }) => sql`, s.${ident(physicalName)}`)
  return {
    codec,
    name: sql`(
      select s.line as n, s.id, 'insert' as decision${join([empty, ...columns], '')} from ${stage} s
    )`,
  }
}

/** Writes the rows of a stream to a layer. Throws if an id or a unique value is taken in the compared state. */
export async function stageStream(
  transaction: Transaction,
  stream: ComparedStream,
): Promise<NewLayer> {
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
    { columnId: undefined, statement: takenIdStatement(parts, stage) },
    ...codec.uniqueColumns.map((column) => ({
      columnId: parts.column(column).id,
      statement: takenValueStatement(parts, stage, column),
    })),
  ]
  for (const { columnId, statement } of checks) {
    const [found] = await runPipeline(transaction.client, [
      { statement, values: [], isUnnamed: true },
    ])
    if (typeof found?.[0]?.[0] === 'string') throw new TakenError(0, columnId)
  }
  return buildOutcome(transaction, { staged: asMerge(stream), ours: before })
}

/**
 * Publishes the layer of a stream on its branch, whose gate must be locked. Takes a fixed number of statements,
 * and looks only at rows that were written since the comparison.
 */
export async function publishStream(
  transaction: Transaction,
  stream: ComparedStream & { readonly layer: NewLayer; readonly pinId: string },
  guard: Guard,
): Promise<void> {
  const { codec, stage, before, layer, pinId } = stream
  const { branchId } = guard.rows
  await requireGuard(transaction, guard)
  // The stage was complete when the layer was written. A crash since then has emptied it.
  const staged = await transaction.query(sql`select from ${stage} limit 1`)
  if (staged.length === 0) stream.requireAll(0)
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
  const merged = asMerge(stream)
  const rows = { staged: merged, ours, oursBefore: before, since: undefined }
  if (!(await amendOutcome(transaction, layer, rows))) {
    throw new StreamOutdatedError('a unique value was taken')
  }
  if (!(await publishOutcomes(transaction, [{ layer, staged: merged }], branchId))) {
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
