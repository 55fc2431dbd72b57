import { createHash } from 'node:crypto'
import type { Database, Queryable } from '../postgres/database.js'
import { type Sql, sql } from '../postgres/sql.js'
import { WireError } from './wire-error.js'

/*
 * Advisory locks of clients. They belong to a database with all of its branches, and exclude the clients of all processes. A
 * process holds them in PostgreSQL by one connection, and decides itself between its own clients. If that connection breaks,
 * PostgreSQL gives the locks to others, so the clients that hold them are disconnected.
 */

/** Locks of one connection, of one workspace, and of one process. They take shared memory of PostgreSQL. */
const OWNED_MAX = 50
const PER_WORKSPACE_MAX = 200
const HELD_MAX = 1_000
/** How often a lock is tried that another process holds. */
const RETRY_MS = 100

/** A lock that is asked for. */
export interface LockRequest {
  readonly databaseId: string
  /** The number, or the two numbers, that the client gives. */
  readonly key: string
  readonly isShared: boolean
  /** Whether it ends with the transaction. */
  readonly isOfTransaction: boolean
}

interface Hold {
  readonly id: string
  readonly isShared: boolean
  readonly isOfTransaction: boolean
}

interface Waiter {
  readonly owner: LockOwner
  readonly isShared: boolean
  readonly isTry: boolean
  settle(isGranted: boolean, error?: unknown): void
}

interface LockState {
  readonly id: string
  /** Holds by owner: shared and exclusive ones. */
  readonly holders: Map<LockOwner, { shared: number; exclusive: number }>
  readonly waiting: Waiter[]
  isBusy: boolean
  /** Whether there was a change since the first that waits was looked at. */
  hasChanged: boolean
  retry: NodeJS.Timeout | undefined
}

/** The advisory locks of a process. */
export class AdvisoryLocks {
  readonly #database: Database
  readonly #states = new Map<string, LockState>()
  readonly #owners = new Set<LockOwner>()
  #connection: Promise<Queryable & { end(): Promise<void> }> | undefined

  constructor(database: Database) {
    this.#database = database
  }

  /** Returns the locks of a client. `onLost` is called if PostgreSQL no longer holds them. */
  open(workspaceId: string, onLost: () => void): LockOwner {
    const owner = new LockOwner(this, workspaceId, onLost)
    this.#owners.add(owner)
    return owner
  }

  forget(owner: LockOwner): void {
    this.#owners.delete(owner)
  }

  requireRoom(owner: LockOwner): void {
    const owners = [...this.#owners]
    const count = (counted: readonly LockOwner[]) =>
      counted.reduce((sum, { heldCount }) => sum + heldCount, 0)
    const sameWorkspace = owners.filter(({ workspaceId }) => workspaceId === owner.workspaceId)
    const isFull =
      owner.heldCount >= OWNED_MAX ||
      count(sameWorkspace) >= PER_WORKSPACE_MAX ||
      count(owners) >= HELD_MAX
    if (isFull) throw new WireError('53200', 'too many advisory locks are held')
  }

  #stateOf(id: string): LockState {
    let state = this.#states.get(id)
    if (state === undefined) {
      state = {
        id,
        holders: new Map(),
        waiting: [],
        isBusy: false,
        hasChanged: false,
        retry: undefined,
      }
      this.#states.set(id, state)
    }
    return state
  }

  enqueue(id: string, waiter: Waiter): void {
    const state = this.#stateOf(id)
    // Who holds the lock already, or does not wait, is not kept back by others that wait.
    if (waiter.isTry || state.holders.has(waiter.owner)) state.waiting.unshift(waiter)
    else state.waiting.push(waiter)
    void this.#advance(state)
  }

  withdraw(id: string, waiter: Waiter): void {
    const state = this.#stateOf(id)
    const index = state.waiting.indexOf(waiter)
    if (index !== -1) state.waiting.splice(index, 1)
    void this.#advance(state)
  }

  async release(id: string, owner: LockOwner, isShared: boolean): Promise<void> {
    const state = this.#stateOf(id)
    const counts = state.holders.get(owner)
    if (counts === undefined) return
    counts[isShared ? 'shared' : 'exclusive']--
    if (counts.shared + counts.exclusive === 0) state.holders.delete(owner)
    await this.#ask(isShared ? unlockShared(id) : unlock(id)).catch(() => undefined)
    await this.#advance(state)
  }

  /** Gives the lock to the first that waits, if nobody else holds it. */
  async #advance(state: LockState): Promise<void> {
    state.hasChanged = true
    if (state.isBusy) return
    state.isBusy = true
    while (state.hasChanged) {
      state.hasChanged = false
      if (await this.#advanceOnce(state)) state.hasChanged = true
    }
    state.isBusy = false
    if (state.waiting.length > 0 || state.holders.size > 0) return
    clearTimeout(state.retry)
    if (this.#states.get(state.id) === state) this.#states.delete(state.id)
    if (this.#states.size === 0) this.#disconnect()
  }

  /** Returns whether another one may follow. */
  async #advanceOnce(state: LockState): Promise<boolean> {
    const [first] = state.waiting
    if (first === undefined) return false
    const { owner, isShared, isTry } = first
    const isFree = [...state.holders].every(
      ([holder, counts]) => holder === owner || (isShared && counts.exclusive === 0),
    )
    let isGranted = false
    try {
      isGranted = isFree && (await this.#ask(isShared ? tryShared(state.id) : tryLock(state.id)))
    } catch (error) {
      remove(state, first)
      first.settle(false, error)
      return true
    }
    const isWaiting = state.waiting.includes(first)
    if (isGranted && !isWaiting) {
      await this.#ask(isShared ? unlockShared(state.id) : unlock(state.id)).catch(() => undefined)
      return true
    }
    if (!isGranted && !isTry) {
      if (isFree) this.#retryLater(state)
      return !isWaiting
    }
    remove(state, first)
    if (isGranted) {
      const counts = state.holders.get(owner) ?? { shared: 0, exclusive: 0 }
      counts[isShared ? 'shared' : 'exclusive']++
      state.holders.set(owner, counts)
    }
    first.settle(isGranted)
    return true
  }

  #retryLater(state: LockState): void {
    clearTimeout(state.retry)
    state.retry = setTimeout(() => void this.#advance(state), RETRY_MS).unref()
  }

  async #ask(statement: Sql): Promise<boolean> {
    this.#connection ??= this.#connect()
    const [row] = await (await this.#connection).query<{ done: boolean }>(statement)
    return row?.done === true
  }

  #connect(): Promise<Queryable & { end(): Promise<void> }> {
    const lost = () => {
      if (this.#connection === connection) this.#lose()
    }
    const connection = this.#database.openLong({ onEnd: lost })
    connection.catch(lost)
    return connection
  }

  /** PostgreSQL has given up all locks. */
  #lose(): void {
    this.#connection = undefined
    this.#states.clear()
    for (const owner of [...this.#owners]) if (owner.heldCount > 0) owner.lose()
  }

  #disconnect(): void {
    const connection = this.#connection
    this.#connection = undefined
    connection?.then((open) => open.end()).catch(() => undefined)
  }
}

function remove(state: LockState, waiter: Waiter): void {
  const index = state.waiting.indexOf(waiter)
  if (index !== -1) state.waiting.splice(index, 1)
}

const tryLock = (id: string) => sql`select pg_try_advisory_lock(${id}::bigint) as done`
const tryShared = (id: string) => sql`select pg_try_advisory_lock_shared(${id}::bigint) as done`
const unlock = (id: string) => sql`select pg_advisory_unlock(${id}::bigint) as done`
const unlockShared = (id: string) => sql`select pg_advisory_unlock_shared(${id}::bigint) as done`

/** Returns the number under which PostgreSQL knows a lock. The locks of the service have other numbers. */
function idOf({ databaseId, key }: Pick<LockRequest, 'databaseId' | 'key'>): string {
  const digest = createHash('sha256').update(`advisory lock ${databaseId} ${key}`).digest()
  return String(digest.readBigInt64BE(0))
}

/** The advisory locks of one client. */
export class LockOwner {
  readonly #locks: AdvisoryLocks
  readonly #onLost: () => void
  readonly #holds: Hold[] = []
  #isClosed = false

  constructor(
    locks: AdvisoryLocks,
    readonly workspaceId: string,
    onLost: () => void,
  ) {
    this.#locks = locks
    this.#onLost = onLost
  }

  get heldCount(): number {
    return this.#holds.length
  }

  /** Takes a lock at once. Returns whether it was free. */
  tryLock(request: LockRequest): Promise<boolean> {
    return this.#take(request, { isTry: true })
  }

  /** Takes a lock, and waits for it. */
  async lock(
    request: LockRequest,
    { signal, timeoutMs, timeout }: { signal: AbortSignal; timeoutMs: number; timeout: WireError },
  ): Promise<void> {
    const late = AbortSignal.timeout(timeoutMs)
    await this.#take(request, { isTry: false, stops: [signal, late] }).catch((error: unknown) => {
      throw late.aborted && !signal.aborted ? timeout : error
    })
  }

  async #take(
    request: LockRequest,
    { isTry, stops = [] }: { isTry: boolean; stops?: readonly AbortSignal[] },
  ): Promise<boolean> {
    this.#locks.requireRoom(this)
    const { isShared, isOfTransaction } = request
    const id = idOf(request)
    const stop = AbortSignal.any([...stops])
    const isGranted = await new Promise<boolean>((resolve, reject) => {
      const waiter: Waiter = {
        owner: this,
        isShared,
        isTry,
        settle(granted, error) {
          stop.removeEventListener('abort', onStop)
          if (error === undefined) resolve(granted)
          else reject(error)
        },
      }
      const onStop = () => {
        this.#locks.withdraw(id, waiter)
        reject(new WireError('57014', 'canceling statement due to user request'))
      }
      if (stop.aborted) onStop()
      else {
        stop.addEventListener('abort', onStop, { once: true })
        this.#locks.enqueue(id, waiter)
      }
    })
    if (!isGranted) return false
    this.#holds.push({ id, isShared, isOfTransaction })
    if (this.#isClosed) await this.close()
    return true
  }

  /** Gives a lock back. Returns false if it is not held. */
  async unlock(request: Omit<LockRequest, 'isOfTransaction'>): Promise<boolean> {
    const id = idOf(request)
    const index = this.#holds.findLastIndex(
      (hold) => hold.id === id && hold.isShared === request.isShared && !hold.isOfTransaction,
    )
    const [hold] = index === -1 ? [] : this.#holds.splice(index, 1)
    if (hold === undefined) return false
    await this.#locks.release(hold.id, this, hold.isShared)
    return true
  }

  /** Gives back the locks that do not belong to the transaction. */
  unlockAll(): Promise<void> {
    return this.#releaseEach(({ isOfTransaction }) => !isOfTransaction)
  }

  /** Gives back the locks of the transaction, which has ended. */
  endTransaction(): Promise<void> | undefined {
    const isHeld = this.#holds.some(({ isOfTransaction }) => isOfTransaction)
    return isHeld ? this.#releaseEach(({ isOfTransaction }) => isOfTransaction) : undefined
  }

  async close(): Promise<void> {
    this.#isClosed = true
    await this.#releaseEach(() => true)
    this.#locks.forget(this)
  }

  /** The locks are gone, so the client must not go on. */
  lose(): void {
    this.#holds.length = 0
    this.#onLost()
  }

  async #releaseEach(isReleased: (hold: Hold) => boolean): Promise<void> {
    const released = this.#holds.filter(isReleased)
    const kept = this.#holds.filter((hold) => !isReleased(hold))
    this.#holds.splice(0, this.#holds.length, ...kept)
    for (const { id, isShared } of released) await this.#locks.release(id, this, isShared)
  }
}
