import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { Slot } from '../../postgres/statement.js'
import { physicalName } from '../columns/column-tree.js'
import type { TableCodec } from '../columns/table-codec.js'

/**
 * Returns records that are not stored as rows of a table, with their `position` from 1. `records` is JSON:
 * for each record, a list of its id and the texts of its physical columns.
 */
export function selectJsonRows(codec: TableCodec, records: Slot): Sql {
  const values = codec.stored.physical.map(
    ({ sqlType, physicalName }, index) =>
      sql`, (p.record ->> ${index + 1}::integer)::${raw(sqlType)} as ${ident(physicalName)}`,
  )
  const columnSql = (id: number) => sql`r.${ident(physicalName({ id }))}`
  const computed = codec.physical.flatMap(({ computed: value, physicalName: name }) =>
    value === undefined ? [] : sql`, ${value.valueSql(columnSql)} as ${ident(name)}`,
  )
  const stored = sql`
    select p.record ->> 0 as id, 0 as version, now() as created_at, now() as updated_at,
      p.position${join([empty, ...values], '')}
    from jsonb_array_elements(${records}::jsonb) with ordinality p(record, position)`
  if (computed.length === 0) return stored
  return sql`select r.*${join([empty, ...computed], '')} from (${stored}) r`
}
