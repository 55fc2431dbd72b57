import { setTimeout as delay } from 'node:timers/promises'
import type { Database, Queryable } from './database.js'
import { literal, sql } from './sql.js'

/*
 * After a large import, PostgreSQL keeps the files of its log for reuse, as many as fit into `max_wal_size`. That is good
 * for a server that goes on writing, but one that rests would keep them for good. A checkpoint that does not keep files
 * removes them, and it also makes the next start after a crash faster.
 */

/** A log of up to this size stays as it is. */
const LOG_BYTES_MAX = 128 * 1024 * 1024
/** The server rests if it has written less than this since the round before. */
const QUIET_BYTES = 1024 * 1024
/** After a checkpoint, at least this much is written before the next one: it may not have removed anything. */
const WRITTEN_BYTES_MIN = 32 * 1024 * 1024
/** How long a changed setting may take to be in effect. */
const RELOAD_MS_MAX = 5_000
const RELOAD_POLL_MS = 20
/** PostgreSQL tells its processes one after the other. */
const RELOAD_SPREAD_MS = 200

/**
 * The value that `checkpoint` gives to `wal_recycle`. PostgreSQL reads `fals`, like any beginning of `false`, as off. An
 * administrator would write `off`, so the service can tell its own setting, which it resets, from that of an administrator.
 */
export const OFF_FOR_A_CHECKPOINT = 'fals'

/** Positions in the log, in bytes. */
interface Seen {
  readonly lastRound: number
  /** After the last checkpoint of this process. */
  readonly trimmed: number | undefined
}

const seen = new WeakMap<Database, Seen>()

/**
 * Removes files of the log that are not needed, if there are many and the server rests. Needs the rights of a superuser, so
 * it is meant for the embedded server. Returns whether it did.
 */
export async function trimLog(database: Database): Promise<boolean> {
  const [row] = await database.query<{ position: number; bytes: number; recycles: boolean }>(sql`
    select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::float8 as position,
      (select coalesce(sum(size), 0)::float8 from pg_ls_waldir()) as bytes,
      current_setting('wal_recycle')::boolean as recycles`)
  const { position = 0, bytes = 0, recycles = true } = row ?? {}
  // Either a process ended during its checkpoint, or an administrator lets every checkpoint remove files.
  if (!recycles && !(await recycleAgain(database))) return false
  const before = seen.get(database)
  const trimmed = before?.trimmed
  seen.set(database, { lastRound: position, trimmed })
  const isQuiet = before !== undefined && position - before.lastRound < QUIET_BYTES
  const isWorth = trimmed === undefined || position - trimmed >= WRITTEN_BYTES_MIN
  if (bytes <= LOG_BYTES_MAX || !isQuiet || !isWorth) return false
  const connection = await database.openLong()
  try {
    await checkpoint(connection)
  } finally {
    await connection.end()
  }
  seen.set(database, { lastRound: position, trimmed: position })
  return true
}

/** Runs a checkpoint that removes files of the log instead of keeping them. */
async function checkpoint(connection: Queryable): Promise<void> {
  await connection.query(sql`alter system set wal_recycle = ${literal(OFF_FOR_A_CHECKPOINT)}`)
  try {
    await connection.query(sql`select pg_reload_conf()`)
    await untilOff(connection)
    await connection.query(sql`checkpoint`)
  } finally {
    await recycleAgain(connection)
  }
}

/** Lets later checkpoints keep files again. Returns false, and changes nothing, if an administrator has turned that off. */
async function recycleAgain(connection: Queryable): Promise<boolean> {
  const [row] = await connection.query<{ setting: string }>(sql`
    select setting from pg_file_settings where name = 'wal_recycle' order by seqno desc limit 1`)
  if (row?.setting !== OFF_FOR_A_CHECKPOINT) return false
  await connection.query(sql`alter system reset wal_recycle`)
  await connection.query(sql`select pg_reload_conf()`)
  return true
}

/** Waits until the process that runs checkpoints knows the setting. It is told a moment after this connection. */
async function untilOff(connection: Queryable): Promise<void> {
  const endsAt = performance.now() + RELOAD_MS_MAX
  while (performance.now() < endsAt) {
    const [row] = await connection.query<{ recycles: boolean }>(sql`
      select current_setting('wal_recycle')::boolean as recycles`)
    if (row?.recycles === false) break
    await delay(RELOAD_POLL_MS)
  }
  await delay(RELOAD_SPREAD_MS)
}
