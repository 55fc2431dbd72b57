import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../postgres/database.js'
import { sql } from '../postgres/sql.js'

/*
 * Numbers that no two branches of a database get. They are taken outside of the transaction that uses them, so writers do
 * not wait for each other. A number whose transaction fails is not used again.
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

/** Takes numbers of a sequence, all or none. Returns the first of them. */
export async function takeNumbers(
  database: Database,
  { databaseId, itemId, count, above, max, of }: Wanted & { readonly databaseId: string },
): Promise<number> {
  // The commit of the numbers need not be waited for: whoever uses them commits later, and that commit includes this one.
  const [taken] = await database.queryAside<{ last: string }>(sql`
    with quick as materialized (select set_config('synchronous_commit', 'off', true))
    insert into offshoot.sequences as s (database_id, item_id, last)
    select ${databaseId}::bigint, ${itemId}::bigint, ${above}::bigint + ${count}::bigint
    from quick
    where ${above}::bigint + ${count}::bigint <= ${max}::bigint
    on conflict (database_id, item_id) do update
      set last = greatest(s.last, ${above}::bigint) + ${count}::bigint
      where ${count}::bigint = 0
        or greatest(s.last, ${above}::bigint) + ${count}::bigint <= ${max}::bigint
    returning last::text`)
  if (taken !== undefined) return Number(taken.last) - count + 1
  throw new AppError('invalid_record', `${of}: the numbers up to ${max} are used up`)
}
