import { AppError } from '@offshoot/contract/errors'
import type { MetadataKey } from '@offshoot/contract/names'
import { isLive } from '../../domain/access/is-live.js'
import {
  authenticate,
  authenticateAtRows,
  type Principal,
  toPlace,
} from '../../domain/access/principal.js'
import {
  type FoundBranch,
  resolveBranch,
  type WorkspaceAddress,
} from '../../domain/access/resolve.js'
import type { OpenedBranch } from '../../domain/branches/create-branch.js'
import { isPinOf } from '../../domain/checkpoints/queries.js'
import type { Quotas } from '../../domain/quotas/quotas.js'
import type { Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import type { BranchRows } from '../../rows/layout/layout.js'
import { RowState } from '../../rows/row-state.js'
import type { Storage } from '../../rows/storage.js'
import { StoredBranch } from '../../rows/stored-branch.js'
import type { SchemaCache } from './compiled-schema.js'
import type { CursorSecret } from './cursor-secret.js'
import { type BranchSession, createSession, type Session } from './session.js'

/*
 * All parts of a session are read on one snapshot. If a name and a stamp were read separately, they could
 * belong to different branches, and the guard would confirm the wrong one.
 */

const SNAPSHOT = { isolation: 'repeatable read', readOnly: true } as const

/** The key and the address that identify a session. */
export interface SessionAddress {
  readonly apiKey: string
  readonly address: WorkspaceAddress | undefined
  readonly databaseName: string
  readonly branchName: string
  /** The request comes from the Xata client, which expects some responses in a different form. */
  readonly isXataClient: boolean
}

interface ResolvedSession {
  readonly session: Session
  readonly branch: FoundBranch
}

export interface ResolvedBranch {
  readonly session: BranchSession
  /** Each use extends the expiry of the branch. */
  readonly isSliding: boolean
}

/** Sources of a session. */
export interface SessionSources {
  readonly storage: Storage
  readonly schemas: SchemaCache
  /** The keys that sign links to files. They must be loaded before responses include links. */
  readonly links: { load(database: Queryable): Promise<void> }
  readonly cursorSecret: CursorSecret
  readonly quotas: Quotas
}

/** Authenticates a request and finds its branch. */
export async function resolveSession(
  sources: SessionSources,
  address: SessionAddress,
): Promise<ResolvedSession> {
  const { links, cursorSecret } = sources
  const { database } = sources.storage
  await links.load(database)
  const parts = { sources, address, cursorSecret: await cursorSecret.load(database) }
  const resolved = await resolveByOneStatement(parts)
  return resolved ?? runTransaction(database, (reads) => resolveStepwise(reads, parts), SNAPSHOT)
}

interface SessionParts {
  readonly sources: SessionSources
  readonly address: SessionAddress
  readonly cursorSecret: Buffer
}

/**
 * A statement sees one snapshot. Returns undefined if the address names no workspace and there is not exactly one, or if
 * the schema was replaced and deleted before it could be read.
 */
async function resolveByOneStatement(parts: SessionParts): Promise<ResolvedSession | undefined> {
  const { database } = parts.sources.storage
  const { apiKey, address, databaseName, branchName } = parts.address
  const place = toPlace(address?.workspaceId, { databaseName, branchName })
  if (place === undefined) return undefined
  const read = await authenticateAtRows(database, apiKey, { place, rowsOf: RowState.select })
  const { found, ...principal } = read.principal
  if (found === undefined) return undefined
  const branch = await resolveBranch(database, read.principal, { ...parts.address, need: 'read' })
  return createResolved(database, { ...parts, principal, branch, rows: RowState.read(read.rows) })
}

async function resolveStepwise(reads: Queryable, parts: SessionParts): Promise<ResolvedSession> {
  const principal = await authenticate(reads, parts.address.apiKey)
  const branch = await resolveBranch(reads, principal, { ...parts.address, need: 'read' })
  const rows = await new StoredBranch(reads, branch.branchId).findRows()
  const resolved = await createResolved(reads, { ...parts, principal, branch, rows })
  if (resolved === undefined) {
    throw new AppError('branch_not_found', `branch [${branch.branchName}] not found`)
  }
  return resolved
}

/** Opens the session of a branch whose rows are known. Returns undefined if its schema is gone. */
export async function openSession(
  sources: SessionSources,
  address: SessionAddress,
  { branch, rows }: OpenedBranch,
): Promise<ResolvedSession | undefined> {
  const { links, cursorSecret } = sources
  const { database } = sources.storage
  await links.load(database)
  const { found: _looked, ...principal } = branch.principal
  const parts = { sources, address, cursorSecret: await cursorSecret.load(database) }
  return createResolved(database, { ...parts, principal, branch, rows })
}

/** Reads the branch of a session again, as a transaction sees it that has changed its schema. */
export async function reopenSession(
  { storage, schemas }: SessionSources,
  session: Session,
  reads: Queryable,
): Promise<Session> {
  const rows = await new StoredBranch(reads, session.access.branchId).findRows()
  const isXataClient = session.metadata.key === metadataKey(true)
  const schema = rows && (await schemas.get(reads, { schemaId: rows.schemaId, isXataClient }))
  if (rows === undefined || schema === undefined) throw new Error('a locked branch must exist')
  const { keyId, keyStamp } = session.principal
  const branch = storage.open({ rows, keyId, keyStamp }, schema)
  const { numbers } = session
  return { ...session, ...createSession({ ...session, branch, schema }), numbers }
}

/** Opens a session that reads a checkpoint. Returns undefined if it was deleted meanwhile. */
export async function openPast(
  { storage, schemas }: SessionSources,
  present: Session,
  { id, pinId }: { id: string; pinId: string },
): Promise<Session | undefined> {
  const rows = await findPinRows(storage.database, pinId)
  const isXataClient = present.metadata.key === metadataKey(true)
  const schema =
    rows && (await schemas.get(storage.database, { schemaId: rows.schemaId, isXataClient }))
  if (rows === undefined || schema === undefined) return undefined
  const { principal, metadata, growth } = present
  const { keyId, keyStamp } = principal
  const branch = storage.open({ rows, keyId, keyStamp }, schema)
  const session = createSession({
    branch,
    schema,
    metadata: { key: metadata.key },
    growth,
    requiredApprovals: present.requiredApprovals,
  })
  return { ...present, ...session, checkpoint: id }
}

/** Finds the rows of a branch, which may be the pin of a checkpoint. */
async function findPinRows(database: Queryable, branchId: string): Promise<BranchRows | undefined> {
  const [row] = await database.query<{ rows: unknown }>(sql`
    select (${RowState.select(sql`${branchId}::text`, { hidden: true })}) as rows`)
  return RowState.read(row?.rows)
}

/** Returns undefined if there are no rows, or no schema. */
async function createResolved(
  reads: Queryable,
  found: SessionParts & {
    principal: Principal
    branch: FoundBranch
    rows: BranchRows | undefined
  },
): Promise<ResolvedSession | undefined> {
  const { sources, address, cursorSecret, principal, rows } = found
  const { isXataClient } = address
  const schema =
    rows && (await sources.schemas.get(reads, { schemaId: rows.schemaId, isXataClient }))
  if (rows === undefined || schema === undefined) return undefined
  const { keyId, keyStamp } = principal
  const branch = { ...found.branch, principal }
  const session = createSession({
    branch: sources.storage.open({ rows, keyId, keyStamp }, schema),
    schema,
    metadata: { key: metadataKey(isXataClient) },
    growth: sources.quotas.growth(branch.workspaceId, { showsUsage: false }),
    requiredApprovals: branch.requiredApprovals,
  })
  return { session: { ...session, principal, access: branch, cursorSecret }, branch }
}

/** Finds the branch that a link to a file refers to. The link itself authorises access. */
export function resolveLinkedBranch(
  { storage, schemas, links, quotas }: SessionSources,
  branchId: string,
): Promise<ResolvedBranch> {
  return runTransaction(
    storage.database,
    async (transaction) => {
      await links.load(transaction)
      const [live] = await transaction.query<{
        isSliding: boolean
        requiredApprovals: number
        workspaceId: string
      }>(sql`
        select ttl_seconds is not null as "isSliding", required_approvals as "requiredApprovals", (
            select d.workspace_id from offshoot.databases d where d.id = database_id
          ) as "workspaceId"
        from offshoot.branches
        where id = ${branchId} and (${isLive} or ${isPinOf(branchId)})`)
      const rows = live && (await findPinRows(transaction, branchId))
      const schema =
        rows && (await schemas.get(transaction, { schemaId: rows.schemaId, isXataClient: false }))
      if (live === undefined || rows === undefined || schema === undefined) {
        throw new AppError('branch_not_found', 'the branch of the file does not exist')
      }
      const session = createSession({
        branch: storage.open({ rows, keyId: undefined, keyStamp: undefined }, schema),
        schema,
        metadata: { key: metadataKey(false) },
        growth: quotas.growth(live.workspaceId, { showsUsage: false }),
        requiredApprovals: live.requiredApprovals,
      })
      return { session, isSliding: live.isSliding }
    },
    SNAPSHOT,
  )
}

function metadataKey(isXataClient: boolean): MetadataKey {
  return isXataClient ? 'xata' : 'service'
}
