import type { Transaction } from '../../postgres/run-transaction.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement } from '../../postgres/statement.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, type Layout, ownHeap } from '../layout/layout.js'
import { deleteStatement } from '../writing/delete-statement.js'
import { furtherColumns, StatementParts } from '../writing/statement-parts.js'
import { changedIds, mayDiffer, repeatedIds } from './changed-ids.js'
import { joinChanges } from './count-changed.js'
import { clearMoved, openTarget, runOnce } from './publish-stage.js'
import { type MergeTally, NO_EFFECT } from './stage.js'

/*
 * Most merges bring rows that the target has not changed since the base. Such rows cannot be in conflict, so their
 * changes are written by one statement for each table, without staging them and without a comparison with ours.
 */

/** A table whose columns are the same in all three states. */
export interface ForwardTable {
  readonly codec: TableCodec
  readonly base: BranchRows
  readonly theirs: BranchRows
  readonly ours: BranchRows
}

/**
 * Returns whether the target may have changed a row that theirs has changed, or may have taken a unique value of
 * one. The merge then needs a comparison of all three states.
 */
export async function isContested(
  transaction: Transaction,
  { codec, base, theirs, ours }: ForwardTable,
): Promise<boolean> {
  const { id } = codec.table
  if (!mayDiffer(base, ours, id)) return false
  const changed = repeatedIds(base, ours, id)
  const contested =
    codec.uniqueColumns.length > 0
      ? changed
      : sql`
        select k.id
        from (${changedIds(base, theirs, id)}) k
        where exists (select from (${changed}) o where o.id = k.id)`
  const [row] = await transaction.query<{ isContested: boolean }>(sql`
    select exists (${contested}) as "isContested"`)
  return row?.isContested ?? true
}

/** Writes the changes of tables that are not contested to the branch `into`, whose gate must be locked. */
export async function forwardRows(
  transaction: Transaction,
  tables: readonly ForwardTable[],
  into: string,
): Promise<MergeTally[]> {
  const changes: Changes[] = []
  for (const table of tables) changes.push(await findChanges(transaction, table))
  const changed = changes.filter(({ deletes, writes }) => deletes || writes)
  if (changed.length === 0) return tables.map(() => NO_EFFECT)
  const layout = await openTarget(
    transaction,
    changed.map(({ codec }) => codec),
    into,
  )
  const tallies: MergeTally[] = []
  for (const table of changes) {
    tallies.push(
      changed.includes(table) ? await forwardTable(transaction, layout, table) : NO_EFFECT,
    )
  }
  return tallies
}

/** The changes of theirs in one table. */
interface Changes {
  readonly codec: TableCodec
  readonly deletes: boolean
  readonly writes: boolean
  /** Selects the ids of deleted rows. */
  readonly gone: Sql
  /** Selects the rows to write. Those that exist have a version. */
  readonly rows: Sql
}

async function findChanges(
  transaction: Transaction,
  { codec, base, theirs }: ForwardTable,
): Promise<Changes> {
  const columns = new Set(codec.physical.keys())
  // The base has the rows of the target that theirs has changed. Unlike those, its rows stay during the merge.
  const { joins, isInserted, isUpdated, isDeleted } = joinChanges({
    codec,
    columns,
    before: base,
    after: theirs,
  })
  const [found] = await transaction.query<Pick<Changes, 'deletes' | 'writes'>>(sql`
    select coalesce(bool_or(${isDeleted}), false) as deletes,
      coalesce(bool_or(${isInserted} or ${isUpdated}), false) as writes
    ${joins}`)
  const values = codec.physical.map(({ physicalName }) => sql`a.${ident(physicalName)}`)
  return {
    codec,
    deletes: found?.deletes ?? false,
    writes: found?.writes ?? false,
    gone: sql`select k.id ${joins} where ${isDeleted}`,
    rows: sql`
      select a.id, 0 as n, b.version, b.created_at${furtherColumns(values)}
      ${joins}
      where ${isInserted} or ${isUpdated}`,
  }
}

async function forwardTable(
  transaction: Transaction,
  layout: Layout,
  { codec, deletes, writes, gone, rows }: Changes,
): Promise<MergeTally> {
  const heap = ownHeap(layout, codec.table.id)
  if (heap === undefined) throw new Error('the target must have a heap')
  const parts = new StatementParts(layout, codec, heap, { isLocked: true })
  let [deleted, inserted, updated] = [0, 0, 0]
  if (deletes) {
    deleted = (await runOnce(transaction, deleteStatement(parts, sql`array(${gone})`))).length
  }
  if (writes) {
    await clearMoved(transaction, { layout, heap }, { codec, rows })
    const [counts] = await runOnce(transaction, writeStatement(parts, rows))
    inserted = Number(counts?.[0])
    updated = Number(counts?.[1])
  }
  return { changed: deleted + inserted + updated, inserted, updated, deleted, conflictCount: 0 }
}

/** Inserts and replaces rows. Those that exist have a version. Returns how many were inserted and replaced. */
function writeStatement(parts: StatementParts, rows: Sql): Statement {
  const values = parts.names.map((name) => sql`u.${name}`)
  return compileStatement(sql`
    with u as (${rows})${parts.keep(sql`select id from u`)},
    written as (
      insert into ${parts.own} ${parts.rowColumns}
      select u.id, coalesce(u.version + 1, f.version),
        coalesce(u.created_at, now()), now(), ${parts.epoch}, false${furtherColumns(values)}
      from u ${parts.joinFirstVersion(sql`u.id`)}
      on conflict (id) do update set ${parts.overwriteAny}
    )
    select count(*) filter (where version is null), count(version) from u`)
}
