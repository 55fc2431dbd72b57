import { empty, join, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement } from '../../postgres/statement.js'
import { joinVisible } from '../reading/arms.js'
import { selectNewRows } from './insert-statements.js'
import { furtherColumns, type Returned, returning, type StatementParts } from './statement-parts.js'

/*
 * Statements that write whole rows by id, and insert or replace them. `given` defines the rows as `u`. The
 * returned metadata ends with a boolean: whether the row existed before.
 */

/** For rows without an expected version. */
export function replaceAnyStatement(
  parts: StatementParts,
  returned: Returned,
  given = parts.given(parts.all),
): Statement {
  // Without forks and inherited rows, PostgreSQL's own upsert is enough.
  if (!parts.isPlain || parts.layout.hasForks) return replaceStatement(parts, returned, given)
  const isPresent = returned === 'metadata' ? sql`, xmax <> 0` : empty
  const changes = parts.names.map((name) => sql`, ${name} = excluded.${name}`)
  return compileStatement(sql`
    with ${given}
    insert into ${parts.own} as h ${parts.rowColumns}
    ${selectNewRows(parts)}
    on conflict (id) do update
    set version = h.version + 1, updated_at = excluded.updated_at,
      epoch = excluded.epoch${join([empty, ...changes], '')}
    returning ${returning(returned)}${isPresent}`)
}

/** A row that does not have the expected version is neither changed nor returned. */
export function replaceStatement(
  parts: StatementParts,
  returned: Returned,
  given = parts.given(parts.all),
): Statement {
  const { layout, codec, own } = parts
  const result =
    returned === 'id'
      ? sql`select id from written`
      : sql`
        select w.id, w.version, w.created_at, w.updated_at, s.id is not null
        from written w
        left join seen s on s.id = w.id`
  const accepted = sql`u.if_version is null or s.id is null or s.version = u.if_version`
  const values = parts.all.map((index) => parts.givenValue(index))
  return compileStatement(sql`
    with ${given},
    seen as (
      select r.id, r.version, r.created_at
      from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
    )${parts.keep(sql`select u.id from u left join seen s on s.id = u.id where ${accepted}`)},
    written as (
      insert into ${own} ${parts.rowColumns}
      select u.id, coalesce(s.version + 1, 0),
        coalesce(s.created_at, now()), now(), ${parts.epoch}, false${furtherColumns(values)}
      from u
      left join seen s on s.id = u.id
      where ${accepted}
      -- In the given order, because a unique value may move from a row to a later one.
      order by u.ordinal
      on conflict (id) do update set ${parts.overwrite}
      returning ${returning('metadata')}
    )
    ${result}`)
}
