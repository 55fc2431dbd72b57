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

/** Selects the given rows as new rows, in the order of `rowColumns`. */
export function selectNewRows(parts: StatementParts): Sql {
  const values = parts.all.map((index) => parts.givenValue(index))
  return sql`
      select u.id, 0, now(), now(), ${parts.epoch}, false${furtherColumns(values)}
      from u`
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
      where ${isFree(parts, sql`u.id`)}
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
    on conflict (id) do update set ${parts.overwrite} where ${own}.deleted
    returning ${returning(returned)}`)
}

/**
 * Returns the condition that no row has an id. `on conflict` is enough, unless the table has checks: PostgreSQL checks the
 * row that it is about to insert before it finds the existing one.
 */
function isFree({ own, codec }: StatementParts, id: Sql): Sql {
  if (codec.checks.length === 0) return sql`true`
  return sql`not exists (select from ${own} o where o.id = ${id})`
}

/** Inserts rows whose ids were never used. */
export function insertNewStatement(parts: StatementParts): Statement {
  return compileStatement(sql`
    with ${parts.given(parts.all)}
    insert into ${parts.own} ${parts.rowColumns} ${selectNewRows(parts)}`)
}

/** Inserts the rows of a draft as they are. They replace tombstones. */
export function insertDraftStatement(parts: StatementParts, draft: Sql): Statement {
  const values = parts.names.map((name) => sql`d.${name}`)
  return compileStatement(sql`
    with u as (select d.id from ${draft} d where not d.deleted)${parts.keep(sql`select u.id from u`)}
    insert into ${parts.own} ${parts.rowColumns}
    select d.id, d.version, d.created_at, d.updated_at, ${parts.epoch}, false${furtherColumns(values)}
    from ${draft} d
    where not d.deleted
    on conflict (id) do update set ${parts.overwrite}`)
}

/** COPY of id, epoch and all columns. A taken id makes the statement fail. */
export function copyStatement({ own, names }: StatementParts): Statement {
  return compileStatement(sql`copy ${own} (id, epoch${furtherColumns(names)}) from stdin`)
}

/** Inserts one row, without array parameters. Returns the metadata, and no row if the id is taken. */
export function insertOneStatement(
  parts: StatementParts,
  { isNewId }: { isNewId: boolean },
): Statement {
  const { own, rowColumns, epoch, codec } = parts
  const values = codec.physical.map(
    (column, index) => sql`, ${slot(FIRST_COLUMN + index)}::${raw(column.sqlType)}`,
  )
  const isFreeId = isNewId ? sql`true` : isFree(parts, sql`${IDS}::text`)
  return compileStatement(sql`
    insert into ${own} ${rowColumns}
    select ${IDS}::text, 0, now(), now(), ${epoch}, false${join([empty, ...values], '')}
    where ${isFreeId}
    on conflict (id) do nothing
    returning ${returning('metadata')}`)
}
