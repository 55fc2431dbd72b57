import { createHash } from 'node:crypto'
import type { Transaction } from '../../postgres/run-transaction.js'
import { empty, ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible, selectOwnRows } from '../reading/arms.js'
import { addsOwnHeap, changedIds, mayDiffer } from './changed-ids.js'
import { type ComparedPage, changedColumns, listCompared, type RowTexts } from './compare-rows.js'
import type { RowBase } from './stage.js'

export interface ChangeCounts {
  readonly inserted: number
  readonly updated: number
  readonly deleted: number
}

interface Compared {
  readonly codec: TableCodec
  /** Indexes of the physical columns to compare. */
  readonly columns: ReadonlySet<number>
  readonly base: RowBase
  readonly after: BranchRows
  /** `withValues`: inserted rows count only if they have a value in one of the columns. */
  readonly inserted?: 'all' | 'withValues'
}

/** The number of rows compared at a time, if the base is virtual. */
const PAGE_ROWS = 1000

/** Counts the rows that differ between the base and a later state in the given columns. */
export async function countChanges(
  transaction: Pick<Transaction, 'query'>,
  options: Compared,
): Promise<ChangeCounts> {
  const { base, after, codec } = options
  if (!base.states.some((state) => mayDiffer(state, after, codec.table.id))) {
    return { inserted: 0, updated: 0, deleted: 0 }
  }
  const [only, ...others] = base.states
  return only !== undefined && others.length === 0
    ? countInOneStatement(transaction, { ...options, before: only })
    : countRowByRow(transaction, options)
}

/** Returns a digest of the rows that were inserted or updated since the base: of their values in the given columns. */
export async function digestWritten(
  transaction: Pick<Transaction, 'query'>,
  options: Compared,
): Promise<string> {
  const [only, ...others] = options.base.states
  if (only === undefined || others.length > 0) return digestRowByRow(transaction, options)
  const { joins, isInserted, isUpdated } = joinChanges({ ...options, before: only })
  const values = options.codec.physical.flatMap(({ physicalName }, index) =>
    options.columns.has(index) ? sql`, a.${ident(physicalName)}::text` : [],
  )
  const [row] = await transaction.query<{ digest: string }>(sql`
    with rows as (
      select sha256(convert_to(array[a.id${join([empty, ...values], '')}]::text, 'UTF8')) as digest
      ${joins}
      where ${isInserted} or ${isUpdated}
    )
    select encode(sha256(coalesce(string_agg(digest, ''::bytea order by digest), '')), 'hex') as digest
    from rows`)
  return row?.digest ?? ''
}

async function digestRowByRow(
  transaction: Pick<Transaction, 'query'>,
  options: Compared,
): Promise<string> {
  const hash = createHash('sha256')
  const after = { states: [options.after], rowOf: ([row]: readonly RowTexts[]) => row }
  for await (const { id, row } of changesRowByRow(transaction, { ...options, after })) {
    const values = row?.filter((_, index) => options.columns.has(index))
    if (values !== undefined) hash.update(JSON.stringify([id, ...values]))
  }
  return hash.digest('hex')
}

/** Returns whether any row differs. Stops at the first one, unless the base is virtual. */
export async function hasChangedRow(
  transaction: Pick<Transaction, 'query'>,
  options: Compared,
): Promise<boolean> {
  const [only, ...others] = options.base.states
  if (only === undefined || others.length > 0) {
    const { inserted, updated, deleted } = await countChanges(transaction, options)
    return inserted + updated + deleted > 0
  }
  const { joins, isInserted, isUpdated, isDeleted } = joinChanges({ ...options, before: only })
  const [row] = await transaction.query<{ isChanged: boolean }>(sql`
    select exists (
      select ${joins} where ${isInserted} or ${isUpdated} or ${isDeleted}
    ) as "isChanged"`)
  return row?.isChanged ?? false
}

async function countInOneStatement(
  transaction: Pick<Transaction, 'query'>,
  options: Compared & { before: BranchRows },
): Promise<ChangeCounts> {
  const { joins, isInserted, isUpdated, isDeleted } = joinChanges(options)
  const [counts] = await transaction.query<ChangeCounts>(sql`
    select
      (count(*) filter (where ${isInserted}))::integer as inserted,
      (count(*) filter (where ${isUpdated}))::integer as updated,
      (count(*) filter (where ${isDeleted}))::integer as deleted
    ${joins}`)
  return counts ?? { inserted: 0, updated: 0, deleted: 0 }
}

/** Returns the rows `b` before and `a` after that may differ, and conditions for how they do. */
export function joinChanges(
  options: Omit<Compared, 'base'> & { before: BranchRows },
): Record<'joins' | 'isInserted' | 'isUpdated' | 'isDeleted', Sql> {
  const { codec, columns, before, after, inserted = 'all' } = options
  const names = codec.physical.flatMap(({ physicalName }, index) =>
    columns.has(index) ? ident(physicalName) : [],
  )
  const anyOf = (conditions: readonly Sql[]) =>
    conditions.length === 0 ? sql`false` : join(conditions, ' or ')
  const counts =
    inserted === 'all' ? sql`true` : anyOf(names.map((name) => sql`a.${name} is not null`))
  // Compared as texts, because values that are equal in PostgreSQL may have different texts: 1.0 and 1.00.
  const differs = anyOf(names.map((name) => sql`b.${name}::text is distinct from a.${name}::text`))
  const joinState = (rows: BranchRows, alias: Sql) =>
    joinVisible(layoutOf(rows), codec, { id: sql`k.id`, alias, outer: true })
  const from = addsOwnHeap(before, after, codec.table.id)
    ? sql`(${selectOwnRows(layoutOf(after), codec)}) a cross join lateral (select a.key as id) k`
    : sql`
      (${changedIds(before, after, codec.table.id)}) k
      ${joinState(after, sql`a`)}`
  return {
    joins: sql`
      from ${from}
      ${joinState(before, sql`b`)}`,
    isInserted: sql`(b.id is null and a.id is not null and (${counts}))`,
    isUpdated: sql`(b.id is not null and a.id is not null and (${differs}))`,
    isDeleted: sql`(b.id is not null and a.id is null)`,
  }
}

/** Returns whether a row was inserted or updated between two states, each of which may be virtual. */
export async function hasWrittenRow(
  transaction: Pick<Transaction, 'query'>,
  options: Omit<Compared, 'after'> & { readonly after: RowBase },
): Promise<boolean> {
  for await (const { change } of changesRowByRow(transaction, options)) {
    if (change !== 'deleted') return true
  }
  return false
}

async function countRowByRow(
  transaction: Pick<Transaction, 'query'>,
  options: Compared,
): Promise<ChangeCounts> {
  const counts = { inserted: 0, updated: 0, deleted: 0 }
  const after = { states: [options.after], rowOf: ([row]: readonly RowTexts[]) => row }
  for await (const { change } of changesRowByRow(transaction, { ...options, after })) {
    counts[change]++
  }
  return counts
}

interface RowChange {
  readonly change: keyof ChangeCounts
  readonly id: string
  /** The row after the change. undefined: it was deleted. */
  readonly row: RowTexts
}

/** The row of a virtual base can only be computed here, from the rows of its states. */
async function* changesRowByRow(
  transaction: Pick<Transaction, 'query'>,
  options: Omit<Compared, 'after'> & { readonly after: RowBase },
): AsyncGenerator<RowChange> {
  const { codec, columns, base, after, inserted = 'all' } = options
  const states = [...base.states, ...after.states]
  const last = states.pop()
  if (last === undefined) return
  const hasValue = (row: NonNullable<RowTexts>) =>
    row.some((text, index) => text !== null && columns.has(index))
  for (let afterId: string | undefined = ''; afterId !== undefined; ) {
    const page: ComparedPage = await listCompared(transaction, {
      codec,
      // A row that is the same in all other states as in the last one is the same in both bases.
      before: states,
      after: last,
      form: 'write',
      afterId,
      limit: PAGE_ROWS,
    })
    for (const compared of page.rows) {
      const { id } = compared
      const rows = [...compared.before, compared.after]
      const old = base.rowOf(rows.slice(0, base.states.length))
      const row = after.rowOf(rows.slice(base.states.length))
      if (old === undefined) {
        if (row !== undefined && (inserted === 'all' || hasValue(row))) {
          yield { change: 'inserted', id, row }
        }
      } else if (row === undefined) yield { change: 'deleted', id, row }
      else if (changedColumns(old, row).some((index) => columns.has(index))) {
        yield { change: 'updated', id, row }
      }
    }
    afterId = page.next
  }
}
