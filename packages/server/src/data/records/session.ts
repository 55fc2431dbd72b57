import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import { LruMap } from '../../common/lru-map.js'
import { isLive } from '../../domain/access/is-live.js'
import { authenticate, type Principal } from '../../domain/access/principal.js'
import {
  type BranchAccess,
  type BranchExpiry,
  type FoundBranch,
  resolveBranch,
  type WorkspaceAddress,
} from '../../domain/access/resolve.js'
import { type Need, requireAccess } from '../../domain/access/scope.js'
import { updateBranchExpiries } from '../../domain/branches/queries.js'
import { renewExpiry } from '../../domain/branches/renew-expiry.js'
import { BranchUses } from '../../domain/branches/uses.js'
import { tableNotFound } from '../../domain/schemas/operations.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import type { Statement } from '../../postgres/statement.js'
import type { Fault } from '../../rows/columns/fault.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import { ensureHeap } from '../../rows/layout/ensure-heap.js'
import { findLayout, type Layout, ownHeap } from '../../rows/layout/layout.js'
import {
  compileGuardedRead,
  compileReadMany,
  compileReadOne,
  countTexts,
  linkedTables,
  type MetadataForm,
  planRead,
  type ReadPlan,
  readsContents,
  refuseColumns,
  type TableLookup,
} from '../../rows/reading/read-plan.js'
import type { Guard } from '../../rows/running/guard.js'
import { runReads, StaleError } from '../../rows/running/run.js'
import {
  compileTableStatements,
  type TableStatements,
} from '../../rows/writing/table-statements.js'
import type { Files } from '../files/files.js'
import { CursorSecret } from '../session/cursor-secret.js'
import { type CompiledSchema, SchemaCache } from './compiled-schema.js'

/** Where a data-plane request goes, and with which key. */
export interface SessionRequest {
  readonly apiKey: string
  readonly address: WorkspaceAddress | undefined
  readonly databaseName: string
  readonly branchName: string
  readonly isDialect: boolean
  readonly need: Need
  /** `http://host:port`, as the client reaches the service. */
  readonly origin: string
}

/** A table of the branch with its statements. */
export interface SessionTable {
  readonly codec: TableCodec
  /** For writing; the branch must have its own heap of the table. */
  readonly statements: TableStatements | undefined
  readonly isInherited: boolean
  /** Indexes of the columns whose values must be unique. */
  readonly uniqueColumns: readonly number[]
  readPlan(columns: readonly string[]): CompiledRead | readonly Fault[]
}

export interface CompiledRead {
  readonly plan: ReadPlan
  /** Characters of its statements, about. */
  readonly length: number
  /** Contents of files are among what is asked for; they are not in the rows. */
  readonly hasContents: boolean
  readonly one: Statement
  readonly guarded: Statement
  readonly many: Statement
}

/**
 * What a process knows about a key, a branch and its tables. It is kept from request to request and
 * used without asking, because the transaction of each request checks the stamps of both: a session
 * that no longer holds is found out before it has any effect.
 */
export interface Session extends BranchSession {
  readonly principal: Principal
  readonly access: BranchAccess
  /** Authenticates the cursors of queries. */
  readonly cursorSecret: Buffer
}

/** The same without a key: what links to files are followed with. */
export interface BranchSession {
  readonly guard: Guard
  readonly schema: CompiledSchema
  readonly metadata: MetadataForm
  readonly files: Files
  /** Columns of the heaps that its layout names. */
  readonly columnCount: number
  table(name: string): SessionTable
  findTable(name: string): SessionTable | undefined
}

const SESSIONS_MAX = 10_000
/** Columns of all heaps that the layouts of sessions name; a session of a large schema takes megabytes. */
const SESSION_COLUMNS_MAX = 4_000_000
const READS_MAX = 20_000
/** Characters of their statements, as far as they can be told beforehand. */
const READS_LENGTH_MAX = 64 * 1024 * 1024
const ATTEMPTS_MAX = 20
/** How long a link is followed without looking whether the branch has expired. */
const BRANCH_KNOWN_MS = 5_000

/**
 * A sliding expiry that is nearer than this is moved at once and not with the next flush of uses, so
 * that it can never be reached while the branch is in use.
 */
const RENEW_WITHIN_MS = 30_000
/** Of a ttl that is not much longer than that; the rest keeps every request from writing. */
const RENEW_WITHIN_PART = 0.9

interface Entry {
  readonly session: Session
  /** When to look again at key and branch, be it to find them gone. */
  readonly expiresAtMs: number
  /** Uses of the branch move its expiry. */
  readonly isSliding: boolean
}

/** What a link leads to. */
type BranchEntry = { readonly session: BranchSession } & Pick<Entry, 'isSliding'>

interface Resolved {
  readonly session: Session
  readonly branch: FoundBranch
}

const SESSION_WEIGHTS = {
  weightMax: SESSION_COLUMNS_MAX,
  weigh: (_key: string, { session }: { session: BranchSession }) => session.columnCount,
}

export class Sessions {
  readonly files: Files
  readonly #database: Database
  readonly #schemas: SchemaCache
  readonly #branches = new LruMap<string, BranchEntry & { untilMs: number }>(
    SESSIONS_MAX,
    SESSION_WEIGHTS,
  )
  readonly #entries = new LruMap<string, Entry>(SESSIONS_MAX, SESSION_WEIGHTS)
  readonly #uses = new BranchUses()
  readonly #cursorSecret = new CursorSecret()

  constructor(database: Database, limits: Limits, files: Files) {
    this.#database = database
    this.files = files
    this.#schemas = new SchemaCache(limits)
  }

  /** Runs an operation on a session that holds, starting over when it turns out that it does not. */
  async run<Result>(
    request: SessionRequest,
    operation: (session: Session) => Promise<Result>,
  ): Promise<Result> {
    const key = keyOf(request)
    for (let attempt = 1; ; attempt++) {
      const { session: known, isSliding } = await this.#open(key, request)
      const session = this.#startUse(known, {
        origin: request.origin,
        canUpload: known.principal.scope.access !== 'read',
      })
      const endUse = isSliding ? this.#uses.start(known.access.branchId) : undefined
      try {
        requireAccess(session.principal.scope, request.need)
        return await operation(session)
      } catch (error) {
        if (!(await this.#isStale(session, error))) {
          throw error instanceof StaleError ? error.cause : error
        }
        this.#entries.delete(key)
        if (attempt === ATTEMPTS_MAX) throw retryLimit(error)
      } finally {
        endUse?.()
      }
    }
  }

  /**
   * The same for a branch that a link leads to. The link is the proof that it may be used; only when
   * the operation finds what it leads to, it was a use.
   */
  async runOnBranch<Result>(
    { branchId, origin }: { branchId: string; origin: string },
    operation: (session: BranchSession) => Promise<Result>,
  ): Promise<Result> {
    for (let attempt = 1; ; attempt++) {
      const { session: known, isSliding } = await this.#openBranch(branchId)
      const session = this.#startUse(known, { origin, canUpload: false })
      try {
        const result = await operation(session)
        if (isSliding && result !== undefined) this.#uses.start(branchId)()
        return result
      } catch (error) {
        if (!(await this.#isStale(session, error))) {
          throw error instanceof StaleError ? error.cause : error
        }
        this.#branches.delete(branchId)
        if (attempt === ATTEMPTS_MAX) throw retryLimit(error)
      }
    }
  }

  /** A session of one request: what it finds out, and how its answers link to files. */
  #startUse<Known extends BranchSession>(
    known: Known,
    { origin, canUpload }: { origin: string; canUpload: boolean },
  ): Known {
    const { branchId } = known.guard.layout
    const { sign } = this.files.links
    const files = { origin, branchId, canUpload, sign, contents: new Map<string, string>() }
    return {
      ...known,
      guard: { ...known.guard, passed: false },
      metadata: { ...known.metadata, files },
    }
  }

  /** Moves the expiry of the branches ahead that were used since the last time. */
  async flushUses(): Promise<void> {
    const branchIds = this.#uses.take()
    if (branchIds.length === 0) return
    try {
      await updateBranchExpiries(this.#database, branchIds)
    } catch (error) {
      this.#uses.restore(branchIds)
      throw error
    }
  }

  /** A refusal is only as good as the session it was based on, and so is a table that is not there. */
  async #isStale(session: BranchSession, error: unknown): Promise<boolean> {
    if (error instanceof StaleError && error.cause === undefined) return true
    const isDoubtful = error instanceof StaleError || !session.guard.passed
    return isDoubtful && !(await this.#holds(session))
  }

  /** Lets a request in: its key is valid and the branch is there. From memory, when known. */
  async admit(request: SessionRequest): Promise<Principal> {
    return (await this.#open(keyOf(request), request)).session.principal
  }

  /** Makes sure that an earlier admission still holds. */
  async confirm(request: SessionRequest): Promise<void> {
    const key = keyOf(request)
    if (await this.#holds((await this.#open(key, request)).session)) return
    this.#entries.delete(key)
    await this.#open(key, request)
  }

  /** Makes sure that the branch has a heap of the table, so that it can be written to. */
  async writable(session: BranchSession, table: SessionTable): Promise<TableStatements> {
    if (table.statements !== undefined) return table.statements
    await ensureHeap(this.#database, session.guard.layout, table.codec.table)
    throw new StaleError('the branch has a new heap')
  }

  async #open(key: string, request: SessionRequest): Promise<Entry> {
    const entry = this.#entries.get(key)
    if (entry !== undefined && entry.expiresAtMs > Date.now()) return entry
    const { session, branch } = await this.#resolve(request)
    const expiry = await renewExpiry(this.#database, branch)
    const keyExpiresAtMs = session.principal.expiresAt?.getTime() ?? Number.POSITIVE_INFINITY
    const fresh = {
      session,
      expiresAtMs: Math.min(keyExpiresAtMs, lookAgainAtMs(expiry)),
      isSliding: expiry?.ttlMs !== undefined,
    }
    this.#entries.set(key, fresh)
    return fresh
  }

  /** Whether key and branch are still what the session was made of. */
  async #holds(session: BranchSession): Promise<boolean> {
    try {
      await runReads(this.#database, session.guard, [])
      return true
    } catch (error) {
      if (error instanceof StaleError) return false
      throw error
    }
  }

  /**
   * Looks at everything as of one moment: names and stamps that were read one after the other could
   * be those of different branches, and then the guard would vouch for the wrong one.
   */
  #resolve(request: SessionRequest): Promise<Resolved> {
    return runTransaction(this.#database, (transaction) => this.#resolveIn(transaction, request), {
      isolation: 'repeatable read',
      readOnly: true,
    })
  }

  async #openBranch(branchId: string): Promise<BranchEntry> {
    const known = this.#branches.get(branchId)
    if (known !== undefined && known.untilMs > Date.now()) return known
    const entry = await this.#resolveBranch(branchId)
    this.#branches.set(branchId, { ...entry, untilMs: Date.now() + BRANCH_KNOWN_MS })
    return entry
  }

  #resolveBranch(branchId: string): Promise<BranchEntry> {
    return runTransaction(
      this.#database,
      async (transaction) => {
        await this.files.links.load(transaction)
        const [live] = await transaction.query<{ isSliding: boolean }>(sql`
          select ttl_seconds is not null as "isSliding"
          from offshoot.branches
          where id = ${branchId} and ${isLive}`)
        const layout = live && (await findLayout(transaction, branchId))
        const schema =
          layout &&
          (await this.#schemas.get(transaction, { schemaId: layout.schemaId, isDialect: false }))
        if (layout === undefined || schema === undefined) {
          throw new AppError('branch_not_found', 'the branch of the file is gone')
        }
        const session = createSession({
          guard: { layout, keyId: undefined, keyStamp: undefined, passed: false },
          files: this.files,
          schema,
          isDialect: false,
        })
        return { session, isSliding: live?.isSliding === true }
      },
      { isolation: 'repeatable read', readOnly: true },
    )
  }

  async #resolveIn(database: Queryable, request: SessionRequest): Promise<Resolved> {
    await this.files.links.load(database)
    const cursorSecret = await this.#cursorSecret.load(database)
    const principal = await authenticate(database, request.apiKey)
    const access = await resolveBranch(database, principal, { ...request, need: 'read' })
    const layout = await findLayout(database, access.branchId)
    const schema =
      layout &&
      (await this.#schemas.get(database, {
        schemaId: layout.schemaId,
        isDialect: request.isDialect,
      }))
    if (layout === undefined || schema === undefined) {
      throw new AppError('branch_not_found', `branch [${access.branchName}] not found`)
    }
    const { keyId, keyStamp } = principal
    const session = createSession({
      guard: { layout, keyId, keyStamp, passed: false },
      files: this.files,
      schema,
      isDialect: request.isDialect,
    })
    return { session: { ...session, principal, access, cursorSecret }, branch: access }
  }
}

function lookAgainAtMs(expiry: BranchExpiry | undefined): number {
  if (expiry === undefined) return Number.POSITIVE_INFINITY
  const { atMs, ttlMs } = expiry
  return ttlMs === undefined ? atMs : atMs - Math.min(RENEW_WITHIN_MS, ttlMs * RENEW_WITHIN_PART)
}

function keyOf({ apiKey, address, databaseName, branchName, isDialect }: SessionRequest): string {
  return [apiKey, address?.workspaceId, address?.region, databaseName, branchName, isDialect].join(
    '\n',
  )
}

function retryLimit(cause: unknown): AppError {
  return new AppError('retry_limit', 'the branch kept changing; nothing was applied', { cause })
}

function createSession(options: {
  guard: Guard
  files: Files
  schema: CompiledSchema
  isDialect: boolean
}): BranchSession {
  const { guard, files, schema, isDialect } = options
  const { layout } = guard
  const tables = new Map<string, SessionTable>()
  const lookup: TableLookup = { layout, tableById: (id) => schema.tableById(id) }

  function findTable(name: string): SessionTable | undefined {
    let table = tables.get(name)
    if (table === undefined) {
      const codec = schema.tableByName(name)
      if (codec === undefined) return undefined
      table = createTable(lookup, codec)
      tables.set(name, table)
    }
    return table
  }

  return {
    guard,
    files,
    schema,
    metadata: { key: isDialect ? 'xata' : 'service' },
    columnCount: countColumns(layout),
    findTable,
    table(name) {
      const table = findTable(name)
      if (table === undefined) throw tableNotFound(name)
      return table
    },
  }
}

function countColumns({ levels }: Layout): number {
  const heaps = levels.flatMap((level) => [...level.heaps.values()])
  return heaps.reduce((count, { columnIds }) => count + 1 + columnIds.size, 1)
}

/** Of all tables together; a list of columns can be of any length. */
const reads = new LruMap<string, CompiledRead>(READS_MAX, {
  weightMax: READS_LENGTH_MAX,
  weigh: (key, { length }) => key.length + length,
})
let tables = 0

function createTable(lookup: TableLookup, codec: TableCodec): SessionTable {
  const { layout } = lookup
  const heap = ownHeap(layout, codec.table.id)
  const number = ++tables
  return {
    codec,
    statements: heap && compileTableStatements(layout, codec, heap),
    uniqueColumns: codec.physical.flatMap(({ column }, index) => (column.unique ? [index] : [])),
    isInherited: layout.levels.slice(1).some((level) => level.heaps.has(codec.table.id)),
    readPlan(columns) {
      const refused = refuseColumns(columns)
      if (refused !== undefined) return [refused]
      const key = `${number} ${columns.join()}`
      const known = reads.get(key)
      if (known !== undefined) return known
      const plan = planRead(lookup, codec, columns)
      if (Array.isArray(plan)) return plan as readonly Fault[]
      const read = compileRead(lookup, plan as ReadPlan)
      reads.set(key, read)
      return read
    },
  }
}

/** A value with its name, in each table that a row can come from. */
const VALUE_LENGTH = 100

/** Statements are made when they are first needed; a query needs only the plan. */
function compileRead(lookup: TableLookup, plan: ReadPlan): CompiledRead {
  let one: Statement | undefined
  let guarded: Statement | undefined
  let many: Statement | undefined
  const values = countTexts(plan) + linkedTables(plan).length
  return {
    plan,
    length: 3 * VALUE_LENGTH * values * (2 * lookup.layout.levels.length),
    hasContents: readsContents(plan),
    get one() {
      one ??= compileReadOne(lookup, plan)
      return one
    },
    get guarded() {
      guarded ??= compileGuardedRead(lookup, plan)
      return guarded
    },
    get many() {
      many ??= compileReadMany(lookup, plan)
      return many
    },
  }
}
