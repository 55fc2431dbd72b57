import type { Queryable } from '../../postgres/database.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'

/** The physical tables with the rows that one branch wrote to one table. */
export interface Heap {
  readonly heapId: string
  readonly columnIds: ReadonlySet<number>
}

/** A branch that rows are read from, and as of which epoch. */
export interface Level {
  readonly branchId: string
  /** Rows are read as of this epoch. undefined: current rows. */
  readonly asOf: number | undefined
  /** By table id. */
  readonly heaps: ReadonlyMap<number, Heap>
}

/**
 * A handle for the location of a branch's rows at one moment. Other rooms pass it on; only `rows/` reads
 * the layout behind it, with `layoutOf`.
 */
export interface BranchRows {
  readonly branchId: string
  readonly databaseId: string
  readonly schemaId: string
  /** The version of a record is that of its row plus this number. */
  readonly versionBase: number
}

/**
 * The levels that rows of a branch are read from: its own level first, then inherited levels, nearest first.
 * Inherited levels never change while the branch exists. The own level changes only together with the stamp.
 */
export interface Layout extends BranchRows {
  readonly stamp: string
  /** The epoch when the layout was read. A fork changes it without changing the stamp. */
  readonly epoch: number
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

interface LevelRow {
  readonly depth: number
  readonly branchId: string
  readonly databaseId: string
  readonly stamp: string
  readonly schemaId: string
  readonly versionBase: string
  readonly epoch: number
  readonly asOf: number | null
  readonly hasForks: boolean
  readonly heaps: { id: number; tableId: number; columnIds: number[] }[] | null
}

/** With `hidden`, also finds branches that are deleted or were never visible. */
export async function findLayout(
  database: Queryable,
  branchId: string,
  options: { hidden?: boolean } = {},
): Promise<Layout | undefined> {
  const rows = await database.query<LevelRow>(sql`
    with recursive chain as (
      select 0 as depth, b.id, b.parent_id, b.fork_epoch, null::integer as as_of
      from offshoot.branches b
      where b.id = ${branchId} and (b.deleted_at is null or ${options.hidden ?? false})
      union all
      select c.depth + 1, p.id, p.parent_id, p.fork_epoch, c.fork_epoch
      from chain c
      join offshoot.branches p on p.id = c.parent_id
    )
    select c.depth, b.id as "branchId", b.database_id as "databaseId", b.stamp,
      b.schema_id as "schemaId", b.version_base as "versionBase", b.epoch, c.as_of as "asOf",
      b.epoch > 1 as "hasForks",
      (
        select json_agg(json_build_object(
          'id', h.id, 'tableId', h.table_id, 'columnIds', h.column_ids))
        from offshoot.heaps h
        where h.branch_id = b.id and (c.as_of is null or h.epoch <= c.as_of)
      ) as heaps
    from chain c
    join offshoot.branches b on b.id = c.id
    order by c.depth`)
  const [own] = rows
  if (own === undefined) return undefined
  const { databaseId, stamp, schemaId, epoch, hasForks } = own
  return {
    branchId,
    databaseId,
    stamp,
    schemaId,
    versionBase: Number(own.versionBase),
    epoch,
    hasForks,
    levels: rows.map((row) => ({
      branchId: row.branchId,
      asOf: row.asOf ?? undefined,
      heaps: new Map(
        (row.heaps ?? []).map(({ id, tableId, columnIds }) => [
          tableId,
          { heapId: String(id), columnIds: new Set(columnIds) },
        ]),
      ),
    })),
  }
}

/** Returns the branch's own heap of a table, or undefined before the first write to the table. */
export function ownHeap(layout: Layout, tableId: number): Heap | undefined {
  return layout.levels[0]?.heaps.get(tableId)
}

/** Returns whether the branch may inherit rows of the table. */
export function inheritsRows(layout: Layout, tableId: number): boolean {
  return layout.levels.slice(1).some((level) => level.heaps.has(tableId))
}

/**
 * Restricts a layout to the given columns. Heaps may contain values of other columns, which were removed or
 * added later; these read as if they had never been written.
 */
export function withColumns(layout: Layout, columnIds: ReadonlySet<number>): Layout {
  const restrict = ({ heapId, columnIds: all }: Heap): Heap => ({
    heapId,
    columnIds: new Set([...all].filter((id) => columnIds.has(id))),
  })
  return {
    ...layout,
    levels: layout.levels.map((level) => ({
      ...level,
      heaps: new Map([...level.heaps].map(([tableId, heap]) => [tableId, restrict(heap)])),
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

export const heapName = (heapId: string): Sql => sql`offshoot_rows.${ident(`heap_${heapId}`)}`
export const pastName = (heapId: string): Sql => sql`offshoot_rows.${ident(`past_${heapId}`)}`
export const indexName = (
  table: 'heap' | 'past',
  { heapId, columnId, kind }: { heapId: string; columnId: number; kind: 'values' | 'search' },
): string => `${table}_${heapId}_c${columnId}_${kind === 'values' ? 'index' : kind}`
export const uniqueIndexName = (heapId: string, columnId: number): string =>
  `heap_${heapId}_c${columnId}_unique`

/** Returns the column id in the name of a unique index, or undefined for any other name. */
export function columnOfUniqueIndex(name: string): number | undefined {
  const match = /_c(\d+)_unique$/.exec(name)
  return match === null ? undefined : Number(match[1])
}
