import { type Sql, sql } from './sql.js'

/*
 * Queues of background work are tables with the columns `due_at`, `failures` and `error`. Work that fails is
 * postponed, so that it blocks nothing behind it.
 */

/** Work that fails is repeated after this time, which doubles with each failure. */
const REPEAT_SECONDS = 2
const REPEAT_SECONDS_MAX = 3600
/** Maximum number of characters of an error that is kept for operators. */
const ERROR_LENGTH_MAX = 500

/** Returns the text of an error as a queue keeps it. */
export function errorText(error: unknown): string {
  return (error instanceof Error ? error.message : String(error)).slice(0, ERROR_LENGTH_MAX)
}

/** Returns assignments that postpone an entry of a queue after a failure. */
export function postponement(error: string): Sql {
  return sql`failures = failures + 1, error = ${error},
    due_at = now() + make_interval(
      secs => least(${REPEAT_SECONDS_MAX}, ${REPEAT_SECONDS} * 2 ^ least(failures, 20)))`
}
