import { AppError } from '@offshoot/contract/errors'
import { BoundedCache } from '../../common/bounded-cache.js'
import type { Database } from '../../postgres/database.js'
import { quotaRefusals } from '../../telemetry/events.js'
import { QUOTA_SECONDS } from './measure.js'
import { getUsage, listUsage, updateDueAt } from './queries.js'
import { WorkspaceRoom } from './workspace-room.js'

const ROOMS_MAX = 20_000

/**
 * Enforces the quotas of workspaces. Writes are checked against usage in memory. Usage is read from
 * PostgreSQL at the first write to a workspace, and refreshed in the background.
 */
export class Quotas {
  /** The quota of workspaces without one of their own. Null means unlimited. */
  readonly bytesMaxDefault: number | null
  readonly #database: Database
  readonly #rooms = new BoundedCache<WorkspaceRoom>({ max: ROOMS_MAX })

  constructor(database: Database, { bytesMaxDefault }: { bytesMaxDefault: number | null }) {
    this.#database = database
    this.bytesMaxDefault = bytesMaxDefault
  }

  /** Starts counting the bytes that one request adds to a workspace. */
  growth(workspaceId: string, options: { bodyBytes?: number; showsUsage: boolean }): Growth {
    return new Growth(this, { workspaceId, bodyBytes: 0, ...options })
  }

  /** Returns the room of a workspace if its usage was read before. */
  knownRoom(workspaceId: string): WorkspaceRoom | undefined {
    return this.#rooms.get(workspaceId)
  }

  async room(workspaceId: string): Promise<WorkspaceRoom> {
    const known = this.knownRoom(workspaceId)
    if (known !== undefined) return known
    const { bytesMaxDefault } = this
    const row = await getUsage(this.#database, { workspaceId, bytesMaxDefault })
    // A concurrent request may have added the entry already.
    const room = this.#rooms.get(workspaceId) ?? new WorkspaceRoom(row)
    this.#rooms.set(workspaceId, room)
    return room
  }

  /** Refreshes usage and quotas of the workspaces that this process uses. */
  async refresh(workspaceIds: readonly string[] = [...this.#rooms.keys()]): Promise<void> {
    const refreshes = new Map<string, ReturnType<WorkspaceRoom['startRefresh']>>()
    for (const workspaceId of workspaceIds) {
      const room = this.#rooms.get(workspaceId)
      if (room !== undefined) refreshes.set(workspaceId, room.startRefresh())
    }
    if (refreshes.size === 0) return
    const rows = await listUsage(this.#database, {
      workspaceIds: [...refreshes.keys()],
      bytesMaxDefault: this.bytesMaxDefault,
    })
    for (const row of rows) refreshes.get(row.workspaceId)?.(row)
    const limited = rows.filter(({ bytesMax }) => bytesMax !== null)
    if (limited.length === 0) return
    // A quota may be newer than the last measurement, such as a default after a restart.
    await updateDueAt(this.#database, {
      workspaceIds: limited.map(({ workspaceId }) => workspaceId),
      withinSeconds: QUOTA_SECONDS,
    })
  }

  /** Schedules a measurement of a workspace in the next round, after a write of unknown size. */
  async measureSoon(workspaceId: string): Promise<void> {
    const { bytesMax } = await this.room(workspaceId)
    if (bytesMax === null) return
    await updateDueAt(this.#database, { workspaceIds: [workspaceId], withinSeconds: 0 })
  }
}

/** Counts the bytes that one request adds to a workspace, before they are written. */
export class Growth {
  readonly workspaceId: string
  readonly #quotas: Quotas
  readonly #bodyBytes: number
  readonly #showsUsage: boolean
  #room: WorkspaceRoom | undefined
  #bytes = 0
  #hasBody = false

  constructor(
    quotas: Quotas,
    options: { workspaceId: string; bodyBytes: number; showsUsage: boolean },
  ) {
    this.#quotas = quotas
    this.workspaceId = options.workspaceId
    this.#bodyBytes = options.bodyBytes
    this.#showsUsage = options.showsUsage
  }

  /** Refuses a write that exceeds the quota. Pass 0 if its size is not known yet. */
  async admit(bytes: number): Promise<void> {
    this.#room ??= await this.#quotas.room(this.workspaceId)
    this.#count(this.#room, bytes)
  }

  /**
   * Refuses a request whose body exceeds the quota. Retries do not count the body again. Every write calls this,
   * so there is no promise if the usage is known.
   */
  admitBody(): Promise<void> | undefined {
    if (this.#hasBody) return undefined
    this.#room ??= this.#quotas.knownRoom(this.workspaceId)
    if (this.#room === undefined) return this.admit(0).then(() => this.admitBody())
    this.#count(this.#room, this.#bodyBytes)
    this.#hasBody = true
    return undefined
  }

  #count(room: WorkspaceRoom, bytes: number): void {
    if (!room.hasRoomFor(bytes)) {
      quotaRefusals.add()
      throw quotaExceeded(room, this.#showsUsage)
    }
    room.add(bytes)
    this.#bytes += bytes
  }

  /** Subtracts the counted bytes, because they were not written. */
  undo(): void {
    this.#room?.add(-this.#bytes)
    this.#bytes = 0
    this.#hasBody = false
  }
}

/** The usage is not shown to links and keys that are restricted to a part of the workspace. */
function quotaExceeded({ bytesUsed, bytesMax }: WorkspaceRoom, showsUsage: boolean): AppError {
  const amounts = showsUsage ? `: ${bytesUsed} of ${bytesMax} bytes are used` : ''
  return new AppError(
    'quota_exceeded',
    `the workspace has no room for this${amounts}; nothing was stored`,
  )
}
