import type { Queryable } from './database.js'
import { type Sql, sql } from './sql.js'

/*
 * Background work is a row of `offshoot.work`. The transaction that causes work inserts it. A worker locks the row while it
 * works on it, so a crash leaves the work to others. Work that fails is postponed, so that it blocks nothing behind it.
 */

/** Work that fails is repeated after this time, which doubles with each failure. */
const REPEAT_SECONDS = 2
const REPEAT_SECONDS_MAX = 3600
/** Maximum number of characters of an error that is kept for operators. */
const ERROR_LENGTH_MAX = 500

export interface Work {
  readonly id: string
  readonly kind: string
  readonly databaseId: string
  readonly subject: string
  /** What the requests that the work serves ask for. */
  readonly details: readonly unknown[]
  failures: number
  /** Where the next step begins. Null: at the beginning, and it will serve all requests until then. */
  position: string | null
  /** Why a step failed. Work of several steps may go on with what is behind it. */
  error: string | null
}

/** Returns the text of an error as it is kept with the work. */
export function errorText(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, ERROR_LENGTH_MAX)
}

/**
 * Takes the work that has been due for longest of the next database with some, and locks it until the transaction ends.
 * Work that has not begun takes over the other requests for the same.
 */
export async function takeWork(
  transaction: Queryable,
  { isWanted, afterDatabaseId }: { isWanted: Sql; afterDatabaseId: string },
): Promise<Work | undefined> {
  const [work] = await transaction.query<Work>(sql`
    with next as materialized (
      select *
      from offshoot.work
      where database_id > ${afterDatabaseId} and due_at <= now() and ${isWanted}
      order by database_id, due_at, id
      limit 1
      for update skip locked
    ),
    others as (
      delete from offshoot.work
      where id = any(array(
        select w.id
        from next n
        join offshoot.work w on w.database_id = n.database_id and w.kind = n.kind and w.subject = n.subject
        where w.id <> n.id and w.position is null and n.position is null
        for update of w skip locked
      ))
      returning details
    )
    select id, kind, database_id as "databaseId", subject, failures, position, error,
      details || (
        select coalesce(jsonb_agg(d), '[]') from others, jsonb_array_elements(others.details) d
      ) as details
    from next`)
  return work
}

/** Stores how far work is. It is due again after some time, and other work has its turn before. */
export async function updateWork(
  transaction: Queryable,
  { work, afterSeconds }: { work: Work; afterSeconds: number },
): Promise<void> {
  const { id, details, position, failures, error } = work
  await transaction.query(sql`
    update offshoot.work
    set details = ${JSON.stringify(details)}::jsonb, position = ${position}, failures = ${failures},
      error = ${error}, due_at = clock_timestamp() + make_interval(secs => ${afterSeconds})
    where id = ${id}`)
}

/** Returns the time after which work that has failed is repeated. */
export const repeatSeconds = ({ failures }: Work): number =>
  Math.min(REPEAT_SECONDS_MAX, REPEAT_SECONDS * 2 ** (failures - 1))

export async function deleteWork(transaction: Queryable, { id }: Work): Promise<void> {
  await transaction.query(sql`delete from offshoot.work where id = ${id}`)
}

/** Inserts the work of the whole instance that is missing. Returns the time of PostgreSQL. */
export async function insertInstanceWork(
  database: Queryable,
  kinds: readonly string[],
): Promise<string> {
  const [row] = await database.query<{ now: string }>(sql`
    with inserted as (
      insert into offshoot.work (kind)
      select k.kind
      from unnest(${kinds}::text[]) k (kind)
      where not exists (select from offshoot.work w where w.database_id = 0 and w.kind = k.kind)
      on conflict do nothing
    )
    select now()::text as now`)
  if (row === undefined) throw new Error('a statement without a source must return a row')
  return row.now
}

/** Counting stops here; larger numbers are not told apart. */
const PENDING_MAX = 100_000

interface Backlog {
  readonly kind: string
  readonly count: number
  /** The age of the oldest request. For work of the whole instance, how late it is. */
  readonly ageSeconds: number
}

/** Returns how much work is left, for each kind that has some. */
export async function measureWork(database: Queryable): Promise<Backlog[]> {
  return database.query<Backlog>(sql`
    select kind, count(*)::integer as count,
      extract(epoch from now() - min(case database_id when 0 then due_at else created_at end))
        ::double precision as "ageSeconds"
    from (
      select *
      from offshoot.work
      where database_id > 0 or due_at <= now()
      order by id
      limit ${PENDING_MAX}
    ) waiting
    group by kind`)
}
