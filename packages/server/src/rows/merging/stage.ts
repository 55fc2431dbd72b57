import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'
import { STAGE_PREFIX, schemaName } from '../layout/database-schema.js'
import { type BranchRows, layoutOf, qualified } from '../layout/layout.js'
import { selectVisible } from '../reading/arms.js'
import {
  changedIds,
  isAnyChanged,
  isChanged,
  mayDiffer,
  repeatedIds,
} from '../reading/changed-ids.js'
import { listCompared, rereadIds } from './compare-rows.js'
import { joinChanges } from './difference.js'
import { type RowStrategy, type SettledRows, settleRest } from './settle.js'
import {
  CONFLICT_KINDS,
  CONFLICTS,
  type JoinedBase,
  joinGiven,
  joinLoaded,
  joinState,
  type MergeColumn,
  type RowConflictKind,
  STAGE_COLUMNS,
  selectDecisions,
  valueNames,
} from './stage-sql.js'
import { type RowBase, singleState } from './table-states.js'

/*
 * A merge first compares all rows, and stages its decisions in tables: one for the ids that may have changed,
 * and one for the rows of each table. Then the outcome is checked as a whole, and written in a few statements.
 * Memory does not depend on the number of rows. The tables are temporary, or unlogged if the rows are written by
 * a later transaction. If the target has not changed such rows since the base, they need no table: their stage is a query.
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

/** A row that both sides changed in conflicting ways. */
export interface RowConflict {
  readonly id: string
  /** Indexes of the physical columns in conflict. Empty if one side deleted the row. */
  readonly columns: readonly number[]
  readonly kind: RowConflictKind
}

export interface RowMerge {
  readonly codec: TableCodec
  readonly columns: readonly MergeColumn[]
  readonly base: RowBase
  readonly theirs: BranchRows
  readonly ours: BranchRows
  /** Decides the conflicts that nothing else decides. */
  readonly strategy: RowStrategy
  /** The ids of the rows that are merged. undefined: all rows. */
  readonly ids?: readonly string[] | undefined
}

/** The tables with the staged rows of one merge. */
export class Stage {
  readonly isShared: boolean
  readonly ids: Sql
  readonly rowsOf: (tableId: number) => Sql
  #created: Sql[] = []

  /** The stage exists until the transaction ends, or belongs to a hidden branch and exists until it is dropped. */
  constructor(transaction: Transaction, owner: { databaseId: string; pinId?: string | undefined }) {
    const { databaseId, pinId } = owner
    this.isShared = pinId !== undefined
    const nameOf =
      pinId === undefined
        ? transaction.server.temporaryNames(schemaName(databaseId))
        : (name: string) => qualified(databaseId, `${STAGE_PREFIX}${pinId}_${name}`)
    this.ids = nameOf('merge_ids')
    this.rowsOf = (tableId) => nameOf(`merge_rows_${tableId}`)
  }

  /** Creates the table of ids, with which a stage begins. */
  async open(transaction: Transaction): Promise<void> {
    if (this.#created.length > 0) return
    await this.create(
      transaction,
      this.ids,
      sql`n bigint primary key, id text collate "C" not null`,
    )
  }

  async create(transaction: Transaction, name: Sql, columns: Sql): Promise<void> {
    this.#created.push(name)
    if (this.isShared) await transaction.query(sql`create unlogged table ${name} (${columns})`)
    else await transaction.server.createTemporary(transaction, { name, columns })
  }

  /** Drops the tables of a shared stage. */
  async drop(database: Queryable): Promise<void> {
    if (this.#created.length === 0) return
    await database.query(sql`drop table if exists ${join(this.#created, ', ')}`)
  }
}

/** The staged decisions about the rows of one table. */
export interface StagedRows {
  readonly codec: TableCodec
  /** A table, or a query in parentheses. */
  readonly name: Sql
  /** Whether nothing is in conflict and every row comes from theirs, so that nothing is left to be decided or checked. */
  readonly isQuery: boolean
  /** The staged rows have numbers from `first` to `last`, with gaps. */
  readonly first: number
  readonly last: number
}

/** The number of candidates compared by one statement, so that statements stay short. */
const CHUNK_ROWS = 10_000
/** PostgreSQL plans well for fewer rows without statistics, and collecting them takes longer than a plan. */
const ANALYZED_ROWS_MIN = 1000
/** The number of candidates compared at a time in this process, if the base is virtual. */
const PAGE_ROWS = 1000

/**
 * Stages the changes of a table by a query, if the target has changed none of the rows since the base. All sides must
 * have the same columns. Returns undefined if the target may have changed such a row, or may have taken a unique value
 * of one.
 */
export async function stageUncontested(
  transaction: Transaction,
  { codec, theirs, ours }: RowMerge,
  base: BranchRows,
): Promise<{ staged: StagedRows; tally: MergeTally } | undefined> {
  const changed = { codec, columns: new Set(codec.physical.keys()), before: base, after: theirs }
  // The base has the rows of the target that theirs has changed. Unlike those, its rows stay while the target is written.
  const { joins, isInserted, isUpdated, isDeleted } = joinChanges(changed)
  const columns = valueNames(codec).map((name) => sql`, a.${name}`)
  const name = sql`(
    select 0 as n, k.id, b.version, b.created_at${join([empty, ...columns], '')},
      case when b.id is null then 'insert' when a.id is null then 'delete' else 'update' end as decision
    ${joins}
    where ${isInserted} or ${isUpdated} or ${isDeleted}
  )`
  // All changes are counted when they are written, so that they are compared once.
  const [found] = await transaction.query<{ isContested: boolean; isChanged: boolean }>(sql`
    select c."isContested", not c."isContested" and exists (select from ${name} s) as "isChanged"
    from (select ${isContested({ codec, theirs, ours }, base)} as "isContested" offset 0) c`)
  if (found === undefined || found.isContested) return undefined
  const tally = { ...NO_EFFECT, changed: found.isChanged ? 1 : 0 }
  return { staged: { codec, name, isQuery: true, first: 0, last: 0 }, tally }
}

/**
 * The condition that the target may have changed a row that theirs has changed, or may have taken a unique value. Looks for
 * each row that theirs has changed, if the target has changed any row.
 */
function isContested({ codec, theirs, ours }: MergedSides, base: BranchRows): Sql {
  const tableId = codec.table.id
  const isWritten = isAnyChanged(base, ours, tableId)
  if (codec.uniqueKeys.length > 0) return isWritten
  return sql`case when ${isWritten} then exists (
    select from (${repeatedIds(base, theirs, tableId)}) k
    where ${isChanged(base, ours, { tableId, id: sql`k.id` })}
  ) else false end`
}

type MergedSides = Pick<RowMerge, 'codec' | 'theirs' | 'ours'>

/**
 * Returns whether the target may have changed a row that theirs has changed, or taken a unique value, since a state. Looks
 * for each row that the target has changed since, because it is locked.
 */
export async function hasContested(
  transaction: Queryable,
  { codec, theirs, ours }: MergedSides,
  oursBefore: BranchRows,
): Promise<boolean> {
  const tableId = codec.table.id
  const isTheirs =
    codec.uniqueKeys.length > 0
      ? sql`true`
      : isChanged(oursBefore, theirs, { tableId, id: sql`k.id` })
  const found = await transaction.query(sql`
    select from (${repeatedIds(oursBefore, ours, tableId)}) k where ${isTheirs} limit 1`)
  return found.length > 0
}

/** Compares the rows of a table, and stages the decisions. Also returns their effect. */
export async function stageRows(
  transaction: Transaction,
  stage: Stage,
  merge: RowMerge,
): Promise<{ staged: StagedRows; tally: MergeTally }> {
  const { codec, base, theirs } = merge
  await stage.open(transaction)
  const changed = base.states.map((rows) => changedIds(rows, theirs, codec.table.id))
  const candidates =
    merge.ids === undefined
      ? [...changed, ...restoredIds(merge), ...rereadIdsOf(merge)]
      : [sql`select id from unnest(${merge.ids}::text[]) g (id)`]
  const [range] = await transaction.query<{ first: string | null; last: string | null }>(sql`
    with added as (
      insert into ${stage.ids} (n, id)
      select coalesce((select max(n) from ${stage.ids}), 0)
          + row_number() over (order by id collate "C"),
        id
      from (${join(candidates, ' union ')}) c
      returning n
    )
    select min(n) as first, max(n) as last from added`)
  const [first, last] = [Number(range?.first ?? 1), Number(range?.last ?? 0)]
  const staged = { codec, name: stage.rowsOf(codec.table.id), isQuery: false, first, last }
  if (last - first >= ANALYZED_ROWS_MIN) await transaction.query(sql`analyze ${stage.ids}`)
  await createRows(transaction, stage, staged)
  const only = singleState(base)
  const tally =
    only === undefined
      ? await stageOverVirtual(transaction, { stage, staged, merge })
      : await stageAll(transaction, { stage, staged, merge, base: only })
  // Rows that the target writes later are looked up by their ids.
  if (stage.isShared) {
    await transaction.query(sql`create index on ${staged.name} (id)`)
  }
  if (last - first >= ANALYZED_ROWS_MIN) await transaction.query(sql`analyze ${staged.name}`)
  return { staged, tally }
}

/** Returns queries for the ids of rows that theirs has not written since the base, and that have another value there. */
function rereadIdsOf({ codec, columns, base, theirs }: RowMerge): Sql[] {
  const isReread = (index: number) => columns[index]?.isReread === true
  return rereadIds({ codec, isReread, before: base.states, after: theirs })
}

/** Returns a query for each restored column: the ids of the rows in which ours may have to get the value of theirs. */
function restoredIds({ codec, columns, theirs }: RowMerge): Sql[] {
  return codec.physical.flatMap((column, index) => {
    const restored = columns[index]?.restored
    if (restored === undefined) return []
    const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
      restored.isConverted
        ? sql`true`
        : sql`${expressionOf(column)}::text is distinct from ${restored.fill}::text`
    return sql`select v.id from (${selectVisible(layoutOf(theirs), codec, { where })}) v`
  })
}

async function createRows(
  transaction: Transaction,
  stage: Stage,
  { codec, name, first, last }: StagedRows,
): Promise<void> {
  const columns = codec.physical.map(
    ({ physicalName, sqlType }) => sql`, ${ident(physicalName)} ${raw(sqlType)}`,
  )
  // Rows that are written by one statement need no index.
  const key = !stage.isShared && last - first < CHUNK_ROWS ? empty : sql` primary key`
  await stage.create(
    transaction,
    name,
    sql`
      n bigint${key},
      id text collate "C" not null,
      decision text not null,
      taken boolean[],
      clashing boolean[]${join([empty, ...columns], '')}`,
  )
}

async function stageAll(
  transaction: Transaction,
  options: { stage: Stage; staged: StagedRows; merge: RowMerge; base: BranchRows },
): Promise<MergeTally> {
  const { stage, staged, merge, base } = options
  const joined = joinBase(base, merge)
  let tally = NO_EFFECT
  for (const { first, last } of chunksOf(staged, CHUNK_ROWS)) {
    const candidates = sql`(select n, id from ${stage.ids} where n between ${first} and ${last})`
    const decisions = decisionsOf(merge, joined, candidates)
    const added = await insertStaged(transaction, staged, decisions)
    const before = tally
    tally = mapTally((count) => before[count] + added[count])
  }
  return tally
}

/** Joins the rows of a base that is not virtual. */
function joinBase(rows: BranchRows, { codec, base, theirs }: RowMerge): JoinedBase {
  const { loaded, converted } = base
  if (loaded !== undefined) return joinLoaded(rows, codec, loaded.name)
  return {
    join: joinState(rows, codec, sql`b`),
    ...(converted && {
      joinConverted: sql`
        ${joinState(converted.rows, converted.codec, sql`bt`)}
        ${joinState(theirs, converted.codec, sql`tt`)}`,
    }),
  }
}

function decisionsOf(merge: RowMerge, base: JoinedBase, candidates: Sql): Sql {
  const { codec, columns, theirs, ours } = merge
  const sides = {
    columns,
    names: valueNames(codec),
    base,
    theirs: joinState(theirs, codec, sql`t`),
    ours: joinState(ours, codec, sql`o`),
  }
  return selectDecisions(sides, candidates)
}

/** Stages decisions. Returns their effect. */
async function insertStaged(
  transaction: Transaction,
  staged: StagedRows,
  decisions: Sql,
): Promise<MergeTally> {
  const [tally] = await transaction.query<MergeTally>(sql`
    with added as (
      insert into ${staged.name} (${STAGE_COLUMNS}${stagedColumns(staged)})
      ${decisions}
      returning decision
    )
    ${selectTally(sql`added`)}`)
  return tally ?? NO_EFFECT
}

/** The staged rows that were decided again, and their effect before and after. */
export interface Restaged {
  /** A table with the numbers and ids of the rows, until the transaction ends. undefined: there are none. */
  readonly since: Sql | undefined
  readonly before: MergeTally
  readonly after: MergeTally
}

/**
 * Decides again about the staged rows that the target has changed since they were staged. Returns undefined if
 * there are some and the base is virtual.
 */
export async function restageRows(
  transaction: Transaction,
  staged: StagedRows,
  merge: RowMerge & { readonly oursBefore: BranchRows },
): Promise<Restaged | undefined> {
  const { codec, base, ours, oursBefore } = merge
  if (!mayDiffer(oursBefore, ours, codec.table.id)) return NOT_RESTAGED
  const { server } = transaction
  const temporary = server.temporaryNames(schemaName(layoutOf(ours).databaseId))
  const since = temporary(`merge_since_${codec.table.id}`)
  const columns = sql`n bigint not null, id text collate "C" not null`
  await server.createTemporary(transaction, { name: since, columns })
  await transaction.query(sql`
    insert into ${since} (n, id)
    select s.n, s.id
    from ${staged.name} s
    where s.id in (${changedIds(oursBefore, ours, codec.table.id)})`)
  const isSince = sql`n in (select n from ${since})`
  const before = await countStaged(transaction, staged, isSince)
  if (before.changed === 0) return NOT_RESTAGED
  const only = singleState(base)
  if (only === undefined) return undefined
  await transaction.query(sql`delete from ${staged.name} where ${isSince}`)
  const joined = joinBase(only, merge)
  const decided = await insertStaged(transaction, staged, decisionsOf(merge, joined, since))
  if (merge.strategy === 'fail' || decided.conflictCount === 0) {
    return { since, before, after: decided }
  }
  await settleRest(transaction, settledRows(staged, ours), merge.strategy, isSince)
  return { since, before, after: await countStaged(transaction, staged, isSince) }
}

/** Compares with a virtual base. Its rows can only be computed here, from the rows of its states. */
async function stageOverVirtual(
  transaction: Transaction,
  { stage, staged, merge }: { stage: Stage; staged: StagedRows; merge: RowMerge },
): Promise<MergeTally> {
  const { codec, base, theirs } = merge
  const names = valueNames(codec)
  for (const { first, last } of chunksOf(staged, PAGE_ROWS)) {
    const found = await transaction.query<{ id: string }>(sql`
      select id from ${stage.ids} where n between ${first} and ${last} order by n`)
    let ids = found.map(({ id }) => id)
    // A page can end early, if its rows are large.
    for (let afterId: string | undefined = ''; afterId !== undefined; ) {
      const page: Awaited<ReturnType<typeof listCompared>> = await listCompared(transaction, {
        codec,
        before: base.states,
        after: theirs,
        form: 'write',
        afterId,
        limit: ids.length + 1,
        ids,
      })
      const rows = page.rows.flatMap(({ id, before }) => {
        const texts = base.rowOf(before)
        return texts === undefined ? [] : { id, texts }
      })
      const candidates = sql`(
        select n, id from ${stage.ids}
        where n between ${first} and ${last} and id = any(${page.rows.map(({ id }) => id)}::text[])
      )`
      const joined = joinGiven(rows, names)
      await insertStaged(transaction, staged, decisionsOf(merge, joined, candidates))
      afterId = page.next
      ids = ids.filter((id) => id > (afterId ?? ''))
    }
  }
  return countStaged(transaction, staged)
}

/** Returns the columns of the staged rows, as a list that starts with a comma. */
function stagedColumns({ codec }: StagedRows): Sql {
  const names = codec.physical.map(({ physicalName }) => sql`, ${ident(physicalName)}`)
  return join([empty, ...names], '')
}

/** Returns staged rows in the form that decisions about them need. */
export function settledRows({ name, codec }: StagedRows, ours: BranchRows): SettledRows {
  return { name, codec, ours: joinState(ours, codec, sql`o`) }
}

/** Adds rows of the target that theirs has not changed, without an effect on them. */
export async function addUnchanged(
  transaction: Transaction,
  staged: StagedRows,
  ids: readonly string[],
): Promise<StagedRows> {
  const first = staged.last + 1
  const [row] = await transaction.query<{ count: number }>(sql`
    with added as (
      insert into ${staged.name} (n, id, decision)
      select ${first}::bigint + row_number() over (order by g.id) - 1, g.id, 'same'
      from unnest(${ids}::text[]) g (id)
      where not exists (select from ${staged.name} s where s.id = g.id)
      returning 1
    )
    select count(*)::integer as count from added`)
  return { ...staged, last: staged.last + (row?.count ?? 0) }
}

/** Creates a stage without rows. */
export async function stageNothing(
  transaction: Transaction,
  stage: Stage,
  codec: TableCodec,
): Promise<StagedRows> {
  await stage.open(transaction)
  const name = stage.rowsOf(codec.table.id)
  const staged = { codec, name, isQuery: false, first: 1, last: 0 }
  await createRows(transaction, stage, staged)
  return staged
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

/** Counts the effects of the staged rows that meet a condition. */
export async function countStaged(
  transaction: Transaction,
  staged: StagedRows,
  condition = sql`true`,
): Promise<MergeTally> {
  const [tally] = await transaction.query<MergeTally>(sql`
    ${selectTally(sql`${staged.name} s`)} where ${condition}`)
  return tally ?? NO_EFFECT
}

/** Counts staged rows, up to one more than `rowsMax`. */
export async function boundStaged(
  database: Queryable,
  { name }: StagedRows,
  rowsMax: number,
): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*)::integer as count from (select from ${name} s limit ${Math.floor(rowsMax) + 1}) s`)
  return row?.count ?? 0
}

/** Selects the effects of the decisions in a relation. */
function selectTally(relation: Sql): Sql {
  return sql`
    select count(*)::integer as changed,
      (count(*) filter (where decision = 'insert'))::integer as inserted,
      (count(*) filter (where decision = 'update'))::integer as updated,
      (count(*) filter (where decision = 'delete'))::integer as deleted,
      (count(*) filter (where decision in ${CONFLICTS}))::integer as "conflictCount"
    from ${relation}`
}

/** Computes each number of a tally. */
export function mapTally(numberOf: (count: keyof MergeTally) => number): MergeTally {
  return {
    changed: numberOf('changed'),
    inserted: numberOf('inserted'),
    updated: numberOf('updated'),
    deleted: numberOf('deleted'),
    conflictCount: numberOf('conflictCount'),
  }
}

export const NO_EFFECT = mapTally(() => 0)

/** Nothing was decided again. */
export const NOT_RESTAGED: Restaged = { since: undefined, before: NO_EFFECT, after: NO_EFFECT }

/** Lists conflicts in the order of ids, starting after an id. */
export function listConflicts(
  transaction: Transaction,
  staged: StagedRows,
  { after = '', limit }: { after: string | undefined; limit: number },
): Promise<RowConflict[]> {
  return selectConflicts(transaction, staged, sql`id > ${after} order by id limit ${limit}`)
}

/** Finds those of the given rows that are in conflict. */
export function findConflicts(
  transaction: Transaction,
  staged: StagedRows,
  ids: readonly string[],
): Promise<RowConflict[]> {
  return selectConflicts(transaction, staged, sql`id = any(${ids}::text[])`)
}

async function selectConflicts(
  transaction: Transaction,
  staged: StagedRows,
  condition: Sql,
): Promise<RowConflict[]> {
  const rows = await transaction.query<{
    id: string
    decision: string
    clashing: boolean[] | null
  }>(sql`
    select id, decision, clashing
    from ${staged.name}
    where decision in ${CONFLICTS} and ${condition}`)
  return rows.flatMap(({ id, decision, clashing }) => {
    const kind = CONFLICT_KINDS.find((known) => known === decision)
    if (kind === undefined) return []
    const isWhole = kind === 'deletedHere' || kind === 'deletedThere'
    const columns = isWhole ? [] : (clashing ?? []).flatMap((is, index) => (is ? [index] : []))
    return { id, kind, columns }
  })
}
