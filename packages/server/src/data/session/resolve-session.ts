import { AppError } from '@offshoot/contract/errors'
import type { MetadataKey } from '@offshoot/contract/names'
import { isLive } from '../../domain/access/is-live.js'
import { authenticate } from '../../domain/access/principal.js'
import {
  type FoundBranch,
  resolveBranch,
  type WorkspaceAddress,
} from '../../domain/access/resolve.js'
import type { Quotas } from '../../domain/quotas/quotas.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { sql } from '../../postgres/sql.js'
import { findRows } from '../../rows/tables.js'
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

export interface ResolvedSession {
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
  readonly database: Database
  readonly schemas: SchemaCache
  /** The keys that sign links to files. They must be loaded before responses include links. */
  readonly links: { load(database: Queryable): Promise<void> }
  readonly cursorSecret: CursorSecret
  readonly quotas: Quotas
}

/** Authenticates a request and finds its branch. */
export function resolveSession(
  { database, schemas, links, cursorSecret: secret, quotas }: SessionSources,
  address: SessionAddress,
): Promise<ResolvedSession> {
  const { apiKey, isXataClient } = address
  return runTransaction(
    database,
    async (transaction) => {
      await links.load(transaction)
      const cursorSecret = await secret.load(transaction)
      const principal = await authenticate(transaction, apiKey)
      const access = await resolveBranch(transaction, principal, { ...address, need: 'read' })
      const rows = await findRows(transaction, access.branchId)
      const schema =
        rows && (await schemas.get(transaction, { schemaId: rows.schemaId, isXataClient }))
      if (rows === undefined || schema === undefined) {
        throw new AppError('branch_not_found', `branch [${access.branchName}] not found`)
      }
      const { keyId, keyStamp } = principal
      const session = createSession({
        guard: { rows, keyId, keyStamp },
        schema,
        metadata: { key: metadataKey(isXataClient), versionBase: rows.versionBase },
        growth: quotas.growth(access.workspaceId, { showsUsage: false }),
      })
      return { session: { ...session, principal, access, cursorSecret }, branch: access }
    },
    SNAPSHOT,
  )
}

/** Finds the branch that a link to a file refers to. The link itself authorises access. */
export function resolveLinkedBranch(
  { database, schemas, links, quotas }: SessionSources,
  branchId: string,
): Promise<ResolvedBranch> {
  return runTransaction(
    database,
    async (transaction) => {
      await links.load(transaction)
      const [live] = await transaction.query<{ isSliding: boolean; workspaceId: string }>(sql`
        select ttl_seconds is not null as "isSliding", (
            select d.workspace_id from offshoot.databases d where d.id = database_id
          ) as "workspaceId"
        from offshoot.branches
        where id = ${branchId} and ${isLive}`)
      const rows = live && (await findRows(transaction, branchId))
      const schema =
        rows && (await schemas.get(transaction, { schemaId: rows.schemaId, isXataClient: false }))
      if (live === undefined || rows === undefined || schema === undefined) {
        throw new AppError('branch_not_found', 'the branch of the file does not exist')
      }
      const session = createSession({
        guard: { rows, keyId: undefined, keyStamp: undefined },
        schema,
        metadata: { key: metadataKey(false), versionBase: rows.versionBase },
        growth: quotas.growth(live.workspaceId, { showsUsage: false }),
      })
      return { session, isSliding: live.isSliding }
    },
    SNAPSHOT,
  )
}

function metadataKey(isXataClient: boolean): MetadataKey {
  return isXataClient ? 'xata' : 'service'
}
