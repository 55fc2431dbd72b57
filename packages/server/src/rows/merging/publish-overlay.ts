import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import { createFoldIndexes, dropHeap, fileColumnIds } from '../heaps/heap-ddl.js'
import { type BranchRows, type HeapAddress, heapName, layoutOf } from '../layout/layout.js'
import { joinVisible, selectVisible } from '../reading/arms.js'
import { changedIds, mayDiffer } from './changed-ids.js'
import { getTarget, openTarget } from './publish-stage.js'
import type { StagedRows } from './stage.js'
import { EFFECTS } from './stage-sql.js'

/*
 * Writing the outcome of a large merge takes too long for a locked target. So it is written to a table of its own
 * before, in the form of rows. Publishing adds this table to the catalogue, as an overlay of the target's heap.
 * With a locked target, only rows are looked at that were written since the comparison.
 */

/** The outcome of a merge for one table, before it is published. */
export type StagedOverlay = HeapAddress

/** Staged rows of one table: a table, or a query in parentheses. */
export type OverlaidStage = Pick<StagedRows, 'codec' | 'name'>

interface OverlaidRows {
  readonly staged: OverlaidStage
  /** The rows of the target that were compared. */
  readonly ours: BranchRows
}

/** Writes the outcome for a table. It belongs to the hidden branch `owner` until it is published. */
export async function buildOverlay(
  transaction: Queryable,
  rows: OverlaidRows,
  owner: { branchId: string; databaseId: string },
): Promise<StagedOverlay> {
  const { codec } = rows.staged
  const [columnIds, fileIds] = [codec.physical.map(({ id }) => id), fileColumnIds(codec.physical)]
  const [row] = await transaction.query<{ heapId: string }>(sql`
    insert into offshoot.heaps
      (database_id, branch_id, table_id, column_ids, file_column_ids, kind)
    values (${owner.databaseId}, ${owner.branchId}, ${codec.table.id}, ${columnIds}::bigint[],
      ${fileIds}::bigint[], 'staged')
    returning id as "heapId"`)
  if (row === undefined) throw new Error('an insert must return a row')
  const overlay = { databaseId: owner.databaseId, heapId: row.heapId }
  await transaction.query(sql`
    create table ${heapName(overlay)} as ${selectOutcome(rows, sql`s.decision in ${EFFECTS}`)}`)
  await createFoldIndexes(transaction, {
    ...overlay,
    table: codec.table,
    columnIds,
    fileColumnIds: fileIds,
  })
  return overlay
}

/** Selects the staged rows `s` that meet a condition as rows of the target. */
function selectOutcome({ staged: { codec, name }, ours }: OverlaidRows, condition: Sql): Sql {
  const columns = codec.physical.map(({ physicalName }) => sql`, s.${ident(physicalName)}`)
  return sql`
    select case s.decision when 'update' then r.version + 1 else 0 end as version,
      coalesce(r.created_at, now())::timestamptz(3) as created_at, now()::timestamptz(3) as updated_at,
      s.decision = 'delete' as deleted, s.id${join([empty, ...columns], '')}
    from ${name} s
    ${joinVisible(layoutOf(ours), codec, { id: sql`s.id`, alias: sql`r`, outer: true, columns: new Set() })}
    where ${condition}`
}

/**
 * Brings an overlay up to date with a locked target. `ours` has the rows of the target now, `oursBefore` those
 * that were compared, and `since` the staged rows that were decided again. Returns false if the target has taken a
 * unique value that the outcome needs.
 */
export async function amendOverlay(
  transaction: Queryable,
  overlay: StagedOverlay,
  rows: OverlaidRows & { readonly oursBefore: BranchRows; readonly since: Sql | undefined },
): Promise<boolean> {
  const { staged, ours, oursBefore, since } = rows
  const name = heapName(overlay)
  if (since !== undefined) {
    const columns = staged.codec.physical.map(({ physicalName }) => sql`, ${ident(physicalName)}`)
    await transaction.query(sql`delete from ${name} where id in (select id from ${since})`)
    await transaction.query(sql`
      insert into ${name} (version, created_at, updated_at, deleted, id${join([empty, ...columns], '')})
      ${selectOutcome(rows, sql`s.n in (select n from ${since}) and s.decision in ${EFFECTS}`)}`)
  }
  if (!mayDiffer(oursBefore, ours, staged.codec.table.id)) return true
  for (const index of staged.codec.uniqueColumns) {
    const found = await transaction.query(selectTaken(overlay, rows, index))
    if (found.length > 0) return false
  }
  return true
}

/** Finds one of the rows that the target has written since whose value another row of the outcome has. */
function selectTaken(
  stagedOverlay: StagedOverlay,
  { staged: { codec }, ours, oursBefore }: OverlaidRows & { readonly oursBefore: BranchRows },
  index: number,
): Sql {
  const [layout, overlay] = [layoutOf(ours), heapName(stagedOverlay)]
  const value = ident(codec.physical[index]?.physicalName ?? '')
  const unique = codec.physical[index]
  if (unique === undefined) throw new Error('a unique column must belong to the table')
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    sql`${expressionOf(unique)} = v.value`
  const changed = changedIds(oursBefore, ours, codec.table.id)
  return sql`
    with changed as (${changed}),
    v as (
      select o.id, o.${value} as value
      from changed c
      join ${overlay} o on o.id = c.id and not o.deleted
      union all
      select c.id, r.${value}
      from changed c
      ${joinVisible(layout, codec, { id: sql`c.id`, alias: sql`r`, columns: new Set([index]) })}
      where not exists (select from ${overlay} o where o.id = c.id)
    )
    select
    from v
    where v.value is not null and (
      exists (
        select from ${overlay} o
        where o.${value} = v.value and o.id <> v.id and not o.deleted
      )
      or exists (
        select from (${selectVisible(layout, codec, { where })}) r
        where r.id <> v.id and not exists (select from ${overlay} o where o.id = r.id)
      )
    )
    limit 1`
}

/**
 * Publishes overlays on the branch `into`, whose gate must be locked. Takes a statement for each table, whatever
 * the number of rows. Returns false if one is gone.
 */
export async function publishOverlays(
  transaction: Transaction,
  overlays: readonly { readonly overlay: StagedOverlay; readonly staged: OverlaidStage }[],
  into: string,
): Promise<boolean> {
  if (overlays.length === 0) return true
  await openTarget(
    transaction,
    overlays.map(({ staged }) => staged.codec),
    await getTarget(transaction, into),
  )
  const published = await transaction.query(sql`
    update offshoot.heaps
    set kind = 'overlay', branch_id = ${into},
      epoch = (select epoch from offshoot.branches where id = ${into})
    where id = any(${overlays.map(({ overlay }) => overlay.heapId)}::bigint[]) and kind = 'staged'
    returning id`)
  await transaction.query(sql`
    update offshoot.branches set stamp = nextval('offshoot.stamps') where id = ${into}`)
  return published.length === overlays.length
}

/** Returns false if a branch was reset after it was pinned: then the pin is a fork of its previous state. */
export async function isPinOf(
  transaction: Queryable,
  { pinId, branchId }: { pinId: string; branchId: string },
): Promise<boolean> {
  const rows = await transaction.query(sql`
    select from offshoot.branches where id = ${pinId} and parent_id = ${branchId}`)
  return rows.length > 0
}

/** Drops the overlays of a hidden branch that were not published. */
export async function dropStagedOverlays(transaction: Queryable, branchId: string): Promise<void> {
  const heaps = await transaction.query<HeapAddress>(sql`
    select database_id as "databaseId", id as "heapId"
    from offshoot.heaps
    where branch_id = ${branchId} and kind = 'staged'`)
  for (const heap of heaps) await dropHeap(transaction, heap)
}
