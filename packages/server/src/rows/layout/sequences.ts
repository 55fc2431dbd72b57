import { AppError } from '@offshoot/contract/errors'
import type { Database } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { type Sql, sql } from '../../postgres/sql.js'

/*
 * Numbers that no two branches of a database get. They are taken outside of the transaction that uses them, so writers do
 * not wait for each other. A request that is refused gives back what it has taken, unless others have taken numbers since.
 *
 * A table or column can come into being from another one: a revert brings it back, an expression gives it new values, a merge
 * finds that both sides have added it. All of them share one sequence then, whatever id a branch knows them by.
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
    select i::text as "itemId", s.last::text
    from unnest(${itemIds.map(String)}::bigint[]) i
    join offshoot.sequences s
      on s.database_id = ${databaseId}::bigint
      and s.item_id = ${ownerOf(databaseId, sql`i`)}
      and s.last > 0`)
  return new Map(found.map(({ itemId, last }) => [Number(itemId), last]))
}

/** Selects the table or column that has the sequence of another one: itself, unless they share one. */
const ownerOf = (databaseId: string, itemId: Sql): Sql => sql`
  coalesce((
    select o.continues from offshoot.sequences o
    where o.database_id = ${databaseId}::bigint and o.item_id = ${itemId}
  ), ${itemId})`

/** Numbers that a request has taken of a sequence. */
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
  wanted: Wanted & { readonly databaseId: string },
): Promise<Taken> {
  // A sequence that has just been joined to another one gives no numbers.
  for (let owner: string | undefined; ; ) {
    const found = await tryToTake(database, wanted)
    if (found.taken !== undefined) return found.taken
    if (found.owner === owner) {
      const { of, max } = wanted
      throw new AppError('invalid_record', `${of}: the numbers up to ${max} are used up`)
    }
    owner = found.owner
  }
}

async function tryToTake(
  database: Database,
  { databaseId, itemId, count, above, max }: Wanted & { readonly databaseId: string },
): Promise<{ readonly owner: string; readonly taken: Taken | undefined }> {
  // The commit of the numbers need not be waited for: whoever uses them commits later, and that commit includes this one.
  const [found] = await database.queryAside<{
    owner: string
    last: string | null
    stamp: string
    isFirst: boolean
    before: string | null
    stampBefore: string | null
  }>(sql`
    with quick as materialized (select set_config('synchronous_commit', 'off', true)),
    owner as materialized (select ${ownerOf(databaseId, sql`${itemId}::bigint`)} as id from quick),
    before as materialized (
      select last, xmin::text as stamp
      from offshoot.sequences
      where database_id = ${databaseId}::bigint and item_id = (select id from owner)
      for update
    ),
    taken as (
      insert into offshoot.sequences as s (database_id, item_id, last)
      select ${databaseId}::bigint, o.id, ${above}::bigint + ${count}::bigint
      from owner o
      left join before on true
      where ${above}::bigint + ${count}::bigint <= ${max}::bigint
      on conflict (database_id, item_id) do update
        set last = greatest(s.last, ${above}::bigint) + ${count}::bigint
        where s.continues is null
          and (
            ${count}::bigint = 0
            or greatest(s.last, ${above}::bigint) + ${count}::bigint <= ${max}::bigint
          )
      returning last, xmin::text as stamp, xmax = 0 as is_first
    )
    select o.id::text as owner, t.last::text, t.stamp, t.is_first as "isFirst",
      b.last::text as before, b.stamp as "stampBefore"
    from owner o
    left join taken t on true
    left join before b on true`)
  if (found === undefined) throw new Error('the owner of a sequence must be returned')
  const { owner, last, stamp, isFirst, before, stampBefore } = found
  if (last === null) return { owner, taken: undefined }
  const isKnown = before !== null || isFirst
  return {
    owner,
    taken: {
      first: Number(last) - count + 1,
      stamp,
      before: isKnown ? { last: Number(before ?? 0), stamp: stampBefore ?? undefined } : undefined,
    },
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
      and item_id = ${ownerOf(databaseId, sql`${itemId}::bigint`)}
      and xmin::text = ${stamp}
      and last > ${last}::bigint`)
}

/** Tables or columns that share a sequence, which goes on after a number. */
interface JoinedSequence {
  readonly itemIds: readonly number[]
  readonly above: number
}

/**
 * Joins sequences, or lets one go on after a number. It takes effect at once, so that numbers are right in the rest of the
 * transaction, and nobody waits for its end. If it is rolled back, there is a gap.
 */
export async function continueSequences(
  transaction: Pick<Transaction, 'aside'>,
  { databaseId, sequences }: { databaseId: string; sequences: readonly JoinedSequence[] },
): Promise<void> {
  for (const { itemIds, above } of sequences) {
    if (itemIds.length < 2 && above === 0) continue
    await transaction.aside(sql`
      select offshoot.continue_sequence(
        ${databaseId}::bigint, ${itemIds.map(String)}::bigint[], ${String(above)}::bigint)`)
  }
}
