import { sql } from '../../postgres/sql.js'

/**
 * True of the branches that can be used. One that has expired is gone at that moment, not when it is
 * collected; protection suspends the expiry.
 */
export const isLive = sql`
  (deleted_at is null and (protected or expires_at is null or expires_at > now()))`

/** True of the branches that wait to be collected. */
export const isExpired = sql`(deleted_at is null and not protected and expires_at <= now())`
