import { setTimeout as delay } from 'node:timers/promises'
import { Database } from '../../../packages/server/src/postgres/database.js'
import { foldBranches } from '../folding.js'
import type { Random } from '../seeded-random.js'
import { DATABASE, type ProofService } from './service.js'

const PAUSE_MS = 20

/**
 * Folds random tables of a service all the time, as its background does with long chains. It is another process on
 * the same PostgreSQL, and fails whenever PostgreSQL does.
 */
export class Folding {
  folds = 0

  constructor(
    readonly service: ProofService,
    readonly random: Random,
  ) {}

  async run(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      // A socket of an embedded server that was restarted is a new one.
      const database = new Database({
        poolMax: 2,
        statementTimeoutMs: 0,
        onIdleError: () => undefined,
      })
      try {
        database.connect(await this.service.connection())
        while (!signal.aborted) {
          const options = { databaseName: DATABASE, random: this.random, probability: 0.3 }
          this.folds += await foldBranches({ database }, options)
          await delay(PAUSE_MS)
        }
      } catch {
        await delay(PAUSE_MS)
      } finally {
        await database.close().catch(() => undefined)
      }
    }
  }
}
