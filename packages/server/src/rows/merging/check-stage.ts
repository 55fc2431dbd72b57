import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
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

/** Maximum number of ids that are listed for one value or column. */
const CLASH_IDS_MAX = 10

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

interface Outcome {
  readonly codec: TableCodec
  readonly ours: BranchRows
  /** undefined: the merge changes no rows of the table. */
  readonly staged: StagedRows | undefined
  /** Ids of the not-null columns for which the target does not have this rule yet. */
  readonly newlyRequired: ReadonlySet<number>
  /** Ids of the unique columns for which the target does not have this rule yet. */
  readonly newlyUnique: ReadonlySet<number>
}

/**
 * Finds the values of unique columns that several rows would have after the merge. All of them are counted,
 * and `limit` of them are listed, without the first `offset`.
 */
export async function findUniqueClashes(
  transaction: Transaction,
  outcome: Outcome,
  page: { offset: number; limit: number },
): Promise<{ count: number; listed: UniqueClash[] }> {
  const { codec } = outcome
  const listed: UniqueClash[] = []
  let count = 0
  for (const column of codec.uniqueColumns) {
    const physical = codec.physical[column]
    const clashes = physical && withClashes(outcome, { index: column, physical })
    if (physical === undefined || clashes === undefined) continue
    const rows = await transaction.query<{
      text: string | null
      ids: string[] | null
      total: string
    }>(
      selectClashes(clashes, {
        physical,
        offset: Math.max(0, page.offset - count),
        limit: page.limit - listed.length,
      }),
    )
    count += Number(rows[0]?.total ?? 0)
    for (const { text, ids } of rows) {
      if (text !== null && ids !== null) listed.push({ column, ids, text })
    }
  }
  return { count, listed }
}

interface UniqueColumn {
  readonly index: number
  readonly physical: PhysicalColumn
}

function selectClashes(
  clashes: Sql,
  column: { physical: PhysicalColumn; offset: number; limit: number },
): Sql {
  const { physical, offset, limit } = column
  const shown = raw(COLUMN_TYPE_ENTRIES[physical.column.type].select('c.value'))
  return sql`
    ${clashes}
    select (${shown})::text as text, c.ids[1:${raw(String(CLASH_IDS_MAX))}] as ids, t.total
    from (select count(*) as total from clashes) t
    left join (
      select value, ids from clashes order by ids[1], value limit ${limit} offset ${offset}
    ) c on true`
}

/**
 * `clashes`: the values of a unique column that several rows would have, with the ids of these rows. undefined: there cannot
 * be any.
 */
function withClashes(outcome: Outcome, column: UniqueColumn): Sql | undefined {
  const { physical } = column
  const value = ident(physical.physicalName)
  if (outcome.newlyUnique.has(physical.id)) return withNewClashes(outcome, value)
  if (outcome.staged === undefined) return undefined
  const {
    ours,
    codec,
    staged: { name },
  } = outcome
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    sql`${expressionOf(physical)} = v.value`
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
    ),
    clashes as (
      select value, array_agg(id order by id) as ids
      from holders
      group by value
      having count(*) > 1
    )`
}

/** The same for a column that was not unique on the target: any two rows may have the same value. */
function withNewClashes(outcome: Outcome, value: Sql): Sql {
  const { staged } = outcome
  const written =
    staged === undefined
      ? empty
      : sql`
      select s.id, s.${value} as value
      from ${staged.name} s
      where s.${value} is not null and s.decision in ${WRITES}
      union all`
  return sql`
    with v as (${written}
      select r.id, r.${value} as value
      from (${selectUnwritten(outcome)}) r
      where r.${value} is not null
    ),
    clashes as (
      select value, array_agg(id order by id) as ids from v group by value having count(*) > 1
    )`
}

/** Selects the rows of the target that the merge does not change. */
function selectUnwritten({ codec, ours, staged }: Outcome): Sql {
  const visible = sql`select r.* from (${selectVisible(layoutOf(ours), codec)}) r`
  if (staged === undefined) return visible
  return sql`${visible} where not exists (
            select from ${staged.name} s where s.id = r.id and s.decision in ${EFFECTS}
          )`
}

/** Finds those of the given rows that would break the rule of a unique or not-null column. */
export async function findRuleBreakers(
  transaction: Transaction,
  outcome: Outcome,
  { column, ids }: { column: number; ids: readonly string[] },
): Promise<string[]> {
  const physical = outcome.codec.physical[column]
  if (physical === undefined) return []
  const found: string[] = []
  const clashes = physical.column.unique && withClashes(outcome, { index: column, physical })
  if (clashes) {
    const rows = await transaction.query<{ id: string }>(sql`
      ${clashes}
      select distinct i.id
      from clashes c, unnest(c.ids) i (id)
      where i.id = any(${ids}::text[])`)
    found.push(...rows.map(({ id }) => id))
  }
  const missing = selectMissing(outcome, physical)
  if (missing !== undefined) {
    const rows = await transaction.query<{ id: string }>(sql`
      select m.id from (${missing}) m where m.id = any(${ids}::text[])`)
    found.push(...rows.map(({ id }) => id))
  }
  return found
}

/** Finds the rows that would have no value in a not-null column after the merge. */
export async function findMissingValues(
  transaction: Transaction,
  outcome: Outcome,
): Promise<MissingValues[]> {
  const missing: MissingValues[] = []
  for (const [column, physical] of outcome.codec.physical.entries()) {
    const rows = selectMissing(outcome, physical)
    if (rows === undefined) continue
    const [row] = await transaction.query<{ count: number; ids: string[] | null }>(sql`
      select max(total)::integer as count, array_agg(id order by id) as ids
      from (
        select id, count(*) over () as total
        from (${rows}) rows
        order by id
        limit ${CLASH_IDS_MAX}
      ) first`)
    if (row?.ids) missing.push({ column, ids: row.ids, count: row.count })
  }
  return missing
}

/** Returns a query for the rows without a value in a not-null column. undefined: there cannot be any. */
function selectMissing(
  outcome: Outcome,
  { id, physicalName, column: stored }: PhysicalColumn,
): Sql | undefined {
  if (!stored.notNull) return undefined
  const { staged, newlyRequired } = outcome
  const sources: Sql[] = []
  if (staged !== undefined) {
    sources.push(sql`
      select s.id from ${staged.name} s
      where s.decision in ${WRITES} and s.${ident(physicalName)} is null`)
  }
  if (newlyRequired.has(id)) {
    sources.push(sql`
      select r.id from (${selectUnwritten(outcome)}) r where r.${ident(physicalName)} is null`)
  }
  return sources.length === 0 ? undefined : join(sources, ' union all ')
}
