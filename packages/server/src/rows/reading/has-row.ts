import { type Sql, sql } from '../../postgres/sql.js'
import type { Layout } from '../layout/layout.js'
import { joinArms, listArms } from './arms.js'

const NO_COLUMNS = { physical: [] }

/** Returns the condition that a table of the branch has a row of an id. */
export function hasRow(layout: Layout, tableId: number, id: Sql): Sql {
  const joined = joinArms(listArms(layout, tableId), NO_COLUMNS, { id, alias: sql`target` })
  return sql`exists (select from (select) any_row ${joined})`
}
