import { empty, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import type { Arithmetic } from '../columns/record-encoder.js'
import { inRangeSql, wholeRange } from '../columns/whole-numbers.js'
import { joinForCopy, joinVisible } from '../reading/arms.js'
import {
  FIRST_COLUMN,
  furtherColumns,
  IDS,
  IF_VERSIONS,
  type Returned,
  returning,
  type StatementParts,
} from './statement-parts.js'

/** A change of some columns of existing rows. */
interface Change {
  /** Common table expression `u` with the ids of the rows. */
  readonly given: Sql
  /** The id of the row, if it is a single one whose values do not depend on `u`. */
  readonly id?: Sql
  /** The new value of each changed column, in terms of the row `r` and the input `u`. */
  readonly values: ReadonlyMap<number, Sql>
  /** Returns the condition for rows that are changed. Other rows are neither changed nor returned. */
  accepted(alias: Sql): Sql
  readonly returned: Returned
}

/** Changes the given columns of rows by id. Returns the ids. */
export function updateStatement(parts: StatementParts, columns: readonly number[]): Statement {
  return changeRows(parts, {
    given: parts.given(columns),
    values: new Map(columns.map((index) => [index, parts.givenValue(index)])),
    returned: 'id',
    accepted: (alias) => sql`(u.if_version is null or ${alias}.version = u.if_version)`,
  })
}

/**
 * Changes one row, also by arithmetic. The parameters are not arrays: PostgreSQL would prefer custom plans for
 * arrays of unknown length, and plan every call again. Returns no row if the result of arithmetic cannot be stored.
 */
export function updateOneStatement(
  parts: StatementParts,
  columns: readonly number[],
  arithmetic: readonly Arithmetic[],
): Statement {
  const { values, fits } = changedValues(parts, { columns, arithmetic })
  const accepted = (alias: Sql) =>
    sql`(${IF_VERSIONS}::bigint is null or ${alias}.version = ${IF_VERSIONS}::bigint) and ${fits(alias)}`
  const change: Change = {
    given: sql`u as (select ${IDS}::text as id)`,
    id: sql`${IDS}::text`,
    values,
    accepted,
    returned: 'metadata',
  }
  // Arithmetic must read the current row, which may be the own or an inherited one. So must checks: PostgreSQL checks
  // the row that it is about to insert before it finds the own one.
  const readsRow = arithmetic.length > 0 || parts.codec.checks.length > 0
  const canUpsert = !parts.isPlain && !parts.layout.hasForks && !readsRow
  return canUpsert ? upsertOwnRow(parts, change) : changeRows(parts, change)
}

/** The changed columns of an update, without their values. */
export interface ChangedColumns {
  readonly columns: readonly number[]
  readonly arithmetic: readonly Arithmetic[]
}

/**
 * Returns the new value of each changed column of a row `r`, and the condition that all results of arithmetic can be
 * stored. Values start at the first column, and operands follow them.
 */
export function changedValues(
  parts: StatementParts,
  { columns, arithmetic }: ChangedColumns,
): { values: ReadonlyMap<number, Sql>; fits(alias: Sql): Sql } {
  const operandsAt = FIRST_COLUMN + columns.length
  const resultOf = (alias: Sql, { column, operator }: Arithmetic, position: number) =>
    arithmeticValue(
      sql`${alias}.${parts.name(column)}`,
      operator,
      slot(operandsAt + position),
      parts.column(column),
    )
  const values = new Map([
    ...columns.map((index, position) => {
      const value = sql`${slot(FIRST_COLUMN + position)}::${raw(parts.sqlType(index))}`
      return [index, value] as const
    }),
    ...arithmetic.map(
      (term, position) => [term.column, resultOf(sql`r`, term, position).value] as const,
    ),
  ])
  const fits = (alias: Sql) =>
    join(
      [sql`true`, ...arithmetic.map((term, position) => resultOf(alias, term, position).fits)],
      ' and ',
    )
  return { values, fits }
}

/** Sets columns to null by id, as one step of a larger change. Does not change version and times. */
export function clearStatement(parts: StatementParts, columns: readonly number[]): Statement {
  const values = columns.map((index) => {
    return [index, sql`null::${raw(parts.sqlType(index))}`] as const
  })
  return changeRows(parts, {
    given: parts.given([]),
    values: new Map(values),
    accepted: () => sql`true`,
    returned: 'id',
    keepsVersion: true,
  })
}

function changeRows(
  parts: StatementParts,
  change: Change & { readonly keepsVersion?: boolean },
): Statement {
  const { layout, codec, own, epoch } = parts
  const { given, values, returned, keepsVersion = false } = change
  const version = keepsVersion ? sql`r.version` : sql`r.version + 1`
  const updatedAt = keepsVersion ? sql`r.updated_at` : sql`now()`
  const accepted = change.accepted(sql`r`)
  if (parts.isPlain) {
    const changes = [...values].map(([index, value]) => sql`, ${parts.name(index)} = ${value}`)
    const update = sql`
      update ${own} r
      set version = ${version}, updated_at = ${updatedAt},
        epoch = ${epoch}${join([empty, ...changes], '')}`
    if (change.id !== undefined && !layout.hasForks) {
      return compileStatement(sql`
        ${update}
        where r.id = ${change.id} and ${accepted}
        returning ${returning(returned, sql`r.`)}`)
    }
    const before = sql`u join ${own} o on o.id = u.id where ${change.accepted(sql`o`)}`
    return compileStatement(sql`
      with ${given}${parts.keepFrom(before)}
      ${update}
      from u
      where r.id = u.id and ${accepted}
      returning ${returning(returned, sql`r.`)}`)
  }
  const row = parts.all.map((index) => values.get(index) ?? sql`r.${parts.name(index)}`)
  return compileStatement(sql`
    with ${given},
    seen as (
      select r.id, ${version}, r.created_at, ${updatedAt}, ${epoch}, false${furtherColumns(row)}
      from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
      where ${accepted}
    )${parts.keep(sql`select id from seen`)}
    insert into ${own} ${parts.rowColumns}
    select * from seen
    on conflict (id) do update set ${parts.overwrite}
    returning ${returning(returned)}`)
}

/**
 * Changes one row on a branch that inherits rows and has no forks. An own row is not searched for, but found
 * by `on conflict`. In serializable transactions, searching for a missing row locks the index page where it
 * would be, which conflicts with every insert into that page. The index of a young fork has few pages.
 */
function upsertOwnRow(
  parts: StatementParts,
  { given, values, returned, accepted }: Change,
): Statement {
  const { layout, codec, own, epoch } = parts
  const row = parts.all.map((index) => values.get(index) ?? sql`r.${parts.name(index)}`)
  const changes = [...values.keys()].map((index) => {
    const name = parts.name(index)
    return sql`, ${name} = excluded.${name}`
  })
  return compileStatement(sql`
    with ${given}
    insert into ${own} as h ${parts.rowColumns}
    select r.id, r.version + 1, r.created_at, now(), ${epoch}, false${furtherColumns(row)}
    from u ${joinForCopy(layout, codec, { id: sql`u.id`, alias: sql`r`, accepted })}
    on conflict (id) do update
    set version = h.version + 1, updated_at = excluded.updated_at,
      epoch = excluded.epoch${join([empty, ...changes], '')}
    where not h.deleted and ${accepted(sql`h`)}
    returning ${returning(returned, sql`h.`)}`)
}

/**
 * Integers are calculated as numeric. The result must be a whole number of the size of the column. Floats
 * are calculated in double precision; PostgreSQL reports an overflow as an error. Decimals are rounded to their scale.
 */
function arithmeticValue(
  value: Sql,
  operator: Arithmetic['operator'],
  operand: ReturnType<typeof slot>,
  { sqlType, column: { decimal, bits } }: Pick<PhysicalColumn, 'sqlType' | 'column'>,
): { value: Sql; fits: Sql } {
  const sign = raw(operator)
  const exact = sql`(${value}::numeric ${sign} ${operand}::numeric)`
  if (decimal !== undefined) {
    const rounded = sql`round(${exact}, ${raw(String(decimal.scale))})`
    const bound = sql`10::numeric ^ ${raw(String(decimal.precision - decimal.scale))}`
    return { value: rounded, fits: sql`abs(${rounded}) < ${bound}` }
  }
  if (sqlType !== 'bigint') {
    return {
      value: sql`(${value} ${sign} ${operand}::double precision)`,
      fits: sql`${value} is not null`,
    }
  }
  return {
    value: sql`${exact}::bigint`,
    fits: sql`${exact} = trunc(${exact}) and ${inRangeSql(exact, wholeRange(bits))}`,
  }
}
