import { sql } from '../../postgres/sql.js'

/**
 * Condition for branches that can be used. An expired branch is unusable from the moment it expires,
 * even if it has not been deleted yet. Protection suspends the expiry.
 */
export const isLive = sql`
  (deleted_at is null and (protected or expires_at is null or expires_at > now()))`

/** Condition for branches that have expired and have not been deleted yet. */
export const isExpired = sql`(deleted_at is null and not protected and expires_at <= now())`
