import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { readdir, readFile, readlink, realpath } from 'node:fs/promises'
import { createServer } from 'node:net'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'

/** The command as an installed package runs it. */
export const PROGRAM = fileURLToPath(new URL('./offshoot.js', import.meta.url))

/** The command of a checkout, which first compiles the sources that have changed. */
export const CHECKOUT_PROGRAM = fileURLToPath(
  new URL('../../packages/cli/bin/offshoot.js', import.meta.url),
)

interface Ended {
  readonly code: number | null
  readonly signal: NodeJS.Signals | null
}

/** The service as a process. */
export interface OffshootProcess {
  readonly child: ChildProcess
  readonly stdout: string
  readonly stderr: string
  readonly ended: Promise<Ended>
  /** Waits for the message that the service is ready. */
  ready(): Promise<Banner>
  end(signal: NodeJS.Signals): Promise<Ended>
}

/** The parsed start message. */
export interface Banner {
  readonly text: string
  readonly address: string
  readonly workspaceId: string
  /** The key of the administrator, from the key file: a log does not show it. */
  readonly key: string | undefined
  readonly keyFile: string | undefined
  readonly seconds: number
  /** The curl command of the message. */
  readonly command: string
}

/** The last line of the start message: a request, or a command if commands find the service by themselves. */
export const START_MESSAGE_END = /"region":|npx offshoot db create/

const running = new Set<ChildProcess>()

interface RunOptions {
  readonly env?: Record<string, string>
  readonly uid?: number
  readonly gid?: number
  readonly cwd?: string
  /** The program to run instead of that of the checkout. */
  readonly program?: string
}

export function runOffshoot(args: readonly string[], options: RunOptions = {}): OffshootProcess {
  const { env = {}, program = PROGRAM, ...rest } = options
  const inherited = Object.entries(process.env).filter(([name]) => !name.startsWith('OFFSHOOT_'))
  const child = spawn(process.execPath, [program, ...args], {
    ...rest,
    env: { ...Object.fromEntries(inherited), ...env },
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  running.add(child)
  let stdout = ''
  let stderr = ''
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text
  })
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text
  })
  const ended = once(child, 'close').then(([code, signal]) => {
    running.delete(child)
    return { code, signal } as Ended
  })
  return {
    child,
    ended,
    get stdout() {
      return stdout
    },
    get stderr() {
      return stderr
    },
    async ready() {
      let hasEnded = false
      void ended.then(() => {
        hasEnded = true
      })
      await until(async () => START_MESSAGE_END.test(stdout) || hasEnded)
      if (hasEnded) throw new Error(`the service ended instead of starting: ${stderr}`)
      const banner = parseBanner(stdout)
      return { ...banner, key: await readKey(banner.keyFile) }
    },
    async end(signal) {
      child.kill(signal)
      return ended
    },
  }
}

/**
 * Long time limits that end only requests that hang, because answers are slow on a busy machine.
 */
const PATIENCE_MS = '200000'
const PATIENT = {
  OFFSHOOT_LIMIT_REQUEST_TIMEOUT_MS: PATIENCE_MS,
  OFFSHOOT_LIMIT_REQUEST_WAIT_MS: PATIENCE_MS,
  OFFSHOOT_LIMIT_HEADERS_TIMEOUT_MS: PATIENCE_MS,
  OFFSHOOT_LIMIT_STALL_TIMEOUT_MS: PATIENCE_MS,
  OFFSHOOT_LIMIT_QUERY_TIMEOUT_MS: PATIENCE_MS,
}

/** Starts the service with the embedded PostgreSQL in a folder, on a free port. */
export function startOffshoot(dataDir: string, options: RunOptions = {}): OffshootProcess {
  const env = {
    OFFSHOOT_PORT: '0',
    OFFSHOOT_PG_PORT: '0',
    OFFSHOOT_DATA_DIR: dataDir,
    ...PATIENT,
    ...options.env,
  }
  return runOffshoot(['start'], { ...options, env })
}

async function readKey(file: string | undefined): Promise<string | undefined> {
  return file === undefined ? undefined : (await readFile(file, 'utf8')).trim()
}

function parseBanner(text: string): Omit<Banner, 'key'> {
  const value = (name: string) => new RegExp(`^  ${name} +(\\S+)`, 'm').exec(text)?.[1]
  return {
    text,
    address: value('API') ?? '',
    workspaceId: /\/([^/.]+)\.[^/]+\/db\/\.\.\./.exec(text)?.[1] ?? '',
    keyFile: value('Key file'),
    seconds: Number(/ready in ([\d.]+) s/.exec(text)?.[1]),
    command: text.split('Create a database:\n')[1] ?? '',
  }
}

/** Ends processes that a failed test left running. */
export async function endAll(dataDirs: readonly string[]): Promise<void> {
  for (const child of running) child.kill('SIGKILL')
  for (const dataDir of dataDirs) {
    for (const pid of await postgresProcesses(dataDir)) kill(pid, 'SIGKILL')
  }
}

/** Returns the processes of the embedded PostgreSQL in a data folder, the postmaster first. */
export function postgresProcesses(dataDir: string): Promise<number[]> {
  return serverProcesses(path.join(dataDir, 'postgres'))
}

/** Returns the processes of the PostgreSQL whose own data are in a folder, the postmaster first. */
async function serverProcesses(folder: string): Promise<number[]> {
  const cluster = await realpath(folder).catch(() => folder)
  const pidFile = path.join(cluster, 'postmaster.pid')
  const recorded = Number((await readFile(pidFile, 'utf8').catch(() => '0')).split('\n')[0])
  const names = await readdir('/proc').catch(() => [])
  const inCluster = await Promise.all(
    names
      .filter((name) => /^\d+$/.test(name))
      .map(async (name) => {
        const working = await readlink(`/proc/${name}/cwd`).catch(() => '')
        return working === cluster ? [Number(name)] : []
      }),
  )
  const parents = recorded > 0 && kill(recorded, 0) ? [recorded] : []
  return [...new Set([...parents, ...inCluster.flat()])]
}

/** Kills all processes of the PostgreSQL whose own data are in a folder, as a power failure does. */
export async function killServer(folder: string): Promise<void> {
  const pids = await serverProcesses(folder)
  for (const pid of pids) kill(pid, 'SIGKILL')
  await until(async () => (await serverProcesses(folder)).length === 0)
}

/** Kills the main process of the PostgreSQL whose own data are in a folder. The others end when they notice. */
export async function killPostmaster(folder: string): Promise<void> {
  const [postmaster] = await serverProcesses(folder)
  if (postmaster !== undefined) kill(postmaster, 'SIGKILL')
}

/**
 * Sends a signal to all processes of the PostgreSQL whose own data are in a folder, such as SIGSTOP: it then does not
 * answer, but its connections stay open, and new ones are accepted by the system.
 */
export async function signalServer(folder: string, signal: NodeJS.Signals): Promise<void> {
  for (const pid of await serverProcesses(folder)) kill(pid, signal)
}

function kill(pid: number, signal: NodeJS.Signals | 0): boolean {
  try {
    process.kill(pid, signal)
    return true
  } catch {
    return false
  }
}

export async function until(condition: () => Promise<boolean>, timeoutMs = 240_000): Promise<void> {
  const end = performance.now() + timeoutMs
  while (!(await condition())) {
    if (performance.now() > end) throw new Error(`waited ${timeoutMs} ms for ${condition}`)
    await delay(20)
  }
}

export async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as { port: number }
  server.close()
  await once(server, 'close')
  return port
}

interface HttpAnswer {
  readonly status: number
  // biome-ignore lint/suspicious/noExplicitAny: tests look into bodies of every shape.
  readonly body: any
}

/** Sends one HTTP request; the status is 0 if the connection is refused. */
export async function request(
  address: string,
  method: string,
  url: string,
  options: { key?: string | undefined; body?: unknown } = {},
): Promise<HttpAnswer> {
  try {
    const response = await fetch(`${address}${url}`, {
      method,
      headers: {
        ...(options.key === undefined ? {} : { authorization: `Bearer ${options.key}` }),
        ...(options.body === undefined ? {} : { 'content-type': 'application/json' }),
      },
      ...(options.body === undefined ? {} : { body: JSON.stringify(options.body) }),
    })
    const text = await response.text()
    return { status: response.status, body: text === '' ? undefined : JSON.parse(text) }
  } catch (error) {
    if (error instanceof SyntaxError) throw error
    return { status: 0, body: undefined }
  }
}
