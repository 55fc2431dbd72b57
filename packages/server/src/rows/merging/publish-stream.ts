import type { Database } from '../../postgres/database.js'
import { isUndefinedTable } from '../../postgres/failures.js'
import { runPipeline } from '../../postgres/pipeline.js'
import { runTransaction, SNAPSHOT, type Transaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'
import type { Statement } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { CheckRule, UniqueKey } from '../columns/table-rules.js'
import { endStage, type NewLayer } from '../heaps/layers.js'
import {
  type BranchRows,
  findLayout,
  heapName,
  layoutOf,
  ownHeap,
  ownLayer,
} from '../layout/layout.js'
import { changedIds, mayDiffer } from '../reading/changed-ids.js'
import { type Guard, guardCall } from '../running/guard.js'
import { toStaleError } from '../running/staleness.js'
import { BrokenRuleError } from '../writing/refusals.js'
import {
  existingIdStatement,
  failedCheckStatement,
  takenValueStatement,
} from '../writing/stage-statements.js'
import type { StagedRows } from '../writing/staged-rows.js'
import { StatementParts } from '../writing/statement-parts.js'
import { isPinOf, isValueTaken, publishOutcomes } from './outcome-layer.js'

/*
 * A long stream is published like a large merge: its rows are compared with a pinned state, and their table becomes a layer,
 * without a gate. With a locked branch, only rows that were written since are looked at.
 */

/** The state that the rows of a stream are compared with. */
export interface StreamPin {
  readonly id: string
  readonly rows: BranchRows
}

/** The branch has changed in a way that the comparison does not allow for. */
class StreamOutdatedError extends Error {}

/** The rows of a stream that become a layer of a branch. */
export class StreamLayer {
  readonly #guard: Guard
  readonly #codec: TableCodec
  readonly #rows: StagedRows
  readonly #pin: StreamPin

  constructor(guard: Guard, stream: { codec: TableCodec; rows: StagedRows; pin: StreamPin }) {
    this.#guard = guard
    this.#codec = stream.codec
    this.#rows = stream.rows
    this.#pin = stream.pin
  }

  /**
   * Throws if a row breaks a rule in the pinned state, or repeats a unique value. The rows must be a layer already: its
   * primary key has refused ids that repeat, and it has statistics.
   */
  compare(database: Database): Promise<void> {
    return runTransaction(database, (transaction) => this.#compare(transaction), SNAPSHOT)
  }

  async #compare(transaction: Transaction): Promise<void> {
    const stage = this.#rows.name
    // The time depends on the length of the stream, and nobody waits for it.
    await transaction.query(sql`set local statement_timeout = 0`)
    const [counted] = await transaction.query<{ count: number }>(sql`
      select count(*)::integer as count from ${stage}`)
    this.#rows.requireAll(counted?.count ?? 0)
    for (const { rule, statement } of this.#checks(stage)) {
      const [found] = await runPipeline(transaction.client, [
        { statement, values: [], isUnnamed: true },
      ])
      if (typeof found?.[0]?.[0] === 'string') throw new BrokenRuleError(0, rule)
    }
  }

  /** Returns statements that find a row which breaks a rule. */
  #checks(stage: Sql): { rule: UniqueKey | CheckRule | undefined; statement: Statement }[] {
    const codec = this.#codec
    const before = layoutOf(this.#pin.rows)
    const heap = ownHeap(before, codec.table.id)
    if (heap === undefined) throw new StreamOutdatedError('the pinned state must have the heap')
    const parts = new StatementParts(before, codec, heap, { isLocked: true })
    return [
      { rule: undefined, statement: existingIdStatement(parts, stage) },
      ...codec.uniqueKeys.map((key) => ({
        rule: key,
        statement: takenValueStatement(parts, stage, key),
      })),
      ...codec.checks.map((check) => ({
        rule: check,
        statement: failedCheckStatement(stage, check),
      })),
    ]
  }

  /**
   * Publishes the layer on the branch, whose gate must be locked. Takes a fixed number of statements, and looks only at
   * rows that were written since the comparison.
   */
  async publish(transaction: Transaction, layer: NewLayer): Promise<void> {
    const codec = this.#codec
    const { branchId } = this.#guard.rows
    const { id: pinId, rows: before } = this.#pin
    await requireGuard(transaction, this.#guard)
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

  /** Returns whether the layer has failed because the branch has changed. */
  static isOutdated(error: unknown): boolean {
    // A layer of the pinned state may have been dropped.
    return error instanceof StreamOutdatedError || isUndefinedTable(error)
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
