import { join, sql } from '../../postgres/sql.js'
import { compileStatement, type Statement, slot } from '../../postgres/statement.js'
import { joinVisible } from '../reading/arms.js'
import { selectNewRows } from './insert-statements.js'
import { furtherColumns, type StatementParts } from './statement-parts.js'

/**
 * Inserts rows, or changes the given columns of those whose id exists. A row that already has the values is left as it
 * is. Returns the id of each written row, and whether it existed.
 */
export function upsertStatement(parts: StatementParts, columns: readonly number[]): Statement {
  const { layout, codec, own, epoch } = parts
  // PostgreSQL checks the row that it is about to insert before it finds the existing one.
  const isSimple = parts.isPlain && !layout.hasForks && codec.checks.length === 0
  if (isSimple) return upsertOwnRows(parts, columns)
  const written = withUpdatedAt(parts, columns)
  const isChanged = columns.map(
    (index) => sql`r.${parts.name(index)} is distinct from ${parts.givenValue(index)}`,
  )
  const row = parts.all.map((index) => {
    const [name, given] = [parts.name(index), parts.givenValue(index)]
    const value = written.includes(index)
      ? given
      : sql`case when r.id is null then ${given} else r.${name} end`
    return sql`${value} as ${name}`
  })
  const names = furtherColumns(parts.names)
  return compileStatement(sql`
    with ${parts.given(parts.all)},
    changed as (
      select u.id, r.id is not null as existed, coalesce(r.version + 1, 0) as version,
        coalesce(r.created_at, now()) as created_at${furtherColumns(row)}
      from u ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r`, outer: true })}
      where ${join([sql`r.id is null`, ...isChanged], ' or ')}
    )${parts.keep(sql`select id from changed`)},
    written as (
      insert into ${own} ${parts.rowColumns}
      select id, version, created_at, now(), ${epoch}, false${names} from changed
      on conflict (id) do update set ${parts.overwrite}
    )
    select id, existed from changed`)
}

/** Without forks and inherited rows, PostgreSQL's own upsert is enough. */
function upsertOwnRows(parts: StatementParts, columns: readonly number[]): Statement {
  const names = columns.map((index) => parts.name(index))
  const changes = withUpdatedAt(parts, columns).map((index) => {
    return sql`${parts.name(index)} = excluded.${parts.name(index)}`
  })
  const isChanged = names.map((name) => sql`h.${name} is distinct from excluded.${name}`)
  return compileStatement(sql`
    with ${parts.given(parts.all)}
    insert into ${parts.own} as h ${parts.rowColumns}
    ${selectNewRows(parts)}
    on conflict (id) do update
    set version = h.version + 1, updated_at = excluded.updated_at,
      epoch = excluded.epoch${furtherColumns(changes)}
    where ${join([sql`false`, ...isChanged], ' or ')}
    returning h.id, xmax <> 0`)
}

/** Returns which of the given ids the heap has, as one text. */
export function presentIdsStatement({ own }: StatementParts): Statement {
  return compileStatement(sql`
    select string_agg(h.id, ' ')
    from ${own} h
    where h.id = any(${slot(0)}::text[])`)
}

/** Returns the columns that change with others, too. */
function withUpdatedAt({ all, codec }: StatementParts, columns: readonly number[]): number[] {
  const isTouched = (index: number) => codec.physical[index]?.column.generate === 'updatedAt'
  return [...new Set([...columns, ...all.filter(isTouched)])]
}
