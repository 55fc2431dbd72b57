import type { Transaction } from '../../postgres/run-transaction.js'
import { ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { selectVisible } from '../reading/arms.js'
import type { StagedRows } from './stage.js'
import { EFFECTS, WRITES } from './stage-sql.js'

/*
 * A merge is judged by its outcome: the rows of the target, with all staged changes applied. Rows in conflict
 * count as they are on the target.
 */

/** Maximum number of unique values that are listed for each table. All of them are counted. */
export const CLASHES_LISTED_MAX = 100
/** Maximum number of ids that are listed for one value or column. */
export const CLASH_IDS_MAX = 10

/** A value of a unique column that several rows would have. */
export interface UniqueClash {
  /** Index into the physical columns. */
  readonly column: number
  readonly ids: readonly string[]
  /** The value in the form that decoding reads. */
  readonly text: string
}

/** Rows that would have no value in a not-null column. */
export interface MissingValues {
  /** Index into the physical columns. */
  readonly column: number
  readonly ids: readonly string[]
  readonly count: number
}

export interface Outcome {
  readonly codec: TableCodec
  readonly ours: BranchRows
  /** undefined: the merge changes no rows of the table. */
  readonly staged: StagedRows | undefined
}

/** Finds the values of unique columns that several rows would have after the merge. */
export async function findUniqueClashes(
  transaction: Transaction,
  { codec, ours, staged }: Outcome,
): Promise<{ count: number; listed: UniqueClash[] }> {
  const listed: UniqueClash[] = []
  let count = 0
  if (staged === undefined) return { count, listed }
  for (const column of codec.uniqueColumns) {
    const physical = codec.physical[column]
    if (physical === undefined) continue
    const rows = await transaction.query<{ text: string; ids: string[]; total: string }>(
      selectClashes(staged, ours, { index: column, physical }),
    )
    count += Number(rows[0]?.total ?? 0)
    listed.push(...rows.map(({ text, ids }) => ({ column, ids, text })))
  }
  return { count, listed: listed.slice(0, CLASHES_LISTED_MAX) }
}

function selectClashes(
  { codec, name }: StagedRows,
  ours: BranchRows,
  column: { index: number; physical: PhysicalColumn },
): Sql {
  const { physical } = column
  const value = ident(physical.physicalName)
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    sql`${expressionOf(physical)} = v.value`
  const shown = raw(COLUMN_TYPE_ENTRIES[physical.column.type].select('c.value'))
  return sql`
    with v as (
      select s.id, s.${value} as value
      from ${name} s
      where s.${value} is not null
        and (s.decision = 'insert'
          or s.decision = 'update' and s.taken[${raw(String(column.index + 1))}])
    ),
    holders as (
      select v.value, v.id from v
      union
      select v.value, s.id
      from v
      join ${name} s on s.${value} = v.value and s.id <> v.id
      where s.decision in ${WRITES}
      union
      select v.value, r.id
      from v
      cross join lateral (${selectVisible(layoutOf(ours), codec, { where })}) r
      where not exists (
        select from ${name} s where s.id = r.id and s.decision in ${EFFECTS}
      )
    )
    select (${shown})::text as text, c.ids[1:${raw(String(CLASH_IDS_MAX))}] as ids, c.total
    from (
      select value, array_agg(id order by id) as ids, count(*) over () as total
      from holders
      group by value
      having count(*) > 1
      order by min(id), value
      limit ${CLASHES_LISTED_MAX}
    ) c`
}

/**
 * Finds the rows that would have no value in a not-null column after the merge. `added` has the ids of columns
 * that the target does not have yet.
 */
export async function findMissingValues(
  transaction: Transaction,
  { codec, ours, staged, added }: Outcome & { added: ReadonlySet<number> },
): Promise<MissingValues[]> {
  const missing: MissingValues[] = []
  for (const [column, { id, physicalName, column: stored }] of codec.physical.entries()) {
    if (!stored.notNull) continue
    const sources: Sql[] = []
    if (staged !== undefined) {
      sources.push(sql`
        select s.id from ${staged.name} s
        where s.decision in ${WRITES} and s.${ident(physicalName)} is null`)
    }
    // Rows of the target that the merge does not write have only the fill value of a new column.
    if (added.has(id) && stored.fill === undefined) {
      const visible = sql`select r.id from (${selectVisible(layoutOf(ours), codec)}) r`
      sources.push(
        staged === undefined
          ? visible
          : sql`${visible} where not exists (
              select from ${staged.name} s where s.id = r.id and s.decision in ${EFFECTS}
            )`,
      )
    }
    if (sources.length === 0) continue
    const [row] = await transaction.query<{ count: number; ids: string[] | null }>(sql`
      select max(total)::integer as count, array_agg(id order by id) as ids
      from (
        select id, count(*) over () as total
        from (${join(sources, ' union all ')}) rows
        order by id
        limit ${CLASH_IDS_MAX}
      ) first`)
    if (row?.ids) missing.push({ column, ids: row.ids, count: row.count })
  }
  return missing
}
