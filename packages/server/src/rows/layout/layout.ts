import type { Queryable } from '../../postgres/database.js'
import { tableIn } from '../../postgres/place.js'
import { empty, raw, type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { listOrigins, type StoredColumn } from '../columns/stored-schema.js'
import { schemaName } from './database-schema.js'

/** Identifies physical tables. The id is unique in the instance. */
export interface HeapAddress {
  /** The tables are in the schema of this database. */
  readonly databaseId: string
  readonly heapId: string
}

/** How a column is stored on a branch that has another id for it. */
export interface StoredAs {
  readonly id: number
  /** The definition of the column on that branch. undefined: the branch has removed it. */
  readonly column: Pick<StoredColumn, 'fill'> | undefined
}

/** The physical tables with the rows that one branch wrote to one table. */
export interface Heap extends HeapAddress {
  readonly columnIds: ReadonlySet<number>
  /** The columns that are stored under another id than the one they are read by. See `withIds`. */
  readonly storedAs?: ReadonlyMap<number, StoredAs>
  /** The columns whose values are those of another column, converted. See `withReadColumns`. */
  readonly readAs?: ReadonlyMap<number, StoredColumn>
  /** The tables were dropped, because folds have made all reads skip them. */
  readonly isGone?: boolean
}

/**
 * A table without a past whose rows, tombstones included, hide those that are read after it. If reading goes on with the
 * heap of the same branch, the layer is the outcome of a large merge or stream, and the background moves its rows to the
 * heap. Otherwise it is a fold: it has the condensed rows of several levels, and reads skip these.
 */
export interface Layer extends Heap {
  /** The branch of the level that is read next. undefined: the layer has the rows of all further levels. */
  readonly nextBranchId: string | undefined
  /** The first epoch of the branch whose rows the layer has. */
  readonly epoch: number
  /** The epoch of the latest fork that does not read the layer. 0: there is none. */
  readonly latestFork: number
}

/** A branch that rows are read from, and as of which epoch. */
export interface Level {
  readonly branchId: string
  /** Rows are read as of this epoch. undefined: current rows. */
  readonly asOf: number | undefined
  /** By table id. */
  readonly heaps: ReadonlyMap<number, Heap>
  /** By table id. */
  readonly layers: ReadonlyMap<number, Layer>
}

/**
 * A handle for the location of a branch's rows at one moment. Other rooms pass it on; only `rows/` reads
 * the layout behind it, with `layoutOf`.
 */
export interface BranchRows {
  readonly branchId: string
  readonly databaseId: string
  readonly schemaId: string
  /** How often the branch was reset. */
  readonly resets: number
}

/** The epoch of a branch and that of its latest fork. Writers need both, to keep versions that a fork can see. */
export interface Moment {
  /** Rows are written with this epoch. */
  readonly epoch: number
  /** The epoch of the latest fork that exists. It sees the rows up to this epoch. 0: there is none. */
  readonly latestFork: number
}

/**
 * The levels that rows of a branch are read from: its own level first, then inherited levels, nearest first.
 * Inherited levels never change while the branch exists. The own level changes only together with the stamp. The
 * moment is that of reading the layout; a fork changes it without changing the stamp.
 */
export interface Layout extends BranchRows, Moment {
  readonly stamp: string
  /**
   * The branch was forked, so forks may see its rows, and changes must keep the old version in the past. It
   * stays true when the forks are deleted: otherwise clients that create and delete forks would change the
   * stamp each time.
   */
  readonly hasForks: boolean
  readonly levels: readonly Level[]
}

/** The cast is safe: only `findLayout` creates `BranchRows`, and it returns layouts. */
export function layoutOf(rows: BranchRows): Layout {
  return rows as Layout
}

export interface LevelRow {
  readonly depth: number
  readonly branchId: string
  readonly databaseId: string
  readonly stamp: string
  readonly schemaId: string
  readonly resets: number
  readonly epoch: number
  readonly latestFork: number
  readonly asOf: number | null
  readonly hasForks: boolean
  readonly heaps: HeapRow[] | null
}

interface HeapRow {
  readonly id: number
  readonly tableId: number
  readonly columnIds: number[]
  readonly kind: 'heap' | 'layer' | 'gone'
  readonly epoch: number
  readonly nextBranchId: string | null
  /** Only of layers whose rows are moved to the heap. */
  readonly latestFork: number | null
}

/** Returns the epoch of the latest fork of a branch that meets the conditions, or 0. */
export const latestForkOf = (branchId: Sql, conditions = empty): Sql => sql`coalesce((
        select max(f.fork_epoch) from offshoot.branches f where f.parent_id = ${branchId} ${conditions}
      ), 0)`

/** After all epochs. */
const EPOCH_MAX = raw(String(2 ** 31 - 1))

const LEVEL_COLUMNS = sql`b.id, b.database_id, b.parent_id, b.fork_epoch, b.stamp, b.schema_id, b.resets, b.epoch`

/**
 * Selects the columns that a heap `h` had at the end of an epoch. A fork does not read one that the heap has got since: its
 * values were made of those that the other branch had then, and the fork may make them of others.
 */
const columnsAsOf = (epoch: Sql): Sql => sql`
            case when h.column_epochs is null or ${epoch} is null then to_json(h.column_ids) else (
              select coalesce(json_agg(i), '[]')
              from unnest(h.column_ids) i
              where coalesce((h.column_epochs ->> i::text)::integer, 0) <= ${epoch}
            ) end`

/**
 * Selects the levels of a branch, which `toLayout` takes. Other forms than texts and JSON would differ in an aggregate. A
 * parent is looked up by a subquery with `offset`: PostgreSQL expects many rows of a recursive query, and would join
 * them with all branches of all databases.
 */
function levelsSql(branchId: Sql, isHidden: Sql, isFollowed = sql`true`): Sql {
  return sql`
    with recursive chain as (
      select 0 as depth, null::integer as as_of, ${LEVEL_COLUMNS}
      from offshoot.branches b
      where b.id = ${branchId} and (b.deleted_at is null or ${isHidden})
      union all
      select c.depth + 1, c.fork_epoch, parent.*
      from chain c
      cross join lateral (
        select ${LEVEL_COLUMNS} from offshoot.branches b where b.id = c.parent_id offset 0
      ) parent
      where ${isFollowed}
    )
    select c.depth, c.id as "branchId", c.database_id::text as "databaseId",
      c.stamp::text as stamp, c.schema_id::text as "schemaId",
      c.resets, c.epoch, c.as_of as "asOf", c.epoch > 1 as "hasForks",
      case when c.depth = 0 then ${latestForkOf(sql`c.id`)} else 0 end as "latestFork",
      (
        select json_agg(json_build_object(
          'id', h.id, 'tableId', h.table_id, 'columnIds', ${columnsAsOf(sql`c.as_of`)}, 'kind', h.kind,
          'epoch', h.epoch, 'nextBranchId', h.next_branch_id,
          'latestFork', case when h.next_branch_id = c.id
            then ${latestForkOf(sql`c.id`, sql`and f.fork_epoch < h.epoch`)} end))
        from offshoot.heaps h
        where h.branch_id = c.id
          and coalesce(c.as_of, ${EPOCH_MAX}) between h.epoch and coalesce(h.until_epoch, ${EPOCH_MAX})
      ) as heaps
    from chain c
    order by c.depth`
}

/** With `hidden`, also finds branches that are deleted or were never visible. */
export async function findLayout(
  database: Queryable,
  branchId: string,
  options: { hidden?: boolean } = {},
): Promise<Layout | undefined> {
  const isHidden = sql`${options.hidden ?? false}::boolean`
  return toLayout(await database.query<LevelRow>(prepared(levelsSql(sql`${branchId}`, isHidden))))
}

/**
 * A subquery for the layout of a branch, as JSON for `toLayout`. With `hidden`, the branch may be hidden. With
 * `levelsMax`, at most one level more than that is read.
 */
export function layoutSql(
  branchId: Sql,
  { hidden = false, levelsMax }: { hidden?: boolean; levelsMax?: number } = {},
): Sql {
  const isHidden = hidden ? sql`true` : sql`false`
  const isFollowed = levelsMax === undefined ? undefined : sql`c.depth < ${levelsMax}::integer`
  return sql`select json_agg(l) from (${levelsSql(branchId, isHidden, isFollowed)}) l`
}

/** Levels of a branch, with its own, that are found in a fraction of a millisecond. */
const SHALLOW_LEVELS_MAX = 16

/** Like `layoutSql`, for `toShallowLayout`: it takes no longer for a branch that inherits from many others. */
export function shallowLayoutSql(branchId: Sql): Sql {
  return layoutSql(branchId, { levelsMax: SHALLOW_LEVELS_MAX })
}

/** Returns undefined if the branch inherits from many others. */
export function toShallowLayout(rows: readonly LevelRow[]): Layout | undefined {
  return rows.length > SHALLOW_LEVELS_MAX ? undefined : toLayout(rows)
}

/** Returns undefined if there are no levels, because the branch does not exist. */
export function toLayout(rows: readonly LevelRow[]): Layout | undefined {
  const [own] = rows
  if (own === undefined) return undefined
  const { branchId, databaseId, stamp, schemaId, resets, epoch, latestFork, hasForks } = own
  return {
    branchId,
    databaseId,
    stamp,
    schemaId,
    resets,
    epoch,
    latestFork,
    hasForks,
    levels: rows.map(toLevel),
  }
}

/** Most levels have no layers, and a branch can have thousands of levels. */
const NONE: ReadonlyMap<number, never> = new Map<number, never>()

function toLevel({ databaseId, branchId, asOf, heaps: rows }: LevelRow): Level {
  const heaps = new Map<number, Heap>()
  const layers = new Map<number, Layer>()
  for (const row of rows ?? []) {
    const { id, tableId, columnIds, kind, epoch, nextBranchId } = row
    const heap = { databaseId, heapId: String(id), columnIds: new Set(columnIds) }
    if (kind === 'layer') {
      const latestFork = row.latestFork ?? 0
      layers.set(tableId, { ...heap, nextBranchId: nextBranchId ?? undefined, epoch, latestFork })
    } else heaps.set(tableId, kind === 'gone' ? { ...heap, isGone: true } : heap)
  }
  return {
    branchId,
    asOf: asOf ?? undefined,
    heaps: heaps.size > 0 ? heaps : NONE,
    layers: layers.size > 0 ? layers : NONE,
  }
}

/** A place that rows of a table are read from: a heap, with its past if it is read as of an epoch, or a layer. */
export interface Tier extends Heap {
  readonly kind: 'heap' | 'layer'
  /** The index of its level. 0 is that of the branch. A layer of a heap is half a level nearer than the heap. */
  readonly level: number
  readonly branchId: string
  /** Rows are read as of this epoch. undefined: all rows. */
  readonly asOf: number | undefined
}

/** Lists the tiers of a table, the nearest first. */
export function tiersOf({ levels }: Layout, tableId: number): Tier[] {
  const tiers: Tier[] = []
  for (let index = 0; index < levels.length; ) {
    const level = levels[index] as Level
    const { branchId, asOf } = level
    const layer = level.layers.get(tableId)
    const heap = level.heaps.get(tableId)
    if (layer !== undefined) {
      const { nextBranchId } = layer
      const isOverHeap = nextBranchId === branchId
      const nearness = isOverHeap ? index - 0.5 : index
      tiers.push({ ...layer, kind: 'layer', level: nearness, branchId, asOf: undefined })
      if (nextBranchId === undefined) break
      if (!isOverHeap) {
        const next = levels.findIndex((further) => further.branchId === nextBranchId)
        if (next <= index) throw new Error('a fold must be followed by a further level')
        index = next
        continue
      }
    }
    if (heap?.isGone) throw new Error('a heap that was dropped cannot be read')
    if (heap !== undefined) tiers.push({ ...heap, kind: 'heap', level: index, branchId, asOf })
    index++
  }
  return tiers
}

/** Returns the branch's own heap of a table, or undefined before the first write to the table. */
export function ownHeap(layout: Layout, tableId: number): Heap | undefined {
  return layout.levels[0]?.heaps.get(tableId)
}

/** Returns the layer of the branch's own heap of a table. */
export function ownLayer(layout: Layout, tableId: number): Layer | undefined {
  return layout.levels[0]?.layers.get(tableId)
}

/** Returns whether the branch may inherit rows of the table. */
export function inheritsRows(layout: Layout, tableId: number): boolean {
  return tiersOf(layout, tableId).some(({ level }) => level > 0)
}

/**
 * Restricts a layout to the given columns of one table. Heaps may contain values of other columns, which were
 * removed or added later; these read as if they had never been written.
 */
export function withColumns(
  layout: Layout,
  options: { tableId: number; columnIds: ReadonlySet<number> },
): Layout {
  const { tableId, columnIds } = options
  return mapTable(layout, tableId, (heap) => ({
    ...heap,
    columnIds: new Set(
      [...heap.columnIds].filter((id) => columnIds.has(id) || isRead(heap.readAs, id)),
    ),
  }))
}

/** Returns whether a column is read in place of others, or one of these was made of it. */
function isRead(readAs: Heap['readAs'], id: number): boolean {
  return [...(readAs?.values() ?? [])].some((column) =>
    [column, ...listOrigins(column)].some((each) => each.id === id),
  )
}

/** Restricts a layout to one table. */
export function withTable(layout: Layout, tableId: number): Layout {
  return mapTable(layout, tableId, (heap) => heap)
}

/** Keeps only the heaps of one table. It does not visit the others: a branch can have many tables. */
function mapTable(
  layout: Layout,
  tableId: number,
  map: <Mapped extends Heap>(heap: Mapped) => Mapped,
): Layout {
  const only = <Mapped extends Heap>(heaps: ReadonlyMap<number, Mapped>) => {
    const heap = heaps.get(tableId)
    return new Map<number, Mapped>(heap === undefined ? [] : [[tableId, map(heap)]])
  }
  return {
    ...layout,
    levels: layout.levels.map((level) => ({
      ...level,
      heaps: only(level.heaps),
      layers: only(level.layers),
    })),
  }
}

/** Tables and columns that are read by another id than the one they are stored under. */
export interface ReadIds {
  /** The ids that tables are read by, by the ids of the branch. */
  readonly tables: ReadonlyMap<number, number>
  /** By the ids that columns are read by. */
  readonly columns: ReadonlyMap<number, StoredAs>
}

/** Returns a layout whose tables and columns are read by other ids. It is only for reading. */
export function withIds(layout: Layout, { tables, columns }: ReadIds): Layout {
  const readBy = new Map([...columns].map(([id, stored]) => [stored.id, id]))
  // What is stored under an id that others are read by was removed.
  const targets = new Set(tables.values())
  const renumber = <Mapped extends Heap>(heaps: ReadonlyMap<number, Mapped>) =>
    new Map(
      [...heaps].flatMap(([tableId, heap]): [number, Mapped][] => {
        const readId = tables.get(tableId) ?? (targets.has(tableId) ? undefined : tableId)
        if (readId === undefined) return []
        const columnIds = [...heap.columnIds].flatMap(
          (id) => readBy.get(id) ?? (columns.has(id) ? [] : id),
        )
        return [[readId, { ...heap, columnIds: new Set(columnIds), storedAs: columns }]]
      }),
    )
  return {
    ...layout,
    levels: layout.levels.map((level) => ({
      ...level,
      heaps: renumber(level.heaps),
      layers: renumber(level.layers),
    })),
  }
}

/**
 * Returns a layout in which columns of a state are read in place of others, with their values converted to those of the
 * others. They are given by the id of their table, and then by that of the other column. It is only for reading.
 */
export function withReadColumns(
  layout: Layout,
  columns: ReadonlyMap<number, NonNullable<Heap['readAs']>>,
): Layout {
  const read = <Mapped extends Heap>(heaps: ReadonlyMap<number, Mapped>) =>
    new Map(
      [...heaps].map(([tableId, heap]): [number, Mapped] => {
        const readAs = columns.get(tableId)
        return [tableId, readAs === undefined ? heap : { ...heap, readAs }]
      }),
    )
  return {
    ...layout,
    levels: layout.levels.map((level) => ({
      ...level,
      heaps: read(level.heaps),
      layers: read(level.layers),
    })),
  }
}

/** Returns the layout without the branch's own rows: the state that the fork started with. */
export function withoutOwnRows(layout: Layout): Layout {
  return { ...layout, levels: layout.levels.slice(1) }
}

/** Returns a layout with only the rows that the branch wrote itself. */
export function ownRows(layout: Layout): Layout {
  return { ...layout, levels: layout.levels.slice(0, 1) }
}

/** Returns a layout without any rows. */
export function withoutRows(layout: Layout): Layout {
  return { ...layout, levels: [] }
}

/** Returns the qualified name of a table or an index in the schema of a database. */
export const qualified = (databaseId: string, name: string): Sql =>
  tableIn(schemaName(databaseId), name)

export const heapName = ({ databaseId, heapId }: HeapAddress): Sql =>
  qualified(databaseId, `heap_${heapId}`)
export const pastName = ({ databaseId, heapId }: HeapAddress): Sql =>
  qualified(databaseId, `past_${heapId}`)
/** Returns the table with the versions of records, which only heaps of tables with a history have. */
export const versionsName = ({ databaseId, heapId }: HeapAddress): Sql =>
  qualified(databaseId, `versions_${heapId}`)
export const indexName = (
  table: 'heap' | 'past',
  {
    heapId,
    columnId,
    kind,
  }: { heapId: string; columnId: number; kind: 'values' | 'search' | 'typed' },
): string => `${table}_${heapId}_c${columnId}_${kind === 'values' ? 'index' : kind}`
/** Returns the name of the index of a unique key, by the id of the column or the constraint. */
export const uniqueIndexName = (heapId: string, keyId: number): string =>
  `heap_${heapId}_c${keyId}_unique`
/** Returns the name of the index of a key on the past. It finds the values that forks inherit. */
export const pastKeyIndexName = (heapId: string, keyId: number): string =>
  `past_${heapId}_c${keyId}_key`
export const checkName = (heapId: string, constraintId: number): string =>
  `heap_${heapId}_c${constraintId}_check`

/** Returns the id in the name of a unique index or a check, or undefined for any other name. */
export function ruleIdOf(name: string): number | undefined {
  const match = /_c(\d+)_(?:unique|check)$/.exec(name)
  return match === null ? undefined : Number(match[1])
}
