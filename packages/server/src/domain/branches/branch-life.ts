import type { CreateBranch, UpdateBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { BranchAccess, DatabaseAccess } from '../access/resolve.js'
import { requireWholeDatabase } from '../access/scope.js'
import type { BranchLife } from './queries.js'

/** RFC 3339 has years of four digits, so it cannot express later times. */
const END_OF_TIME_MS = Date.UTC(10_000)

type LifeWishes = Pick<
  CreateBranch,
  'expiresAt' | 'ttl' | 'protected' | 'requiredApprovals' | 'checkpoints'
>

/**
 * Refuses a request for protection, or for its end, with a key that is limited to some branches. Protection is meant to
 * keep such keys from deleting a branch. A branch rule protects new branches of any key.
 */
export function requireProtectionRights(
  { principal }: DatabaseAccess,
  {
    protected: isProtected,
    requiredApprovals,
  }: Pick<LifeWishes, 'protected' | 'requiredApprovals'>,
): void {
  if (isProtected !== undefined || requiredApprovals !== undefined) {
    requireWholeDatabase(principal.scope)
  }
}

/** Only an owner lowers the number of approvals: otherwise each author could do without them. */
export function requireApprovalRights(
  { role, branchName }: BranchAccess,
  { before, after }: { before: BranchLife; after: BranchLife },
): void {
  if (after.requiredApprovals >= before.requiredApprovals || role === 'owner') return
  throw new AppError(
    'forbidden',
    `branch [${branchName}]: only an owner of the workspace can lower [requiredApprovals] or remove its protection`,
  )
}

/** Returns expiry and protection of a new branch. */
export function planLife(wishes: LifeWishes): BranchLife {
  const none = {
    expiresAt: null,
    ttlSeconds: null,
    protected: false,
    requiredApprovals: 0,
    checkpoints: null,
  }
  return changeLife(none, wishes)
}

/** Returns expiry, protection and checkpoints of a branch after a request has changed them. */
export function changeLife(life: BranchLife, wishes: UpdateBranch): BranchLife {
  const { checkpoints = life.checkpoints } = wishes
  const end = changeEnd(life, wishes)
  return { ...end, requiredApprovals: changeApprovals(life, wishes, end), checkpoints }
}

/** The end of the protection is the end of the required approvals. */
function changeApprovals(
  life: BranchLife,
  wishes: UpdateBranch,
  { protected: isProtected }: Pick<BranchLife, 'protected'>,
): number {
  const { requiredApprovals = isProtected ? life.requiredApprovals : 0 } = wishes
  if (requiredApprovals > 0 && !isProtected) {
    throw new AppError(
      'invalid_request',
      'body: field [requiredApprovals]: only a protected branch can require approvals; set [protected] too',
    )
  }
  return requiredApprovals
}

function changeEnd(
  life: BranchLife,
  wishes: UpdateBranch,
): Pick<BranchLife, 'expiresAt' | 'ttlSeconds' | 'protected'> {
  const { expiresAt, ttl } = wishes
  const isProtected = wishes.protected ?? life.protected
  if (typeof expiresAt === 'string' && typeof ttl === 'number') {
    throw new AppError(
      'invalid_request',
      'body: fields [expiresAt] and [ttl]: give one of them, not both; a branch expires at a fixed ' +
        'time or some time after its last use',
    )
  }
  if (typeof ttl === 'number') {
    return { expiresAt: null, ttlSeconds: ttl, protected: isProtected }
  }
  if (typeof expiresAt === 'string') {
    return { expiresAt: readMoment(expiresAt), ttlSeconds: null, protected: isProtected }
  }
  // A null `ttl` removes a sliding expiry, but not a fixed one, which does not depend on a ttl.
  const isTakenAway = expiresAt === null || (ttl === null && life.ttlSeconds !== null)
  if (isTakenAway) return { expiresAt: null, ttlSeconds: null, protected: isProtected }
  if (!isProtected && life.ttlSeconds === null) requireTimeLeft(life.expiresAt)
  return { ...life, protected: isProtected }
}

function readMoment(text: string): Date {
  const moment = new Date(text)
  const ms = moment.getTime()
  // RFC 3339 allows leap seconds, which `Date` parses as NaN; the comparison refuses them.
  if (!(ms > Date.now() && ms < END_OF_TIME_MS)) {
    throw new AppError('invalid_request', 'body: field [expiresAt]: must be in the future')
  }
  return moment
}

/** Refuses to remove the protection of a branch whose expiry has passed: it would expire at once. */
function requireTimeLeft(expiresAt: Date | null): void {
  if (expiresAt === null || expiresAt.getTime() > Date.now()) return
  throw new AppError(
    'invalid_request',
    `body: field [protected]: the branch would expire immediately, because its expiry [${expiresAt.toISOString()}] ` +
      'has passed; set a new [expiresAt] or [ttl], or set [expiresAt] to null',
  )
}

/** Expiry and protection as fields of a response. Fields that are not set are omitted. */
export function toPublicLife(life: BranchLife) {
  const { expiresAt, ttlSeconds, protected: isProtected, requiredApprovals, checkpoints } = life
  return {
    ...(expiresAt === null ? {} : { expiresAt: expiresAt.toISOString() }),
    ...(ttlSeconds === null ? {} : { ttl: ttlSeconds }),
    ...(isProtected ? { protected: true } : {}),
    ...(requiredApprovals > 0 ? { requiredApprovals } : {}),
    ...(checkpoints === null ? {} : { checkpoints }),
  }
}
