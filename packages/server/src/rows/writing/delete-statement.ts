import { type Sql, sql } from '../../postgres/sql.js'
import { compileStatement, type Slot, type Statement } from '../../postgres/statement.js'
import { joinVisible } from '../reading/arms.js'
import { IDS, type StatementParts } from './statement-parts.js'

/** Deletes rows by id. Returns the ids of deleted rows. `ids` is an array, by default a parameter. */
export function deleteStatement(parts: StatementParts, ids: Sql | Slot = IDS): Statement {
  const { layout, codec, own } = parts
  if (parts.isPlain && !layout.hasForks) {
    return compileStatement(sql`
      delete from ${own} where id = any(${ids}::text[]) returning id`)
  }
  if (parts.isPlain) {
    return compileStatement(sql`
      with gone as (delete from ${own} where id = any(${ids}::text[]) returning *),
      kept as (${parts.keepGone()})
      select id from gone`)
  }
  // The branch inherits rows, so a tombstone must hide them. It has no values: those of a column that is removed
  // later would return with a new record of the same id, and a unique index that forks still read by refuses them.
  return compileStatement(sql`
    with u as (select unnest(${ids}::text[]) as id),
    seen as (
      select r.id, r.created_at, now() as updated_at, ${parts.epoch} as epoch
      from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}
    )${parts.keep(sql`select id from seen`)}
    insert into ${own} (id, created_at, updated_at, epoch, deleted)
    select id, created_at, updated_at, epoch, true from seen
    on conflict (id) do update
    set updated_at = excluded.updated_at, epoch = excluded.epoch, deleted = true${parts.clear}
    returning id`)
}
