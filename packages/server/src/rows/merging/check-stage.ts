import type { Limits } from '@offshoot/contract/limits'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { type PhysicalColumn, physicalName } from '../columns/column-tree.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import { fitsSql } from '../columns/conversions.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type CheckRule, failsCheck, type UniqueKey } from '../columns/table-rules.js'
import { listFailing, tryEvaluating } from '../heaps/failing-rows.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { selectVisible } from '../reading/arms.js'
import type { StagedRows } from './stage.js'
import { EFFECTS, WRITES } from './stage-sql.js'

/*
 * A merge is judged by its outcome: the rows of the target, with all staged changes applied. Rows in conflict
 * count as they are on the target.
 */

/** Maximum number of ids that are listed for one value, column or check. */
export const CLASH_IDS_MAX = 10

/** A value of a unique key that several rows would have. */
export interface UniqueClash {
  readonly key: UniqueKey
  readonly ids: readonly string[]
  /** The values of the columns of the key in the form that decoding reads. */
  readonly texts: readonly string[]
}

/** Rows that would fail a check, or for which it cannot be evaluated. */
export interface FailedCheck {
  readonly check: CheckRule
  readonly ids: readonly string[]
  readonly count: number
  /** Whether there may be more. Rows are not counted if the check cannot be evaluated for one of them. */
  readonly isAtLeast: boolean
}

/** Rows that would have no value in a not-null column, or one that the column cannot have. */
export interface RefusedValues {
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
  /** Ids of the not-null columns for which the target does not have this rule yet. */
  readonly newlyRequired: ReadonlySet<number>
  /**
   * Ids of the columns that can have fewer values than on a side, such as those of an enum. Rows of the target are looked
   * at if it can have more.
   */
  readonly narrowed: Readonly<Record<'ours' | 'theirs', ReadonlySet<number>>>
  readonly limits: Limits
  /** Ids of the unique columns, the required links and the constraints that the target does not have yet. */
  readonly newRules: ReadonlySet<number>
}

/** Selects the rows of the target that the merge leaves as they are, as `r`. */
export function selectUntouched({ codec, ours, staged }: Outcome): Sql {
  const visible = sql`select r.* from (${selectVisible(layoutOf(ours), codec)}) r`
  return staged === undefined
    ? visible
    : sql`${visible} where not exists (
        select from ${staged.name} s where s.id = r.id and s.decision in ${EFFECTS}
      )`
}

/**
 * Finds the values of unique keys that several rows would have after the merge. All of them are counted,
 * and `limit` of them are listed, without the first `offset`.
 */
export async function findUniqueClashes(
  transaction: Transaction,
  outcome: Outcome,
  page: { offset: number; limit: number },
): Promise<{ count: number; listed: UniqueClash[] }> {
  const listed: UniqueClash[] = []
  let count = 0
  for (const key of outcome.codec.uniqueKeys) {
    const clashes = withClashes(outcome, key)
    if (clashes === undefined) continue
    const rows = await transaction.query<{
      texts: string[] | null
      ids: string[] | null
      total: string
    }>(
      selectClashes(clashes, outcome.codec, {
        key,
        offset: Math.max(0, page.offset - count),
        limit: page.limit - listed.length,
      }),
    )
    count += Number(rows[0]?.total ?? 0)
    for (const { texts, ids } of rows) {
      if (texts !== null && ids !== null) listed.push({ key, ids, texts })
    }
  }
  return { count, listed }
}

function selectClashes(
  clashes: Sql,
  codec: TableCodec,
  { key, offset, limit }: { key: UniqueKey; offset: number; limit: number },
): Sql {
  const texts = columnsOf(codec, key).map(({ physicalName, column }) => {
    const shown = COLUMN_TYPE_ENTRIES[column.type].select(sql`c.${ident(physicalName)}`)
    return sql`(${shown})::text`
  })
  const names = namesOf(codec, key)
  return sql`
    ${clashes}
    select case when c.ids is not null then array[${join(texts, ', ')}] end as texts,
      c.ids[1:${raw(String(CLASH_IDS_MAX))}] as ids, t.total
    from (select count(*) as total from clashes) t
    left join (
      select ${join(names, ', ')}, ids from clashes
      order by ids[1], ${join(names, ', ')}
      limit ${limit} offset ${offset}
    ) c on true`
}

function columnsOf({ physical }: TableCodec, { columns }: UniqueKey): PhysicalColumn[] {
  return columns.flatMap((index) => physical[index] ?? [])
}

function namesOf(codec: TableCodec, key: UniqueKey): Sql[] {
  return columnsOf(codec, key).map((column) => ident(column.physicalName))
}

/**
 * `clashes`: the values of a unique key that several rows would have, with the ids of these rows. undefined: there cannot
 * be any.
 */
function withClashes(outcome: Outcome, key: UniqueKey): Sql | undefined {
  const { codec, ours, staged, newRules } = outcome
  const columns = columnsOf(codec, key)
  const names = namesOf(codec, key)
  const listed = (alias: Sql) =>
    join(
      names.map((name) => sql`${alias}.${name}`),
      ', ',
    )
  const isPresent = (alias: Sql) =>
    join(
      names.map((name) => sql`${alias}.${name} is not null`),
      ' and ',
    )
  const clashes = sql`
    clashes as (
      select ${join(names, ', ')}, array_agg(id order by id) as ids
      from holders
      group by ${join(names, ', ')}
      having count(*) > 1
    )`
  if (newRules.has(key.id)) {
    const untouched = sql`
      select r.id, ${listed(sql`r`)} from (${selectUntouched(outcome)}) r where ${isPresent(sql`r`)}`
    const written =
      staged === undefined
        ? []
        : [
            sql`
      select s.id, ${listed(sql`s`)} from ${staged.name} s
      where s.decision in ${WRITES} and ${isPresent(sql`s`)}`,
          ]
    return sql`
    with holders as (${join([untouched, ...written], ' union all ')}),
    ${clashes}`
  }
  if (staged === undefined) return undefined
  const { name } = staged
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    join(
      columns.map((column) => sql`${expressionOf(column)} = v.${ident(column.physicalName)}`),
      ' and ',
    )
  const isSame = join(
    names.map((each) => sql`s.${each} = v.${each}`),
    ' and ',
  )
  const taken = key.columns.map((index) => sql`s.taken[${raw(String(index + 1))}]`)
  return sql`
    with v as (
      select s.id, ${listed(sql`s`)}
      from ${name} s
      where ${isPresent(sql`s`)}
        and (s.decision = 'insert' or s.decision = 'update' and (${join(taken, ' or ')}))
    ),
    holders as (
      select ${listed(sql`v`)}, v.id from v
      union
      select ${listed(sql`v`)}, s.id
      from v
      join ${name} s on ${isSame} and s.id <> v.id
      where s.decision in ${WRITES}
      union
      select ${listed(sql`v`)}, r.id
      from v
      cross join lateral (${selectVisible(layoutOf(ours), codec, { where })}) r
      where not exists (
        select from ${name} s where s.id = r.id and s.decision in ${EFFECTS}
      )
    ),
    ${clashes}`
}

/** Finds those of the given rows that would break a rule which the column is a part of. */
export async function findRuleBreakers(
  transaction: Transaction,
  outcome: Outcome,
  { column, ids }: { column: number; ids: readonly string[] },
): Promise<string[]> {
  const { codec } = outcome
  const physical = codec.physical[column]
  if (physical === undefined) return []
  const isOf = ({ columns }: UniqueKey | CheckRule) => columns.includes(column)
  const found: string[] = []
  for (const key of codec.uniqueKeys.filter(isOf)) {
    const clashes = withClashes(outcome, key)
    if (clashes === undefined) continue
    const rows = await transaction.query<{ id: string }>(sql`
      ${clashes}
      select distinct i.id
      from clashes c, unnest(c.ids) i (id)
      where i.id = any(${ids}::text[])`)
    found.push(...rows.map(({ id }) => id))
  }
  const breakers = [selectMissing(outcome, physical), selectUnfit(outcome, physical)]
  for (const each of breakers) {
    if (each === undefined) continue
    const rows = await transaction.query<{ id: string }>(sql`
      select m.id from (${each}) m where m.id = any(${ids}::text[])`)
    found.push(...rows.map(({ id }) => id))
  }
  for (const check of codec.checks.filter(isOf)) {
    const rows = selectJudged(outcome, check)
    if (rows === undefined) continue
    const named = sql`select * from (${rows}) n where n.id = any(${ids}::text[])`
    found.push(...(await listFailed(transaction, { rows: named, check, limit: ids.length })))
  }
  return found
}

/** Finds the rows that would fail checks after the merge. */
export async function findFailedChecks(
  transaction: Transaction,
  outcome: Outcome,
): Promise<FailedCheck[]> {
  const failed: FailedCheck[] = []
  for (const check of outcome.codec.checks) {
    const rows = selectJudged(outcome, check)
    if (rows === undefined) continue
    const tried = await tryEvaluating(transaction, () =>
      countFirst(transaction, selectFailed(rows, check)),
    )
    if ('failure' in tried) {
      const ids = await listFailed(transaction, { rows, check, limit: CLASH_IDS_MAX })
      if (ids.length === 0) throw tried.failure
      const isAtLeast = ids.length === CLASH_IDS_MAX
      failed.push({ check, ids, count: ids.length, isAtLeast })
    } else if (tried.result !== undefined) {
      failed.push({ check, ...tried.result, isAtLeast: false })
    }
  }
  return failed
}

/** Lists the first of the given rows that fail a check, or for which it cannot be evaluated. */
async function listFailed(
  transaction: Transaction,
  { rows, check, limit }: { rows: Sql; check: CheckRule; limit: number },
): Promise<string[]> {
  const tried = await tryEvaluating(transaction, () =>
    transaction.query<{ id: string }>(
      sql`${selectFailed(rows, check)} order by r.id limit ${limit}`,
    ),
  )
  if ('result' in tried) return tried.result.map(({ id }) => id)
  const evaluated = { rows, condition: failsStored(check) }
  return listFailing(transaction, evaluated, { limit, includesMet: true })
}

/** Returns the condition that the row `r` fails a check. */
function failsStored(check: CheckRule): Sql {
  return failsCheck(check, (id) => sql`r.${ident(physicalName({ id }))}`)
}

/** Returns a query for those of the given rows that fail a check. With an offset, it is evaluated for no others. */
function selectFailed(rows: Sql, check: CheckRule): Sql {
  return sql`select r.id from (select * from (${rows}) v offset 0) r where ${failsStored(check)}`
}

/** Returns a query for the rows that may fail a check, with the columns that it uses. undefined: there cannot be any. */
function selectJudged(outcome: Outcome, check: CheckRule): Sql | undefined {
  const { codec, staged, newRules } = outcome
  const columnsOf = (alias: Sql) =>
    check.columns.flatMap((index) => {
      const column = codec.physical[index]
      return column === undefined ? [] : sql`, ${alias}.${ident(column.physicalName)}`
    })
  const select = (alias: Sql, from: Sql) =>
    sql`select ${alias}.id${join([empty, ...columnsOf(alias)], '')} from ${from}`
  const sources: Sql[] = []
  if (staged !== undefined) {
    sources.push(select(sql`s`, sql`${staged.name} s where s.decision in ${WRITES}`))
  }
  if (newRules.has(check.id)) sources.push(select(sql`u`, sql`(${selectUntouched(outcome)}) u`))
  return sources.length === 0 ? undefined : join(sources, ' union all ')
}

/** Counts the rows of a query, and lists the ids of the first ones. undefined: there are none. */
async function countFirst(
  transaction: Transaction,
  rows: Sql,
): Promise<{ ids: string[]; count: number } | undefined> {
  const [row] = await transaction.query<{ count: number; ids: string[] | null }>(sql`
    select max(total)::integer as count, array_agg(id order by id) as ids
    from (
      select id, count(*) over () as total
      from (${rows}) rows
      order by id
      limit ${CLASH_IDS_MAX}
    ) first`)
  return row?.ids ? { ids: row.ids, count: row.count } : undefined
}

/** Finds the rows that would have no value in a not-null column after the merge. */
export function findMissingValues(
  transaction: Transaction,
  outcome: Outcome,
): Promise<RefusedValues[]> {
  return findRefused(transaction, outcome, selectMissing)
}

/** Finds the rows that would have a value which their column cannot have after the merge. */
export function findUnfitValues(
  transaction: Transaction,
  outcome: Outcome,
): Promise<RefusedValues[]> {
  return findRefused(transaction, outcome, selectUnfit)
}

async function findRefused(
  transaction: Transaction,
  outcome: Outcome,
  select: (outcome: Outcome, physical: PhysicalColumn) => Sql | undefined,
): Promise<RefusedValues[]> {
  const refused: RefusedValues[] = []
  for (const [column, physical] of outcome.codec.physical.entries()) {
    const rows = select(outcome, physical)
    const found = rows && (await countFirst(transaction, rows))
    if (found !== undefined) refused.push({ column, ...found })
  }
  return refused
}

/** Returns a query for the rows with a value that their column cannot have. undefined: there cannot be any. */
function selectUnfit(
  outcome: Outcome,
  { id, physicalName, column }: PhysicalColumn,
): Sql | undefined {
  const { staged, narrowed, limits } = outcome
  const isOurs = narrowed.ours.has(id)
  const isUnfit = (alias: Sql) => {
    const fits = fitsSql(sql`${alias}.${ident(physicalName)}`, column, limits)
    return fits && sql`not (${fits})`
  }
  const [written, untouched] = [isUnfit(sql`s`), isUnfit(sql`r`)]
  const sources: Sql[] = []
  if (staged !== undefined && written !== undefined && (isOurs || narrowed.theirs.has(id))) {
    sources.push(
      sql`select s.id from ${staged.name} s where s.decision in ${WRITES} and ${written}`,
    )
  }
  if (untouched !== undefined && isOurs) {
    sources.push(sql`select r.id from (${selectUntouched(outcome)}) r where ${untouched}`)
  }
  return sources.length === 0 ? undefined : join(sources, ' union all ')
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
      select r.id from (${selectUntouched(outcome)}) r where r.${ident(physicalName)} is null`)
  }
  return sources.length === 0 ? undefined : join(sources, ' union all ')
}
