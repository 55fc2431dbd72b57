import type { Limits } from '@offshoot/contract/limits'
import type { RowExpression } from '../../dialect/row-expression.js'
import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import { physicalName } from '../columns/column-tree.js'
import { computedSql } from '../columns/computed-columns.js'
import type { StoredColumn, StoredTable } from '../columns/stored-schema.js'
import { compileTable, type TableCodec } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible, selectVisible } from './arms.js'
import { changedIds } from './changed-ids.js'
import { hasRow } from './has-row.js'

/** The rows that a new rule is checked for. */
export interface CheckedRows {
  readonly rows: BranchRows
  /** A state whose rows all keep the rule. Only rows that have changed since can break it. */
  readonly since?: BranchRows | undefined
  /** Columns whose values are those that expressions are going to write, in this order. */
  readonly rewritten?: readonly RewrittenColumn[]
}

/** An expression over the columns that a table has before a change. */
export interface Rewriting {
  readonly expression: RowExpression
  readonly columns: readonly StoredColumn[]
}

/** A column whose values an expression makes. */
interface RewrittenColumn {
  readonly table: StoredTable
  readonly column: StoredColumn
  readonly using: Rewriting
  readonly limits: Limits
}

/** Returns SQL for the value that a column is going to have. */
export function rewrittenSql(
  { column, using }: Pick<RewrittenColumn, 'column' | 'using'>,
  columnSql: (id: number) => Sql,
): Sql {
  return computedSql({ ...column, computed: using.expression }, using, columnSql)
}

/** Selects the rows of a table that a rule is checked for. */
export function selectChecked(checked: CheckedRows, codec: TableCodec): Sql {
  const { rows, since } = checked
  if (since === undefined) return selectAll(checked, codec)
  return selectRewritten(checked, codec, (stored) => {
    const found = joinVisible(layoutOf(rows), stored, { id: sql`changed.id`, alias: sql`found` })
    return sql`
      select found.* from (${changedIds(since, rows, codec.table.id)}) changed ${found}`
  })
}

function selectAll(checked: CheckedRows, codec: TableCodec): Sql {
  return selectRewritten(checked, codec, (stored) => selectVisible(layoutOf(checked.rows), stored))
}

/** Selects rows with the values that expressions are going to write. `select` selects them as they are stored. */
function selectRewritten(
  { rewritten = [] }: CheckedRows,
  codec: TableCodec,
  select: (stored: TableCodec) => Sql,
): Sql {
  const { table } = codec
  const made = rewritten.filter(
    (each) => each.table.id === table.id && table.columns.some(({ id }) => id === each.column.id),
  )
  const [first] = made
  if (first === undefined) return select(codec)
  const columns = new Map(
    [...made.flatMap(({ using }) => using.columns), ...table.columns].map((each) => [
      each.id,
      each,
    ]),
  )
  for (const { column } of made) columns.delete(column.id)
  const read = { ...table, columns: [...columns.values()], constraints: [] }
  const { limits } = first
  let rows = select(compileTable(read, { limits, jsonAsText: false }).stored)
  for (const each of made) {
    const value = rewrittenSql(each, (id) => sql`v.${ident(physicalName({ id }))}`)
    rows = sql`select v.*, ${value} as ${ident(physicalName(each.column))} from (${rows}) v offset 0`
  }
  return rows
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
  const all = rowsOf(selectAll(checked, codec))
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
