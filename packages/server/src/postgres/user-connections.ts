import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { Permits } from '../common/permits.js'
import { LostBackendError } from './bounds.js'
import type { Database } from './database.js'
import { sql } from './sql.js'
import type { Lane } from './user-settings.js'

/*
 * Connections for SQL of users. They are separate from the pool, so that a slow statement cannot block
 * other requests, and limited per workspace, so that no workspace can take all of them.
 */

interface UserConnectionLimits {
  /** Connections for SQL of users. */
  readonly sqlConnectionsMax: number
  /** Connections for one workspace. */
  readonly sqlConnectionsPerWorkspaceMax: number
  /** Requests that wait for a connection; further ones are refused. */
  readonly sqlWaitingMax: number
  /** Waiting requests of one workspace. */
  readonly sqlWaitingPerWorkspaceMax: number
  /** How long a request waits for a connection. */
  readonly sqlWaitMs: number
  /** Connections for statements that end soon, and for those of one workspace. */
  readonly sqlQuickConnectionsMax: number
  readonly sqlQuickConnectionsPerWorkspaceMax: number
  /** Transactions that clients keep open, and those of one workspace. */
  readonly sqlTransactionsMax: number
  readonly sqlTransactionsPerWorkspaceMax: number
}

/** Returns how many connections each lane takes. */
export function userConnectionsMax(limits: UserConnectionLimits): Readonly<Record<Lane, number>> {
  return {
    quick: limits.sqlQuickConnectionsMax,
    long: limits.sqlConnectionsMax,
    open: limits.sqlTransactionsMax,
  }
}

/** Interval at which an abandoned backend is checked for its end. */
const LOST_CHECK_MS = 1_000

/**
 * A connection that was used for longer is replaced. A backend does not return all of its memory to the
 * system after a large statement, and a statement that takes much memory takes time.
 */
export const KEPT_USE_MS_MAX = 1_000

export class UserConnections {
  readonly #database: Database
  readonly #permits: Readonly<Record<Lane, Permits>>
  #lost = 0

  constructor(database: Database, limits: UserConnectionLimits) {
    this.#database = database
    const permitsOf = (permits: { permitsMax: number; permitsPerOwnerMax: number }) =>
      new Permits(
        {
          ...permits,
          waitingMax: limits.sqlWaitingMax,
          waitingPerOwnerMax: limits.sqlWaitingPerWorkspaceMax,
          waitMs: limits.sqlWaitMs,
        },
        tooManyStatements,
      )
    this.#permits = {
      quick: permitsOf({
        permitsMax: limits.sqlQuickConnectionsMax,
        permitsPerOwnerMax: limits.sqlQuickConnectionsPerWorkspaceMax,
      }),
      long: permitsOf({
        permitsMax: limits.sqlConnectionsMax,
        permitsPerOwnerMax: limits.sqlConnectionsPerWorkspaceMax,
      }),
      open: permitsOf({
        permitsMax: limits.sqlTransactionsMax,
        permitsPerOwnerMax: limits.sqlTransactionsPerWorkspaceMax,
      }),
    }
  }

  /** Slots in use, slots of abandoned backends, and waiting requests. */
  get state(): { held: number; lost: number; waiting: number } {
    const lanes = Object.values(this.#permits)
    return {
      held: lanes.reduce((sum, { held }) => sum + held, 0),
      lost: this.#lost,
      waiting: lanes.reduce((sum, { waiting }) => sum + waiting, 0),
    }
  }

  /**
   * Returns a connection for a statement in a workspace. Its slot is freed when its backend has
   * ended the statement.
   */
  async connect(
    workspaceId: string,
    { lane, signal }: { lane: Lane; signal?: AbortSignal | undefined },
  ): Promise<pg.PoolClient> {
    const permits = this.#permits[lane]
    if (!permits.tryEnter(workspaceId)) await permits.enter(workspaceId, signal)
    try {
      const client = await this.#database.userPool(lane).connect()
      const release = client.release.bind(client)
      const startedAt = performance.now()
      client.release = (error) => {
        release(error ?? performance.now() - startedAt > KEPT_USE_MS_MAX)
        if (error instanceof LostBackendError)
          void this.#whenEnded(error.processId).then(() => permits.leave(workspaceId))
        else permits.leave(workspaceId)
      }
      return client
    } catch (error) {
      permits.leave(workspaceId)
      throw error
    }
  }

  async #whenEnded(processId: number): Promise<void> {
    this.#lost++
    while (await this.#isRunning(processId)) {
      await new Promise((resolve) => setTimeout(resolve, LOST_CHECK_MS).unref())
    }
    this.#lost--
  }

  /**
   * Returns whether the backend exists. If PostgreSQL does not answer, it is assumed to; if the
   * database is closed, not.
   */
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
    'too many SQL statements are running; nothing was applied, try again later',
  )
}
