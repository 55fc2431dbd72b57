import { AUTOMATIC_CHECKPOINT_DAYS_MAX } from '@offshoot/contract/checkpoints'
import type { Database, Queryable } from '../../postgres/database.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { collected } from '../../telemetry/events.js'

/*
 * The records that a bulk load has inserted are known by their ids, and by the time of their creation: a record that was
 * deleted and created anew is not one of them. The ids are kept as long as automatic checkpoints, by which other changes
 * are reverted.
 */

/** Ids of a part. A part is read and written as a whole. */
export const PART_IDS_MAX = 10_000

/** The load that ids belong to. */
interface Load {
  /** The id of the entry of the log. */
  readonly entry: string
  readonly databaseId: string
  readonly tableId: number
}

/**
 * Returns a statement that keeps ids of records which the same transaction inserts, at its time unless another one is given. With
 * `isStaged`, the records become visible with the entry of the log, and may have been created at any time since the first part was
 * kept.
 */
export function insertIdsSql(
  { entry, databaseId, tableId }: Load,
  ids: readonly string[],
  { isStaged = false, createdAt }: { isStaged?: boolean; createdAt?: string | undefined } = {},
): Sql {
  const at = sql`coalesce(${createdAt ?? null}::timestamptz, now())`
  return sql`
    insert into offshoot.loads (entry_id, database_id, table_id, at, until, ids)
    select ${entry}::text, ${databaseId}::bigint, ${tableId}::bigint, ${at},
      case when not ${isStaged}::boolean then ${at} end, ${ids}::text[]`
}

/** Deletes the ids of a load, unless it has taken effect. */
export async function deleteIds(database: Queryable, entry: string): Promise<void> {
  await database.query(sql`
    delete from offshoot.loads
    where entry_id = ${entry} and not exists (select from offshoot.log where id = ${entry})`)
}

/** Returns the table of a load, and the number of its ids that are kept. undefined: there are none. */
export async function findLoad(
  database: Queryable,
  entry: string,
): Promise<{ tableId: number; count: number } | undefined> {
  const [row] = await database.query<{ tableId: number | null; count: number }>(sql`
    select min(table_id)::double precision as "tableId", sum(cardinality(ids))::integer as count
    from offshoot.loads
    where entry_id = ${entry}`)
  return row?.tableId == null ? undefined : { tableId: row.tableId, count: row.count }
}

/** Ids of records that were created in one period. */
interface LoadedIds {
  readonly ids: readonly string[]
  readonly from: Date
  readonly until: Date
}

/** Reads the ids of a load, part by part, in the order in which they were kept. */
export async function* readIds(database: Queryable, entry: string): AsyncGenerator<LoadedIds> {
  const parts = await database.query<{ part: string; from: Date; until: Date }>(sql`
    select p.part,
      -- As exact as the time of a record.
      (case when p.until is null then min(p.at) over () else p.at end)::timestamptz(3) as from,
      coalesce(p.until, l.at)::timestamptz(3) as until
    from offshoot.loads p
    join offshoot.log l on l.id = p.entry_id
    where p.entry_id = ${entry}
    order by p.part`)
  for (const { part, from, until } of parts) {
    const [found] = await database.query<{ ids: string[] }>(sql`
      select ids from offshoot.loads where part = ${part}`)
    if (found !== undefined) yield { ids: found.ids, from, until }
  }
}

/** Returns a statement that says that the records of a load were created again, by the present transaction. */
export const updateTimesSql = (entry: string, since: Date): Sql => sql`
    update offshoot.loads
    set at = ${since}::timestamptz, until = clock_timestamp()
    where entry_id = ${entry}`

/** Parts that one statement deletes. */
const STEP_PARTS = 100

/** Deletes some ids that are no longer kept. Returns whether there may be more. */
export async function collectLoads(
  database: Database,
  { days } = { days: AUTOMATIC_CHECKPOINT_DAYS_MAX },
): Promise<boolean> {
  const old = await database.query(sql`
    delete from offshoot.loads
    where part = any(array(
      select part
      from offshoot.loads
      where at < now() - make_interval(days => ${days})
      order by at
      limit ${STEP_PARTS}
    ))
    returning 1`)
  collected.add('load', old.length)
  return old.length === STEP_PARTS
}
