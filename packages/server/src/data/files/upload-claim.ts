import { createHash, randomUUID } from 'node:crypto'
import { AppError } from '@offshoot/contract/errors'
import type { Database, Queryable } from '../../postgres/database.js'
import { sql } from '../../postgres/sql.js'

/** The time that a link stays locked if the process that uses it dies. */
const LEASE_SECONDS = 60
const RENEW_MS = (LEASE_SECONDS * 1000) / 3

/** Maximum number of expired leases deleted by one step of the collector. */
const STEP_CLAIMS = 500

interface Claim {
  readonly linkHash: Buffer
  readonly holder: string
}

/**
 * Runs an upload while holding a lease on its link, across all processes. Other uploads by the link are
 * rejected before any data is read. The lease ends with the upload, also if it fails.
 */
export async function claimUpload<Result>(
  database: Database,
  accessId: string,
  upload: () => Promise<Result>,
): Promise<Result> {
  const linkHash = createHash('sha256').update(accessId).digest()
  const claim = { linkHash, holder: randomUUID() }
  if (!(await insertClaim(database, claim))) {
    throw new AppError('link_in_use', 'this link takes one upload, and one is under way')
  }
  // Failures to renew are ignored. If the lease expires too early, a second upload can start, but only one
  // of them finds the file with the key that the link requires.
  const renewal = setInterval(() => {
    updateClaim(database, claim).catch(() => undefined)
  }, RENEW_MS).unref()
  try {
    return await upload()
  } finally {
    clearInterval(renewal)
    await deleteClaim(database, claim).catch(() => undefined)
  }
}

/** Returns whether the link was free. */
async function insertClaim(database: Database, { linkHash, holder }: Claim): Promise<boolean> {
  const rows = await database.query(sql`
    insert into offshoot.upload_claims as c (link_hash, holder, expires_at)
    values (${linkHash}, ${holder}, now() + make_interval(secs => ${LEASE_SECONDS}))
    on conflict (link_hash) do update
    set holder = excluded.holder, expires_at = excluded.expires_at
    where c.expires_at <= now()
    returning link_hash`)
  return rows.length > 0
}

async function updateClaim(database: Database, { linkHash, holder }: Claim): Promise<void> {
  await database.queryAside(sql`
    update offshoot.upload_claims
    set expires_at = now() + make_interval(secs => ${LEASE_SECONDS})
    where link_hash = ${linkHash} and holder = ${holder}`)
}

async function deleteClaim(database: Database, { linkHash, holder }: Claim): Promise<void> {
  await database.queryAside(sql`
    delete from offshoot.upload_claims where link_hash = ${linkHash} and holder = ${holder}`)
}

/** Deletes some expired leases, whose holders have died. Returns whether there may be more. */
export async function collectUploadClaims(database: Queryable): Promise<boolean> {
  const rows = await database.query(sql`
    delete from offshoot.upload_claims
    where link_hash = any(array(
      select link_hash
      from offshoot.upload_claims
      where expires_at <= now()
      limit ${STEP_CLAIMS}
      for update skip locked
    ))
    returning link_hash`)
  return rows.length === STEP_CLAIMS
}
