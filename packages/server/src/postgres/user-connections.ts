import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { Places } from '../common/places.js'
import { LostBackendError } from './bounds.js'
import type { Database } from './database.js'
import { sql } from './sql.js'

/*
 * Connections for SQL that callers write. They are apart from those of records and queries, so that no
 * statement can keep those waiting, and nobody can have all of them.
 */

export interface UserConnectionLimits {
  /** Connections for SQL of callers. */
  readonly sqlConnectionsMax: number
  /** Of these, for one workspace. */
  readonly sqlConnectionsPerWorkspaceMax: number
  /** Requests that wait for one; more are refused. */
  readonly sqlWaitingMax: number
  /** Of these, for one workspace. */
  readonly sqlWaitingPerWorkspaceMax: number
  /** How long a request waits for one. */
  readonly sqlWaitMs: number
}

/** How often it is looked whether a backend that was given up has ended. */
const LOST_CHECK_MS = 1_000

export class UserConnections {
  readonly #database: Database
  readonly #places: Places
  #lost = 0

  constructor(database: Database, limits: UserConnectionLimits) {
    this.#database = database
    this.#places = new Places(
      {
        placesMax: limits.sqlConnectionsMax,
        placesPerOwnerMax: limits.sqlConnectionsPerWorkspaceMax,
        waitingMax: limits.sqlWaitingMax,
        waitingPerOwnerMax: limits.sqlWaitingPerWorkspaceMax,
        waitMs: limits.sqlWaitMs,
      },
      tooManyStatements,
    )
  }

  /** Places that are taken, of which some may be by backends that nobody waits for any more. */
  get state(): { held: number; lost: number; waiting: number } {
    return { held: this.#places.held, lost: this.#lost, waiting: this.#places.waiting }
  }

  /** A connection for a statement in a workspace. Its place is free once its backend is. */
  async connect(workspaceId: string, signal?: AbortSignal): Promise<pg.PoolClient> {
    await this.#places.enter(workspaceId, signal)
    try {
      const client = await this.#database.userPool.connect()
      const release = client.release.bind(client)
      client.release = (error) => {
        release(error)
        if (error instanceof LostBackendError)
          void this.#leaveWhenEnded(workspaceId, error.processId)
        else this.#places.leave(workspaceId)
      }
      return client
    } catch (error) {
      this.#places.leave(workspaceId)
      throw error
    }
  }

  async #leaveWhenEnded(workspaceId: string, processId: number): Promise<void> {
    this.#lost++
    while (await this.#isRunning(processId)) {
      await new Promise((resolve) => setTimeout(resolve, LOST_CHECK_MS).unref())
    }
    this.#lost--
    this.#places.leave(workspaceId)
  }

  /** While PostgreSQL cannot be asked, it may. Without a database, nothing does. */
  async #isRunning(processId: number): Promise<boolean> {
    try {
      const found = await this.#database.queryAside(
        sql`select 1 from pg_stat_activity where pid = ${processId} and application_name = 'offshoot'`,
      )
      return found.length > 0
    } catch {
      return this.#database.isConnected
    }
  }
}

export function tooManyStatements(): AppError {
  return new AppError(
    'overloaded',
    'there are more SQL statements at once than can be run; nothing was applied, please try again',
  )
}
