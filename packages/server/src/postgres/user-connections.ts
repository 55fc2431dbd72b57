import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
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

interface Waiting {
  readonly workspaceId: string
  start(): void
}

export class UserConnections {
  readonly #database: Database
  readonly #limits: UserConnectionLimits
  readonly #held = new Map<string, number>()
  #heldInAll = 0
  #lost = 0
  #waiting: Waiting[] = []

  constructor(database: Database, limits: UserConnectionLimits) {
    this.#database = database
    this.#limits = limits
  }

  /** Places that are taken, of which some may be by backends that nobody waits for any more. */
  get state(): { held: number; lost: number; waiting: number } {
    return { held: this.#heldInAll, lost: this.#lost, waiting: this.#waiting.length }
  }

  /** A connection for a statement in a workspace. Its place is free once its backend is. */
  async connect(workspaceId: string, signal?: AbortSignal): Promise<pg.PoolClient> {
    await this.#enter(workspaceId, signal)
    try {
      const client = await this.#database.userPool.connect()
      const release = client.release.bind(client)
      client.release = (error) => {
        release(error)
        if (error instanceof LostBackendError)
          void this.#leaveWhenEnded(workspaceId, error.processId)
        else this.#leave(workspaceId)
      }
      return client
    } catch (error) {
      this.#leave(workspaceId)
      throw error
    }
  }

  #hasPlace(workspaceId: string): boolean {
    const { sqlConnectionsMax, sqlConnectionsPerWorkspaceMax } = this.#limits
    return (
      this.#heldInAll < sqlConnectionsMax &&
      (this.#held.get(workspaceId) ?? 0) < sqlConnectionsPerWorkspaceMax
    )
  }

  #take(workspaceId: string): void {
    this.#heldInAll++
    this.#held.set(workspaceId, (this.#held.get(workspaceId) ?? 0) + 1)
  }

  #enter(workspaceId: string, signal: AbortSignal | undefined): Promise<void> {
    if (this.#hasPlace(workspaceId)) {
      this.#take(workspaceId)
      return Promise.resolve()
    }
    const { sqlWaitingMax, sqlWaitingPerWorkspaceMax } = this.#limits
    const others = this.#waiting.filter((waiting) => waiting.workspaceId === workspaceId)
    if (this.#waiting.length >= sqlWaitingMax || others.length >= sqlWaitingPerWorkspaceMax) {
      throw tooManyStatements()
    }
    return new Promise((resolve, reject) => {
      const stopWaiting = () => {
        clearTimeout(timer)
        signal?.removeEventListener('abort', giveUp)
        this.#waiting = this.#waiting.filter((each) => each !== waiting)
      }
      const giveUp = () => {
        stopWaiting()
        reject(tooManyStatements())
      }
      const waiting: Waiting = {
        workspaceId,
        start: () => {
          stopWaiting()
          this.#take(workspaceId)
          resolve()
        },
      }
      const timer = setTimeout(giveUp, this.#limits.sqlWaitMs)
      signal?.addEventListener('abort', giveUp, { once: true })
      this.#waiting.push(waiting)
    })
  }

  #leave(workspaceId: string): void {
    this.#heldInAll--
    const left = (this.#held.get(workspaceId) ?? 1) - 1
    if (left === 0) this.#held.delete(workspaceId)
    else this.#held.set(workspaceId, left)
    // Whoever came first among those that have a place now.
    this.#waiting.find((waiting) => this.#hasPlace(waiting.workspaceId))?.start()
  }

  async #leaveWhenEnded(workspaceId: string, processId: number): Promise<void> {
    this.#lost++
    while (await this.#isRunning(processId)) {
      await new Promise((resolve) => setTimeout(resolve, LOST_CHECK_MS).unref())
    }
    this.#lost--
    this.#leave(workspaceId)
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

function tooManyStatements(): AppError {
  return new AppError(
    'overloaded',
    'there are more SQL statements at once than can be run; nothing was applied, please try again',
  )
}
