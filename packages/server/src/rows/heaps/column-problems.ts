import {
  type ColumnProblem,
  PROBLEM_RECORDS_MAX,
  PROBLEM_VALUE_LENGTH_MAX,
} from '@offshoot/contract/column-problems'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { RowExpression } from '../../dialect/row-expression.js'
import type { Queryable } from '../../postgres/database.js'
import { codeOf, isDataException } from '../../postgres/failures.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { physicalName } from '../columns/column-tree.js'
import {
  type ComputedColumn,
  checkOfComputed,
  computedSql,
  isComputed,
} from '../columns/computed-columns.js'
import { fitsSql, narrows } from '../columns/conversions.js'
import type { StoredColumn, StoredTable } from '../columns/stored-schema.js'
import { compileTable } from '../columns/table-codec.js'
import { failsCheck } from '../columns/table-rules.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { selectVisible } from '../reading/arms.js'
import { hasRow } from '../reading/has-row.js'

/** A column before and after a change. It has another id afterwards if its values are stored anew. */
export interface AlteredColumn {
  readonly table: StoredTable
  readonly before: StoredColumn
  readonly column: StoredColumn
  /** Where the values come from. undefined: they are those of before, converted. */
  readonly using?: Rewriting
}

/** An expression over the columns that a table has before the change. */
export interface Rewriting {
  readonly expression: RowExpression
  readonly columns: readonly StoredColumn[]
}

type Kind = ColumnProblem['kind']

/** Problems that the message of an error describes. */
const MESSAGE_RECORDS_MAX = 5

/** Finds the records that do not allow a change of a column. Reads all records of the table, if any rule is new. */
export async function findColumnProblems(
  transaction: Queryable,
  rows: BranchRows,
  { table, before, column, using, limits }: AlteredColumn & { limits: Limits },
): Promise<ColumnProblem[]> {
  if (using !== undefined) {
    const made = { ...column, computed: using.expression }
    const read = { ...table, columns: using.columns }
    const options = { table: read, column: made, limits }
    return [
      ...(await findUncomputed(transaction, rows, { ...options, before })),
      ...(column.unique ? await findRepeated(transaction, rows, { ...options, before }) : []),
    ]
  }
  if (isComputed(column)) return findUncomputed(transaction, rows, { table, column, limits })
  const isConverted = before.id !== column.id
  const { fill: _, ...probe } = column
  const codec = compileTable(
    { ...table, columns: isConverted ? [before, probe] : [probe] },
    { limits, jsonAsText: false },
  )
  const visible = selectVisible(layoutOf(rows), codec)
  const [old, value] = [ident(physicalName(before)), ident(physicalName(column))]
  const find = (kind: Kind, condition: Sql, from: Sql = sql`(${visible}) r`) =>
    findRecords(transaction, { kind, condition, from, old: sql`r.${old}`, table, column })
  const problems: ColumnProblem[] = []
  if (isConverted) {
    problems.push(...(await find('conversion', sql`r.${old} is not null and r.${value} is null`)))
  }
  const fits = fitsSql(sql`r.${value}`, column, limits)
  if (fits !== undefined && (isConverted || narrows(before, column))) {
    problems.push(...(await find('limit', sql`not (${fits})`)))
  }
  const isRequired = column.notNull === true && column.fill === undefined
  if (isRequired && before.notNull !== true) {
    problems.push(...(await find('notNull', sql`r.${old} is null`)))
  }
  if (column.unique === true && (isConverted || before.unique !== true)) {
    const counted = sql`(
      select r.*, count(*) over (partition by r.${value}) as holders from (${visible}) r
    ) r`
    const repeated = sql`r.${value} is not null and r.holders > 1`
    problems.push(...(await find('unique', repeated, counted)))
  }
  if (column.link !== undefined && column.onDelete !== undefined && before.onDelete === undefined) {
    const isThere = hasRow(layoutOf(rows), column.link.tableId, sql`r.${value}`)
    problems.push(...(await find('link', sql`r.${value} is not null and not ${isThere}`)))
  }
  return problems
}

/** Finds the records that would have no value of a computed column. */
async function findUncomputed(
  transaction: Queryable,
  rows: BranchRows,
  {
    table,
    column,
    before,
    limits,
  }: { table: StoredTable; column: ComputedColumn; before?: StoredColumn; limits: Limits },
): Promise<ColumnProblem[]> {
  const codec = compileTable(table, { limits, jsonAsText: false }).stored
  const isFailed = failsCheck(
    checkOfComputed(column),
    (id) => sql`r.${ident(physicalName({ id }))}`,
  )
  const from = sql`(select * from (${selectVisible(layoutOf(rows), codec)}) v offset 0) r`
  const options = {
    kind: 'limit',
    condition: isFailed,
    from,
    old: before === undefined ? sql`null` : sql`r.${ident(physicalName(before))}`,
    table,
    column,
  } as const
  return findRecords(transaction, options).catch((error: unknown) => {
    if (!/^(22|42)/.test(codeOf(error) ?? '')) throw error
    const place = `table [${table.name}]: column [${column.name}]`
    const reason = isDataException(error)
      ? 'the expression cannot be evaluated for an existing record'
      : `the expression has no value of type [${column.type}]`
    throw new AppError('invalid_schema', `${place}: ${reason}`, { cause: error })
  })
}

/** Finds the records for which an expression has the value of another record. */
async function findRepeated(
  transaction: Queryable,
  rows: BranchRows,
  {
    table,
    column,
    before,
    limits,
  }: { table: StoredTable; column: ComputedColumn; before: StoredColumn; limits: Limits },
): Promise<ColumnProblem[]> {
  const codec = compileTable(table, { limits, jsonAsText: false }).stored
  const value = computedSql(column, (id) => sql`v.${ident(physicalName({ id }))}`)
  const from = sql`(
    select m.*, count(*) over (partition by m.made) as holders
    from (select v.*, ${value} as made from (${selectVisible(layoutOf(rows), codec)}) v offset 0) m
  ) r`
  const condition = sql`r.made is not null and r.holders > 1`
  const old = sql`r.${ident(physicalName(before))}`
  return findRecords(transaction, { kind: 'unique', condition, from, old, table, column })
}

async function findRecords(
  transaction: Queryable,
  options: {
    kind: Kind
    condition: Sql
    from: Sql
    /** The value that is shown. */
    old: Sql
    table: StoredTable
    column: StoredColumn
  },
): Promise<ColumnProblem[]> {
  const { kind, condition, from, old, table, column } = options
  // Equal values stand together.
  const order = kind === 'unique' ? sql`${old}, r.id` : sql`r.id`
  const found = await transaction.query<{ id: string; value: string | null; records: number }>(sql`
    select r.id, left(${old}::text, ${PROBLEM_VALUE_LENGTH_MAX}) as value,
      (count(*) over ())::integer as records
    from ${from}
    where ${condition}
    order by ${order}
    limit ${PROBLEM_RECORDS_MAX}`)
  const [first] = found
  if (first === undefined) return []
  return [
    {
      table: table.name,
      column: column.name,
      kind,
      records: first.records,
      samples: found.map(({ id, value }) => ({ id, ...(value === null ? {} : { value }) })),
      message: `table [${table.name}]: column [${column.name}]: ${describe(kind, column, first.records)}`,
    },
  ]
}

function describe(kind: Kind, { type }: StoredColumn, count: number): string {
  const records = count === 1 ? '1 record' : `${count} records`
  switch (kind) {
    case 'conversion':
      return `${records} ${count === 1 ? 'has' : 'have'} a value that does not convert to [${type}]`
    case 'limit':
      return `${records} ${count === 1 ? 'has' : 'have'} a value that the column could not have`
    case 'notNull':
      return `${records} ${count === 1 ? 'has' : 'have'} no value`
    case 'unique':
      return `${records} have a value that another record has`
    case 'link':
      return `${records} ${count === 1 ? 'links' : 'link'} to a record that does not exist`
  }
}

/** The error for a change that records do not allow. */
export function columnProblemsError(problems: readonly ColumnProblem[]): AppError {
  const described = problems.map(({ message, samples }) => {
    const ids = samples.slice(0, MESSAGE_RECORDS_MAX).map(({ id }) => `[${id}]`)
    return `${message}, such as ${ids.join(', ')}`
  })
  return new AppError('invalid_schema', `${described.join('; ')}. Nothing was changed`, {
    details: { problems },
  })
}
