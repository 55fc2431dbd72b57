import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { BoundedCache } from '../../common/bounded-cache.js'
import { BranchCache } from '../../common/branch-cache.js'
import { requireDirectChanges } from '../../domain/access/approvals.js'
import type { Principal } from '../../domain/access/principal.js'
import type { BranchExpiry } from '../../domain/access/resolve.js'
import { type Need, reachesWholeWorkspace, requireAccess } from '../../domain/access/scope.js'
import type { OpenedBranch } from '../../domain/branches/create-branch.js'
import { updateBranchExpiries } from '../../domain/branches/queries.js'
import { renewExpiry } from '../../domain/branches/renew-expiry.js'
import { BranchUses } from '../../domain/branches/uses.js'
import { getCheckpointAt } from '../../domain/checkpoints/find-at.js'
import { Quotas } from '../../domain/quotas/quotas.js'
import type { Queryable } from '../../postgres/database.js'
import type { FileForm } from '../../rows/columns/file-value.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { isConfirmed, StaleError } from '../../rows/running/staleness.js'
import type { Storage } from '../../rows/storage.js'
import { SchemaCache } from './compiled-schema.js'
import { CursorSecret } from './cursor-secret.js'
import {
  openPast,
  openSession,
  type ResolvedBranch,
  reopenSession,
  resolveLinkedBranch,
  resolveSession,
  type SessionAddress,
  type SessionSources,
} from './resolve-session.js'
import { type BranchSession, createSession, type Session } from './session.js'
import { TakenNumbers } from './taken-numbers.js'

/** A request to the data plane: its key, its address and the access it needs. */
export interface SessionRequest extends SessionAddress {
  readonly need: Need
  /** The operation checks by itself whether the branches that it changes require approvals. */
  readonly checksApprovals?: boolean
  readonly requestId?: string
  /** The state of the past to read: a checkpoint, or a time. undefined: the present state. */
  readonly at?: string | undefined
  /** Called with the checkpoint that `at` stands for. */
  readonly onCheckpoint?: ((id: string) => void) | undefined
  /** `http://host:port`, as the client reaches the service. */
  readonly origin: string
  /** Bytes of the body, which the workspace would grow by. */
  readonly bodyBytes?: number
  /** The operation neither writes nor returns links to files, so its session is the one in the cache. */
  readonly isBare?: boolean
}

/** Creates the links to files in responses. */
interface SessionLinks {
  load(database: Queryable): Promise<void>
  form(options: { origin: string; branchId: string; canUpload: boolean }): FileForm
}

const SESSIONS_MAX = 10_000
/** The total number of stored columns of all cached sessions. A session of a large schema takes megabytes. */
const SESSION_COLUMNS_MAX = 4_000_000

const SESSION_CACHE = {
  max: SESSIONS_MAX,
  maxSize: SESSION_COLUMNS_MAX,
  sizeOf: ({ session }: { session: BranchSession }) => session.columnCount + 1,
}

/** A new branch is opened at once if its database has up to this number of columns: more make the fork slower. */
const OPENED_COLUMNS_MAX = 500

const ATTEMPTS_MAX = 20
/** The time for which links to a branch work without checking its expiry again. */
const LINKED_BRANCH_MS = 5_000

/**
 * A sliding expiry within this time is extended at once instead of with the next flush of uses, so that a
 * branch never expires while it is in use.
 */
const RENEW_WITHIN_MS = 30_000
/** For a short TTL, the limit is this part of it. The rest avoids a write with every request. */
const RENEW_WITHIN_PART = 0.9

interface Entry {
  readonly session: Session
  /** The time at which key and branch must be read again, because one of them may have expired. */
  readonly expiresAtMs: number
  /** Each use extends the expiry of the branch. */
  readonly isSliding: boolean
}

/** Caches sessions, and repeats operations whose session turns out to be outdated. */
export class Sessions {
  readonly quotas: Quotas
  readonly #sources: SessionSources & { readonly links: SessionLinks }
  readonly #branches = new BranchCache<ResolvedBranch & { untilMs: number }>(SESSION_CACHE)
  readonly #entries = new BranchCache<Entry>(SESSION_CACHE)
  /** The number of columns in the storage of a branch of a database, by the last session that was opened. */
  readonly #columnCounts = new BoundedCache<number>({ max: SESSIONS_MAX })
  readonly #uses = new BranchUses()

  constructor(
    storage: Storage,
    limits: Limits,
    links: SessionLinks,
    quotas = new Quotas(storage.database, { bytesMaxDefault: null }),
  ) {
    const schemas = new SchemaCache(limits)
    this.quotas = quotas
    this.#sources = { storage, schemas, links, cursorSecret: new CursorSecret(), quotas }
  }

  /** Runs an operation on a session. If the session was outdated, repeats the operation on a new one. */
  async run<Result>(
    request: SessionRequest,
    operation: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const key = keyOf(request)
    for (let attempt = 1; ; attempt++) {
      const entry = this.#known(key) ?? (await this.#open(key, request))
      const { session: known, isSliding } = entry
      const { scope, keyId } = known.principal
      this.#sources.storage.database.budget.useWorkspace(keyId, known.access.workspaceId)
      const { requestId, at } = request
      const session = request.isBare
        ? known
        : this.#startUse(known, {
            requestId,
            origin: request.origin,
            bodyBytes: request.bodyBytes ?? 0,
            canUpload: scope.access !== 'read' && known.requiredApprovals === 0,
            showsUsage: reachesWholeWorkspace(scope),
          })
      const endUse = isSliding ? this.#uses.start(known.access.branchId) : undefined
      let used = session
      try {
        requireAccess(session.principal.scope, request.need)
        if (request.need === 'write' && request.checksApprovals !== true) {
          requireDirectChanges({ ...session, ...session.access })
        }
        if (at !== undefined) {
          if (request.need === 'write') throw writesToPast()
          const past = await this.#openAt(key, session, at)
          const { origin } = request
          const form = { origin, bodyBytes: 0, canUpload: false, showsUsage: false }
          used = this.#startUse(past, { ...form, requestId })
          request.onCheckpoint?.(used.checkpoint ?? '')
        }
        return await operation(used)
      } catch (error) {
        session.growth.undo()
        await session.numbers.giveBack(error)
        await this.#requireStale(used, error)
        if (used.checkpoint !== undefined) this.#entries.delete(pastKey(key, used.checkpoint))
        const rows = error instanceof StaleError ? error.rows : undefined
        if (rows === undefined) this.#entries.delete(key)
        else this.#entries.set(key, { ...entry, session: withRows(known, rows) })
        if (attempt === ATTEMPTS_MAX) throw givenUp(error)
      } finally {
        endUse?.()
      }
    }
  }

  /**
   * Returns a session that reads a checkpoint of the branch of another one. The checkpoint is looked up each time: its name
   * may be given to another one, and a time may stand for a newer one. The guard compares the stamp of its pin.
   */
  async #openAt(key: string, present: Session, at: string): Promise<Session> {
    const { database } = this.#sources.storage
    const checkpoint = await getCheckpointAt(database, present.access, at)
    const known = this.#known(pastKey(key, checkpoint.id))?.session
    const past = known ?? (await openPast(this.#sources, present, checkpoint))
    if (past === undefined) throw new StaleError()
    if (known === undefined) this.#cache(pastKey(key, checkpoint.id), past, undefined)
    return past
  }

  /**
   * Runs an operation on the branch of a link, which authorises access. Counts as a use of the branch only if
   * the file exists.
   */
  async runOnBranch<Result>(
    { branchId, origin }: { branchId: string; origin: string },
    operation: (session: BranchSession) => Promise<Result>,
  ): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      const { session: known, isSliding } = await this.#openBranch(branchId)
      const session = this.#startUse(known, {
        origin,
        bodyBytes: 0,
        canUpload: false,
        showsUsage: false,
      })
      try {
        const result = await operation(session)
        if (isSliding && result !== undefined) this.#uses.start(branchId)()
        return result
      } catch (error) {
        session.growth.undo()
        await this.#requireStale(session, error)
        this.#branches.delete(branchId)
        if (attempt === ATTEMPTS_MAX) throw givenUp(error)
      }
    }
  }

  /** Returns a session for one request, with links to files for its origin, its own growth and its own numbers. */
  #startUse<Known extends BranchSession>(
    known: Known,
    options: {
      requestId?: string | undefined
      origin: string
      bodyBytes: number
      canUpload: boolean
      showsUsage: boolean
    },
  ): Known {
    const { branchId } = known.branch.rows
    const { requestId, origin, canUpload } = options
    const files = this.#sources.links.form({ origin, canUpload, branchId })
    const growth = this.quotas.growth(known.growth.workspaceId, options)
    const numbers = new TakenNumbers(known.branch)
    return { ...known, requestId, growth, numbers, metadata: { ...known.metadata, files } }
  }

  /** Extends the expiry of the branches that were used since the last call. */
  async flushUses(): Promise<void> {
    const branchIds = this.#uses.take()
    if (branchIds.length === 0) return
    try {
      await updateBranchExpiries(this.#sources.storage.database, branchIds)
    } catch (error) {
      this.#uses.restore(branchIds)
      throw error
    }
  }

  /**
   * Returns if an outdated session can be the reason for an error; throws the error otherwise. For an error
   * that depends on the session only, compares the stamps with PostgreSQL.
   */
  async #requireStale(session: BranchSession, error: unknown): Promise<void> {
    if (error instanceof StaleError) return
    if (isConfirmed(error) || (await this.#holds(session))) throw error
  }

  /** Checks that the key is valid and the branch exists. Uses the cache. */
  admit(request: SessionRequest): Principal | Promise<Principal> {
    const key = keyOf(request)
    const known = this.#known(key)
    if (known !== undefined) return known.session.principal
    return this.#open(key, request).then(({ session }) => session.principal)
  }

  /** Caches the session of a branch that was just created and does not expire, for its first request. */
  async adopt(request: SessionAddress, { branch, rows }: OpenedBranch): Promise<void> {
    const resolved = await openSession(this.#sources, request, { branch, rows })
    if (resolved !== undefined) this.#cache(keyOf(request), resolved.session, undefined)
  }

  /** Returns the session as a transaction sees it that has changed the schema of the branch. It is not cached. */
  reopen(session: Session, reads: Queryable): Promise<Session> {
    return reopenSession(this.#sources, session, reads)
  }

  /** Returns whether a new branch of a database should be opened with its creation. */
  opensNew(databaseId: string): boolean {
    return (this.#columnCounts.get(databaseId) ?? Number.POSITIVE_INFINITY) <= OPENED_COLUMNS_MAX
  }

  /** Checks in PostgreSQL that an earlier admission is still valid. */
  async confirm(request: SessionRequest): Promise<void> {
    const key = keyOf(request)
    const { session } = this.#known(key) ?? (await this.#open(key, request))
    if (await this.#holds(session)) return
    this.#entries.delete(key)
    await this.#open(key, request)
  }

  #known(key: string): Entry | undefined {
    const entry = this.#entries.get(key)
    return entry !== undefined && entry.expiresAtMs > Date.now() ? entry : undefined
  }

  async #open(key: string, request: SessionRequest): Promise<Entry> {
    const { session, branch } = await resolveSession(this.#sources, request)
    return this.#cache(key, session, await renewExpiry(this.#sources.storage.database, branch))
  }

  #cache(key: string, session: Session, expiry: BranchExpiry | undefined): Entry {
    const keyExpiresAtMs = session.principal.expiresAt?.getTime() ?? Number.POSITIVE_INFINITY
    const fresh = {
      session,
      expiresAtMs: Math.min(keyExpiresAtMs, lookAgainAtMs(expiry)),
      isSliding: expiry?.ttlMs !== undefined,
    }
    this.#entries.set(key, fresh)
    this.#columnCounts.set(session.access.databaseId, session.columnCount)
    return fresh
  }

  async #openBranch(branchId: string): Promise<ResolvedBranch> {
    const known = this.#branches.get(branchId)
    if (known !== undefined && known.untilMs > Date.now()) return known
    const entry = await resolveLinkedBranch(this.#sources, branchId)
    this.#branches.set(branchId, { ...entry, untilMs: Date.now() + LINKED_BRANCH_MS })
    return entry
  }

  /** Returns whether key and branch still have the stamps of the session. */
  async #holds({ branch }: BranchSession): Promise<boolean> {
    try {
      await branch.runReads([])
      return true
    } catch (error) {
      if (error instanceof StaleError) return false
      throw error
    }
  }
}

/** Returns a session whose branch has new storage. */
function withRows(session: Session, rows: BranchRows): Session {
  return { ...session, ...createSession({ ...session, branch: session.branch.withRows(rows) }) }
}

function lookAgainAtMs(expiry: BranchExpiry | undefined): number {
  if (expiry === undefined) return Number.POSITIVE_INFINITY
  const { atMs, ttlMs } = expiry
  return ttlMs === undefined ? atMs : atMs - Math.min(RENEW_WITHIN_MS, ttlMs * RENEW_WITHIN_PART)
}

function writesToPast(): AppError {
  return new AppError(
    'invalid_request',
    'query: parameter [at]: a state of the past cannot be changed; fork it or reset the branch to it',
  )
}

const pastKey = (key: string, checkpoint: string): string => `${key}\n${checkpoint}`

function keyOf(request: SessionAddress): string {
  const { apiKey, address, databaseName, branchName, isXataClient } = request
  const { workspaceId, region } = address ?? {}
  return [apiKey, workspaceId, region, databaseName, branchName, isXataClient].join('\n')
}

/** Returns the error of an operation whose session was outdated each time. */
function givenUp(cause: unknown): unknown {
  // A table that is missing for a new session, too, is a fault of the service.
  if (cause instanceof StaleError && cause.cause !== undefined) return cause.cause
  return new AppError('retry_limit', 'the branch kept changing; nothing was applied', { cause })
}
