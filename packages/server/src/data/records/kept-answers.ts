import { AppError } from '@offshoot/contract/errors'
import { BoundedCache } from '../../common/bounded-cache.js'
import type { Database } from '../../postgres/database.js'
import { isUndefinedTable } from '../../postgres/failures.js'
import { sql } from '../../postgres/sql.js'
import { DatabaseSchema } from '../../rows/layout/database-schema.js'
import { collected } from '../../telemetry/events.js'

/*
 * The answers that are kept for idempotency keys are bounded for each database. Forgetting a key would be unsafe:
 * a repeated request would be executed again. So the texts of the oldest answers are dropped first, and their
 * keys stay. If the keys alone are too many, further requests with a key are refused before they take effect.
 *
 * Counting in the transaction of each request would make requests wait for each other. Each process counts what it
 * writes, and measures in the background, as for quotas. So together, processes can exceed the limit by what they
 * write between two measurements.
 */

/** Bytes of the answers kept for the idempotency keys of one database: 256 MiB. */
export const KEPT_ANSWERS_BYTES_MAX = 256 * 1024 * 1024
/** Above this, the texts of the oldest answers are dropped. */
export const KEPT_ANSWERS_BYTES_GOAL = KEPT_ANSWERS_BYTES_MAX / 2
/** Bytes that an answer takes beside its text: its row and its entries in indexes. */
export const ANSWER_ENTRY_BYTES = 256

/** Maximum number of texts dropped by one step. */
const STEP_ANSWERS = 1000
/** Databases whose bytes a process remembers. */
const DATABASES_MAX = 20_000

interface Usage {
  bytes: number
  /** Answers were added since the last measurement. */
  isUsed: boolean
}

/** Knows how many bytes of answers each database keeps. */
class KeptAnswers {
  readonly #database: Database
  readonly #usages = new BoundedCache<Usage>({ max: DATABASES_MAX })

  constructor(database: Database) {
    this.#database = database
  }

  /** Reads the usage of a database, if it is not known yet. Must not be called inside a transaction. */
  async load(databaseId: string): Promise<void> {
    if (this.#usages.get(databaseId) !== undefined) return
    const bytes = await this.#measure(databaseId).catch(unlessDeleted)
    if (bytes !== undefined && this.#usages.get(databaseId) === undefined) {
      this.#usages.set(databaseId, { bytes, isUsed: true })
    }
  }

  /** Counts an answer before it is stored, or refuses it. */
  add(databaseId: string, bytes: number): void {
    const usage = this.#usages.get(databaseId) ?? { bytes: 0, isUsed: true }
    if (usage.bytes + bytes > KEPT_ANSWERS_BYTES_MAX) {
      // Measured again soon, because answers may have expired.
      usage.isUsed = true
      throw new AppError(
        'limit_reached',
        'header [Idempotency-Key]: the answers that this database keeps for idempotency keys have reached ' +
          `${KEPT_ANSWERS_BYTES_MAX} bytes; nothing was stored; try again later, or send the request without a key`,
      )
    }
    usage.bytes += bytes
    usage.isUsed = true
    this.#usages.set(databaseId, usage)
  }

  /**
   * Measures the databases that were used since the last call, and drops some texts of those that keep too much.
   * Returns whether there may be more to do.
   */
  async shrink(): Promise<boolean> {
    let isMore = false
    for (const databaseId of [...this.#usages.keys()]) {
      const usage = this.#usages.get(databaseId)
      if (!usage?.isUsed) continue
      usage.isUsed = false
      const before = usage.bytes
      const bytes = await this.#measure(databaseId).catch(unlessDeleted)
      if (bytes === undefined) {
        this.#usages.delete(databaseId)
        continue
      }
      const excess = bytes - KEPT_ANSWERS_BYTES_GOAL
      const dropped = excess > 0 ? await this.#drop(databaseId, excess) : 0
      // Bytes that were added while it was measured may be missing in the measurement.
      usage.bytes = bytes - dropped + (usage.bytes - before)
      if (dropped === 0 || dropped >= excess) continue
      usage.isUsed = true
      isMore = true
    }
    return isMore
  }

  async #measure(databaseId: string): Promise<number> {
    const [row] = await this.#database.query<{ bytes: number }>(sql`
      select coalesce(sum(size), 0)::float8 as bytes from ${new DatabaseSchema(databaseId).answers}`)
    return row?.bytes ?? 0
  }

  /** Drops the texts of the oldest answers until the given bytes are free. Returns how many it has freed. */
  async #drop(databaseId: string, bytes: number): Promise<number> {
    const [row] = await this.#database.query<{ bytes: number; count: number }>(sql`
      with oldest as (
        select hash, created_at, size
        from ${new DatabaseSchema(databaseId).answers}
        where body is not null
        order by created_at
        limit ${STEP_ANSWERS}
      ),
      summed as (
        select hash, size - ${ANSWER_ENTRY_BYTES} as freed,
          sum(size - ${ANSWER_ENTRY_BYTES}) over (order by created_at, hash) as total
        from oldest
      ),
      dropped as (
        update ${new DatabaseSchema(databaseId).answers} k
        set body = null, size = ${ANSWER_ENTRY_BYTES}
        from summed s
        where k.hash = s.hash and s.total - s.freed < ${bytes} and k.body is not null
        returning s.freed
      )
      select coalesce(sum(freed), 0)::float8 as bytes, count(*)::integer as count from dropped`)
    collected.add('answer', row?.count ?? 0)
    return row?.bytes ?? 0
  }
}

/** A database that was deleted has no answers. */
function unlessDeleted(error: unknown): undefined {
  if (!isUndefinedTable(error)) throw error
}

const known = new WeakMap<Database, KeptAnswers>()

export function keptAnswersOf(database: Database): KeptAnswers {
  let answers = known.get(database)
  if (answers === undefined) {
    answers = new KeptAnswers(database)
    known.set(database, answers)
  }
  return answers
}
