import { randomBytes } from 'node:crypto'
import { chmod, mkdir, readdir, rename, rm, stat, writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'
import type { Binaries } from './binaries.js'
import { EmbeddedError } from './errors.js'
import {
  randomName,
  readIfExists,
  removeLeftovers,
  removeTree,
  syncFolder,
  writePrivateFile,
} from './files.js'
import { giveTo, type Identity, requireAccount } from './identity.js'
import { openPlace, type Place, runTool } from './run.js'

/** The superuser of the cluster, and the database that Offshoot uses. */
export const superuser = 'offshoot'
export const database = 'offshoot'

interface ClusterOptions {
  /** The folder of the cluster. */
  readonly cluster: string
  readonly passwordFile: string
  readonly identity: Identity
  readonly binaries: Binaries
  /** A folder that only this user can read, for short-lived files with a secret. */
  readonly privateFolder: string
  readonly log: (line: string) => void
  /** Called before the cluster is created, which takes long. */
  onWaiting(): void
}

/** Throws if the folder contains something that this version of PostgreSQL cannot use. */
export async function checkCluster(
  cluster: string,
  major: string,
  identity: Identity,
): Promise<void> {
  const owner = await stat(cluster).catch(() => undefined)
  if (owner && owner.uid !== identity.uid && !identity.dropped) {
    throw new EmbeddedError(
      `the database cluster in [${cluster}] belongs to user id ${owner.uid}: start offshoot as ` +
        'that user or as root, or set OFFSHOOT_DATA_DIR to another folder',
    )
  }
  const version = (await readIfExists(join(cluster, 'PG_VERSION')))?.trim()
  if (version === undefined) {
    const entries = await readdir(cluster).catch(() => [])
    if (entries.length === 0) return
    throw new EmbeddedError(
      `the folder [${cluster}] has files but no database cluster: ` +
        'move them away, or set OFFSHOOT_DATA_DIR to another folder',
    )
  }
  if (version !== major) {
    throw new EmbeddedError(
      `the database cluster in [${cluster}] is of PostgreSQL [${version}] and this offshoot ` +
        `brings [${major}]: use an offshoot with the same version, or set OFFSHOOT_DATA_DIR to ` +
        'another folder',
    )
  }
}

/** Creates the cluster if there is none, and returns the password of its superuser. */
export async function ensureCluster(options: ClusterOptions): Promise<string> {
  const { cluster, passwordFile } = options
  await removeLeftovers(cluster)
  await removeLeftovers(passwordFile)
  const known = (await readIfExists(passwordFile))?.trim() || undefined
  const password = known ?? randomBytes(32).toString('base64url')

  if ((await readIfExists(join(cluster, 'PG_VERSION'))) === undefined) {
    options.onWaiting()
    await createCluster(options, password)
    return password
  }
  await ensureOwner(cluster, options.identity)
  if (known === undefined) {
    await resetPassword(options, password)
    await writePrivateFile(passwordFile, password)
  }
  return password
}

/**
 * Creates a cluster under a temporary name, so that an interrupted one is never taken for complete.
 */
async function createCluster(options: ClusterOptions, password: string): Promise<void> {
  const { cluster, identity, log } = options
  requireAccount(identity)
  log(`creating a database cluster in [${cluster}]`)
  const temporary = `${cluster}.new-${randomName()}`
  try {
    await mkdir(temporary, { mode: 0o700 })
    await giveTo(identity, temporary)
    const place = await openPlace(temporary, identity)
    try {
      await initialize(options, place, password)
    } finally {
      await place.close()
    }
    await writePrivateFile(options.passwordFile, password)
    await rename(temporary, cluster)
  } catch (error) {
    await removeTree(temporary)
    throw error
  }
  await syncFolder(dirname(cluster))
  await syncParents(dirname(cluster))
}

/** Syncs the parents of the cluster too: they may have just been created. */
async function syncParents(folder: string): Promise<void> {
  for (let current = dirname(folder); current !== dirname(current); current = dirname(current)) {
    // A folder that cannot be opened was not created by this process.
    await syncFolder(current).catch(() => {})
  }
}

async function initialize(options: ClusterOptions, place: Place, password: string) {
  const { identity, binaries } = options
  const secretFile = join(options.privateFolder, randomName())
  await writeFile(secretFile, `${password}\n`, { mode: 0o600, flag: 'wx' })
  try {
    await giveTo(identity, secretFile)
    const parameters = [
      `--pgdata=${place.path}`,
      `--username=${superuser}`,
      `--pwfile=${secretFile}`,
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      // Sorts by code point on every system, and classifies the letters of all languages.
      '--locale=C',
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      // Everything is synced to disk in one pass at the end.
      '--no-sync',
      '--no-instructions',
    ]
    await runTool(binaries.initdb, parameters, { identity, place })
  } finally {
    await rm(secretFile, { force: true })
  }
  await runSingleUser(options, place, `CREATE DATABASE "${database}"`, ['-F'])
  await runTool(binaries.initdb, ['--sync-only', `--pgdata=${place.path}`], { identity, place })
}

async function resetPassword(options: ClusterOptions, password: string): Promise<void> {
  requireAccount(options.identity)
  options.log(`making a new password because [${options.passwordFile}] is missing`)
  const place = await openPlace(options.cluster, options.identity)
  try {
    await runSingleUser(options, place, `ALTER ROLE "${superuser}" PASSWORD '${password}'`)
  } finally {
    await place.close()
  }
}

/** Runs one statement in a cluster whose server is not running. */
async function runSingleUser(
  options: ClusterOptions,
  place: Place,
  statement: string,
  flags: readonly string[] = [],
): Promise<void> {
  const { identity, binaries } = options
  const parameters = ['--single', '-D', place.path, '-c', 'exit_on_error=on', ...flags, 'template1']
  await runTool(binaries.postgres, parameters, { identity, place, input: `${statement};\n` })
}

/**
 * PostgreSQL requires that the cluster belongs to its user and that no other user can access it.
 */
async function ensureOwner(cluster: string, identity: Identity): Promise<void> {
  const samples = ['', 'PG_VERSION', join('global', 'pg_control')].map((name) =>
    join(cluster, name),
  )
  const owners = await Promise.all(
    samples.map((sample) =>
      stat(sample).then(
        ({ uid }) => uid,
        () => identity.uid,
      ),
    ),
  )
  const isForeign = owners.some((uid) => uid !== identity.uid)
  if (isForeign && identity.dropped) await changeOwner(cluster, identity)
  const { mode } = await stat(cluster)
  if ((mode & 0o777) !== 0o700) await chmod(cluster, 0o700)
}

/** Changes the folder itself last, so that an interrupted change is repeated. */
async function changeOwner(path: string, identity: Identity): Promise<void> {
  for (const entry of await readdir(path, { withFileTypes: true })) {
    const entryPath = join(path, entry.name)
    if (entry.isDirectory()) await changeOwner(entryPath, identity)
    else await giveTo(identity, entryPath)
  }
  await giveTo(identity, path)
}
