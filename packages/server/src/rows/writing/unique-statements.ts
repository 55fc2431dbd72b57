import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileSharing, compileStatement, type Statement, slot } from '../../postgres/statement.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import { type CheckRule, failsCheck, type UniqueKey } from '../columns/table-rules.js'
import { joinVisible, selectVisible } from '../reading/arms.js'
import { changedValues } from './change-statements.js'
import type { RowSet } from './set-statements.js'
import type { StatementParts } from './statement-parts.js'

/*
 * Statements that look for values of unique keys. The rows that a branch wrote have a unique index. Inherited rows are in
 * other tables, so they must be searched. The values are given as an array for each column of the key. A null in one of
 * them means that the row has no value of the key.
 */

/** Finds one of the given values among the inherited rows. */
export function inheritedValuesStatement(parts: StatementParts, key: UniqueKey): Statement {
  return compileStatement(sql`${matchingValues(parts, key, { isInherited: true })} limit 1`)
}

/** Finds the positions of the given values that already exist on the branch. */
export function visibleValuesStatement(parts: StatementParts, key: UniqueKey): Statement {
  return compileStatement(matchingValues(parts, key))
}

/** Finds the rows that have the given values: the positions of the values, and the ids. */
export function holdersStatement(parts: StatementParts, key: UniqueKey): Statement {
  const { layout, codec } = parts
  return compileStatement(sql`
    select g.ordinal - 1, r.id
    from ${givenValues(key)}
    cross join lateral (${selectVisible(layout, codec, { where: isGiven(parts, key) })}) r`)
}

function matchingValues(
  parts: StatementParts,
  key: UniqueKey,
  options: { isInherited?: boolean } = {},
): Sql {
  const { layout, codec } = parts
  const where = isGiven(parts, key)
  return sql`
    select g.ordinal - 1
    from ${givenValues(key)}
    where exists (${selectVisible(layout, codec, { ...options, where })})`
}

/** Returns the condition that a row has the given values of a key. */
function isGiven(
  parts: StatementParts,
  key: UniqueKey,
): (expressionOf: (column: PhysicalColumn) => Sql) => Sql {
  return (expressionOf) =>
    all(
      key.columns.map((index, position) => {
        const column = parts.column(index)
        return sql`${expressionOf(column)} = ${given(position)}::${raw(column.sqlType)}`
      }),
    )
}

const all = (conditions: readonly Sql[]): Sql => join(conditions, ' and ')

const given = (position: number): Sql => sql`g.${ident(`value ${position}`)}`

/** The given values as `g`. */
function givenValues({ columns }: Pick<UniqueKey, 'columns'>): Sql {
  const arrays = columns.map((_, position) => sql`${slot(position)}::text[]`)
  const names = columns.map((_, position) => ident(`value ${position}`))
  return sql`unnest(${join(arrays, ', ')}) with ordinality as g (${join(names, ', ')}, ordinal)`
}

/** Returns the id (slot 0) of an own row if an inherited row has the same value of the key. */
export function inheritedTwinStatement(parts: StatementParts, key: UniqueKey): Statement {
  return compileStatement(twins(parts, key, sql`mine.id = ${slot(0)}::text`))
}

/** Returns the id of an own row that the transaction has written, if an inherited row has the same value. */
export function inheritedTwinsStatement(parts: StatementParts, key: UniqueKey): Statement {
  const isWritten = sql`not mine.deleted and mine.updated_at = now()::timestamptz(3)`
  return compileStatement(sql`${twins(parts, key, isWritten)} limit 1`)
}

/** Returns the id of one of the own rows with the given ids (slot 0, an array), if an inherited row has the same value. */
export function inheritedTwinOfStatement(parts: StatementParts, key: UniqueKey): Statement {
  const isMine = sql`not mine.deleted and mine.id = any(${slot(0)}::text[])`
  return compileStatement(sql`${twins(parts, key, isMine)} limit 1`)
}

/** Selects the ids of own rows that meet a condition, and have the same value of the key as an inherited row. */
export function twins(parts: StatementParts, key: UniqueKey, isMine: Sql): Sql {
  const { layout, codec, own } = parts
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    all(
      key.columns.map((index) => {
        const column = parts.column(index)
        return sql`${expressionOf(column)} = mine.${ident(column.physicalName)}`
      }),
    )
  return sql`
    select mine.id
    from ${own} mine
    where ${isMine}
      and exists (${selectVisible(layout, codec, { isInherited: true, where })})`
}

/** Finds the positions of given values that equal an earlier one, and the position of the first of those. */
export function repeatedValuesStatement(parts: StatementParts, key: UniqueKey): Statement {
  const values = key.columns.map(
    (index, position) => sql`${given(position)}::${raw(parts.column(index).sqlType)}`,
  )
  const present = key.columns.map((_, position) => sql`${given(position)} is not null`)
  return compileStatement(sql`
    select r.ordinal - 1, r.first - 1
    from (
      select ordinal, min(ordinal) over (partition by ${join(values, ', ')}) as first
      from ${givenValues(key)}
      where ${all(present)}
    ) r
    where r.ordinal > r.first`)
}

/** Finds the positions of rows that fail a check. The values of its columns are given. */
export function failedValuesStatement(parts: StatementParts, check: CheckRule): Statement {
  const columnSql = (id: number) => {
    const position = check.columns.findIndex((index) => parts.column(index).id === id)
    const column = parts.column(check.columns[position] ?? 0)
    return sql`(${given(position)}::${raw(column.sqlType)})`
  }
  return compileStatement(sql`
    select g.ordinal - 1 from ${givenValues(check)} where ${failsCheck(check, columnSql)}`)
}

/**
 * Finds the positions of rows that fail a check. The ids and an array for each column are followed by an array for each
 * column that says whether a row gives it. What it does not give is that of the row that exists.
 */
export function failedRowsStatement(parts: StatementParts, check: CheckRule): Statement {
  const { layout, codec } = parts
  const width = check.columns.length
  const arrays = check.columns.map((_, position) => sql`${slot(1 + position)}::text[]`)
  const flags = check.columns.map((_, position) => sql`${slot(1 + width + position)}::boolean[]`)
  const names = check.columns.map((_, position) => ident(`value ${position}`))
  const flagNames = check.columns.map((_, position) => ident(`is given ${position}`))
  const columnSql = (id: number) => {
    const position = check.columns.findIndex((index) => parts.column(index).id === id)
    const index = check.columns[position] ?? 0
    const value = sql`${given(position)}::${raw(parts.sqlType(index))}`
    return sql`(case when g.${flagNames[position] ?? empty} or r.id is null then ${value} else r.${parts.name(index)} end)`
  }
  return compileStatement(sql`
    select g.ordinal - 1
    from unnest(${join([sql`${slot(0)}::text[]`, ...arrays, ...flags], ', ')})
      with ordinality as g (${join([sql`id`, ...names, ...flagNames, sql`ordinal`], ', ')})
    ${joinVisible(layout, codec, { id: sql`g.id`, alias: sql`r`, outer: true })}
    where ${failsCheck(check, columnSql)}`)
}

/**
 * Finds which of the given rows was to get the value of a key that is taken, and returns its id and the value of each column.
 * The ids and an array for each column are followed by an array for each column that says whether a row gives it, and by the
 * values of the key as PostgreSQL writes them together, or null for any. With `readsRows`, what a row does not give is that
 * of the row that exists.
 */
export function takerStatement(
  parts: StatementParts,
  key: UniqueKey,
  { readsRows }: { readsRows: boolean },
): Statement {
  const { layout, codec } = parts
  const width = key.columns.length
  const arrays = key.columns.map((_, position) => sql`${slot(1 + position)}::text[]`)
  const flags = key.columns.map((_, position) => sql`${slot(1 + width + position)}::boolean[]`)
  const names = key.columns.map((_, position) => ident(`value ${position}`))
  const flagNames = key.columns.map((_, position) => ident(`is given ${position}`))
  const existing = key.columns.map((index) => sql`r.${parts.name(index)}`)
  const values = key.columns.map((index, position) => {
    const value = sql`${given(position)}::${raw(parts.sqlType(index))}`
    if (!readsRows) return value
    return sql`case when g.${flagNames[position] ?? empty} then ${value} else ${existing[position] ?? empty} end`
  })
  const row = readsRows
    ? joinVisible(layout, codec, { id: sql`g.id`, alias: sql`r`, outer: true })
    : empty
  const isKept = readsRows
    ? all(
        values.map(
          (value, position) => sql`${value} is not distinct from ${existing[position] ?? empty}`,
        ),
      )
    : sql`false`
  const written = key.columns.map((_, position) => sql`t.${names[position] ?? empty}`)
  const text = sql`${slot(1 + 2 * width)}::text`
  return compileStatement(sql`
    select t.id, ${join(
      written.map((value) => sql`concat(${value})`),
      ', ',
    )}
    from (
      select g.id, g.ordinal, ${isKept} as kept,
        ${join(
          values.map((value, position) => sql`${value} as ${names[position] ?? empty}`),
          ', ',
        )}
      from unnest(${join([sql`${slot(0)}::text[]`, ...arrays, ...flags], ', ')})
        with ordinality as g (${join([sql`id`, ...names, ...flagNames, sql`ordinal`], ', ')})
      ${row}
    ) t
    where ${all(written.map((value) => sql`${value} is not null`))}
      and (${text} is null or concat_ws(', ', ${join(written, ', ')}) = ${text})
    order by t.kept, t.ordinal desc
    limit 1`)
}

/**
 * Finds a row of a set that cannot get its new value of a key, because another row has it or would get it, too. Returns its
 * id and the value of each column. The changed values are where a statement for the set has them.
 */
export function setTakerStatement(
  parts: StatementParts,
  key: UniqueKey,
  { columns, set }: { columns: readonly number[]; set: RowSet },
): Statement {
  const { layout, codec } = parts
  const { values } = changedValues(parts, { columns, arithmetic: [] })
  const names = key.columns.map((_, position) => ident(`value ${position}`))
  const news = key.columns.map((index) => values.get(index) ?? sql`r.${parts.name(index)}`)
  const isChanged = join(
    key.columns.map(
      (index, position) => sql`${news[position] ?? empty} is distinct from r.${parts.name(index)}`,
    ),
    ' or ',
  )
  const written = names.map((name) => sql`t.${name}`)
  const where = (expressionOf: (column: PhysicalColumn) => Sql) =>
    all(
      key.columns.map(
        (index, position) =>
          sql`${expressionOf(parts.column(index))} = ${written[position] ?? empty}`,
      ),
    )
  return compileSharing(sql`
    with found as (${set.select(key.columns)}),
    renewed as (
      select r.id, ${isChanged} as changed,
        ${join(
          news.map((value, position) => sql`${value} as ${names[position] ?? empty}`),
          ', ',
        )},
        count(*) over (partition by ${join(news, ', ')}) as count
      from found r
    )
    select t.id, ${join(
      written.map((value) => sql`concat(${value})`),
      ', ',
    )}
    from renewed t
    where t.changed and ${all(written.map((value) => sql`${value} is not null`))}
      and (
        t.count > 1
        or exists (select from (${selectVisible(layout, codec, { where })}) o where o.id <> t.id)
      )
    order by t.id
    limit 1`)
}
