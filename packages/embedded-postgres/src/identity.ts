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
  /** Whether this is not the user of this process. Only root can run programs as another user. */
  readonly dropped: boolean
}

interface Account {
  readonly name: string
  readonly uid: number
  readonly gid: number
}

/** User names to try in order if this process is root. */
const preferredAccounts = ['postgres', '_postgres', 'nobody']

/** Parses the lines of /etc/passwd. Leaves out root, because PostgreSQL refuses to run as root. */
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
 * Chooses the user that PostgreSQL runs as. It refuses to run as root. If this process is root,
 * that is the owner of an existing cluster, so that its files keep their owner, or a common system
 * user.
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
      'PostgreSQL does not run as root and /etc/passwd has neither a user [postgres] nor [nobody]: ' +
        'add one, start offshoot as a normal user, or set OFFSHOOT_DATABASE_URL to use your own',
    )
  }
  return { ...chosen, dropped: true }
}

/**
 * Throws if the user has no name. Only initdb and single-user sessions need it; they look it up.
 */
export function requireAccount(identity: Identity): void {
  if (identity.dropped || ownName() !== undefined) return
  throw new EmbeddedError(
    `user id ${identity.uid} has no name, which PostgreSQL needs to create a database cluster: ` +
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

/** In a container, root may lack the capability to change users, or the other users. */
export function explainMissingRight(identity: Identity, error: unknown): unknown {
  const code = errorCode(error)
  if (!identity.dropped || (code !== 'EPERM' && code !== 'EINVAL')) return error
  return new EmbeddedError(
    `root may not run PostgreSQL as user [${identity.name}] here (${code}): ` +
      'start offshoot as a normal user, or set OFFSHOOT_DATABASE_URL to use your own',
    { cause: error },
  )
}

/** Changes the owner of a file or folder to the user, unless that is the user of this process. */
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
  // `spawn` takes signed numbers, so unsigned ones above 2^31 must be wrapped.
  return identity.dropped ? { uid: identity.uid | 0, gid: identity.gid | 0 } : {}
}

export const canRead = 4
export const canTraverse = 1

/** Whether the permission bits of a file or folder grant the user all bits of `wanted`. */
export function allows(
  stats: Pick<Stats, 'mode' | 'uid' | 'gid'>,
  identity: Pick<Identity, 'uid' | 'gid'>,
  wanted: number,
): boolean {
  // A child started with another uid has no supplementary groups, so only the main one counts.
  const shift = stats.uid === identity.uid ? 6 : stats.gid === identity.gid ? 3 : 0
  return ((stats.mode >> shift) & wanted) === wanted
}

/** Whether the user has the permissions `wanted`, if it can traverse the parent folders. */
export async function mayUse(path: string, identity: Identity, wanted: number): Promise<boolean> {
  if (identity.dropped) return allows(await stat(path), identity, wanted)
  return access(path, wanted).then(
    () => true,
    () => false,
  )
}

/** Whether the user can traverse every folder from the root down to this one, inclusive. */
export async function canReach(folder: string, identity: Identity): Promise<boolean> {
  let current = await realpath(folder)
  for (;;) {
    if (!(await mayUse(current, identity, canTraverse))) return false
    // For the user of this process, the system call has just checked all parents.
    if (!identity.dropped) return true
    const parent = dirname(current)
    if (parent === current) return true
    current = parent
  }
}
