import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import type { BranchRows } from '../layout/layout.js'
import { changedIds } from './changed-ids.js'
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
 * A merge first compares all rows, and stages its decisions in temporary tables: one for the ids that may have
 * changed, and one for the rows of each table. Then the outcome is checked as a whole, and written in a few
 * statements. Memory does not depend on the number of rows.
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

const IDS_TABLE = sql`pg_temp.merge_ids`

/** Creates the temporary table of ids. It exists until the transaction ends. */
export async function createStage(transaction: Transaction): Promise<void> {
  await transaction.query(sql`
    create temporary table merge_ids (
      n bigint generated always as identity primary key,
      id text collate "C" not null
    ) on commit drop`)
}

/** Compares the rows of a table, and stages the decisions. */
export async function stageRows(transaction: Transaction, merge: RowMerge): Promise<StagedRows> {
  const { codec, base, theirs } = merge
  const candidates = base.states.map((rows) => changedIds(rows, theirs, codec.table.id))
  const [range] = await transaction.query<{ first: string | null; last: string | null }>(sql`
    with added as (
      insert into ${IDS_TABLE} (id)
      select id from (${join(candidates, ' union ')}) c
      order by id collate "C"
      returning n
    )
    select min(n) as first, max(n) as last from added`)
  const [first, last] = [Number(range?.first ?? 1), Number(range?.last ?? 0)]
  const staged = { codec, name: stageName(codec), first, last }
  await createRows(transaction, staged)
  const [only, ...others] = base.states
  if (only !== undefined && others.length === 0) {
    await stageInPostgres(transaction, staged, { ...merge, base: only })
  } else {
    await stageInProcess(transaction, staged, merge)
  }
  await transaction.query(sql`analyze ${staged.name}`)
  return staged
}

function stageName({ table }: TableCodec): Sql {
  return sql`pg_temp.${ident(`merge_rows_${table.id}`)}`
}

async function createRows(transaction: Transaction, { codec }: StagedRows): Promise<void> {
  const columns = codec.physical.map(
    ({ physicalName, sqlType }) => sql`, ${ident(physicalName)} ${raw(sqlType)}`,
  )
  await transaction.query(sql`
    create temporary table ${ident(`merge_rows_${codec.table.id}`)} (
      n bigint primary key,
      id text collate "C" not null,
      decision text not null,
      taken boolean[],
      clashing boolean[]${join([empty, ...columns], '')}
    ) on commit drop`)
}

async function stageInPostgres(
  transaction: Transaction,
  staged: StagedRows,
  sides: StagedSides,
): Promise<void> {
  for (const chunk of chunksOf(staged, CHUNK_ROWS)) {
    const candidates = sql`(
      select n, id from ${IDS_TABLE} where n between ${chunk.first} and ${chunk.last}
    )`
    await transaction.query(sql`
      insert into ${staged.name} (${STAGE_COLUMNS}${stagedColumns(staged)})
      ${selectDecisions(sides, candidates)}`)
  }
}

/** The row of a virtual base can only be computed here, from the rows of its states. */
async function stageInProcess(
  transaction: Transaction,
  staged: StagedRows,
  merge: RowMerge,
): Promise<void> {
  const { codec, columns, base, theirs, ours, strategy } = merge
  for (const chunk of chunksOf(staged, PAGE_ROWS)) {
    const found = await transaction.query<{ n: string; id: string }>(sql`
      select n, id from ${IDS_TABLE}
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
