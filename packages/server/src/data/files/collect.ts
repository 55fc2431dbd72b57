import type { BlobStore } from '../../blobs/blob-store.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { mayRemoveStorage } from '../../rows/branches.js'
import { findMentioned, findMentions, type Mentions } from '../../rows/files.js'
import { collected } from '../../telemetry/events.js'

/*
 * Content is deleted when no row of any branch, present or past, has mentioned it for a grace period. It
 * is looked for twice, before and after that period: a transaction that copies a mention from one row to
 * another may begin before the first look and end after it, but it cannot outlast the period.
 */

/** Contents that one step looks at. */
const STEP_BLOBS = 500
/** Contents that one step removes; uploads of the same ones wait for it. */
const STEP_REMOVALS = 50

export interface CollectTimes {
  /** How long content is left alone after it was put, and again after it was found unused. */
  readonly graceSeconds: number
  /** How long content that is in use is not looked at again. */
  readonly recheckSeconds: number
}

export const COLLECT_TIMES: CollectTimes = {
  graceSeconds: 24 * 60 * 60,
  recheckSeconds: 24 * 60 * 60,
}

/** Looks at some contents that are due. Says whether there may be more. */
export async function checkBlobs(database: Database, times: CollectTimes): Promise<boolean> {
  const { graceSeconds, recheckSeconds } = times
  // One snapshot for all tables: a mention that moves from one to another is seen in one of them.
  return runTransaction(
    database,
    async (transaction) => {
      const due = await transaction.query<{ sha256: string }>(sql`
        select encode(sha256, 'hex') as sha256
        from offshoot.blobs
        where put_at <= now() - make_interval(secs => ${graceSeconds})
          and unused_since is null
          and (checked_at <= put_at + make_interval(secs => ${graceSeconds})
            or checked_at <= now() - make_interval(secs => ${recheckSeconds}))
        order by checked_at
        limit ${STEP_BLOBS}
        for update skip locked`)
      if (due.length === 0) return false
      const hashes = due.map((blob) => blob.sha256)
      const mentions = await findMentions(transaction, hashes)
      await updateMentions(transaction, { hashes, mentions })
      const unused = hashes.filter((sha256) => !mentions.has(sha256))
      await transaction.query(sql`
        update offshoot.blobs
        set checked_at = now(),
          unused_since = case when encode(sha256, 'hex') = any(${unused}) then now() end
        where sha256 in (select decode(hash, 'hex') from unnest(${hashes}::text[]) hash)`)
      return due.length === STEP_BLOBS
    },
    { isolation: 'repeatable read' },
  )
}

/** Removes some contents that have been unused for long enough, and still are. */
export async function collectBlobs(
  { database, blobs }: { database: Database; blobs: BlobStore },
  { graceSeconds }: CollectTimes,
): Promise<boolean> {
  const removed = await runTransaction(
    database,
    async (transaction) => {
      if (!(await mayRemoveStorage(transaction))) return undefined
      // Whoever puts the same content from here on waits, and then finds it gone.
      const due = await transaction.query<{ sha256: string }>(sql`
        select encode(sha256, 'hex') as sha256
        from offshoot.blobs
        where unused_since <= now() - make_interval(secs => ${graceSeconds})
        order by unused_since
        limit ${STEP_REMOVALS}
        for update skip locked`)
      if (due.length === 0) return undefined
      const hashes = due.map(({ sha256 }) => sha256)
      const used = await findMentioned(transaction, hashes)
      await transaction.query(sql`
        update offshoot.blobs
        set checked_at = now(), unused_since = null
        where sha256 in (select decode(hash, 'hex') from unnest(${[...used]}::text[]) hash)`)
      const unused = hashes.filter((sha256) => !used.has(sha256))
      for (const sha256 of unused) await blobs.delete(sha256)
      await transaction.query(sql`
        with removed as (
          delete from offshoot.blobs
          where sha256 in (select decode(hash, 'hex') from unnest(${unused}::text[]) hash)
          returning sha256
        )
        delete from offshoot.workspace_blobs b
        using removed r
        where b.sha256 = r.sha256`)
      return unused.length
    },
    { isolation: 'read committed' },
  )
  collected.add('blob', removed ?? 0)
  return removed !== undefined
}

/** Enters the workspaces that mention contents, and removes those that do no longer. */
async function updateMentions(
  transaction: Queryable,
  { hashes, mentions }: { hashes: readonly string[]; mentions: Mentions },
): Promise<void> {
  const pairs = [...mentions].flatMap(([sha256, databaseIds]) =>
    [...databaseIds].map((databaseId) => ({ sha256, databaseId })),
  )
  const mentioned = sql`
    select distinct d.workspace_id, decode(m.hash, 'hex') as sha256
    from unnest(${pairs.map(({ sha256 }) => sha256)}::text[],
      ${pairs.map(({ databaseId }) => databaseId)}::bigint[]) m (hash, database_id)
    join offshoot.databases d on d.id = m.database_id`
  await transaction.query(sql`
    delete from offshoot.workspace_blobs b
    where b.sha256 in (select decode(hash, 'hex') from unnest(${hashes}::text[]) hash)
      and (b.workspace_id, b.sha256) not in (${mentioned})`)
  await transaction.query(sql`
    insert into offshoot.workspace_blobs (workspace_id, sha256, size)
    select m.workspace_id, m.sha256, b.size
    from (${mentioned}) m
    join offshoot.blobs b on b.sha256 = m.sha256
    on conflict (workspace_id, sha256) do nothing`)
}
