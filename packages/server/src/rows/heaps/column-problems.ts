import {
  type ColumnProblem,
  PROBLEM_COUNT_MAX,
  PROBLEM_RECORDS_MAX,
  PROBLEM_VALUE_LENGTH_MAX,
} from '@offshoot/contract/column-problems'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { codeOf } from '../../postgres/failures.js'
import { empty, ident, type Sql, sql } from '../../postgres/sql.js'
import { physicalName } from '../columns/column-tree.js'
import {
  type ComputedColumn,
  checkOfComputed,
  computedSql,
  isComputed,
} from '../columns/computed-columns.js'
import { fitsSql, narrows, textOf } from '../columns/conversions.js'
import type { StoredColumn, StoredTable } from '../columns/stored-schema.js'
import { compileTable } from '../columns/table-codec.js'
import { failsCheck } from '../columns/table-rules.js'
import { idInRangeSql, isFewerBits } from '../columns/whole-numbers.js'
import { type BranchRows, layoutOf } from '../layout/layout.js'
import { joinVisible } from '../reading/arms.js'
import {
  type CheckedRows,
  type Rewriting,
  selectChecked,
  selectRepeated,
  selectUnlinked,
} from '../reading/checked-rows.js'
import { hasRow } from '../reading/has-row.js'
import { listFailing, tryEvaluating } from './failing-rows.js'

/** A column before and after a change. It has another id afterwards if its values are stored anew. */
export interface AlteredColumn {
  readonly table: StoredTable
  readonly before: StoredColumn
  readonly column: StoredColumn
  /** Where the values come from. undefined: they are those of before, converted. */
  readonly using?: Rewriting
}

/** The other states of a merge. The base has the column with its earlier type. */
export interface MergedStates {
  readonly base: BranchRows
  readonly other: BranchRows
}

/** Checks are judged like those of new constraints. */
type Kind = Exclude<ColumnProblem['kind'], 'check'>
/** The kinds of problems with values that are kept or converted. */
type RuleKind = Exclude<Kind, 'expression'>

/** Problems that the message of an error describes. */
const MESSAGE_RECORDS_MAX = 5
/** Values whose records the message counts. */
const MESSAGE_VALUES_MAX = 10

/** A column whose values are going to be made by an expression. */
interface MadeColumn {
  /** The table with the columns that the expression uses. */
  readonly table: StoredTable
  readonly column: ComputedColumn
  /** The column that has the values until then. */
  readonly before: StoredColumn
  readonly limits: Limits
}

/** Lists the rules that a change of a column adds for values that are stored already. */
function listAddedRules({ before, column }: AlteredColumn, limits: Limits): RuleKind[] {
  const isConverted = before.id !== column.id
  const isNew = (name: 'unique' | 'notNull') => column[name] === true && before[name] !== true
  const isLimited = fitsSql(sql`v`, column, limits) !== undefined
  // A value for records without one makes the column another one. The same column can have nulls beside its value for old rows.
  const isRequired = isNew('notNull') && !(isConverted && column.fill !== undefined)
  const isLinked = column.link !== undefined && column.onDelete !== undefined
  return [
    ...(isConverted ? (['conversion'] as const) : []),
    ...(isLimited && (isConverted || narrows(before, column)) ? (['limit'] as const) : []),
    ...(isRequired ? (['notNull'] as const) : []),
    ...(isNew('unique') || (isConverted && column.unique) ? (['unique'] as const) : []),
    ...(isLinked && before.onDelete === undefined ? (['link'] as const) : []),
  ]
}

/** Returns whether a change of a column needs all records of the table to be looked at. */
export function readsRecords(change: AlteredColumn, limits: Limits): boolean {
  if (change.using !== undefined || isComputed(change.column)) return true
  return listAddedRules(change, limits).length > 0
}

/**
 * Finds the records that do not allow a change of a column. Reads all checked rows of the table, if any rule is new. With
 * `merged`, values are left out that a merge does not take: only the other side has changed them.
 */
export async function findColumnProblems(
  transaction: Queryable,
  checked: CheckedRows,
  change: AlteredColumn & { limits: Limits; merged?: MergedStates | undefined },
): Promise<ColumnProblem[]> {
  const { table, before, column, using, limits, merged } = change
  if (using !== undefined) {
    const made = { ...column, computed: using.expression }
    const options = { table: { ...table, columns: using.columns }, column: made, before, limits }
    const failing = await findUncomputed(transaction, checked, options)
    // An expression that fails for a record has no values to compare.
    if (failing.some(({ kind }) => kind === 'expression') || !column.unique) return failing
    return [...failing, ...(await findRepeated(transaction, checked, options))]
  }
  // The value for records without one would hide values that do not convert.
  const { fill: _, ...probe } = column
  const codec = compileTable(
    { ...table, columns: before.id === column.id ? [column] : [before, probe] },
    { limits, jsonAsText: false },
  )
  const rows = selectChecked(checked, codec)
  const [old, name] = [ident(physicalName(before)), ident(physicalName(column))]
  const value = sql`r.${name}`
  const isLeft = merged === undefined ? empty : sql` and not ${isReplaced(change, merged)}`
  const find = (kind: Kind, isProblem: Sql, from: Sql = rows) => {
    const shown = { kind, old: { value: sql`r.${old}`, type: before.type }, table, column }
    const condition = sql`(${isProblem})${isLeft}`
    return findRecords(transaction, { ...shown, condition, from: sql`(${from}) r` })
  }
  const finders: Record<RuleKind, () => Promise<ColumnProblem[]>> = {
    conversion: () => find('conversion', sql`r.${old} is not null and ${value} is null`),
    limit: () => find('limit', sql`not (${fitsSql(value, column, limits) ?? sql`true`})`),
    notNull: () => find('notNull', sql`r.${old} is null`),
    unique() {
      const repeated = selectRepeated(checked, codec, { keyOf: (alias) => [sql`${alias}.${name}`] })
      return find('unique', sql`true`, repeated)
    },
    async link() {
      const tableId = column.link?.tableId ?? 0
      const isThere = hasRow(layoutOf(checked.rows), tableId, value)
      const isBroken = sql`${value} is not null and not ${isThere}`
      const broken = await find('link', isBroken)
      if (broken.length > 0 || checked.since === undefined) return broken
      return find('link', isBroken, selectUnlinked(checked, codec, { link: name, tableId }))
    },
  }
  const problems: ColumnProblem[] = []
  for (const kind of listAddedRules(change, limits)) problems.push(...(await finders[kind]()))
  return problems
}

/** A table before and after a change of the size of its ids. */
export interface ChangedIds {
  readonly table: StoredTable
  readonly before: Pick<StoredTable, 'idBits'>
}

/** Returns whether ids can be fewer numbers than before. */
export function narrowsIds({ before, table }: ChangedIds): boolean {
  return isFewerBits(before.idBits, table.idBits)
}

/** Finds the records whose ids do not fit any more. With `merged`, those are left out that the other side has deleted. */
export async function findIdProblems(
  transaction: Queryable,
  checked: CheckedRows,
  change: ChangedIds & { limits: Limits; merged?: MergedStates | undefined },
): Promise<ColumnProblem[]> {
  const { table, limits, merged } = change
  const { id: tableId, idBits } = table
  if (idBits === undefined || !narrowsIds(change)) return []
  const column = { id: tableId, name: 'id', type: 'int' } as const
  const codec = compileTable({ ...table, columns: [] }, { limits, jsonAsText: false })
  let condition = sql`not ${idInRangeSql(sql`r.id`, idBits)}`
  if (merged !== undefined) {
    const then = joinVisible(layoutOf(merged.base), codec, { id: sql`r.id`, alias: sql`b` })
    condition = sql`${condition} and (${hasRow(layoutOf(merged.other), tableId, sql`r.id`)}
      or not exists (
        select from (select) any_row ${then}
        where b.version = r.version and b.created_at = r.created_at))`
  }
  const from = sql`(${selectChecked(checked, codec)}) r`
  const kind = 'limit'
  const old = { value: sql`r.id`, type: 'string' } as const
  return findRecords(transaction, { kind, condition, from, old, table, column })
}

/**
 * Returns the condition that the row `r` has the value of the base, and that the other side has changed the row, or has
 * deleted it while the whole row is that of the base.
 */
function isReplaced(
  { table, before, limits }: AlteredColumn & { limits: Limits },
  { base, other }: MergedStates,
): Sql {
  const codec = compileTable({ ...table, columns: [before] }, { limits, jsonAsText: false })
  const then = joinVisible(layoutOf(base), codec, { id: sql`r.id`, alias: sql`b` })
  const name = ident(physicalName(before))
  return sql`exists (
    select from (select) any_row ${then}
    where b.${name}::text is not distinct from r.${name}::text
      and (${hasRow(layoutOf(other), table.id, sql`r.id`)}
        or b.version = r.version and b.created_at = r.created_at)
  )`
}

/** Finds the records for which an expression fails, or has no value that the column could have. */
async function findUncomputed(
  transaction: Queryable,
  checked: CheckedRows,
  { table, column, before, limits }: MadeColumn,
): Promise<ColumnProblem[]> {
  const codec = compileTable(table, { limits, jsonAsText: false }).stored
  const rows = selectChecked(checked, codec)
  const columnOf = (id: number) => sql`r.${ident(physicalName({ id }))}`
  const { notNull, ...optional } = column
  const unfit = failsCheck(checkOfComputed(optional, table), columnOf)
  const old = { value: sql`r.${ident(physicalName(before))}`, type: before.type }
  const shown = { old, table, column }
  // With an offset, the expression is not evaluated for rows that the branch does not see.
  const from = sql`(select * from (${rows}) v offset 0) r`
  const tried = await tryEvaluating(transaction, async () => {
    const found = await findRecords(transaction, {
      ...shown,
      kind: 'limit',
      condition: unfit,
      from,
    })
    if (!notNull) return found
    const condition = sql`(${computedSql(column, table, columnOf)}) is null`
    return [
      ...found,
      ...(await findRecords(transaction, { ...shown, kind: 'notNull', condition, from })),
    ]
  }).catch((error: unknown) => {
    if (!codeOf(error)?.startsWith('42')) throw error
    const place = `table [${table.name}]: column [${column.name}]`
    const reason = `the expression has no value of type [${column.type}]`
    throw new AppError('invalid_schema', `${place}: ${reason}`, { cause: error })
  })
  if ('result' in tried) return tried.result
  const failing = { rows, condition: unfit }
  const ids = await listFailing(transaction, failing, { limit: PROBLEM_RECORDS_MAX })
  return findRecords(transaction, {
    ...shown,
    kind: 'expression',
    condition: sql`r.id = any(${ids}::text[])`,
    from: sql`(${rows}) r`,
  })
}

/** Finds the records for which an expression has the value of another record. */
async function findRepeated(
  transaction: Queryable,
  checked: CheckedRows,
  { table, column, before, limits }: MadeColumn,
): Promise<ColumnProblem[]> {
  const codec = compileTable(table, { limits, jsonAsText: false }).stored
  const value = computedSql(column, table, (id) => sql`v.${ident(physicalName({ id }))}`)
  const repeated = selectRepeated(checked, codec, {
    rowsOf: (rows) => sql`select v.*, ${value} as made from (${rows}) v offset 0`,
    keyOf: (alias) => [sql`${alias}.made`],
  })
  const old = { value: sql`r.${ident(physicalName(before))}`, type: before.type }
  const from = sql`(${repeated}) r`
  return findRecords(transaction, {
    kind: 'unique',
    condition: sql`true`,
    from,
    old,
    table,
    column,
  })
}

async function findRecords(
  transaction: Queryable,
  options: {
    kind: Kind
    condition: Sql
    from: Sql
    /** The value that is shown. */
    old: { readonly value: Sql; readonly type: StoredColumn['type'] }
    table: StoredTable
    column: StoredColumn
  },
): Promise<ColumnProblem[]> {
  const { kind, condition, from, old, table, column } = options
  // Equal values stand together.
  const [key, order] =
    kind === 'unique' ? [sql`, ${old.value} as key`, sql`key, id`] : [empty, sql`id`]
  const found = await transaction.query<{ id: string; value: string | null; records: number }>(sql`
    select b.id, b.value, (count(*) over ())::integer as records
    from (
      select r.id, left(${textOf(old.value, old)}, ${PROBLEM_VALUE_LENGTH_MAX}) as value${key}
      from ${from}
      where ${condition}
      order by ${order}
      limit ${COUNTED}
    ) b
    order by ${order}
    limit ${PROBLEM_RECORDS_MAX}`)
  const [first] = found
  if (first === undefined) return []
  const counted = countOf(first.records)
  const isCounted = kind === 'limit' && column.type === 'enum' && old.type === 'enum'
  const values = isCounted
    ? await transaction.query<{ value: string; records: number }>(sql`
        select ${old.value} as value, count(*)::integer as records
        from ${from}
        where ${condition}
        group by 1
        order by 2 desc, 1`)
    : []
  const described = `${describe(kind, column, counted)}${describeValues(values)}`
  return [
    {
      table: table.name,
      column: column.name,
      kind,
      ...counted,
      samples: found.map(({ id, value }) => ({ id, ...(value === null ? {} : { value }) })),
      ...(isCounted && { values }),
      message: `table [${table.name}]: column [${column.name}]: ${described}`,
    },
  ]
}

/** Says how many records have each of several values. */
function describeValues(values: readonly { value: string; records: number }[]): string {
  if (values.length < 2) return ''
  const shown = values
    .slice(0, MESSAGE_VALUES_MAX)
    .map(({ value, records }) => `[${value}]: ${records}`)
  const rest = values.length - shown.length
  return ` (${shown.join(', ')}${rest > 0 ? `, and ${rest} more` : ''})`
}

type Counted = Pick<ColumnProblem, 'records' | 'more'>

/** The records that are counted, and one more. Counting all of a large table would take longer than finding them. */
export const COUNTED = PROBLEM_COUNT_MAX + 1

/** Returns how many records a problem has, if up to `COUNTED` of them were found. */
export function countOf(found: number): Counted {
  return found < COUNTED ? { records: found } : { records: PROBLEM_COUNT_MAX, more: true }
}

/** Returns words for the number of records. */
export function recordsIn({ records, more }: Counted): string {
  if (more) return `more than ${records} records`
  return records === 1 ? '1 record' : `${records} records`
}

function describe(kind: Kind, { type }: StoredColumn, found: Counted): string {
  const count = found.records
  const records = recordsIn(found)
  switch (kind) {
    case 'conversion':
      return `${records} ${count === 1 ? 'has' : 'have'} a value that does not convert to [${type}]`
    case 'expression': {
      const counted = count < PROBLEM_RECORDS_MAX ? records : `at least ${records}`
      return `the expression fails for ${counted}`
    }
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
