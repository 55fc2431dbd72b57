import type { BlobStore } from '../../blobs/blob-store.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { mayRemoveStorage } from '../../rows/branches.js'
import { findMentioned, findMentions, type Mentions } from '../../rows/files.js'
import { collected } from '../../telemetry/events.js'

/*
 * Content is deleted if no row of any branch, including versions kept for forks, has referred to it for a
 * grace period. References are searched twice, before and after that period. A transaction that copies a
 * reference from one row to another may run during one search and be missed, but none lasts longer than the
 * period, so the second search finds the copy.
 */

/** Maximum number of contents checked by one step. */
const STEP_BLOBS = 500
/** Maximum number of contents deleted by one step. Uploads of the same contents wait for it. */
const STEP_REMOVALS = 50

export interface CollectTimes {
  /** The minimum time from an upload to the first check, and from the first check to the deletion. */
  readonly graceSeconds: number
  /** The time until content in use is checked again. */
  readonly recheckSeconds: number
}

export const COLLECT_TIMES: CollectTimes = {
  graceSeconds: 24 * 60 * 60,
  recheckSeconds: 24 * 60 * 60,
}

/** Checks some contents that are due. Returns whether there may be more. */
export async function checkBlobs(database: Database, times: CollectTimes): Promise<boolean> {
  const { graceSeconds, recheckSeconds } = times
  // One snapshot for all tables, so that a reference that moves between tables is found.
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

/**
 * Deletes some contents that have been unused for the grace period and still are. Returns whether there may
 * be more.
 */
export async function collectBlobs(
  { database, blobs }: { database: Database; blobs: BlobStore },
  { graceSeconds }: CollectTimes,
): Promise<boolean> {
  const removed = await runTransaction(
    database,
    async (transaction) => {
      if (!(await mayRemoveStorage(transaction))) return undefined
      // The row locks make uploads of the same content wait. They then store the content again.
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
