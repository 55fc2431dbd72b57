import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../postgres/database.js'
import { sql } from '../postgres/sql.js'

/*
 * Numbers that no two branches of a database get. They are taken outside of the transaction that uses them, so writers do
 * not wait for each other. A request that is refused gives back what it has taken, unless others have taken numbers since.
 */

/** Numbers that a request takes of a sequence. */
export interface Wanted {
  /** The table or column whose values are numbered. */
  readonly itemId: number
  readonly count: number
  /** The greatest number that the request itself gives. The sequence goes on after it. */
  readonly above: number
  /** The greatest number that the sequence may give. */
  readonly max: number
  /** The table or column that the sequence belongs to, as a message names it. */
  readonly of: string
}

/** Returns the last number that each sequence has given, by the id of its table or column. */
export async function findLastNumbers(
  database: Database,
  { databaseId, itemIds }: { databaseId: string; itemIds: readonly number[] },
): Promise<ReadonlyMap<number, string>> {
  const found = await database.queryAside<{ itemId: string; last: string }>(sql`
    select item_id::text as "itemId", last::text
    from offshoot.sequences
    where database_id = ${databaseId}::bigint and item_id = any(${itemIds.map(String)}::bigint[])`)
  return new Map(found.map(({ itemId, last }) => [Number(itemId), last]))
}

/** What a sequence has given to a request. */
export interface Taken {
  readonly first: number
  /** The state of the sequence after it. Whoever takes of it, or goes on after a number, changes its stamp. */
  readonly stamp: string
  /** The state before. undefined: unknown, because others have taken the first numbers at the same time. */
  readonly before: { readonly last: number; readonly stamp: string | undefined } | undefined
}

/** Takes numbers of a sequence, all or none. */
export async function takeNumbers(
  database: Database,
  { databaseId, itemId, count, above, max, of }: Wanted & { readonly databaseId: string },
): Promise<Taken> {
  // The commit of the numbers need not be waited for: whoever uses them commits later, and that commit includes this one.
  const [taken] = await database.queryAside<{
    last: string
    stamp: string
    isFirst: boolean
    before: string | null
    stampBefore: string | null
  }>(sql`
    with quick as materialized (select set_config('synchronous_commit', 'off', true)),
    before as materialized (
      select last, xmin::text as stamp
      from offshoot.sequences
      where database_id = ${databaseId}::bigint and item_id = ${itemId}::bigint
      for update
    ),
    taken as (
      insert into offshoot.sequences as s (database_id, item_id, last)
      select ${databaseId}::bigint, ${itemId}::bigint, ${above}::bigint + ${count}::bigint
      from quick
      left join before on true
      where ${above}::bigint + ${count}::bigint <= ${max}::bigint
      on conflict (database_id, item_id) do update
        set last = greatest(s.last, ${above}::bigint) + ${count}::bigint
        where ${count}::bigint = 0
          or greatest(s.last, ${above}::bigint) + ${count}::bigint <= ${max}::bigint
      returning last, xmin::text as stamp, xmax = 0 as is_first
    )
    select t.last::text, t.stamp, t.is_first as "isFirst", b.last::text as before,
      b.stamp as "stampBefore"
    from taken t
    left join before b on true`)
  if (taken === undefined) {
    throw new AppError('invalid_record', `${of}: the numbers up to ${max} are used up`)
  }
  const { last, stamp, isFirst, before, stampBefore } = taken
  const isKnown = before !== null || isFirst
  return {
    first: Number(last) - count + 1,
    stamp,
    before: isKnown ? { last: Number(before ?? 0), stamp: stampBefore ?? undefined } : undefined,
  }
}

/** Sets a sequence back to a number. Does nothing if it has another stamp. */
export async function giveBackNumbers(
  database: Database,
  options: { databaseId: string; itemId: number; stamp: string; last: number },
): Promise<void> {
  const { databaseId, itemId, stamp, last } = options
  await database.queryAside(sql`
    update offshoot.sequences
    set last = ${last}::bigint
    where database_id = ${databaseId}::bigint
      and item_id = ${itemId}::bigint
      and xmin::text = ${stamp}
      and last > ${last}::bigint`)
}
