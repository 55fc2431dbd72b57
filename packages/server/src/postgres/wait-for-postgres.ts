import { setTimeout as delay } from 'node:timers/promises'
import type { Database } from './database.js'
import { codeOf, isUnreachable } from './failures.js'
import { sql } from './sql.js'

const ATTEMPT_EVERY_MS = 500
const REPORT_EVERY_MS = 5_000

/**
 * Waits until PostgreSQL accepts connections, because it may be started together with the service.
 * Throws at once if waiting cannot help, such as for a wrong password, and when the time is up.
 */
export async function waitForPostgres(
  database: Database,
  options: {
    waitMs: number
    signal: AbortSignal
    onWait(details: { code: string | undefined; secondsLeft: number }): void
  },
): Promise<void> {
  const end = performance.now() + options.waitMs
  let reportAt = performance.now()
  for (;;) {
    try {
      await database.query(sql`select 1`)
      return
    } catch (error) {
      const now = performance.now()
      if (!isUnreachable(error) || now >= end) throw error
      if (now >= reportAt) {
        options.onWait({ code: codeOf(error), secondsLeft: Math.ceil((end - now) / 1000) })
        reportAt = now + REPORT_EVERY_MS
      }
      await delay(Math.min(ATTEMPT_EVERY_MS, end - now), undefined, { signal: options.signal })
    }
  }
}
