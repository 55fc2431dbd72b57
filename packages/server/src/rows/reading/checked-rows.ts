import { join, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible, selectVisible } from './arms.js'
import { changedIds } from './changed-ids.js'
import { hasRow } from './has-row.js'

/** The rows that a new rule is checked for. */
export interface CheckedRows {
  readonly rows: BranchRows
  /** A state whose rows all keep the rule. Only rows that have changed since can break it. */
  readonly since?: BranchRows | undefined
}

/** Selects the rows of a table that a rule is checked for. */
export function selectChecked({ rows, since }: CheckedRows, codec: TableCodec): Sql {
  if (since === undefined) return selectVisible(layoutOf(rows), codec)
  const found = joinVisible(layoutOf(rows), codec, { id: sql`changed.id`, alias: sql`found` })
  return sql`
    select found.* from (${changedIds(since, rows, codec.table.id)}) changed ${found}`
}

/**
 * Selects the checked rows whose values another row has, too. `rowsOf` completes a selection of rows, and `keyOf` returns
 * the values of one.
 */
export function selectRepeated(
  checked: CheckedRows,
  codec: TableCodec,
  { rowsOf = (rows) => rows, keyOf }: { rowsOf?(rows: Sql): Sql; keyOf(alias: Sql): Sql[] },
): Sql {
  const all = rowsOf(selectVisible(layoutOf(checked.rows), codec))
  const isPresent = join(
    keyOf(sql`k`).map((value) => sql`${value} is not null`),
    ' and ',
  )
  if (checked.since === undefined) {
    return sql`
      select * from (
        select k.*, count(*) over (partition by ${join(keyOf(sql`k`), ', ')}) as holders
        from (${all}) k
        where ${isPresent}
      ) g
      where g.holders > 1`
  }
  const isSame = join(
    keyOf(sql`k`).map((value, index) => sql`${value} = ${keyOf(sql`o`)[index]}`),
    ' and ',
  )
  return sql`
    select k.* from (${rowsOf(selectChecked(checked, codec))}) k
    where ${isPresent}
      and exists (select from (${all}) o where ${isSame} and o.id <> k.id)`
}

/** Selects the rows with a link to a record that was deleted since the state that was checked. */
export function selectUnlinked(
  { rows, since }: CheckedRows,
  codec: TableCodec,
  { link, tableId }: { link: Sql; tableId: number },
): Sql {
  const layout = layoutOf(rows)
  const changed = changedIds(since ?? rows, rows, tableId)
  return sql`
    select v.* from (${selectVisible(layout, codec)}) v
    where v.${link} in (
      select c.id from (${changed}) c where not ${hasRow(layout, tableId, sql`c.id`)}
    )`
}
