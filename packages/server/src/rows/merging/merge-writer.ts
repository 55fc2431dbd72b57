import { runPipeline } from '../../postgres/pipeline.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import type { Call } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import { createHeaps } from '../layout/heap-ddl.js'
import { findLayout, type Layout, ownHeap } from '../layout/layout.js'
import { TableWriter } from '../writing/table-writer.js'
import type { Decision, RowWrite } from './decide.js'

/** The number of rows written by one statement. */
const PAGE_ROWS = 1000

/** The target of merged rows. */
export interface MergeWrites {
  readonly codec: TableCodec
  readonly ours: Layout
  /** The transaction will be rolled back. Only writes that PostgreSQL may reject are made. */
  readonly dryRun: boolean
}

interface MergeTarget {
  readonly layout: Layout
  readonly writer: TableWriter
}

/** A merged row that the target cannot store. */
export class RefusedRowError extends Error {
  constructor(
    readonly column: string,
    readonly kind: 'notUnique' | 'notNull',
  ) {
    super(`column [${column}]: ${kind === 'notUnique' ? 'is not unique' : 'is required'}`)
  }
}

/**
 * Writes decisions. A merge may move a unique value from one row to another, also across pages. So all old
 * unique values are removed before new ones are written.
 */
export class MergeWriter {
  readonly #transaction: Transaction
  readonly #merge: MergeWrites
  readonly #unique: readonly number[]
  readonly #required: readonly number[]
  #target: MergeTarget | undefined
  /** Updates whose old unique values are removed but whose new values are not written yet. */
  #updates: RowWrite[] = []
  #hasInserts = false

  constructor(transaction: Transaction, merge: MergeWrites) {
    this.#transaction = transaction
    this.#merge = merge
    const { physical } = merge.codec
    this.#unique = merge.codec.uniqueColumns
    this.#required = physical.flatMap(({ column }, index) => (column.notNull ? [index] : []))
  }

  /** The current layout of the target. The first write may have created its heap. */
  get ours(): Layout {
    return this.#target?.layout ?? this.#merge.ours
  }

  /** A dry run without unique columns cannot fail, so it writes nothing. */
  get #isSure(): boolean {
    return this.#merge.dryRun && this.#unique.length === 0
  }

  get hasWaiting(): boolean {
    return this.#hasInserts || this.#updates.length > 0
  }

  async write(decisions: readonly Decision[]): Promise<void> {
    const removed = decisions.flatMap(({ remove }) => remove ?? [])
    const updates = decisions.flatMap(({ update }) => update ?? [])
    const inserts = decisions.flatMap(({ insert }) => insert ?? [])
    const moved = updates.filter((update) =>
      update.columns.some((column) => this.#unique.includes(column)),
    )
    const unmoved = updates.filter((update) => !moved.includes(update))
    if (removed.length > 0 && !this.#isSure) {
      const { writer } = await this.#open()
      await this.#run(writer.delete(removed))
    }
    await this.#vacate(moved)
    await this.#put(unmoved)
    if (this.#unique.length === 0) await this.#put(inserts)
    else if (inserts.length > 0) this.#hasInserts = true
  }

  async writeWaiting(): Promise<void> {
    for (let start = 0; start < this.#updates.length; start += PAGE_ROWS) {
      await this.#put(this.#updates.slice(start, start + PAGE_ROWS))
    }
    this.#updates = []
  }

  async writeInserts(decisions: readonly Decision[]): Promise<void> {
    await this.#put(decisions.flatMap(({ insert }) => insert ?? []))
  }

  async #open(): Promise<MergeTarget> {
    this.#target ??= await openTarget(this.#transaction, this.#merge)
    return this.#target
  }

  /** Sets the unique columns of rows to null, and queues their updates. */
  async #vacate(rows: readonly RowWrite[]): Promise<void> {
    if (rows.length === 0) return
    const { writer } = await this.#open()
    const ids = rows.map((row) => row.id)
    await this.#run(writer.clear(ids, this.#unique))
    this.#updates.push(...rows)
  }

  async #put(rows: readonly RowWrite[]): Promise<void> {
    if (rows.length === 0) return
    for (const column of this.#required) {
      if (rows.some((row) => row.values[column] == null)) throw this.#refused(column, 'notNull')
    }
    if (this.#isSure) return
    const { writer } = await this.#open()
    await this.#run(writer.replace(rows, 'id'))
    for (const { column, call } of writer.checkRows(rows)) {
      const [found] = await this.#run(call)
      if (found !== undefined && found.length > 0) throw this.#refused(column, 'notUnique')
    }
  }

  #run(call: Call) {
    return runPipeline(this.#transaction.client, [call])
  }

  #refused(column: number, kind: RefusedRowError['kind']): RefusedRowError {
    const path = this.#merge.codec.physical[column]?.path ?? []
    return new RefusedRowError(path.join('.'), kind)
  }
}

/** Returns the storage of the table on the target branch. Creates it if necessary. */
async function openTarget(
  transaction: Transaction,
  { codec, ours: { branchId } }: MergeWrites,
): Promise<MergeTarget> {
  const layout = await getLayout(transaction, branchId)
  const heap = ownHeap(layout, codec.table.id)
  if (heap !== undefined) return { layout, writer: new TableWriter(layout, codec, heap) }
  await createHeaps(transaction, { ...layout, tables: [codec.table] })
  // The new stamp makes sessions of other processes reload the layout.
  await transaction.query(sql`
    update offshoot.branches set stamp = nextval('offshoot.stamps') where id = ${branchId}`)
  return openTarget(transaction, { codec, ours: layout, dryRun: false })
}

export async function getLayout(transaction: Transaction, branchId: string): Promise<Layout> {
  const layout = await findLayout(transaction, branchId)
  if (layout === undefined) throw new Error('a locked branch must have a layout')
  return layout
}
