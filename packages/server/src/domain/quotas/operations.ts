import { AppError } from '@offshoot/contract/errors'
import type { Usage } from '@offshoot/contract/quotas'
import type { Database } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import type { Principal } from '../access/principal.js'
import { resolveWorkspace, type WorkspaceAccess } from '../access/resolve.js'
import { isLimited, requireUnlimited, requireWholeWorkspace } from '../access/scope.js'
import { insertEntry } from '../log/entries.js'
import { getUsage, type UsageRow, updateDueAt, updateQuota } from './queries.js'
import type { Quotas } from './quotas.js'

interface QuotaContext {
  readonly database: Database
  readonly quotas: Quotas
}

export async function readUsage(
  { database, quotas }: QuotaContext,
  { principal, workspaceId }: WorkspaceAccess,
): Promise<Usage> {
  requireWholeWorkspace(principal.scope, 'read')
  const { bytesMaxDefault } = quotas
  return toUsage(await getUsage(database, { workspaceId, bytesMaxDefault }))
}

/** Sets the quota of any workspace. Null means that the default applies. */
export async function changeQuota(
  { database, quotas }: QuotaContext,
  principal: Principal,
  quota: { workspaceId: string; bytesMax: number | null },
): Promise<Usage> {
  const { workspaceId } = quota
  if (!principal.administrator || isLimited(principal.scope)) {
    // Callers who are not members must not learn whether the workspace exists.
    await resolveWorkspace(database, principal, { workspaceId, need: 'write' })
    requireUnlimited(principal.scope)
    throw new AppError('forbidden', 'only the administrator of this instance can set quotas')
  }
  const { bytesMaxDefault } = quotas
  const usage = await runTransaction(database, async (transaction) => {
    await updateQuota(transaction, quota)
    await updateDueAt(transaction, { workspaceIds: [workspaceId], withinSeconds: 0 })
    const details = { bytesMax: quota.bytesMax }
    await insertEntry(transaction, { kind: 'quotaChanged', by: principal, workspaceId, details })
    return getUsage(transaction, { workspaceId, bytesMaxDefault })
  })
  await quotas.refresh([workspaceId])
  return toUsage(usage)
}

function toUsage({ bytesMax, rowBytes, fileBytes, measuredAt }: UsageRow): Usage {
  return {
    bytesMax,
    bytesUsed: rowBytes + fileBytes,
    rowBytes,
    fileBytes,
    measuredAt: measuredAt?.toISOString() ?? null,
  }
}
