import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { LinkRule } from '../columns/table-rules.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { selectVisible } from '../reading/arms.js'
import { hasRow } from '../reading/has-row.js'
import { CLASH_IDS_MAX, type Outcome, selectUntouched } from './check-stage.js'
import type { StagedRows } from './stage.js'
import { arrayOf, EFFECTS, joinState, valueNames, WRITES } from './stage-sql.js'

/*
 * Links whose records must exist are judged by the outcome of a merge, like other rules. One side can have deleted a
 * record that the other side links to. Such a conflict is settled by the record, which stays or returns, or by the links.
 */

/** The rows of a table on the target, and what the merge changes. */
export interface OutcomeRows {
  readonly ours: BranchRows
  /** undefined: the merge changes no rows of the table. */
  readonly staged: StagedRows | undefined
}

/** The outcome of a table with links, and those of the linked tables. */
interface LinkedOutcome extends Outcome {
  targetsOf(tableId: number): OutcomeRows
}

/** Links to a record that would not exist. */
export interface BrokenLinks {
  readonly link: LinkRule
  readonly target: string
  /** The ids of the first rows with such a link. */
  readonly ids: readonly string[]
  readonly count: number
}

/** Finds the records that links refer to and that would not exist after the merge, all or a page of them. */
export async function findBrokenLinks(
  transaction: Transaction,
  outcome: LinkedOutcome,
  page: { offset: number; limit: number },
): Promise<{ count: number; listed: BrokenLinks[] }> {
  const listed: BrokenLinks[] = []
  let count = 0
  for (const link of outcome.codec.links) {
    const broken = selectBroken(outcome, link)
    if (broken === undefined) continue
    const [offset, limit] = [Math.max(0, page.offset - count), page.limit - listed.length]
    const rows = await transaction.query<{
      target: string | null
      ids: string[] | null
      records: number
      total: number
    }>(sql`
      with broken as materialized (
        select b.target, array_agg(b.id order by b.id) as ids, count(*) as records
        from (${broken}) b
        group by b.target
      )
      select p.target, p.ids[1:${raw(String(CLASH_IDS_MAX))}] as ids, p.records::integer as records,
        t.total::integer as total
      from (select count(*) as total from broken) t
      left join (select * from broken order by target limit ${limit} offset ${offset}) p on true`)
    count += rows[0]?.total ?? 0
    for (const { target, ids, records } of rows) {
      if (target !== null && ids !== null) listed.push({ link, target, ids, count: records })
    }
  }
  return { count, listed }
}

/** Finds those of the given records of a table that links of another outcome refer to, and that would not exist. */
export async function findMissingTargets(
  transaction: Transaction,
  outcome: LinkedOutcome,
  { tableId, ids }: { tableId: number; ids: readonly string[] },
): Promise<string[]> {
  const found: string[] = []
  for (const link of outcome.codec.links.filter((each) => each.tableId === tableId)) {
    const broken = selectBroken(outcome, link)
    if (broken === undefined) continue
    const rows = await transaction.query<{ target: string }>(sql`
      select distinct b.target from (${broken}) b where b.target = any(${ids}::text[])`)
    found.push(...rows.map(({ target }) => target))
  }
  return found
}

/** Finds those of the given rows that would break the link of a column. */
export async function findLinkBreakers(
  transaction: Transaction,
  outcome: LinkedOutcome,
  { column, ids }: { column: number; ids: readonly string[] },
): Promise<string[]> {
  const link = outcome.codec.links.find((each) => each.column === column)
  const broken = link && selectBroken(outcome, link)
  if (broken === undefined) return []
  const rows = await transaction.query<{ id: string }>(sql`
    select b.id from (${broken}) b where b.id = any(${ids}::text[])`)
  return rows.map(({ id }) => id)
}

/** Returns a query for the rows that break a link, with the `target`. undefined: there cannot be any. */
function selectBroken(outcome: LinkedOutcome, link: LinkRule): Sql | undefined {
  const { codec, ours, staged, newRules } = outcome
  const physical = codec.physical[link.column]
  if (physical === undefined) return undefined
  const name = ident(physical.physicalName)
  const target = outcome.targetsOf(link.tableId)
  const holders: Sql[] = []
  if (staged !== undefined) {
    holders.push(sql`
      select s.id, s.${name} as target from ${staged.name} s
      where s.decision in ${WRITES} and s.${name} is not null`)
  }
  if (newRules.has(link.id)) {
    holders.push(sql`
      select r.id, r.${name} as target from (${selectUntouched(outcome)}) r where r.${name} is not null`)
  } else if (target.staged !== undefined) {
    const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
      sql`${expressionOf(physical)} = d.id`
    const isTouched =
      staged === undefined
        ? empty
        : sql`and not exists (
          select from ${staged.name} s where s.id = r.id and s.decision in ${EFFECTS}
        )`
    holders.push(sql`
      select r.id, d.id as target
      from ${target.staged.name} d
      cross join lateral (${selectVisible(layoutOf(ours), codec, { where })}) r
      where d.decision = 'delete' ${isTouched}`)
  }
  if (holders.length === 0) return undefined
  return sql`
    select held.id, held.target
    from (${join(holders, ' union all ')}) held
    where not ${existsAfter(target, link.tableId, sql`held.target`)}`
}

/** Returns the condition that a record exists after the merge. */
function existsAfter({ ours, staged }: OutcomeRows, tableId: number, id: Sql): Sql {
  const isHere = hasRow(layoutOf(ours), tableId, id)
  if (staged === undefined) return isHere
  const isStaged = (decisions: Sql) =>
    sql`exists (select from ${staged.name} x where x.id = ${id} and x.decision in ${decisions})`
  return sql`(${isStaged(WRITES)} or ${isHere} and not ${isStaged(sql`('delete')`)})`
}

/** Keeps rows that theirs has deleted. */
export async function keepDeleted(
  transaction: Transaction,
  { name }: StagedRows,
  ids: readonly string[],
): Promise<void> {
  await transaction.query(sql`
    update ${name} set decision = 'same' where decision = 'delete' and id = any(${ids}::text[])`)
}

/** Stages rows of theirs that the target has deleted, so that it gets them again. */
export async function restoreRows(
  transaction: Transaction,
  staged: StagedRows,
  { theirs, ids }: { theirs: BranchRows; ids: readonly string[] },
): Promise<StagedRows> {
  const { codec, name, last } = staged
  const names = valueNames(codec)
  const columns = names.map((column) => sql`, ${column}`)
  const values = names.map((column) => sql`, t.${column}`)
  const [taken, clashing] = [sql`true`, sql`false`].map((flag) => arrayOf(names.map(() => flag)))
  const [row] = await transaction.query<{ count: number }>(sql`
    with added as (
      insert into ${name} (n, id, decision, taken, clashing${join([empty, ...columns], '')})
      select ${last + 1}::bigint + row_number() over (order by t.id) - 1, t.id, 'insert',
        ${taken ?? empty}, ${clashing ?? empty}${join([empty, ...values], '')}
      from unnest(${ids}::text[]) k (id) ${joinState(theirs, codec, sql`t`)}
      where t.id is not null and not exists (select from ${name} s where s.id = t.id)
      returning 1
    )
    select count(*)::integer as count from added`)
  return { ...staged, last: last + (row?.count ?? 0) }
}

/** Finds which sides have records. */
export async function findSides(
  transaction: Transaction,
  { table }: TableCodec,
  { ours, theirs, ids }: { ours: BranchRows; theirs: BranchRows; ids: readonly string[] },
): Promise<Map<string, { isOurs: boolean; isTheirs: boolean }>> {
  const [here, there] = [ours, theirs].map((rows) => hasRow(layoutOf(rows), table.id, sql`k.id`))
  const rows = await transaction.query<{ id: string; isOurs: boolean; isTheirs: boolean }>(sql`
    select k.id, ${here ?? empty} as "isOurs", ${there ?? empty} as "isTheirs"
    from unnest(${ids}::text[]) k (id)`)
  return new Map(rows.map(({ id, ...sides }) => [id, sides]))
}
