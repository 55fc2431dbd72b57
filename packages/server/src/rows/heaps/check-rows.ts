import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import { codeOf } from '../../postgres/failures.js'
import { ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { physicalName } from '../columns/column-tree.js'
import { COLUMN_TYPE_ENTRIES } from '../columns/column-types.js'
import {
  listAllColumns,
  type StoredConstraint,
  type StoredTable,
} from '../columns/stored-schema.js'
import { compileTable, type TableCodec } from '../columns/table-codec.js'
import { failsCheck } from '../columns/table-rules.js'
import type { Layout } from '../layout/layout.js'
import { selectVisible } from '../reading/arms.js'

/** Rows of a table on a branch that break a rule. */
interface Breakers {
  readonly table: StoredTable
  readonly constraint: StoredConstraint
  readonly limits: Limits
}

/** Throws if rows of the branch break a constraint. The error lists the first of them. */
export async function requireKept(
  database: Queryable,
  layout: Layout,
  { table, constraint, limits }: Breakers,
): Promise<void> {
  if ('check' in constraint) await requireCheckable(database, table, constraint)
  const codec = compileTable(table, { limits, jsonAsText: false })
  const broken = selectBreakers(layout, codec, constraint)
  const listedMax = limits.violationsListedMax
  const found = await database
    .query<{ id: string }>(sql`
      select b.id from (${broken}) b order by b.id limit ${listedMax + 1}`)
    .catch((error: unknown) => {
      if (!isDataException(error)) throw error
      const reason = 'the check cannot be evaluated for an existing record'
      throw uncheckable(table, constraint, { reason, cause: error })
    })
  if (found.length === 0) return
  const ids = found.slice(0, listedMax).map(({ id }) => id)
  const more = found.length > listedMax ? ' and more' : ''
  const fault = 'check' in constraint ? 'fail the check' : 'have values that other records have'
  throw new AppError(
    'constraint_violated',
    `table [${table.name}]: constraint [${constraint.name}]: cannot be added: records ${fault}: ${ids.join(', ')}${more}`,
    { details: { table: table.name, constraint: constraint.name, records: ids } },
  )
}

/** Selects the ids of the rows that break a constraint. */
function selectBreakers(layout: Layout, codec: TableCodec, constraint: StoredConstraint): Sql {
  const columnSql = (id: number) => sql`r.${ident(physicalName({ id }))}`
  const rows = sql`(${selectVisible(layout, codec)}) r`
  const check = codec.checks.find(({ id }) => id === constraint.id)
  if (check !== undefined)
    return sql`select r.id from ${rows} where ${failsCheck(check, columnSql)}`
  const ids = 'unique' in constraint ? constraint.unique : []
  const present = ids.map((id) => sql`${columnSql(id)} is not null`)
  return sql`
    select g.id
    from (
      select r.id, count(*) over (partition by ${join(ids.map(columnSql), ', ')}) as holders
      from ${rows}
      where ${join(present, ' and ')}
    ) g
    where g.holders > 1`
}

/** The result of an expression depends on more than its row. */
const NOT_IMMUTABLE = '42P17'
const MUTABLE = 'its result depends on more than the record, such as the time or a time zone'

/**
 * Throws if PostgreSQL does not accept the expression of a check as a condition that depends on the row alone. A
 * generated column of an empty table must be one.
 */
async function requireCheckable(
  database: Queryable,
  table: StoredTable,
  constraint: Extract<StoredConstraint, { readonly check: unknown }>,
): Promise<void> {
  const columns = listAllColumns(table.columns).map(
    (column) =>
      sql`${ident(physicalName(column))} ${raw(COLUMN_TYPE_ENTRIES[column.type].sqlType)}`,
  )
  const rule = { ...constraint, expression: constraint.check.sql, columns: [] }
  const fails = failsCheck(rule, (id) => ident(physicalName({ id })))
  const probe = ident(`check ${constraint.id}`)
  await database.query(sql`savepoint checkable`)
  try {
    await database.query(sql`
      create temporary table ${probe} (
        ${join(columns, ', ')}, fails boolean generated always as (${fails}) stored
      ) on commit drop`)
  } catch (error) {
    const code = codeOf(error)
    if (code === undefined || !/^(22|42)/.test(code)) throw error
    const reason = code === NOT_IMMUTABLE ? MUTABLE : messageOf(error)
    throw uncheckable(table, constraint, { reason, cause: error })
  }
  await database.query(sql`rollback to savepoint checkable`)
}

function isDataException(error: unknown): boolean {
  return codeOf(error)?.startsWith('22') === true
}

function uncheckable(
  table: StoredTable,
  { name }: StoredConstraint,
  { reason, cause }: { reason: string; cause: unknown },
): AppError {
  return new AppError('invalid_schema', `table [${table.name}]: constraint [${name}]: ${reason}`, {
    cause,
  })
}

/** Returns the message of PostgreSQL, without the names by which columns are stored. */
function messageOf(cause: unknown): string {
  const message = cause instanceof Error ? cause.message : ''
  return /"?c\d+"?/.test(message) ? 'the expression is not a condition' : message
}
