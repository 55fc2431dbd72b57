import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { BranchRows } from '../layout/layout.js'
import { changedIds, mayDiffer } from './changed-ids.js'
import { listCompared, type RowTexts } from './compare-rows.js'
import {
  type Decision,
  decide,
  isChangedRow,
  type MergeColumn,
  type RowConflict,
  type RowStrategy,
} from './decide.js'
import {
  CONFLICT_KINDS,
  CONFLICTS,
  STAGE_COLUMNS,
  type StagedSides,
  selectDecisions,
} from './stage-sql.js'

/*
 * A merge first compares all rows, and stages its decisions in tables: one for the ids that may have changed,
 * and one for the rows of each table. Then the outcome is checked as a whole, and written in a few statements.
 * Memory does not depend on the number of rows. The tables are temporary, or unlogged if the rows are written by
 * a later transaction.
 */

/** The effect of a merge on one table. */
export interface MergeTally {
  /** Rows that theirs has changed since the base. */
  readonly changed: number
  readonly inserted: number
  readonly updated: number
  readonly deleted: number
  readonly conflictCount: number
}

/** The base of a merge: the rows of one state, or the result of merging the rows of several states. */
export interface RowBase {
  readonly states: readonly BranchRows[]
  rowOf(rows: readonly RowTexts[]): RowTexts
}

export interface RowMerge {
  readonly codec: TableCodec
  readonly columns: readonly MergeColumn[]
  readonly base: RowBase
  readonly theirs: BranchRows
  readonly ours: BranchRows
  readonly strategy: RowStrategy
}

/** Where the staged rows of a merge are. */
export interface Stage {
  readonly kind: 'temporary' | 'unlogged'
  readonly ids: Sql
  rowsOf(tableId: number): Sql
}

/** A stage that exists until the transaction ends. */
export const TEMPORARY_STAGE: Stage = {
  kind: 'temporary',
  ids: sql`pg_temp.merge_ids`,
  rowsOf: (tableId) => sql`pg_temp.${ident(`merge_rows_${tableId}`)}`,
}

/** The beginning of the names of tables that other transactions can read. */
const SHARED_PREFIX = 'merge_'

/** A stage that another transaction can read, until it is dropped. `key` is the id of a branch. */
export function sharedStage(key: string): Stage {
  const tableOf = (suffix: string) =>
    sql`offshoot_work.${ident(`${SHARED_PREFIX}${key}_${suffix}`)}`
  return { kind: 'unlogged', ids: tableOf('ids'), rowsOf: (tableId) => tableOf(String(tableId)) }
}

/** Drops the tables of a stage. */
export async function dropStage(
  database: Queryable,
  stage: Stage,
  tables: readonly StagedRows[],
): Promise<void> {
  const names = [stage.ids, ...tables.map(({ name }) => name)]
  await database.query(sql`drop table if exists ${join(names, ', ')}`)
}

/** Drops the tables of stages whose branch no longer exists, because their process has crashed. */
export async function dropLostStages(database: Queryable): Promise<void> {
  const lost = await database.query<{ name: string }>(sql`
    select c.relname as name
    from pg_class c
    where c.relnamespace = 'offshoot_work'::regnamespace
      and c.relkind = 'r'
      and starts_with(c.relname, ${SHARED_PREFIX})
      and not exists (
        select from offshoot.branches b
        where starts_with(c.relname, ${SHARED_PREFIX} || b.id || '_')
      )`)
  for (const { name } of lost) {
    await database.query(sql`drop table if exists offshoot_work.${ident(name)}`)
  }
}

/** The staged decisions about the rows of one table. */
export interface StagedRows {
  readonly codec: TableCodec
  readonly name: Sql
  /** The staged rows have numbers from `first` to `last`, with gaps. */
  readonly first: number
  readonly last: number
}

/** Maximum number of conflicting rows that are listed for each table. All of them are counted. */
export const CONFLICTS_LISTED_MAX = 100

/** The number of candidates compared by one statement, so that statements stay short. */
const CHUNK_ROWS = 10_000
/** The number of candidates compared at a time in this process, if the base is virtual. */
const PAGE_ROWS = 1000

/** Creates the table of ids, with which a stage begins. */
export async function createStage(transaction: Transaction, stage: Stage): Promise<void> {
  await transaction.query(sql`
    create ${raw(stage.kind)} table ${stage.ids} (
      n bigint generated always as identity primary key,
      id text collate "C" not null
    )${endOf(stage)}`)
}

function endOf({ kind }: Stage): Sql {
  return kind === 'temporary' ? sql` on commit drop` : empty
}

/** Compares the rows of a table, and stages the decisions. */
export async function stageRows(
  transaction: Transaction,
  stage: Stage,
  merge: RowMerge,
): Promise<StagedRows> {
  const { codec, base, theirs } = merge
  const candidates = base.states.map((rows) => changedIds(rows, theirs, codec.table.id))
  const [range] = await transaction.query<{ first: string | null; last: string | null }>(sql`
    with added as (
      insert into ${stage.ids} (id)
      select id from (${join(candidates, ' union ')}) c
      order by id collate "C"
      returning n
    )
    select min(n) as first, max(n) as last from added`)
  const [first, last] = [Number(range?.first ?? 1), Number(range?.last ?? 0)]
  const staged = { codec, name: stage.rowsOf(codec.table.id), first, last }
  await createRows(transaction, stage, staged)
  const [only, ...others] = base.states
  if (only !== undefined && others.length === 0) {
    await stageInPostgres(transaction, { stage, staged, sides: { ...merge, base: only } })
  } else {
    await stageInProcess(transaction, { stage, staged, merge })
  }
  await transaction.query(sql`analyze ${staged.name}`)
  return staged
}

async function createRows(
  transaction: Transaction,
  stage: Stage,
  { codec, name }: StagedRows,
): Promise<void> {
  const columns = codec.physical.map(
    ({ physicalName, sqlType }) => sql`, ${ident(physicalName)} ${raw(sqlType)}`,
  )
  await transaction.query(sql`
    create ${raw(stage.kind)} table ${name} (
      n bigint primary key,
      id text collate "C" not null,
      decision text not null,
      taken boolean[],
      clashing boolean[]${join([empty, ...columns], '')}
    )${endOf(stage)}`)
}

async function stageInPostgres(
  transaction: Transaction,
  { stage, staged, sides }: { stage: Stage; staged: StagedRows; sides: StagedSides },
): Promise<void> {
  for (const chunk of chunksOf(staged, CHUNK_ROWS)) {
    const candidates = sql`(
      select n, id from ${stage.ids} where n between ${chunk.first} and ${chunk.last}
    )`
    await insertStaged(transaction, staged, selectDecisions(sides, candidates))
  }
}

async function insertStaged(
  transaction: Transaction,
  staged: StagedRows,
  decisions: Sql,
): Promise<void> {
  await transaction.query(sql`
    insert into ${staged.name} (${STAGE_COLUMNS}${stagedColumns(staged)})
    ${decisions}`)
}

/**
 * Decides again about the staged rows that the target has changed since they were staged. Returns how many
 * there were, or undefined if there were some and the base is virtual.
 */
export async function restageRows(
  transaction: Transaction,
  staged: StagedRows,
  merge: RowMerge & { readonly oursBefore: BranchRows },
): Promise<number | undefined> {
  const { codec, base, ours, oursBefore } = merge
  if (!mayDiffer(oursBefore, ours, codec.table.id)) return 0
  await transaction.query(sql`
    create temporary table merge_since on commit drop as
    select s.n, s.id
    from ${staged.name} s
    where s.id in (${changedIds(oursBefore, ours, codec.table.id)})`)
  const since = sql`pg_temp.merge_since`
  const [row] = await transaction.query<{ count: number }>(sql`
    select count(*)::integer as count from ${since}`)
  const count = row?.count ?? 0
  const [only, ...others] = base.states
  if (count > 0) {
    if (only === undefined || others.length > 0) return undefined
    await transaction.query(sql`
      delete from ${staged.name} where n in (select n from ${since})`)
    await insertStaged(transaction, staged, selectDecisions({ ...merge, base: only }, since))
  }
  await transaction.query(sql`drop table ${since}`)
  return count
}

/** The row of a virtual base can only be computed here, from the rows of its states. */
async function stageInProcess(
  transaction: Transaction,
  { stage, staged, merge }: { stage: Stage; staged: StagedRows; merge: RowMerge },
): Promise<void> {
  const { codec, columns, base, theirs, ours, strategy } = merge
  for (const chunk of chunksOf(staged, PAGE_ROWS)) {
    const found = await transaction.query<{ n: string; id: string }>(sql`
      select n, id from ${stage.ids}
      where n between ${chunk.first} and ${chunk.last}
      order by n`)
    const numbers = new Map(found.map(({ n, id }) => [id, n]))
    let ids = [...numbers.keys()]
    // A page can end early, if its rows are large.
    for (let afterId: string | undefined = ''; afterId !== undefined; ) {
      const options = { codec, before: base.states, after: theirs, beside: [ours] }
      const page: Awaited<ReturnType<typeof listCompared>> = await listCompared(transaction, {
        ...options,
        form: 'write',
        afterId,
        limit: ids.length + 1,
        ids,
      })
      const decisions = page.rows.flatMap(({ id, before, after, beside: [ourRow] }) => {
        const states = [base.rowOf(before), after, ourRow] as const
        if (!isChangedRow(states[0], after, columns)) return []
        return { id, n: numbers.get(id) ?? '0', ...decide({ id, states }, strategy, columns) }
      })
      await insertDecisions(transaction, staged, decisions)
      afterId = page.next
      ids = ids.filter((id) => id > (afterId ?? ''))
    }
  }
}

type NumberedDecision = Decision & { readonly id: string; readonly n: string }

async function insertDecisions(
  transaction: Transaction,
  staged: StagedRows,
  decisions: readonly NumberedDecision[],
): Promise<void> {
  if (decisions.length === 0) return
  const { physical } = staged.codec
  const flags = (indexes: readonly number[] | undefined): string | null =>
    indexes === undefined
      ? null
      : `{${physical.map((_, index) => (indexes.includes(index) ? 't' : 'f')).join()}}`
  const arrays = physical.map((_, index) => {
    const values = decisions.map(({ insert, update }) => (insert ?? update)?.values[index] ?? null)
    return sql`, ${values}::text[]`
  })
  const names = physical.map(({ physicalName }) => ident(physicalName))
  const values = physical.map(
    ({ sqlType }, index) => sql`, u.${names[index] ?? empty}::${raw(sqlType)}`,
  )
  await transaction.query(sql`
    insert into ${staged.name} (${STAGE_COLUMNS}${stagedColumns(staged)})
    select u.n, u.id, u.decision, u.taken::boolean[], u.clashing::boolean[]${join([empty, ...values], '')}
    from unnest(
      ${decisions.map(({ n }) => n)}::bigint[],
      ${decisions.map(({ id }) => id)}::text[],
      ${decisions.map(decisionName)}::text[],
      ${decisions.map(({ update }) => flags(update?.columns))}::text[],
      ${decisions.map(({ conflict }) => flags(conflict?.columns))}::text[]${join([empty, ...arrays], '')}
    ) as u (${STAGE_COLUMNS}${stagedColumns(staged)})`)
}

function decisionName({ insert, update, remove, conflict }: Decision): string {
  if (conflict !== undefined) return conflict.kind
  if (insert !== undefined) return 'insert'
  if (update !== undefined) return 'update'
  return remove === undefined ? 'same' : 'delete'
}

/** Returns the columns of the staged rows, as a list that starts with a comma. */
function stagedColumns({ codec }: StagedRows): Sql {
  const names = codec.physical.map(({ physicalName }) => sql`, ${ident(physicalName)}`)
  return join([empty, ...names], '')
}

/** Divides the numbers of staged rows into ranges. */
export function* chunksOf(
  { first, last }: Pick<StagedRows, 'first' | 'last'>,
  size: number,
): Generator<{ first: number; last: number }> {
  for (let start = first; start <= last; start += size) {
    yield { first: start, last: Math.min(last, start + size - 1) }
  }
}

export async function countStaged(
  transaction: Transaction,
  staged: StagedRows,
): Promise<MergeTally> {
  const [tally] = await transaction.query<MergeTally>(sql`
    select count(*)::integer as changed,
      (count(*) filter (where decision = 'insert'))::integer as inserted,
      (count(*) filter (where decision = 'update'))::integer as updated,
      (count(*) filter (where decision = 'delete'))::integer as deleted,
      (count(*) filter (where decision in ${CONFLICTS}))::integer as "conflictCount"
    from ${staged.name}`)
  return tally ?? { changed: 0, inserted: 0, updated: 0, deleted: 0, conflictCount: 0 }
}

/** Lists the first conflicts, in the order of ids. */
export async function listConflicts(
  transaction: Transaction,
  staged: StagedRows,
): Promise<RowConflict[]> {
  const rows = await transaction.query<{
    id: string
    decision: string
    clashing: boolean[] | null
  }>(sql`
    select id, decision, clashing
    from ${staged.name}
    where decision in ${CONFLICTS}
    order by id
    limit ${CONFLICTS_LISTED_MAX}`)
  return rows.flatMap(({ id, decision, clashing }) => {
    const kind = CONFLICT_KINDS.find((known) => known === decision)
    if (kind === undefined) return []
    const isWhole = kind === 'deletedHere' || kind === 'deletedThere'
    const columns = isWhole ? [] : (clashing ?? []).flatMap((is, index) => (is ? [index] : []))
    return { id, kind, columns }
  })
}
