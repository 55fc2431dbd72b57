import { execFile } from 'node:child_process'
import { readdir, readFile, rm, stat } from 'node:fs/promises'
import { basename, join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { EmbeddedError, errorCode } from './errors.js'
import { readIfExists } from './files.js'

const run = promisify(execFile)

const pollMilliseconds = 20
const cleanStopMilliseconds = 30_000
const immediateStopMilliseconds = 10_000
const killMilliseconds = 5_000

/** Content of the file postmaster.pid of a cluster. */
interface PostmasterFile {
  readonly pid: number
  /** For example `starting` or `ready`; missing until the server writes it. */
  readonly status: string | undefined
}

export async function readPostmasterFile(cluster: string): Promise<PostmasterFile | undefined> {
  const lines = (await readIfExists(join(cluster, 'postmaster.pid')))?.split('\n')
  if (!lines) return undefined
  // A single-user session writes its process id as a negative number.
  const pid = Math.abs(Number(lines[0]))
  return { pid, status: lines[7]?.trim() }
}

/**
 * Stops the server that an earlier run left behind in this cluster, and removes a stale
 * postmaster.pid that would prevent a new one from starting. The caller must hold the lock of the
 * data folder.
 */
export async function stopOrphan(options: {
  readonly cluster: string
  /** The cluster name of the earlier run, if it is known. */
  readonly serverName: string | undefined
  readonly log: (line: string) => void
}): Promise<void> {
  const { cluster, log } = options
  const recorded = await readPostmasterFile(cluster)
  // A server that shuts down cleanly removes the file after all of its processes have ended.
  if (!recorded) return

  const find = () => findServerProcesses(cluster, options.serverName)
  const isGone = async () => (await find()).length === 0
  let found = await find()
  if (found.includes(recorded.pid)) {
    log(`stopping the PostgreSQL that an earlier run left behind (pid ${recorded.pid})`)
    sendSignal(recorded.pid, 'SIGINT')
    if (!(await waitUntil(isGone, cleanStopMilliseconds))) log('it does not stop: aborting it')
    found = await find()
  }
  // Without a postmaster, the other processes end by themselves, but only when they are idle.
  const escalation = [
    { signal: 'SIGQUIT', milliseconds: immediateStopMilliseconds },
    { signal: 'SIGKILL', milliseconds: killMilliseconds },
  ] as const
  for (const { signal, milliseconds } of escalation) {
    if (found.length === 0) break
    for (const pid of found) sendSignal(pid, signal)
    await waitUntil(isGone, milliseconds)
    found = await find()
  }
  if (found.length > 0) {
    throw new EmbeddedError(
      `the PostgreSQL of an earlier run does not end (pid ${found.join(', ')}): ` +
        'end it, then start offshoot again',
    )
  }
  // PostgreSQL itself handles the file of a dead process, and checks more than this code can. The
  // file must only be removed if another program has the same process id, as happens in containers,
  // or if a power failure has damaged it.
  const left = await readPostmasterFile(cluster)
  const isObstacle = left && (!isProcessNumber(left.pid) || isAlive(left.pid))
  if (isObstacle) await rm(join(cluster, 'postmaster.pid'), { force: true })
}

/** Lists the processes of the server that runs in this cluster. */
async function findServerProcesses(
  cluster: string,
  serverName: string | undefined,
): Promise<number[]> {
  return process.platform === 'linux'
    ? findInProcFolder(cluster, serverName)
    : findInProcessList(serverName)
}

async function findInProcFolder(
  cluster: string,
  serverName: string | undefined,
): Promise<number[]> {
  const clusterStats = await stat(cluster)
  const names = (await readdir('/proc')).filter((name) => /^\d+$/.test(name))
  const found = await Promise.all(
    names.map(async (name) => {
      const read = (file: string) => readFile(`/proc/${name}/${file}`, 'utf8').catch(() => '')
      if ((await read('comm')).trim() !== 'postgres') return []
      // The working folder of every process of a server is its cluster. Folders are compared by
      // inode, because the path may differ between mounts.
      const workingFolder = await stat(`/proc/${name}/cwd`).catch(() => undefined)
      const isInCluster =
        workingFolder?.dev === clusterStats.dev && workingFolder.ino === clusterStats.ino
      // In a container, root may not be allowed to read the working folder of other users'
      // processes.
      const isNamed = serverName !== undefined && (await read('cmdline')).includes(serverName)
      return isInCluster || isNamed ? [Number(name)] : []
    }),
  )
  return found.flat()
}

async function findInProcessList(serverName: string | undefined): Promise<number[]> {
  if (serverName === undefined) return []
  const { stdout } = await run('ps', ['-axwwo', 'pid=,command='], { maxBuffer: 64 << 20 })
  return stdout.split('\n').flatMap((line) => {
    const [, pid, program] = /^\s*(\d+)\s+(\S+)/.exec(line) ?? []
    const isServer = program === 'postgres:' || basename(program ?? '') === 'postgres'
    return isServer && line.includes(serverName) ? [Number(pid)] : []
  })
}

async function waitUntil(condition: () => Promise<boolean>, milliseconds: number) {
  const end = performance.now() + milliseconds
  while (!(await condition())) {
    if (performance.now() > end) return false
    await delay(pollMilliseconds)
  }
  return true
}

function isProcessNumber(pid: number): boolean {
  return Number.isSafeInteger(pid) && pid > 0
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch (error) {
    return errorCode(error) === 'EPERM'
  }
}

/** Sends a signal to a process that may have ended already. */
function sendSignal(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal)
  } catch (error) {
    if (errorCode(error) !== 'ESRCH') throw error
  }
}
