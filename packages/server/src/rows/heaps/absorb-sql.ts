import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { listKeyColumns, type StoredTable } from '../columns/stored-schema.js'
import {
  type Heap,
  heapName,
  inheritsRows,
  type Layer,
  type Layout,
  ownHeap,
  ownLayer,
  pastName,
} from '../layout/layout.js'
import { heapColumns } from '../reading/arms.js'
import { BEGIN_MOVING, END_MOVING } from './versions.js'

/*
 * Moving rows from a layer to the heap below it. They get the epoch of the layer, and the versions that they replace are
 * kept until that epoch. So every state of the branch, as of any epoch, is the same before and after.
 *
 * A row of the layer may have a unique value that another row of the heap still has, because the layer has a new version
 * of that row, too. Such stale rows are retired first: the old version is kept, and the row in the heap becomes a
 * tombstone, which the layer hides.
 */

/** A heap with a layer. */
export interface LayeredHeap {
  readonly branchId: string
  readonly tableId: number
  readonly heap: Heap
  readonly layer: Layer
  /** The branch inherits no rows of the table, so deleted rows leave no tombstones. */
  readonly isPlain: boolean
  /** The heap keeps versions of records. */
  readonly isKept: boolean
  /** The ids of the columns of each unique key. */
  readonly keys: readonly (readonly number[])[]
}

/** Returns the heap of a table on a branch, or undefined if it has no layer. */
export function findLayered(layout: Layout, table: StoredTable): LayeredHeap | undefined {
  const [heap, layer] = [ownHeap(layout, table.id), ownLayer(layout, table.id)]
  if (heap === undefined || layer === undefined) return undefined
  return {
    branchId: layout.branchId,
    tableId: table.id,
    heap,
    layer,
    isPlain: !inheritsRows(layout, table.id),
    isKept: table.history !== undefined,
    keys: [...listKeyColumns(table).values()],
  }
}

/** Rows that are about to be written. */
export interface WrittenRows {
  /** A query for their ids. */
  readonly ids: Sql
  /** Queries for new values of unique keys. */
  readonly values?: readonly KeyValues[]
}

/** A query for values of a unique key. Its columns have the names of those of the heap. */
export interface KeyValues {
  /** The ids of the columns. */
  readonly key: readonly number[]
  readonly query: Sql
}

/**
 * Returns statements that move rows of the layer to the heap: those that are about to be written, and those
 * that have a value which is about to be written.
 */
export function absorbSql(target: LayeredHeap, rows: WrittenRows): Sql[] {
  const move = moveSql(target, rows)
  const moves = target.keys.length === 0 ? [move] : [retireSql(target, rows), move]
  return target.isKept ? [BEGIN_MOVING, ...moves, END_MOVING] : moves
}

function moveSql({ heap, layer, isPlain }: LayeredHeap, rows: WrittenRows): Sql {
  const [own, epoch] = [heapName(heap), raw(String(layer.epoch))]
  const names = [...layer.columnIds].map((id) => ident(`c${id}`))
  const listed = (alias: Sql) => join([empty, ...names.map((name) => sql`, ${alias}${name}`)], '')
  const removing = sql`,
    removed as (delete from ${own} h using s where s.deleted and h.id = s.id)`
  const overwritten = ['version', 'created_at', 'updated_at', 'epoch', 'deleted'].map(ident)
  const changes = [...overwritten, ...names].map((name) => sql`${name} = excluded.${name}`)
  return sql`
    with s as (
      delete from ${heapName(layer)} o
      where o.id in (${matching(layer, rows)})
      returning *
    ),
    kept as (${keepSql({ heap, layer }, sql`${own} h join s on s.id = h.id`)})${isPlain ? removing : empty}
    insert into ${own} (id, version, created_at, updated_at, epoch, deleted${listed(empty)})
    select s.id, s.version, s.created_at, s.updated_at, ${epoch}, s.deleted${listed(sql`s.`)}
    from s${isPlain ? sql` where not s.deleted` : empty}
    on conflict (id) do update set ${join(changes, ', ')}`
}

/** Retires the stale rows of the heap that have a value which a moved row has or a writer is going to write. */
function retireSql(target: LayeredHeap, rows: WrittenRows): Sql {
  const { heap, layer, keys } = target
  const [own, other] = [heapName(heap), heapName(layer)]
  const holders = [
    ...keys.map(
      (key) => sql`
        select h.id from s join ${own} h on ${isSame(key, sql`s`, sql`h`)} and h.id <> s.id
        where not h.deleted`,
    ),
    ...(rows.values ?? []).map(
      ({ key, query }) => sql`
        select h.id from (${query}) v join ${own} h on ${isSame(key, sql`v`, sql`h`)}
        where not h.deleted`,
    ),
  ]
  return sql`
    with s as (
      select o.* from ${other} o where o.id in (${matching(layer, rows)}) and not o.deleted
    ),
    stale as (
      select h.*
      from ${own} h
      where h.id in (${join(holders, ' union all ')})
        and exists (select from ${other} o where o.id = h.id)
    ),
    kept as (${keepSql({ heap, layer }, sql`stale h`)})
    update ${own} h
    set deleted = true, epoch = ${raw(String(layer.epoch))}
    where h.id in (select id from stale)`
}

/** Returns a query for the ids of the written rows, and of rows of the layer that have a written value. */
function matching(layer: Layer, { ids, values = [] }: WrittenRows): Sql {
  const holders = values.map(
    ({ key, query }) => sql`
      select x.id from ${heapName(layer)} x join (${query}) v on ${isSame(key, sql`v`, sql`x`)}`,
  )
  return join([ids, ...holders], ' union all ')
}

/** Returns the condition that two rows have the same value of a unique key. */
function isSame(key: readonly number[], one: Sql, other: Sql): Sql {
  const equal = key.map((id) => sql`${other}.${ident(`c${id}`)} = ${one}.${ident(`c${id}`)}`)
  return join(equal, ' and ')
}

/** Copies rows `h` of the heap to the past, if a fork from before the layer can see them. */
function keepSql({ heap, layer }: Pick<LayeredHeap, 'heap' | 'layer'>, source: Sql): Sql {
  const epoch = raw(String(layer.epoch))
  return sql`
      insert into ${pastName(heap)} (${heapColumns(heap)}, until)
      select ${heapColumns(heap, sql`h`)}, ${epoch}
      from ${source}
      where h.epoch < ${epoch} and h.epoch <= ${raw(String(layer.latestFork))}`
}
