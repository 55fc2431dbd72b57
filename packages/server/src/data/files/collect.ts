import type { BlobStore } from '../../blobs/blob-store.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { MentionedContents } from '../../rows/files.js'
import { StorageHold } from '../../rows/layout/storage-hold.js'
import { collected } from '../../telemetry/events.js'

/*
 * Content is deleted if no row of any branch, including versions kept for forks, has referred to it for a
 * grace period. References are searched twice, before and after that period. A transaction that copies a
 * reference from one row to another may run during one search and be missed, but none lasts longer than the
 * period, so the second search finds the copy.
 *
 * Contents in use are checked again and again, so their search is divided into slices of heaps. It remembers how far
 * it is. A slice has a snapshot of its own, and a reference that moves between heaps may be missed. So contents
 * that were not found are searched once more, in one snapshot, before they count as unused.
 */

/** Maximum number of contents checked together. */
const CHECK_BLOBS = 500
/** Maximum number of contents deleted by one step. Uploads of the same contents wait for it. */
const STEP_REMOVALS = 50
/** One statement of a search may run for this long. */
const STATEMENT_MS = 20_000

interface CollectTimes {
  /** The minimum time from an upload to the first check, and from the first check to the deletion. */
  readonly graceSeconds: number
  /** The time until content in use is checked again. */
  readonly recheckSeconds: number
}

export const COLLECT_TIMES: CollectTimes = {
  graceSeconds: 24 * 60 * 60,
  recheckSeconds: 24 * 60 * 60,
}

interface BlobCheck {
  readonly id: string
  readonly hashes: readonly string[]
  readonly heapId: string
  readonly isIncomplete: boolean
}

/**
 * Checks contents that are due: searches some heaps for them, and ends the check after the last heap. Returns
 * whether there may be more to do. Processes can run it concurrently.
 */
export async function checkBlobs(
  database: Database,
  times: CollectTimes,
  { heapsMax }: { heapsMax?: number } = {},
): Promise<boolean> {
  return runTransaction(
    database,
    async (transaction) => {
      await transaction.query(sql`
        select set_config('statement_timeout', ${String(STATEMENT_MS)}, true)`)
      const check = (await findCheck(transaction)) ?? (await insertCheck(transaction, times))
      if (check === undefined) return false
      const { id, hashes, heapId: afterId } = check
      const found = await new MentionedContents(transaction).findNext(hashes, {
        afterId,
        ...(heapsMax === undefined ? {} : { heapsMax }),
      })
      await insertMentions(transaction, id, found.mentions)
      const isIncomplete = check.isIncomplete || found.failure !== undefined
      if (found.lastId !== undefined) {
        await updateCheck(transaction, { ...check, heapId: found.lastId, isIncomplete })
        return true
      }
      await endCheck(transaction, { ...check, isIncomplete })
      return hashes.length === CHECK_BLOBS
    },
    { isolation: 'repeatable read' },
  )
}

async function findCheck(transaction: Queryable): Promise<BlobCheck | undefined> {
  const [check] = await transaction.query<BlobCheck>(sql`
    select id, sha256s as hashes, heap_id as "heapId", is_incomplete as "isIncomplete"
    from offshoot.blob_checks
    where due_at <= now()
    order by due_at, id
    limit 1
    for update skip locked`)
  return check
}

/** Begins a check of contents that are due. Until it ends, they are not due again. */
async function insertCheck(
  transaction: Queryable,
  { graceSeconds, recheckSeconds }: CollectTimes,
): Promise<BlobCheck | undefined> {
  const due = await transaction.query<{ sha256: string }>(sql`
    update offshoot.blobs
    set checked_at = now()
    where sha256 = any(array(
      select sha256
      from offshoot.blobs b
      where put_at <= now() - make_interval(secs => ${graceSeconds})
        and unused_since is null
        and (checked_at <= put_at + make_interval(secs => ${graceSeconds})
          or checked_at <= now() - make_interval(secs => ${recheckSeconds}))
      order by checked_at
      limit ${CHECK_BLOBS}
      for update skip locked
    ))
    returning encode(sha256, 'hex') as sha256`)
  if (due.length === 0) return undefined
  const hashes = due.map((blob) => blob.sha256)
  const [row] = await transaction.query<{ id: string }>(sql`
    insert into offshoot.blob_checks (sha256s) values (${hashes}::text[]) returning id`)
  return row && { id: row.id, hashes, heapId: '0', isIncomplete: false }
}

async function insertMentions(
  transaction: Queryable,
  checkId: string,
  mentions: readonly { readonly sha256: string; readonly databaseId: string }[],
): Promise<void> {
  if (mentions.length === 0) return
  await transaction.query(sql`
    insert into offshoot.blob_check_mentions (check_id, sha256, database_id)
    select ${checkId}::bigint, m.sha256, m.database_id
    from unnest(${mentions.map(({ sha256 }) => sha256)}::text[],
      ${mentions.map(({ databaseId }) => databaseId)}::bigint[]) m (sha256, database_id)
    on conflict do nothing`)
}

/** Notes how far a check is. Other checks have their turn before it goes on. */
async function updateCheck(transaction: Queryable, check: BlobCheck): Promise<void> {
  await transaction.query(sql`
    update offshoot.blob_checks
    set heap_id = ${check.heapId}, is_incomplete = ${check.isIncomplete}, due_at = clock_timestamp()
    where id = ${check.id}`)
}

/**
 * Ends a check after the last heap: contents without a mention are unused from now on, and the workspaces that
 * mention contents are entered. Contents that were uploaded again during the check are left alone.
 */
async function endCheck(transaction: Queryable, check: BlobCheck): Promise<void> {
  const { id, isIncomplete } = check
  const rows = await transaction.query<{ sha256: string; isMentioned: boolean }>(sql`
    select c.sha256, exists (
        select from offshoot.blob_check_mentions m where m.check_id = ${id} and m.sha256 = c.sha256
      ) as "isMentioned"
    from offshoot.blob_checks k
    cross join unnest(k.sha256s) c (sha256)
    join offshoot.blobs b on b.sha256 = decode(c.sha256, 'hex') and b.put_at <= k.started_at
    where k.id = ${id}
    for update of b`)
  const unseen = rows.filter(({ isMentioned }) => !isMentioned).map(({ sha256 }) => sha256)
  // If a heap could not be searched, it may have a mention of each of them.
  const unused = isIncomplete ? [] : await withoutMentioned(transaction, unseen)
  const checked = isIncomplete ? [] : rows.map(({ sha256 }) => sha256)
  await updateMentions(transaction, { checkId: id, checked })
  await transaction.query(sql`
    update offshoot.blobs
    set unused_since = now()
    where sha256 in (select decode(hash, 'hex') from unnest(${unused}::text[]) hash)`)
  await transaction.query(sql`delete from offshoot.blob_checks where id = ${id}`)
}

async function withoutMentioned(
  transaction: Queryable,
  hashes: readonly string[],
): Promise<string[]> {
  if (hashes.length === 0) return []
  const mentioned = await new MentionedContents(transaction)
    .find(hashes)
    .catch(() => new Set(hashes))
  return hashes.filter((sha256) => !mentioned.has(sha256))
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
      if (!(await new StorageHold(transaction).mayRemove())) return undefined
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
      const used = await new MentionedContents(transaction).find(hashes)
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

/** Enters the workspaces that mention contents, and removes those that do no longer mention checked ones. */
async function updateMentions(
  transaction: Queryable,
  { checkId, checked }: { checkId: string; checked: readonly string[] },
): Promise<void> {
  const mentioned = sql`
    select distinct d.workspace_id, decode(m.sha256, 'hex') as sha256
    from offshoot.blob_check_mentions m
    join offshoot.databases d on d.id = m.database_id
    where m.check_id = ${checkId}`
  await transaction.query(sql`
    delete from offshoot.workspace_blobs b
    where b.sha256 in (select decode(hash, 'hex') from unnest(${checked}::text[]) hash)
      and (b.workspace_id, b.sha256) not in (${mentioned})`)
  await transaction.query(sql`
    insert into offshoot.workspace_blobs (workspace_id, sha256, size)
    select m.workspace_id, m.sha256, b.size
    from (${mentioned}) m
    join offshoot.blobs b on b.sha256 = m.sha256
    on conflict (workspace_id, sha256) do nothing`)
}
