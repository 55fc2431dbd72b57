import { empty, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { compileSharing, type Parameter, type Statement, slot } from '../../postgres/statement.js'
import { type CheckRule, failsCheck } from '../columns/table-rules.js'
import { joinVisible } from '../reading/arms.js'
import { type ChangedColumns, changedValues } from './change-statements.js'
import { selectStep } from './failing-calls.js'
import { furtherColumns, type StatementParts } from './statement-parts.js'

/*
 * Statements that write all rows that a query finds, whatever their number. Rows that the branch inherits are copied
 * to its own heap with the change, or hidden by tombstones there. Each statement returns the number of written rows.
 */

/** The rows to write. */
export interface RowSet {
  /**
   * Returns a query for them, each once and as the branch sees it: `id`, `version`, `created_at` and the given
   * columns, by their physical names. With `hasPlaces`, which needs a branch that inherits no rows, also `place`: where the
   * row is in its table.
   */
  select(columns: readonly number[], options?: { readonly hasPlaces: boolean }): Sql
  /** The parameters of the query. They are complete after `select`. */
  readonly values: readonly Parameter[]
}

/**
 * Joins rows of the own heap with those that were found there. PostgreSQL looks at the place of each, whatever the statistics
 * say: they can say that the heap is empty when it was filled since, and PostgreSQL would then compare all rows with each other.
 */
const isFound = (alias: Sql): Sql => sql`${alias}.ctid = f.place and ${alias}.id = f.id`

/**
 * Changes columns of the rows. With arithmetic, also returns the number of rows that the query finds: those whose
 * result cannot be stored are not written.
 */
export function updateSetStatement(
  parts: StatementParts,
  update: ChangedColumns,
  set: RowSet,
): Statement {
  const { own, epoch } = parts
  const { values, fits } = changedValues(parts, update)
  const found = update.arithmetic.length === 0 ? empty : sql`, (select count(*) from found)`
  if (parts.isPlain) {
    const changes = [...values].map(([index, value]) => sql`, ${parts.name(index)} = ${value}`)
    return compileSharing(sql`
      with found as (${set.select([], { hasPlaces: true })})${parts.keepFrom(sql`
        found f join ${own} o on ${isFound(sql`o`)} where ${fits(sql`o`)}`)},
      written as (
        update ${own} r
        set version = r.version + 1, updated_at = now(),
          epoch = ${epoch}${join([empty, ...changes], '')}
        from found f
        where ${isFound(sql`r`)} and ${fits(sql`r`)}
        returning 1
      )
      select count(*)${found} from written`)
  }
  const row = parts.all.map((index) => values.get(index) ?? sql`r.${parts.name(index)}`)
  return compileSharing(sql`
    with found as (${set.select(parts.all)})${parts.keep(sql`
      select r.id from found r where ${fits(sql`r`)}`)},
    written as (
      insert into ${own} ${parts.rowColumns}
      select r.id, r.version + 1, r.created_at, now(), ${epoch}, false${furtherColumns(row)}
      from found r
      where ${fits(sql`r`)}
      on conflict (id) do update set ${parts.overwrite}
      returning 1
    )
    select count(*)${found} from written`)
}

/** Deletes the rows. With `namesMax`, also returns their ids, unless there are more of them. */
export function deleteSetStatement(
  parts: StatementParts,
  set: RowSet,
  namesMax: number | undefined,
): Statement {
  const { layout, own, epoch } = parts
  const max = raw(String(namesMax))
  const names =
    namesMax === undefined
      ? empty
      : sql`, case when count(*) <= ${max} then string_agg(id, ' ') end`
  const found = set.select([], { hasPlaces: parts.isPlain })
  if (parts.isPlain) {
    const kept = layout.hasForks ? sql`, kept as (${parts.keepGone()})` : empty
    return compileSharing(sql`
      with found as (${found}),
      gone as (
        delete from ${own} r using found f where ${isFound(sql`r`)}
        returning ${layout.hasForks ? sql`r.*` : sql`r.id`}
      )${kept}
      select count(*)${names} from gone`)
  }
  return compileSharing(sql`
    with found as (${found})${parts.keep(sql`select id from found`)},
    written as (
      insert into ${own} (id, created_at, updated_at, epoch, deleted)
      select id, created_at, now(), ${epoch}, true from found
      on conflict (id) do update
      set updated_at = excluded.updated_at, epoch = excluded.epoch, deleted = true${parts.clear}
      returning id
    )
    select count(*)${names} from written`)
}

/**
 * Finds the first rows of a set whose results of arithmetic cannot be stored, with the present values that they are calculated
 * from. The parameters of the set start at the first free slot.
 */
export function unstoredStatement(
  parts: StatementParts,
  update: ChangedColumns,
  { set, max }: { set: RowSet; max: number },
): Statement {
  const { fits } = changedValues(parts, update)
  const columns = [...new Set(update.arithmetic.map(({ column }) => column))]
  const texts = columns.map((index) => sql`r.${parts.name(index)}::text`)
  return compileSharing(sql`
    select r.id${furtherColumns(texts)}
    from (${set.select(columns)}) r
    where (${fits(sql`r`)}) is not true
    order by r.id
    limit ${raw(String(max))}`)
}

/** A set of one row, if there is one with the id. */
export function oneRow(parts: StatementParts, id: string, firstSlot: number): RowSet {
  const { layout, codec } = parts
  return {
    values: [id],
    select: (columns) => sql`
      select r.id, r.version, r.created_at${furtherColumns(columns.map((index) => sql`r.${parts.name(index)}`))}
      from (select ${slot(firstSlot)}::text as id) u
      ${joinVisible(layout, codec, { id: sql`u.id`, alias: sql`r` })}`,
  }
}

/**
 * Finds the first row of a step of a set that would fail a check by a change: the id of the last row, and of that one.
 * Without a check, calculates the new values alone. The parameters of the set start at the given slot. The key of the step
 * and its size follow them.
 */
export function failedChangeStatement(
  parts: StatementParts,
  check: CheckRule | undefined,
  {
    change,
    set,
    firstSlot,
    evaluates,
  }: { change: ChangedColumns; set: RowSet; firstSlot: number; evaluates: boolean },
): Statement {
  const { values, fits } = changedValues(parts, change)
  const arithmetic = change.arithmetic.map(({ column }) => column)
  const needed = [...new Set([...(check?.columns ?? []), ...arithmetic])]
  const found = set.select(needed)
  const columnSql = (id: number) => {
    const index = needed.find((each) => parts.column(each).id === id) ?? 0
    return values.get(index) ?? sql`r.${parts.name(index)}`
  }
  const isFailed =
    check === undefined
      ? sql`num_nulls(${join([...values.values()], ', ')}) < 0`
      : failsCheck(check, columnSql)
  const at = firstSlot + set.values.length
  const slots = { after: sql`${slot(at)}::text`, size: sql`${slot(at + 1)}::bigint` }
  const failed = evaluates ? sql`${fits(sql`r`)} and ${isFailed}` : sql`false`
  return compileSharing(selectStep(found, { key: 'id', failed, slots }))
}
