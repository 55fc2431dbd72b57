import type { CreateBranch, UpdateBranch } from '@offshoot/contract/branches'
import { AppError } from '@offshoot/contract/errors'
import type { BranchLife } from './queries.js'

/** Later moments cannot be written as RFC 3339 says. */
const END_OF_TIME_MS = Date.UTC(10_000)

type LifeWishes = Pick<CreateBranch, 'expiresAt' | 'ttl' | 'protected'>

/** The life of a new branch. */
export function planLife(wishes: LifeWishes): BranchLife {
  return changeLife({ expiresAt: null, ttlSeconds: null, protected: false }, wishes)
}

/** What a request makes of the life of a branch. */
export function changeLife(life: BranchLife, wishes: UpdateBranch): BranchLife {
  const { expiresAt, ttl } = wishes
  const isProtected = wishes.protected ?? life.protected
  if (typeof expiresAt === 'string' && typeof ttl === 'number') {
    throw new AppError(
      'invalid_request',
      'body: fields [expiresAt] and [ttl]: a branch ends at a moment or some time after its last ' +
        'use, not both',
    )
  }
  if (typeof ttl === 'number') {
    return { expiresAt: null, ttlSeconds: ttl, protected: isProtected }
  }
  if (typeof expiresAt === 'string') {
    return { expiresAt: readMoment(expiresAt), ttlSeconds: null, protected: isProtected }
  }
  // Without its ttl, a sliding expiry has no meaning; one that stays does not depend on a ttl.
  const isTakenAway = expiresAt === null || (ttl === null && life.ttlSeconds !== null)
  if (isTakenAway) return { expiresAt: null, ttlSeconds: null, protected: isProtected }
  if (!isProtected && life.ttlSeconds === null) requireTimeLeft(life.expiresAt)
  return { ...life, protected: isProtected }
}

function readMoment(text: string): Date {
  const moment = new Date(text)
  const ms = moment.getTime()
  // A leap second is a valid time of day, but not a moment a clock here ever shows.
  if (!(ms > Date.now() && ms < END_OF_TIME_MS)) {
    throw new AppError('invalid_request', 'body: field [expiresAt]: must be in the future')
  }
  return moment
}

/** A branch whose expiry passed under protection would be gone with it. */
function requireTimeLeft(expiresAt: Date | null): void {
  if (expiresAt === null || expiresAt.getTime() > Date.now()) return
  throw new AppError(
    'invalid_request',
    `body: field [protected]: the branch would end at once, because its expiry [${expiresAt.toISOString()}] ` +
      'has passed; give a new [expiresAt] or [ttl], or null',
  )
}

/** As branches show it: what is not set is left out. */
export function toPublicLife({ expiresAt, ttlSeconds, protected: isProtected }: BranchLife) {
  return {
    ...(expiresAt === null ? {} : { expiresAt: expiresAt.toISOString() }),
    ...(ttlSeconds === null ? {} : { ttl: ttlSeconds }),
    ...(isProtected ? { protected: true } : {}),
  }
}
