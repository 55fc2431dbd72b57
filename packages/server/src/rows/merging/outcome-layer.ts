import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import { type PhysicalColumn, physicalName } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import { failsCheck, type UniqueKey } from '../columns/table-rules.js'
import { tryEvaluating } from '../heaps/failing-rows.js'
import { describeHeap } from '../heaps/heap-ddl.js'
import { buildLayer, type NewLayer, publishLayers } from '../heaps/layers.js'
import { keepLayerVersions } from '../heaps/versions.js'
import { type BranchRows, heapName, layoutOf, ownHeap } from '../layout/layout.js'
import { joinVisible, selectVisible } from '../reading/arms.js'
import { changedIds, mayDiffer } from '../reading/changed-ids.js'
import { getTarget, openTarget } from './publish-stage.js'
import { type MergeTally, NO_EFFECT, type StagedRows } from './stage.js'
import { EFFECTS } from './stage-sql.js'

/*
 * Writing the outcome of a large merge takes too long for a locked target. So it is written to a table of its own
 * before, a layer of the target's heap, in the form of rows. Publishing adds it to the catalogue.
 * With a locked target, only rows are looked at that were written since the comparison.
 */

interface OutcomeRows {
  readonly staged: StagedRows
  /** The rows of the target that were compared. */
  readonly ours: BranchRows
}

/** Writes the outcome for a table. */
export function buildOutcome(transaction: Queryable, rows: OutcomeRows): Promise<NewLayer> {
  const { table } = rows.staged.codec
  const layer = { databaseId: rows.ours.databaseId, table, ...describeHeap(table) }
  return buildLayer(transaction, layer, selectOutcome(rows, sql`s.decision in ${EFFECTS}`))
}

/** Selects the staged rows `s` that meet a condition as rows of the target. Their epoch is that of the layer. */
function selectOutcome(
  { staged: { codec, name, isQuery }, ours }: OutcomeRows,
  condition: Sql,
): Sql {
  const columns = codec.physical.map(({ physicalName }) => sql`, s.${ident(physicalName)}`)
  const joined = { id: sql`s.id`, alias: sql`r`, outer: true, columns: new Set<number>() }
  // A query has the rows of the target already: they are those of the base.
  const [alias, target] = isQuery
    ? [sql`s`, empty]
    : [sql`r`, joinVisible(layoutOf(ours), codec, joined)]
  return sql`
    select case s.decision when 'update' then ${alias}.version + 1 else 0 end as version, 0 as epoch,
      coalesce(${alias}.created_at, now())::timestamptz(3) as created_at, now()::timestamptz(3) as updated_at,
      s.decision = 'delete' as deleted, s.id${join([empty, ...columns], '')}
    from ${name} s
    ${target}
    where ${condition}`
}

/** Counts the effects of an outcome. A row that is new to the target has version 0, and no other one has. */
export async function countOutcome(
  transaction: Queryable,
  layer: NewLayer,
): Promise<Pick<MergeTally, 'inserted' | 'updated' | 'deleted'>> {
  const [counts] = await transaction.query<
    Pick<MergeTally, 'inserted' | 'updated' | 'deleted'>
  >(sql`
    select (count(*) filter (where not deleted and version = 0))::integer as inserted,
      (count(*) filter (where not deleted and version > 0))::integer as updated,
      (count(*) filter (where deleted))::integer as deleted
    from ${heapName(layer)}`)
  return counts ?? NO_EFFECT
}

/** Returns whether the target has written a row of the outcome since. */
export async function isRowWritten(
  transaction: Queryable,
  layer: NewLayer,
  { codec, ours, oursBefore }: TargetSince,
): Promise<boolean> {
  const written = await transaction.query(sql`
    select from (${changedIds(oursBefore, ours, codec.table.id)}) c
    where exists (select from ${heapName(layer)} o where o.id = c.id)
    limit 1`)
  return written.length > 0
}

/** Brings an outcome up to date with a locked target: replaces what staged rows gave that were decided again. */
export async function amendOutcome(
  transaction: Queryable,
  layer: NewLayer,
  { since, ...rows }: OutcomeRows & { readonly since: Sql },
): Promise<void> {
  const { physical } = rows.staged.codec
  const name = heapName(layer)
  const columns = physical.map(({ physicalName }) => sql`, ${ident(physicalName)}`)
  await transaction.query(sql`delete from ${name} where id in (select id from ${since})`)
  await transaction.query(sql`
    insert into ${name} (version, epoch, created_at, updated_at, deleted, id${join([empty, ...columns], '')})
    ${selectOutcome(rows, sql`s.n in (select n from ${since}) and s.decision in ${EFFECTS}`)}`)
}

/** The rows of a target that is locked, and those that an outcome was compared with. */
interface TargetSince {
  readonly codec: TableCodec
  readonly ours: BranchRows
  readonly oursBefore: BranchRows
}

/** Returns whether the target has taken a unique value since that the outcome needs. */
export async function isValueTaken(
  transaction: Queryable,
  layer: NewLayer,
  since: TargetSince,
): Promise<boolean> {
  const { codec, ours, oursBefore } = since
  if (!mayDiffer(oursBefore, ours, codec.table.id)) return false
  for (const key of codec.uniqueKeys) {
    const found = await transaction.query(selectTaken(layer, since, key))
    if (found.length > 0) return true
  }
  return false
}

/** Returns whether a row that was decided again fails a check, or a check cannot be evaluated for it. */
export async function isCheckFailed(
  transaction: Queryable,
  layer: NewLayer,
  { codec, since }: { readonly codec: TableCodec; readonly since: Sql },
): Promise<boolean> {
  for (const check of codec.checks) {
    const isFailed = failsCheck(check, (id) => sql`o.${ident(physicalName({ id }))}`)
    const tried = await tryEvaluating(transaction, () =>
      transaction.query(sql`
        select from (
          select * from ${heapName(layer)}
          where id in (select id from ${since}) and not deleted
          offset 0
        ) o
        where ${isFailed}
        limit 1`),
    )
    if ('failure' in tried || tried.result.length > 0) return true
  }
  return false
}

/** Finds one of the rows that the target has written since whose value another row of the outcome has. */
function selectTaken(
  newLayer: NewLayer,
  { codec, ours, oursBefore }: TargetSince,
  key: UniqueKey,
): Sql {
  const [layout, layer] = [layoutOf(ours), heapName(newLayer)]
  const columns = key.columns.flatMap((index) => codec.physical[index] ?? [])
  const names = columns.map((column) => ident(column.physicalName))
  const listed = (alias: Sql) =>
    join(
      names.map((name) => sql`${alias}.${name}`),
      ', ',
    )
  const every = (conditionOf: (name: Sql) => Sql) => join(names.map(conditionOf), ' and ')
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    join(
      columns.map((column) => sql`${expressionOf(column)} = v.${ident(column.physicalName)}`),
      ' and ',
    )
  const changed = changedIds(oursBefore, ours, codec.table.id)
  return sql`
    with changed as (${changed}),
    v as (
      select o.id, ${listed(sql`o`)}
      from changed c
      join ${layer} o on o.id = c.id and not o.deleted
      union all
      select c.id, ${listed(sql`r`)}
      from changed c
      ${joinVisible(layout, codec, { id: sql`c.id`, alias: sql`r`, columns: new Set(key.columns) })}
      where not exists (select from ${layer} o where o.id = c.id)
    )
    select
    from v
    where ${every((name) => sql`v.${name} is not null`)} and (
      exists (
        select from ${layer} o
        where ${every((name) => sql`o.${name} = v.${name}`)} and o.id <> v.id and not o.deleted
      )
      or exists (
        select from (${selectVisible(layout, codec, { where })}) r
        where r.id <> v.id and not exists (select from ${layer} o where o.id = r.id)
      )
    )
    limit 1`
}

/**
 * Publishes outcomes on the branch `into`, whose gate must be locked. Takes a statement for each table, whatever
 * the number of rows, except for tables that keep versions. Returns false if one is gone.
 */
export async function publishOutcomes(
  transaction: Transaction,
  outcomes: readonly NewLayer[],
  into: string,
): Promise<boolean> {
  if (outcomes.length === 0) return true
  const tables = outcomes.flatMap(({ table }) => table ?? [])
  const target = await openTarget(transaction, tables, await getTarget(transaction, into))
  const { epoch } = target
  for (const layer of outcomes) {
    const heap = ownHeap(target, layer.tableId)
    // Moving the rows to the heap makes no versions, so they are made now: in a time that depends on the number of rows.
    if (layer.table?.history === undefined || heap === undefined) continue
    await transaction.query(keepLayerVersions({ heap, layer, epoch: sql`${epoch}::integer` }))
  }
  const place = { branchId: into, epoch, isLasting: true, nextBranchId: into }
  return publishLayers(transaction, outcomes, place)
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
