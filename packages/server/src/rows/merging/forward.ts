import type { Transaction } from '../../postgres/run-transaction.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, type Layout, layoutOf, ownHeap, ownOverlay } from '../layout/layout.js'
import { deleteStatement } from '../writing/delete-statement.js'
import { furtherColumns, StatementParts } from '../writing/statement-parts.js'
import { changedIds, mayDiffer, repeatedIds } from './changed-ids.js'
import { joinChanges } from './count-changed.js'
import { clearMoved, openTarget, runOnce } from './publish-stage.js'
import { type MergeTally, NO_EFFECT } from './stage.js'

/*
 * Most merges bring rows that the target has not changed since the base. Such rows cannot be in conflict, so their
 * changes are written by one statement for each table, without staging them and without a comparison with ours.
 */

/** A table whose columns are the same in all three states. */
export interface ForwardTable {
  readonly codec: TableCodec
  readonly base: BranchRows
  readonly theirs: BranchRows
  readonly ours: BranchRows
}

/**
 * Returns whether the target may have changed a row that theirs has changed, or may have taken a unique value of
 * one. The merge then needs a comparison of all three states.
 */
export async function isContested(
  transaction: Transaction,
  { codec, base, theirs, ours }: ForwardTable,
): Promise<boolean> {
  const { id } = codec.table
  if (!mayDiffer(base, ours, id)) return false
  const changed = repeatedIds(base, ours, id)
  const contested =
    codec.uniqueColumns.length > 0
      ? changed
      : sql`
        select k.id
        from (${changedIds(base, theirs, id)}) k
        where exists (select from (${changed}) o where o.id = k.id)`
  const [row] = await transaction.query<{ isContested: boolean }>(sql`
    select exists (${contested}) as "isContested"`)
  return row?.isContested ?? true
}

/**
 * Writes the changes of tables that are not contested to the target, whose gate must be locked. May open a table of the
 * target that turns out to have no changes, so if there are none at all, the transaction should be rolled back.
 */
export async function forwardRows(
  transaction: Transaction,
  tables: readonly ForwardTable[],
  target: Layout,
): Promise<MergeTally[]> {
  const closed = tables.filter((table) => !isOpen(table))
  const changed = new Set(await listChanged(transaction, closed))
  const codecs = [...changed].map(({ codec }) => codec)
  const opened = codecs.length > 0 ? await openTarget(transaction, codecs, target) : undefined
  const tallies: MergeTally[] = []
  for (const table of tables) {
    // Not the rows of `ours`: they lack removed columns, whose values forks still read in the past.
    const layout = isOpen(table) ? target : changed.has(table) ? opened : undefined
    tallies.push(layout === undefined ? NO_EFFECT : await forwardTable(transaction, layout, table))
  }
  return tallies
}

/**
 * Lists the tables that have changes. A single one most likely has some, and is opened without looking. Of many, those
 * without changes would leave heaps in the target that nobody needs.
 */
async function listChanged(
  transaction: Transaction,
  tables: readonly ForwardTable[],
): Promise<readonly ForwardTable[]> {
  if (tables.length < 2) return tables
  const changed: ForwardTable[] = []
  for (const table of tables) if (await hasChanges(transaction, table)) changed.push(table)
  return changed
}

/** Returns whether the target can be written to at once. */
function isOpen({ codec, ours }: ForwardTable): boolean {
  const layout = layoutOf(ours)
  const { id } = codec.table
  return ownHeap(layout, id) !== undefined && ownOverlay(layout, id) === undefined
}

/** Compares the rows of theirs with those of the base. */
function compare({ codec, base, theirs }: ForwardTable) {
  const columns = new Set(codec.physical.keys())
  // The base has the rows of the target that theirs has changed. Unlike those, its rows stay during the merge.
  return joinChanges({ codec, columns, before: base, after: theirs })
}

async function hasChanges(transaction: Transaction, table: ForwardTable): Promise<boolean> {
  const { joins, isInserted, isUpdated, isDeleted } = compare(table)
  const [row] = await transaction.query<{ hasChanges: boolean }>(sql`
    select exists (
      select ${joins} where ${isInserted} or ${isUpdated} or ${isDeleted}
    ) as "hasChanges"`)
  return row?.hasChanges ?? true
}

async function forwardTable(
  transaction: Transaction,
  layout: Layout,
  table: ForwardTable,
): Promise<MergeTally> {
  const { codec } = table
  const heap = ownHeap(layout, codec.table.id)
  if (heap === undefined) throw new Error('the target must have a heap')
  const parts = new StatementParts(layout, codec, heap, { isLocked: true })
  // A row may take a unique value that a deleted row has, or one that another row gives up.
  const isOrdered = codec.uniqueColumns.length > 0
  if (isOrdered) {
    await deleteGone(transaction, parts, table)
    await clearMoved(transaction, { layout, heap }, { codec, rows: rowsOf(table) })
  }
  const counts = await writeChanges(transaction, parts, table)
  if (!isOrdered && counts.deleted > 0) await deleteGone(transaction, parts, table)
  const { inserted, updated, deleted } = counts
  return { ...counts, changed: inserted + updated + deleted, conflictCount: 0 }
}

type Counts = Pick<MergeTally, 'inserted' | 'updated' | 'deleted'>

/** Selects the rows to write. Those that exist have a version. */
function rowsOf(table: ForwardTable): Sql {
  const { joins, isInserted, isUpdated } = compare(table)
  return sql`${selectAfter(table)} ${joins} where ${isInserted} or ${isUpdated}`
}

function selectAfter({ codec }: ForwardTable): Sql {
  const values = codec.physical.map(({ physicalName }) => sql`a.${ident(physicalName)}`)
  return sql`
    select k.id, a.id is null as is_gone, b.version, b.created_at${furtherColumns(values)}`
}

/** Deletes the rows that theirs has deleted. */
async function deleteGone(
  transaction: Transaction,
  parts: StatementParts,
  table: ForwardTable,
): Promise<void> {
  const { joins, isDeleted } = compare(table)
  await runOnce(
    transaction,
    deleteStatement(parts, sql`array(select k.id ${joins} where ${isDeleted})`),
  )
}

/** Inserts and replaces rows. Returns their numbers, and the number of rows that are to be deleted. */
async function writeChanges(
  transaction: Transaction,
  parts: StatementParts,
  table: ForwardTable,
): Promise<Counts> {
  const { joins, isInserted, isUpdated, isDeleted } = compare(table)
  const values = parts.names.map((name) => sql`u.${name}`)
  const [counts = []] = await runOnce(
    transaction,
    compileStatement(sql`
    with changed as (
      ${selectAfter(table)} ${joins} where ${isInserted} or ${isUpdated} or ${isDeleted}
    ),
    u as (select * from changed where not is_gone)${parts.keep(sql`select id from u`)},
    written as (
      insert into ${parts.own} ${parts.rowColumns}
      select u.id, coalesce(u.version + 1, 0),
        coalesce(u.created_at, now()), now(), ${parts.epoch}, false${furtherColumns(values)}
      from u
      on conflict (id) do update set ${parts.overwrite}
    )
    select count(*) filter (where version is null), count(version) filter (where not is_gone),
      count(*) filter (where is_gone)
    from changed`),
  )
  const [inserted, updated, deleted] = counts.map(Number)
  return { inserted: inserted ?? 0, updated: updated ?? 0, deleted: deleted ?? 0 }
}
