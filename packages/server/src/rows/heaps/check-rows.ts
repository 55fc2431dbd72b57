import { type ColumnProblem, PROBLEM_RECORDS_MAX } from '@offshoot/contract/column-problems'
import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { codeOf } from '../../postgres/failures.js'
import { ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { physicalName } from '../columns/column-tree.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import { isComputed, listStoredChecks, type StoredCheck } from '../columns/computed-columns.js'
import {
  listAllColumns,
  type StoredColumn,
  type StoredConstraint,
  type StoredTable,
} from '../columns/stored-schema.js'
import { compileTable, type TableCodec } from '../columns/table-codec.js'
import { failsCheck } from '../columns/table-rules.js'
import { type CheckedRows, selectChecked, selectRepeated } from '../reading/checked-rows.js'
import { COUNTED, countOf } from './column-problems.js'
import { listFailing, tryEvaluating } from './failing-rows.js'

/** Rows of a table on a branch that break a rule. */
interface Breakers {
  readonly table: StoredTable
  readonly rule: Rule
  readonly limits: Limits
  /** The column whose change makes the rule a new one. */
  readonly altered?: StoredColumn | undefined
}

/** A unique constraint, or a check: of a constraint, or of the values of a computed column. */
type Rule = Extract<StoredConstraint, { readonly unique: unknown }> | StoredCheck

/** Lists the rules that the rows of a table have to keep for its constraints and computed columns. */
export function listRules(table: StoredTable): Rule[] {
  return [
    ...(table.constraints ?? []).filter((each) => 'unique' in each),
    ...listStoredChecks(table),
  ]
}

/**
 * Throws if rows break a constraint, or if it cannot be evaluated for them. The error lists the first of them, and has the
 * problem of the altered column, or of the rule itself.
 */
export async function requireKept(
  database: Queryable,
  checked: CheckedRows,
  { table, rule, limits, altered }: Breakers,
): Promise<void> {
  if ('expression' in rule) await requireCheckable(database, table, rule)
  const codec = compileTable(table, { limits, jsonAsText: false }).stored
  const listedMax = limits.violationsListedMax
  const limit = Math.max(listedMax + 1, PROBLEM_RECORDS_MAX)
  const error = { listedMax, altered }
  const tried = await tryEvaluating(database, () =>
    database.query<{ id: string; records: number }>(sql`
      select b.id, (count(*) over ())::integer as records
      from (
        select s.id from (${selectBreakers(checked, codec, rule)}) s
        order by s.id
        limit ${COUNTED}
      ) b
      order by b.id
      limit ${limit}`),
  )
  if ('failure' in tried) {
    const what = isOfColumn(rule) ? 'expression' : 'check'
    const ids = await listUnevaluated(database, checked, { codec, rule, limit })
    const fault = `the ${what} cannot be evaluated for existing records`
    throw violated(table, rule, {
      ...error,
      ...{ code: 'invalid_schema', kind: 'expression', fault, ids, found: ids.length },
    })
  }
  const [first] = tried.result
  if (first === undefined) return
  throw violated(table, rule, {
    ...error,
    code: 'constraint_violated',
    kind: !('expression' in rule) ? 'unique' : isOfColumn(rule) ? 'limit' : 'check',
    fault: faultOf(rule),
    ids: tried.result.map(({ id }) => id),
    found: first.records,
  })
}

function listUnevaluated(
  database: Queryable,
  checked: CheckedRows,
  { codec, rule, limit }: { codec: TableCodec; rule: Rule; limit: number },
): Promise<string[]> {
  if (!('expression' in rule)) return Promise.resolve([])
  const evaluated = { rows: selectChecked(checked, codec), condition: failsCheck(rule, columnOf) }
  return listFailing(database, evaluated, { limit })
}

/** The error of a rule that records do not allow. It lists no more than `listedMax` of them. */
function violated(
  table: StoredTable,
  rule: Rule,
  options: {
    code: 'constraint_violated' | 'invalid_schema'
    kind: ColumnProblem['kind']
    fault: string
    ids: readonly string[]
    /** How many records were found. */
    found: number
    listedMax: number
    altered: StoredColumn | undefined
  },
): AppError {
  const { code, kind, fault, ids, listedMax, altered } = options
  const records = ids.slice(0, listedMax)
  const more = ids.length > listedMax ? ' and more' : ''
  const details = { table: table.name, [isOfColumn(rule) ? 'column' : 'constraint']: rule.name }
  const message = `table [${table.name}]: ${placeOf(rule)}: ${fault}`
  const problem: ColumnProblem = {
    table: table.name,
    ...(altered || isOfColumn(rule)
      ? { column: (altered ?? rule).name }
      : { constraint: rule.name }),
    ...{ kind, ...countOf(options.found) },
    samples: ids.slice(0, PROBLEM_RECORDS_MAX).map((id) => ({ id })),
    message,
  }
  return new AppError(code, `${message}: ${records.join(', ')}${more}`, {
    details: { ...details, records, problems: [problem] },
  })
}

function isOfColumn(rule: Rule): boolean {
  return 'expression' in rule && rule.computed !== undefined
}

const placeOf = (rule: Rule): string =>
  `${isOfColumn(rule) ? 'column' : 'constraint'} [${rule.name}]`

function faultOf(rule: Rule): string {
  if (!('expression' in rule)) return 'cannot be added: records have values that other records have'
  if (rule.computed === undefined) return 'cannot be added: records fail the check'
  return `records would have no value of type [${rule.computed.type}]`
}

const columnOf = (id: number): Sql => sql`r.${ident(physicalName({ id }))}`

/** Selects the ids of the rows that break a constraint. */
function selectBreakers(checked: CheckedRows, codec: TableCodec, rule: Rule): Sql {
  if ('expression' in rule) {
    // With an offset, no condition is evaluated for rows that the branch does not see.
    return sql`
      select r.id from (select * from (${selectChecked(checked, codec)}) v offset 0) r
      where ${failsCheck(rule, columnOf)}`
  }
  const keyOf = (alias: Sql) =>
    rule.unique.map((id) => sql`${alias}.${ident(physicalName({ id }))}`)
  return sql`select r.id from (${selectRepeated(checked, codec, { keyOf })}) r`
}

/** The result of an expression depends on more than its row. */
const NOT_IMMUTABLE = '42P17'
const MUTABLE = 'its result depends on more than the record, such as the time or a time zone'

/**
 * Throws if PostgreSQL does not accept the expression of a check as a condition that depends on the row alone. A
 * generated column of an empty table must be one. What is evaluated once may depend on settings, which are always the same.
 */
export async function requireCheckable(
  database: Queryable,
  table: StoredTable,
  rule: StoredCheck,
): Promise<void> {
  const columns = listAllColumns(table.columns.filter((column) => !isComputed(column))).map(
    (column) =>
      sql`${ident(physicalName(column))} ${raw(COLUMN_TYPE_ENTRIES[column.type].sqlType)}`,
  )
  const fails = failsCheck(rule, (id) => ident(physicalName({ id })))
  const probe = ident(`check ${rule.id}`)
  await database.query(sql`savepoint checkable`)
  const condition =
    rule.computed?.computed.isOnce === true
      ? sql`check (${fails})`
      : sql`fails boolean generated always as (${fails}) stored`
  try {
    await database.query(sql`
      create temporary table ${probe} (${join(columns, ', ')}, ${condition}) on commit drop`)
  } catch (error) {
    const code = codeOf(error)
    if (code === undefined || !/^(22|42)/.test(code)) throw error
    const reason = code === NOT_IMMUTABLE ? MUTABLE : messageOf(error, rule)
    throw uncheckable(table, rule, { reason, cause: error })
  }
  await database.query(sql`rollback to savepoint checkable`)
}

function uncheckable(
  table: StoredTable,
  rule: Rule,
  { reason, cause }: { reason: string; cause: unknown },
): AppError {
  return new AppError('invalid_schema', `table [${table.name}]: ${placeOf(rule)}: ${reason}`, {
    cause,
  })
}

/** Messages of PostgreSQL about SQL that the service has written around an expression, and their meaning for the expression. */
const MEANINGS: readonly (readonly [RegExp, string])[] = [
  [
    /^argument of IS FALSE must be type boolean, not type (.*)$/,
    'a condition has type boolean, and not $1',
  ],
  [
    /^collations are not supported by type (.*)$/,
    'a function or an operator for texts gets a value of type $1',
  ],
  [/^(function )pg_catalog\.(.*)$/, '$1$2'],
]

/** Returns the message of PostgreSQL, without what only the service has written. */
function messageOf(cause: unknown, { computed }: StoredCheck): string {
  const message = cause instanceof Error ? cause.message : ''
  const [pattern, meaning = ''] = MEANINGS.find(([each]) => each.test(message)) ?? []
  if (pattern !== undefined) return message.replace(pattern, meaning)
  // The names by which columns are stored.
  if (!/\bc\d+\b/.test(message)) return message
  return computed === undefined
    ? 'the expression is not a condition'
    : `the expression has no value of type [${computed.type}]`
}
