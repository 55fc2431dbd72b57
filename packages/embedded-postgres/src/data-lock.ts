import { execFile } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { link, mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { DataLockError, errorCode, errorMessage } from './errors.js'

export { DataLockError } from './errors.js'

const run = promisify(execFile)

const lockName = 'offshoot.lock'

const FOLDER_FAULTS: Readonly<Record<string, string>> = {
  EACCES: 'is not writable for this user',
  EPERM: 'is not writable for this user',
  EROFS: 'is not writable for this user',
  EEXIST: 'is not a folder',
  ENOTDIR: 'is not below a folder',
}

/** Content of a lock file: the process that holds the lock. */
interface Holder {
  readonly pid: number
  /** Distinguishes the process from a later one with the same id. */
  readonly started: string
  /** Unique for this lock. */
  readonly id: string
  /** Where the process listens, once it does. */
  readonly address?: string
}

export interface DataLock {
  /** Records the address that the process listens on. `findListener` returns it while the process lives. */
  publish(address: string): Promise<void>
  release(): Promise<void>
}

/** Locks the data folder for this process. Throws if another live process holds the lock. */
export async function acquireDataLock(dataDir: string): Promise<DataLock> {
  const started = await startOfProcess(process.pid)
  if (started === undefined) throw new DataLockError('cannot tell when this process started')
  const holder = { pid: process.pid, started, id: randomBytes(8).toString('hex') }
  try {
    await mkdir(dataDir, { recursive: true, mode: 0o700 })
    await acquire(dataDir, holder)
  } catch (error) {
    if (error instanceof DataLockError) throw error
    const fault = FOLDER_FAULTS[errorCode(error) ?? '']
    throw new DataLockError(
      fault === undefined
        ? `cannot lock data folder [${dataDir}]: ${errorMessage(error)}`
        : `data folder [${dataDir}] ${fault}: set OFFSHOOT_DATA_DIR to another folder`,
      { cause: error },
    )
  }
  let released: Promise<void> | undefined
  return {
    async publish(address) {
      const lock = join(dataDir, lockName)
      const own = `${lock}.${holder.id}`
      await writeFile(own, JSON.stringify({ ...holder, address }), { mode: 0o600 })
      await rename(own, lock)
    },
    release() {
      released ??= release(dataDir, holder)
      return released
    },
  }
}

/**
 * Returns the address that the process with the lock listens on; undefined if there is none, or if it has died.
 * While it lives nobody else can listen there.
 */
export async function findListener(dataDir: string): Promise<string | undefined> {
  const holder = await readHolder(join(dataDir, lockName))
  if (holder?.address === undefined) return undefined
  return (await startOfProcess(holder.pid)) === holder.started ? holder.address : undefined
}

async function acquire(dataDir: string, holder: Holder): Promise<void> {
  const lock = join(dataDir, lockName)
  const own = `${lock}.${holder.id}`
  try {
    for (;;) {
      // Written again for each attempt, because a process that gets the lock removes such files.
      await writeFile(own, JSON.stringify(holder), { mode: 0o600 })
      // A hard link appears with its full content, and only if there is no file of that name.
      if (await tryLink(own, lock)) break
      const current = await readHolder(lock)
      if (!current) continue
      await refuseIfAlive(dataDir, current)
      if (await tryReplace(dataDir, own, current)) break
      await delay(5)
    }
    await removeLeftovers(dataDir)
  } finally {
    await rm(own, { force: true })
  }
}

/**
 * Replaces the lock of a dead process by ours. Several processes may try this at the same time, and
 * none of them may remove the lock that a faster one has just acquired. So a process first creates
 * a claim for this very lock, and only the owner of the claim may replace the lock. A claim of a
 * dead process is taken over in the same way.
 */
async function tryReplace(dataDir: string, own: string, stale: Holder): Promise<boolean> {
  const lock = join(dataDir, lockName)
  let claim = claimOf(lock, stale)
  while (!(await tryLink(own, claim))) {
    const claimant = await readHolder(claim)
    if (!claimant) return false
    await refuseIfAlive(dataDir, claimant)
    claim = claimOf(lock, claimant)
  }
  try {
    // An earlier claimant has replaced the lock and removed its claim.
    if ((await readHolder(lock))?.id !== stale.id) return false
    await rename(own, lock)
    return true
  } finally {
    await rm(claim, { force: true })
  }
}

function claimOf(lock: string, holder: Holder): string {
  return `${lock}.after-${holder.id}`
}

async function refuseIfAlive(dataDir: string, holder: Holder): Promise<void> {
  if ((await startOfProcess(holder.pid)) !== holder.started) return
  throw new DataLockError(
    `data folder [${dataDir}] is in use by another offshoot (pid ${holder.pid}): ` +
      'stop it first, or set OFFSHOOT_DATA_DIR to another folder',
  )
}

async function release(dataDir: string, holder: Holder): Promise<void> {
  const lock = join(dataDir, lockName)
  if ((await readHolder(lock))?.id === holder.id) await rm(lock, { force: true })
}

/** Returns whether the link was created; false if the name is taken or our own file was removed. */
async function tryLink(own: string, path: string): Promise<boolean> {
  try {
    await link(own, path)
    return true
  } catch (error) {
    if (errorCode(error) === 'EEXIST' || errorCode(error) === 'ENOENT') return false
    throw error
  }
}

/** Removes files of processes that died while they tried to acquire the lock. */
async function removeLeftovers(dataDir: string): Promise<void> {
  for (const name of await readdir(dataDir)) {
    if (name.startsWith(`${lockName}.`)) await rm(join(dataDir, name), { force: true })
  }
}

async function readHolder(file: string): Promise<Holder | undefined> {
  let text: string
  try {
    text = await readFile(file, 'utf8')
  } catch (error) {
    if (errorCode(error) === 'ENOENT') return undefined
    throw error
  }
  return parseHolder(text)
}

function parseHolder(text: string): Holder {
  try {
    const { pid, started, id, address }: Partial<Record<string, unknown>> = JSON.parse(text)
    if (typeof pid === 'number' && typeof started === 'string' && typeof id === 'string') {
      return { pid, started, id, ...(typeof address === 'string' ? { address } : {}) }
    }
  } catch {
    // A file that cannot be parsed is handled below.
  }
  // Locks appear with their full content, so only a power failure can have damaged one.
  return { pid: 0, started: '', id: 'unreadable' }
}

/**
 * Returns an identifier for the start of a live process, or undefined if there is no such process.
 */
async function startOfProcess(pid: number): Promise<string | undefined> {
  return process.platform === 'linux' ? startInProcFolder(pid) : startInProcessList(pid)
}

async function startInProcFolder(pid: number): Promise<string | undefined> {
  let status: string
  let bootId: string
  try {
    status = await readFile(`/proc/${pid}/stat`, 'utf8')
    bootId = await readFile('/proc/sys/kernel/random/boot_id', 'utf8')
  } catch {
    return undefined
  }
  // The second field is the name in parentheses, which may itself contain spaces and parentheses.
  const fields = status.slice(status.lastIndexOf(')') + 2).split(' ')
  const [state] = fields
  const startTicks = fields[19]
  // A process that has ended keeps its entry until its parent has collected its exit status.
  if (state === 'Z' || state === 'X') return undefined
  return `${bootId.trim()} ${startTicks}`
}

async function startInProcessList(pid: number): Promise<string | undefined> {
  if (pid <= 0) return undefined
  try {
    const environment = { ...process.env, LC_ALL: 'C', TZ: 'UTC' }
    const parameters = ['-o', 'stat=,lstart=', '-p', String(pid)]
    const { stdout } = await run('ps', parameters, { env: environment })
    const [, state, start] = /^\s*(\S+)\s+(.+?)\s*$/.exec(stdout) ?? []
    return state?.startsWith('Z') ? undefined : start
  } catch {
    return undefined
  }
}
