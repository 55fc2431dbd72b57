import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { startEmbedded } from '@offshoot/embedded-postgres'
import pg from 'pg'
import { Pool } from 'undici'

/** Connections of a load. The documentation states this number. */
export const CONNECTIONS = 32

/** A PostgreSQL, the built server as a separate process on it, and connections to both. */
export interface Environment {
  readonly url: string
  readonly http: Pool
  readonly serverPid: number
  readonly workspace: string
  readonly postgresUrl: string
  /** A direct connection to PostgreSQL, for baselines. */
  readonly direct: pg.Client
  call(method: string, path: string, body?: unknown): Promise<unknown>
  close(): Promise<void>
}

const KEY = 'off_bench_Zt4Vq9XwLr2Nb6KcHd3Jm5Fp8Gs7Ty'
const CLI = fileURLToPath(new URL('../../packages/cli/bin/offshoot.js', import.meta.url))

export async function createEnvironment(): Promise<Environment> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-bench-'))
  const postgres = await startEmbedded({ dataDir: folder, log: () => undefined })
  const { user, password, host, port, database } = postgres.connection
  const postgresUrl = `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`
  const server = await startProcess([CLI, 'start'], {
    OFFSHOOT_DATA_DIR: path.join(folder, 'service'),
    OFFSHOOT_DATABASE_URL: postgresUrl,
    OFFSHOOT_API_KEY: KEY,
    OFFSHOOT_PORT: '0',
    OFFSHOOT_POOL_MAX: String(CONNECTIONS),
  })
  const url = /API\s+(http:\S+)/.exec(server.output)?.[1] ?? ''
  const http = new Pool(url, { connections: CONNECTIONS, pipelining: 1 })
  const direct = new pg.Client({ connectionString: postgresUrl })
  await direct.connect()
  const workspace = /\/(home-\w+)\.local/.exec(server.output)?.[1] ?? ''
  return {
    url,
    http,
    serverPid: server.process.pid ?? 0,
    workspace,
    postgresUrl,
    direct,
    async call(method, target, body) {
      const response = await http.request({
        method: method as 'GET',
        path: target,
        headers: headers(body),
        body: body === undefined ? null : JSON.stringify(body),
      })
      const text = await response.body.text()
      if (response.statusCode >= 300) throw new Error(`${method} ${target}: ${text}`)
      return text === '' ? undefined : JSON.parse(text)
    },
    async close() {
      await http.close()
      await direct.end()
      await stopProcess(server.process)
      await postgres.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

export function headers(body?: unknown): Record<string, string> {
  return {
    authorization: `Bearer ${KEY}`,
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  }
}

/** Starts a Node process and waits until it prints its address. */
export async function startProcess(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<{ process: ChildProcess; output: string }> {
  const child = spawn(process.execPath, args, {
    env: { ...process.env, ...env },
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  let output = ''
  for await (const chunk of child.stdout) {
    output += String(chunk)
    if (/http:\/\/\S+[\s\S]*\n\n?$/.test(output)) break
  }
  child.stdout.resume()
  return { process: child, output }
}

export async function stopProcess(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null) return
  const ended = new Promise((resolve) => child.once('exit', resolve))
  child.kill('SIGTERM')
  await ended
}

/** Resident memory of a process, in MiB. */
export async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024
}
