import type { Stats } from 'node:fs'
import { access, lchown, readFile, realpath, stat } from 'node:fs/promises'
import { userInfo } from 'node:os'
import { dirname } from 'node:path'
import { EmbeddedError, errorCode } from './errors.js'

/** The user that PostgreSQL runs as. */
export interface Identity {
  readonly name: string
  readonly uid: number
  readonly gid: number
  /** Whether this is another user than our own, which only root can arrange. */
  readonly dropped: boolean
}

interface Account {
  readonly name: string
  readonly uid: number
  readonly gid: number
}

/** The names tried in order when root has to run PostgreSQL as somebody else. */
const preferredAccounts = ['postgres', '_postgres', 'nobody']

/** Parses the lines of /etc/passwd, without root, as which PostgreSQL never runs. */
export function parseAccounts(text: string): Account[] {
  return text.split('\n').flatMap((line) => {
    const [name, , uid, gid] = line.split(':')
    if (!name || !uid || !gid || !/^-?\d+$/.test(uid) || !/^-?\d+$/.test(gid)) return []
    // On macOS `nobody` is written as -2, while the system calls report the unsigned number.
    const account = { name, uid: Number(uid) >>> 0, gid: Number(gid) >>> 0 }
    return account.uid === 0 ? [] : [account]
  })
}

/**
 * Who runs PostgreSQL. It refuses to run as root, so root picks another user: the one who owns the
 * cluster already, so that an existing cluster does not change hands, or a common system user.
 */
export async function chooseIdentity(clusterDirectory: string): Promise<Identity> {
  const uid = process.geteuid?.() ?? 0
  const gid = process.getegid?.() ?? 0
  if (uid !== 0) return { name: ownName() ?? String(uid), uid, gid, dropped: false }

  const accounts = parseAccounts(await readFile('/etc/passwd', 'utf8').catch(() => ''))
  const owner = await stat(clusterDirectory).catch(() => undefined)
  const chosen =
    accounts.find((account) => account.uid === owner?.uid) ??
    preferredAccounts
      .map((name) => accounts.find((account) => account.name === name))
      .find((account) => account !== undefined)
  if (!chosen) {
    throw new EmbeddedError(
      'postgresql does not run as root and /etc/passwd has neither a user [postgres] nor [nobody]: ' +
        'add one, start offshoot as a normal user, or set OFFSHOOT_DATABASE_URL to use your own',
    )
  }
  return { ...chosen, dropped: true }
}

/** Only initdb and single-user sessions need the name, which they look up themselves. */
export function requireAccount(identity: Identity): void {
  if (identity.dropped || ownName() !== undefined) return
  throw new EmbeddedError(
    `user id ${identity.uid} has no name, which postgresql needs to create a database cluster: ` +
      'add it to /etc/passwd, or set OFFSHOOT_DATABASE_URL to use your own',
  )
}

function ownName(): string | undefined {
  try {
    return userInfo().username
  } catch {
    return undefined
  }
}

/** Containers can take from root the right to change users or to know any other user. */
export function explainMissingRight(identity: Identity, error: unknown): unknown {
  const code = errorCode(error)
  if (!identity.dropped || (code !== 'EPERM' && code !== 'EINVAL')) return error
  return new EmbeddedError(
    `root may not run postgresql as user [${identity.name}] here (${code}): ` +
      'start offshoot as a normal user, or set OFFSHOOT_DATABASE_URL to use your own',
    { cause: error },
  )
}

/** Gives a file or folder to the user, where that is not ourselves. */
export async function giveTo(identity: Identity, path: string): Promise<void> {
  if (!identity.dropped) return
  try {
    await lchown(path, identity.uid, identity.gid)
  } catch (error) {
    throw explainMissingRight(identity, error)
  }
}

/** The options of `spawn` for running as this user. */
export function spawnIdentity(identity: Identity): { uid?: number; gid?: number } {
  // `spawn` takes signed numbers, so the unsigned ones above 2^31 have to be wrapped.
  return identity.dropped ? { uid: identity.uid | 0, gid: identity.gid | 0 } : {}
}

export const canRead = 4
export const canTraverse = 1

/** Whether the permission bits of a file or folder let the user do all of what `wanted` says. */
export function allows(
  stats: Pick<Stats, 'mode' | 'uid' | 'gid'>,
  identity: Pick<Identity, 'uid' | 'gid'>,
  wanted: number,
): boolean {
  // A child started with another uid has no supplementary groups, so only the main one counts.
  const shift = stats.uid === identity.uid ? 6 : stats.gid === identity.gid ? 3 : 0
  return ((stats.mode >> shift) & wanted) === wanted
}

/** Whether the user may do what `wanted` says, given that it can reach the file or folder. */
export async function mayUse(path: string, identity: Identity, wanted: number): Promise<boolean> {
  if (identity.dropped) return allows(await stat(path), identity, wanted)
  return access(path, wanted).then(
    () => true,
    () => false,
  )
}

/** Whether the user can go through every folder from the root down to this one, inclusive. */
export async function canReach(folder: string, identity: Identity): Promise<boolean> {
  let current = await realpath(folder)
  for (;;) {
    if (!(await mayUse(current, identity, canTraverse))) return false
    // The system has just looked at all parents when it answered for ourselves.
    if (!identity.dropped) return true
    const parent = dirname(current)
    if (parent === current) return true
    current = parent
  }
}
