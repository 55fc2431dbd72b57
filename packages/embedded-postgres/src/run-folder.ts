import { chmod, lstat, mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { EmbeddedError } from './errors.js'
import { readIfExists, removeLeftovers, removeTree, writePrivateFile } from './files.js'
import { canReach, giveTo, type Identity } from './identity.js'

/** The folder of one run, with the socket of the server. */
interface RunFolder {
  readonly path: string
  /** The random name of the folder. It also identifies the server of this run. */
  readonly serverName: string
  remove(): Promise<void>
}

const prefix = 'offshoot-'
/** Maximum bytes of the path of a Unix socket on all systems. */
const longestSocketPath = 103

/**
 * File in the data folder with the path of the run folder, for a later run to remove it after a
 * crash.
 */
function recordFile(dataFolder: string): string {
  return join(dataFolder, 'postgres-run')
}

export async function makeRunFolder(dataFolder: string, identity: Identity): Promise<RunFolder> {
  for (const candidate of new Set([tmpdir(), '/tmp', '/var/tmp'])) {
    const path = await tryMakeFolder(candidate, identity)
    if (path === undefined) continue
    try {
      await giveTo(identity, path)
    } catch (error) {
      await removeTree(path)
      throw error
    }
    await writePrivateFile(recordFile(dataFolder), path)
    return {
      path,
      serverName: basename(path),
      async remove() {
        await removeTree(path)
        await removeRecord(dataFolder, path)
      },
    }
  }
  throw new EmbeddedError(
    `no folder for temporary files that user [${identity.name}] can use: ` +
      'set TMPDIR to one with a short path',
  )
}

/** Removes the record, unless it is already that of a new run. */
async function removeRecord(dataFolder: string, path: string): Promise<void> {
  const file = recordFile(dataFolder)
  if ((await readIfExists(file)) === path) await rm(file, { force: true })
}

async function tryMakeFolder(parent: string, identity: Identity): Promise<string | undefined> {
  try {
    const realParent = await realpath(parent)
    const socket = join(realParent, `${prefix}123456`, '.s.PGSQL.5432')
    if (Buffer.byteLength(socket) > longestSocketPath) return undefined
    if (!(await canReach(realParent, identity))) return undefined
    const path = await mkdtemp(join(realParent, prefix))
    await chmod(path, 0o700)
    return path
  } catch {
    return undefined
  }
}

/** Finds the run folder of an earlier run that did not end cleanly. */
export async function findEarlierRunFolder(dataFolder: string): Promise<RunFolder | undefined> {
  await removeLeftovers(recordFile(dataFolder))
  const path = await readIfExists(recordFile(dataFolder))
  if (!path) return undefined
  const serverName = basename(path)
  const isRecognised = /^offshoot-[A-Za-z0-9]{6}$/.test(serverName)
  return {
    path,
    serverName,
    async remove() {
      const stats = await lstat(path).catch(() => undefined)
      if (isRecognised && stats?.isDirectory()) await removeTree(path)
      await removeRecord(dataFolder, path)
    },
  }
}
