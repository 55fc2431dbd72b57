import { empty, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import { joinVisible } from '../reading/arms.js'
import {
  FIRST_COLUMN,
  furtherColumns,
  IDS,
  type Returned,
  returning,
  type StatementParts,
} from './statement-parts.js'

/** Selects the given rows as new rows, in the order of `rowColumns`. By default, ids may have been used before. */
export function selectNewRows(
  parts: StatementParts,
  { isNewId = false }: { isNewId?: boolean } = {},
): Sql {
  const values = parts.all.map((index) => parts.givenValue(index))
  const [version, joined] = isNewId
    ? [sql`0`, empty]
    : [sql`f.version`, parts.joinFirstVersion(sql`u.id`)]
  return sql`
      select u.id, ${version}, now(), now(), ${parts.epoch}, false${furtherColumns(values)}
      from u ${joined}`
}

/** Inserts rows, which `given` defines as `u`. Returns no row for an id that is taken. */
export function insertStatement(
  parts: StatementParts,
  returned: Returned,
  given = parts.given(parts.all),
): Statement {
  const { layout, codec, own } = parts
  const insert = sql`insert into ${own} ${parts.rowColumns} ${selectNewRows(parts)}`
  if (parts.isPlain) {
    return compileStatement(sql`
      with ${given} ${insert}
      on conflict (id) do nothing
      returning ${returning(returned)}`)
  }
  // The new row replaces a tombstone.
  return compileStatement(sql`
    with ${given},
    seen as (
      select u.id from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
    )${parts.keep(sql`select u.id from u where u.id not in (select id from seen)`)}
    ${insert}
    where u.id not in (select id from seen)
    on conflict (id) do update set ${parts.overwriteAny} where ${own}.deleted
    returning ${returning(returned)}`)
}

/** Inserts rows whose ids were never used. */
export function insertNewStatement(parts: StatementParts): Statement {
  return compileStatement(sql`
    with ${parts.given(parts.all)}
    insert into ${parts.own} ${parts.rowColumns} ${selectNewRows(parts, { isNewId: true })}`)
}

/** COPY of id, version, epoch and all columns. A taken id makes the statement fail. */
export function copyStatement({ own, names }: StatementParts): Statement {
  return compileStatement(sql`copy ${own} (id, version, epoch${furtherColumns(names)}) from stdin`)
}

/** Reads the floors of versions, and whether some deleted rows have entries of their own. */
export function floorsStatement({ selectFloors }: StatementParts): Statement {
  return compileStatement(selectFloors)
}

/** Inserts one row, without array parameters. Returns the metadata. */
export function insertOneStatement(
  parts: StatementParts,
  options: { isNewId: boolean },
): Statement {
  const { own, rowColumns, epoch } = parts
  const { physical } = parts.codec
  const values = physical.map(
    (column, index) => sql`, ${slot(FIRST_COLUMN + index)}::${raw(column.sqlType)}`,
  )
  const row = (version: Sql) =>
    sql`${IDS}::text, ${version}, now(), now(), ${epoch}, false${join([empty, ...values], '')}`
  const source = options.isNewId
    ? sql`values (${row(sql`0`)})`
    : sql`
      select ${row(sql`f.version`)}
      from (select) one ${parts.joinFirstVersion(sql`${IDS}::text`)}`
  return compileStatement(sql`
    insert into ${own} ${rowColumns}
    ${source}
    on conflict (id) do nothing
    returning ${returning('metadata')}`)
}
