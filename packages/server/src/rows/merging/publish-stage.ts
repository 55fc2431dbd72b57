import { allDone } from '../../common/all-done.js'
import { runPipeline } from '../../postgres/pipeline.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, type TextRows } from '../../postgres/statement.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { StoredTable } from '../columns/stored-schema.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { CheckRule } from '../columns/table-rules.js'
import { requestFolds } from '../heaps/folds.js'
import { addHeapCheck, createHeaps, dropHeapConstraint } from '../heaps/heap-ddl.js'
import { assignSparesIn } from '../heaps/spare-heaps.js'
import { movingRows } from '../heaps/versions.js'
import { findLayout, type Heap, heapName, type Layout, ownHeap } from '../layout/layout.js'
import { AbsorbCalls } from '../writing/absorb-calls.js'
import { clearStatement } from '../writing/change-statements.js'
import { deleteStatement } from '../writing/delete-statement.js'
import { replaceAnyStatement } from '../writing/replace-statements.js'
import { furtherColumns, StatementParts } from '../writing/statement-parts.js'
import { chunksOf, type MergeTally, type StagedRows } from './stage.js'
import { EFFECTS, WRITES } from './stage-sql.js'

/** The number of rows written by one statement. Bounds the ids that it returns. */
const CHUNK_ROWS = 10_000

/** Writes the staged rows of several tables to a branch, whose gate must be locked. Returns their effects. */
export async function publishRows(
  transaction: Transaction,
  tables: readonly { readonly staged: StagedRows; readonly tally: MergeTally }[],
  target: Layout,
): Promise<ReadonlyMap<StagedRows, MergeTally>> {
  const tallies = new Map<StagedRows, MergeTally>()
  const written = tables.map(({ staged }) => staged.codec.table)
  const layout = await openTarget(transaction, written, target)
  for (const { staged, tally } of tables) {
    const heap = ownHeap(layout, staged.codec.table.id)
    if (heap === undefined) throw new Error('the target must have a heap')
    const absorb = AbsorbCalls.find(layout, staged.codec)
    if (absorb !== undefined) {
      const source = sql`${staged.name} s where s.decision in ${EFFECTS}`
      await runPipeline(transaction.client, absorb.forSource(source, []))
    }
    const to = { layout, heap }
    if (!staged.isQuery) await publishTable(transaction, { staged, tally, target: to })
    tallies.set(staged, staged.isQuery ? await publishQuery(transaction, staged, to) : tally)
    await restoreChecks(transaction, heap, staged.codec)
  }
  return tallies
}

/**
 * Writes and counts changes that a query compares. It compares with the base, which has the rows of the target that
 * change, so they need not be looked up.
 */
async function publishQuery(
  transaction: Transaction,
  { codec, name }: StagedRows,
  target: MergeTarget,
): Promise<MergeTally> {
  const parts = new StagedParts(target, codec, empty)
  const gone = sql`select s.id from ${name} s where decision = 'delete'`
  const deleteGone = () => runOnce(transaction, deleteStatement(parts, sql`array(${gone})`))
  // A row may take a unique value that a deleted row has, or one that another row gives up.
  const isOrdered = codec.uniqueKeys.length > 0
  if (isOrdered) {
    await deleteGone()
    const rows = sql`select * from ${name} s where decision in ${WRITES}`
    await clearMoved(transaction, target, { codec, rows })
  }
  const values = parts.names.map((column) => sql`u.${column}`)
  const [counts = []] = await runOnce(
    transaction,
    compileStatement(sql`
    with changed as (select * from ${name} s),
    u as (select * from changed where decision in ${WRITES})${parts.keep(sql`select id from u`)},
    written as (
      insert into ${parts.own} ${parts.rowColumns}
      select u.id, coalesce(u.version + 1, 0),
        coalesce(u.created_at, now()), now(), ${parts.epoch}, false${furtherColumns(values)}
      from u
      on conflict (id) do update set ${parts.overwrite}
    )
    select count(*) filter (where decision = 'insert'), count(*) filter (where decision = 'update'),
      count(*) filter (where decision = 'delete')
    from changed`),
  )
  const [inserted = 0, updated = 0, deleted = 0] = counts.map(Number)
  if (!isOrdered && deleted > 0) await deleteGone()
  return { inserted, updated, deleted, changed: inserted + updated + deleted, conflictCount: 0 }
}

async function publishTable(
  transaction: Transaction,
  options: { staged: StagedRows; tally: MergeTally; target: MergeTarget },
): Promise<void> {
  const { staged, tally, target } = options
  const run = (statement: Statement) => runOnce(transaction, statement)
  const partsOf = (rows: Sql) => new StagedParts(target, staged.codec, rows)
  const chunks = [...chunksOf(staged, CHUNK_ROWS)]
  const inChunk = ({ first, last }: { first: number; last: number }) =>
    sql`n between ${raw(String(first))} and ${raw(String(last))}`
  for (const chunk of tally.deleted > 0 ? chunks : []) {
    const gone = sql`
      select s.id from ${staged.name} s where ${inChunk(chunk)} and decision = 'delete'`
    await run(deleteStatement(partsOf(empty), sql`array(${gone})`))
  }
  if (tally.inserted + tally.updated === 0) return
  if (tally.updated > 0) {
    const rows = sql`select * from ${staged.name} s where decision in ${WRITES}`
    await clearMoved(transaction, target, { codec: staged.codec, rows })
  }
  for (const chunk of chunks) {
    const rows = sql`select * from ${staged.name} s where ${inChunk(chunk)} and decision in ${WRITES}`
    await run(replaceAnyStatement(partsOf(rows), 'id'))
  }
}

/** Runs a statement that names tables of one merge. It is not kept prepared. */
async function runOnce(transaction: Transaction, statement: Statement): Promise<TextRows> {
  const [rows] = await runPipeline(transaction.client, [{ statement, values: [], isUnnamed: true }])
  return rows ?? []
}

/** A merge may move a unique value from one row to another. Removes the old value, before `rows` are written. */
async function clearMoved(
  transaction: Transaction,
  { layout, heap }: MergeTarget,
  { codec, rows }: { codec: TableCodec; rows: Sql },
): Promise<void> {
  if (codec.uniqueKeys.length > 0) await liftChecks(transaction, heap, codec)
  for (const key of codec.uniqueKeys) {
    const columns = key.columns.flatMap((index) => codec.physical[index] ?? [])
    const parts = new StagedParts({ layout, heap }, codec, selectHolders(rows, heap, columns))
    await movingRows(transaction, codec.table, () =>
      runOnce(transaction, clearStatement(parts, key.columns)),
    )
  }
}

/**
 * Removes the checks that a value which is missing for a moment may fail. `restoreChecks` adds them again, when the rows
 * are written. The merge was checked by its outcome.
 */
async function liftChecks(transaction: Transaction, heap: Heap, codec: TableCodec): Promise<void> {
  for (const check of clearedChecks(codec)) {
    await dropHeapConstraint(transaction, heap, check)
  }
}

async function restoreChecks(
  transaction: Transaction,
  heap: Heap,
  codec: TableCodec,
): Promise<void> {
  for (const check of clearedChecks(codec)) {
    await addHeapCheck(transaction, heap, check)
  }
}

/** Lists the checks of columns that belong to a unique key. */
function clearedChecks({ checks, uniqueKeys }: TableCodec): CheckRule[] {
  const cleared = new Set(uniqueKeys.flatMap(({ columns }) => columns))
  return checks.filter(({ columns }) => columns.some((index) => cleared.has(index)))
}

/**
 * Selects the own rows of the target that hold a unique value which another row is going to have. All of them
 * are written later. A row that is not written keeps its value, and the unique index refuses the other one.
 */
function selectHolders(rows: Sql, heap: Heap, columns: readonly PhysicalColumn[]): Sql {
  const names = columns.map(({ physicalName }) => ident(physicalName))
  const isSame = names.map((name) => sql`h.${name} = s.${name}`)
  // `rows` may be a comparison of states, of which PostgreSQL expects few rows. It runs once, and `intersect` is never
  // a nested loop over all pairs of them.
  return sql`
    with written as materialized (select s.id${furtherColumns(names.map((name) => sql`s.${name}`))} from (${rows}) s)
    select held.id, 0 as n
    from (
      select h.id
      from written s
      join ${heapName(heap)} h on ${join(isSame, ' and ')} and h.id <> s.id and not h.deleted
      intersect
      select id from written
    ) held`
}

/** Fragments of statements whose rows are staged, not given as parameters. */
class StagedParts extends StatementParts {
  readonly #rows: Sql

  constructor({ layout, heap }: MergeTarget, codec: TableCodec, rows: Sql) {
    super(layout, codec, heap, { isLocked: true })
    this.#rows = rows
  }

  override given(columns: readonly number[]): Sql {
    const names = furtherColumns(columns.map((index) => this.name(index)))
    return sql`
      u as (select id, null::bigint as if_version${names}, n as ordinal from (${this.#rows}) s)`
  }

  override givenValue(index: number): Sql {
    return sql`u.${this.name(index)}`
  }
}

interface MergeTarget {
  readonly layout: Layout
  readonly heap: Heap
}

/** Gives the target branch the heaps that it lacks. Returns its new layout. */
export async function openTarget(
  transaction: Transaction,
  written: readonly StoredTable[],
  layout: Layout,
): Promise<Layout> {
  const { branchId } = layout
  const lacking = (known: Layout) => written.filter(({ id }) => ownHeap(known, id) === undefined)
  if (lacking(layout).length === 0) return layout
  const [, spared] = await allDone([
    assignSparesIn(transaction, layout, lacking(layout)),
    getTarget(transaction, branchId),
  ])
  const tables = lacking(spared)
  if (tables.length === 0) return spared
  await createHeaps(transaction, { ...spared, tables })
  await requestFolds(transaction, spared, tables)
  // The new stamp makes sessions of other processes reload the layout.
  await transaction.query(sql`
    update offshoot.branches set stamp = nextval('offshoot.stamps') where id = ${branchId}`)
  return getTarget(transaction, branchId)
}

/** Reads the layout of a target, which is locked. */
export async function getTarget(transaction: Transaction, branchId: string): Promise<Layout> {
  const layout = await findLayout(transaction, branchId)
  if (layout === undefined) throw new Error('a locked branch must have a layout')
  return layout
}
