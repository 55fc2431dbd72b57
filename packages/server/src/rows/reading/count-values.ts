import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { ident, join, type Sql, sql } from '../../postgres/sql.js'
import { listAllColumns, type StoredColumn, type StoredTable } from '../columns/stored-schema.js'
import { compileTable } from '../columns/table-codec.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { selectVisible } from './arms.js'

/**
 * Counts the rows of a table on a branch, and for each of the given columns the rows that have a value in
 * it or in a column nested in it. Looks at no more than `rowsMax` rows.
 */
export async function countValues(
  database: Queryable,
  rows: BranchRows,
  options: {
    table: StoredTable
    columns: readonly StoredColumn[]
    limits: Limits
    rowsMax: number
  },
): Promise<{ rows: number; values: number[] }> {
  const { table, columns, limits, rowsMax } = options
  const codec = compileTable({ ...table, columns }, { limits, jsonAsText: false })
  const visible = selectVisible(layoutOf(rows), codec)
  const counts = columns.map((column, index) => {
    return sql`, ${countOf(column)} as ${ident(`column${index}`)}`
  })
  const [row = {}] = await database.query<Record<string, number>>(sql`
    select count(*)::integer as rows${join([sql``, ...counts], '')}
    from (select * from (${visible}) v limit ${rowsMax}) seen`)
  return {
    rows: row.rows ?? 0,
    values: columns.map((_, index) => row[`column${index}`] ?? 0),
  }
}

function countOf(column: StoredColumn): Sql {
  const names = listAllColumns([column]).map(({ id }) => ident(`c${id}`))
  return sql`(count(*) filter (where num_nonnulls(${join(names, ', ')}) > 0))::integer`
}
