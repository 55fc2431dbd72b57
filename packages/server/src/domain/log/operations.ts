import { AppError } from '@offshoot/contract/errors'
import type { Log, LogEntry, LogQuery } from '@offshoot/contract/log'
import { LIST_PAGE_SIZE } from '@offshoot/contract/paging'
import type { KeyScope } from '@offshoot/contract/users'
import { cutPage } from '../../common/cut-page.js'
import type { Database } from '../../postgres/database.js'
import type { BranchAccess, WorkspaceAccess } from '../access/resolve.js'
import { isLimited, scopeReachesBranch } from '../access/scope.js'
import { type EntryRow, findEntry, type LogPlace, listEntries } from './queries.js'

/** Returns a page of the log of a branch, newest first. */
export function readLog(
  database: Database,
  { branchId, principal }: BranchAccess,
  query: LogQuery,
): Promise<Log> {
  return readPage(database, { branchId }, { query, scope: principal.scope })
}

/** Returns a page of the log of a workspace, newest first. */
export function readAuditLog(
  database: Database,
  access: WorkspaceAccess,
  query: LogQuery,
): Promise<Log> {
  requireAuditor(access)
  const { workspaceId, principal } = access
  return readPage(database, { workspaceId }, { query, scope: principal.scope })
}

/** Entries that one statement of an export reads. */
const EXPORT_SIZE = 1000

/** Returns all entries of the log of a workspace as lines of JSON, newest first. */
export function exportAuditLog(
  database: Database,
  access: WorkspaceAccess,
  { kind }: Pick<LogQuery, 'kind'>,
): AsyncIterable<string> {
  requireAuditor(access)
  const { workspaceId, principal } = access
  return (async function* () {
    let before: string | undefined
    for (;;) {
      const rows = await listEntries(
        database,
        { workspaceId },
        { before, kind, limit: EXPORT_SIZE },
      )
      for (const row of rows) yield `${JSON.stringify(toEntry(row, principal.scope))}\n`
      before = rows.at(-1)?.position
      if (rows.length < EXPORT_SIZE) return
    }
  })()
}

/** Only owners see the whole log, and a key with a scope needs one that includes the log. */
function requireAuditor({ role, principal }: WorkspaceAccess): void {
  const { scope } = principal
  if (role !== 'owner') throw new AppError('forbidden', 'only an owner can read the audit log')
  if (isLimited(scope) && scope.audit !== true) {
    throw new AppError('key_scope', 'the scope of this API key does not include the audit log')
  }
}

async function readPage(
  database: Database,
  place: LogPlace,
  { query, scope }: { query: LogQuery; scope: KeyScope },
): Promise<Log> {
  const { size = LIST_PAGE_SIZE, after, kind } = query
  const found = after === undefined ? undefined : await findEntry(database, place, after)
  const before = found?.position
  if (after !== undefined && before === undefined) {
    throw new AppError('invalid_request', `query: parameter [after]: [${after}] is not in the log`)
  }
  const rows = await listEntries(database, place, { before, kind, limit: size + 1 })
  const { shown, meta } = cutPage(rows, size, ({ id }) => id)
  return { entries: shown.map((row) => toEntry(row, scope)), meta }
}

/** Fields that name another branch. */
const BRANCH_FIELDS = ['from', 'to'] as const

type Details = Record<string, unknown>

function toEntry(row: EntryRow, scope: KeyScope): LogEntry {
  const { id, kind, at, userId, email, key, requestId } = row
  // Only a revert uses the ids by which it finds the effects of an entry.
  const { added: _, removedLoad: __, restoredLoad: ___, ...details } = row.details as Details
  for (const field of BRANCH_FIELDS) {
    const name = details[field]
    if (typeof name === 'string' && !scopeReachesBranch(scope, name)) delete details[field]
  }
  const entry = {
    id,
    kind,
    at: at.toISOString(),
    ...(userId === null ? {} : { user: userId }),
    ...(email === null ? {} : { email }),
    ...(key === null ? {} : { key }),
    ...(requestId === null ? {} : { requestId }),
  }
  // In this order, and no detail replaces what all entries have.
  return { ...entry, ...details, ...entry }
}
