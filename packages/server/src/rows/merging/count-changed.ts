import type { Queryable } from '../../postgres/database.js'
import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible } from '../reading/arms.js'
import { changedIds, mayDiffer } from './changed-ids.js'
import { changedColumns, listCompared } from './compare-rows.js'
import type { RowBase } from './merge-rows.js'

/** The number of rows compared at a time, if the base is virtual. */
const PAGE_ROWS = 1000

/**
 * Counts the rows that were inserted or updated since the base, in the columns of the codec. With
 * `values`, inserted rows count only if they have a value in one of the columns.
 */
export async function countChangedRows(
  transaction: Queryable,
  options: {
    codec: TableCodec
    base: RowBase
    after: BranchRows
    counts: 'records' | 'values'
  },
): Promise<number> {
  const { codec, base, after, counts } = options
  if (!base.states.some((state) => mayDiffer(state, after, codec.table.id))) return 0
  const [only, ...others] = base.states
  if (only !== undefined && others.length === 0) {
    return countInOneStatement(transaction, { codec, before: only, after, counts })
  }
  let count = 0
  for (let afterId: string | undefined = ''; afterId !== undefined; ) {
    const page: Awaited<ReturnType<typeof listCompared>> = await listCompared(transaction, {
      codec,
      before: base.states,
      after,
      form: 'write',
      afterId,
      limit: PAGE_ROWS,
    })
    for (const row of page.rows) {
      if (row.after === undefined) continue
      const before = base.rowOf(row.before)
      const isChanged =
        before === undefined
          ? counts === 'records' || row.after.some((text) => text !== null)
          : changedColumns(before, row.after).length > 0
      if (isChanged) count++
    }
    afterId = page.next
  }
  return count
}

async function countInOneStatement(
  transaction: Queryable,
  options: {
    codec: TableCodec
    before: BranchRows
    after: BranchRows
    counts: 'records' | 'values'
  },
): Promise<number> {
  const { codec, before, after, counts } = options
  const names = codec.physical.map(({ physicalName }) => ident(physicalName))
  const anyOf = (conditions: readonly Sql[]) =>
    conditions.length === 0 ? sql`false` : join(conditions, ' or ')
  const isInserted =
    counts === 'records' ? sql`true` : anyOf(names.map((name) => sql`a.${name} is not null`))
  const isUpdated = anyOf(
    names.map((name) => sql`b.${name}::text is distinct from a.${name}::text`),
  )
  const [row] = await transaction.query<{ count: number }>(sql`
    select count(*)::integer as count
    from (${changedIds(before, after, codec.table.id)}) k
    ${joinVisible(layoutOf(before), codec, { id: sql`k.id`, alias: sql`b`, outer: true })}
    ${joinVisible(layoutOf(after), codec, { id: sql`k.id`, alias: sql`a`, outer: false })}
    where case when b.id is null then ${isInserted} else ${isUpdated} end`)
  return row?.count ?? 0
}
