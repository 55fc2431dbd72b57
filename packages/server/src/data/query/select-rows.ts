import { empty, join, type Sql, sql } from '../../postgres/sql.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { TableLookup } from '../../rows/reading/read-plan.js'
import type { PlanRoot } from '../../rows/reading/table-rows.js'
import { FieldExpressions } from './field-sql.js'
import type { Filter } from './filter.js'
import { filterSql } from './filter-sql.js'
import type { Parameters } from './parameters.js'
import { ROOT } from './sort-sql.js'

/** The rows to select from. */
interface RowSource {
  readonly lookup: TableLookup
  readonly codec: TableCodec
  /** undefined: all rows. */
  readonly filter: Filter | undefined
  readonly parameters: Parameters
}

/** A row of the select: its columns, and fields that are reached through links. */
interface SourceRow {
  readonly record: PlanRoot
  readonly fields: FieldExpressions
}

/** The parts of a select that depend on the caller. */
export interface RowSelect {
  readonly selected: Sql
  /** Joins that come before those of the fields. */
  readonly joins?: Sql
  /** Further relations, which come after the joins of the fields. */
  readonly from?: Sql
  readonly conditions?: readonly Sql[]
  /** Grouping or order. */
  readonly end?: Sql
}

/**
 * Returns one select for each physical table that rows come from, so that each can use its indexes. Together
 * they return every row that meets the filter once. The list is empty if nothing was ever written to the
 * table.
 */
export function selectRows(source: RowSource, describe: (row: SourceRow) => RowSelect): Sql[] {
  return armSelects(source, describe).map((select) => select.all())
}

/** The select from one physical table. */
export interface ArmSelect<Described extends RowSelect> {
  readonly described: Described
  /** Selects all rows of the source. */
  all(): Sql
  /** Selects rows that meet a condition. */
  where(condition: Sql): Sql
  /** Selects rows that meet a condition, if they are few. */
  whereFew(condition: Sql): Sql
}

export function armSelects<Described extends RowSelect>(
  { lookup, codec, filter, parameters }: RowSource,
  describe: (row: SourceRow) => Described,
): ArmSelect<Described>[] {
  const rows = lookup.rowsOf(codec)
  parameters.countTables(rows.scanCount)
  return rows.arms(ROOT).map((arm) => {
    const record = { alias: ROOT, column: arm.column }
    const fields = new FieldExpressions(lookup, record, parameters)
    const described = describe({ record, fields })
    const { selected, joins = empty, from = empty, conditions = [], end = empty } = described
    const filters = filter === undefined ? [] : [filterSql(filter, fields, parameters)]
    const select = (first: readonly Sql[]) => sql`
      select ${selected} from ${arm.table} ${ROOT}${joins}${fields.joins}${from}
      where ${join([...first, ...filters, ...conditions], ' and ')}${end}`
    return {
      described,
      all: () => select([arm.condition]),
      where: (condition) => select([arm.condition, condition]),
      whereFew: (condition) => select([arm.conditionOfFew(), condition]),
    }
  })
}
