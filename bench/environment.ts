import { type ChildProcess, spawn } from 'node:child_process'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { findRunning, startEmbedded } from '@offshoot/embedded-postgres'
import pg from 'pg'
import { Pool } from 'undici'
import { CpuMeter, type CpuMeters, childrenOf, parentOf } from './cpu.js'

/** Connections of a load. The documentation states this number. */
export const CONNECTIONS = 32

/** A running service, and connections to it and to its PostgreSQL. */
export interface Service {
  readonly url: string
  readonly http: Pool
  readonly serverPid: number
  readonly workspace: string
  /** A direct connection to PostgreSQL, for baselines. */
  readonly direct: pg.Client
  /** Creates meters of the service and of a baseline, whose server may be another process. */
  cpuMeters(barePid?: number | undefined): CpuMeters
  call(method: string, path: string, body?: unknown): Promise<unknown>
  close(): Promise<void>
}

/** A PostgreSQL, and the built server as a separate process on it. */
export interface Environment extends Service {
  readonly postgresUrl: string
}

export const KEY = 'off_bench_Zt4Vq9XwLr2Nb6KcHd3Jm5Fp8Gs7Ty'
const CLI = fileURLToPath(new URL('../../packages/cli/bin/offshoot.js', import.meta.url))

export async function createEnvironment(
  settings: Readonly<Record<string, string>> = {},
): Promise<Environment> {
  const folder = await mkdtemp(path.join(tmpdir(), 'offshoot-bench-'))
  const postgres = await startEmbedded({ dataDir: folder, log: () => undefined })
  const { user, password, host, port, database } = postgres.connection
  const postgresUrl = `postgresql://${user}:${encodeURIComponent(password)}@localhost:${port}/${database}?host=${encodeURIComponent(host)}`
  const service = await startServiceOn(postgresUrl, {
    dataDir: path.join(folder, 'service'),
    settings,
  })
  return {
    ...service,
    postgresUrl,
    async close() {
      await service.close()
      await postgres.stop()
      await rm(folder, { recursive: true, force: true })
    },
  }
}

/** Starts the service on a PostgreSQL. */
export async function startServiceOn(
  postgresUrl: string,
  { dataDir, settings = {} }: { dataDir: string; settings?: Readonly<Record<string, string>> },
): Promise<Service> {
  const server = await startProcess([CLI, 'start'], {
    OFFSHOOT_DATA_DIR: dataDir,
    OFFSHOOT_DATABASE_URL: postgresUrl,
    OFFSHOOT_API_KEY: KEY,
    OFFSHOOT_PORT: '0',
    OFFSHOOT_PG_PORT: '0',
    OFFSHOOT_POOL_MAX: String(CONNECTIONS),
    ...settings,
  })
  return openService(server, { connectionString: postgresUrl })
}

/** Starts the service in a data folder with its embedded PostgreSQL, as a user does. */
export async function startService(dataDir: string): Promise<Service> {
  const server = await startProcess([CLI, 'start'], {
    OFFSHOOT_DATA_DIR: dataDir,
    OFFSHOOT_API_KEY: KEY,
    OFFSHOOT_PORT: '0',
    OFFSHOOT_PG_PORT: '0',
  })
  const connection = await findRunning(dataDir)
  if (connection === undefined) throw new Error('the service must run a PostgreSQL')
  return openService(server, connection)
}

async function openService(
  server: { process: ChildProcess; output: string },
  connection: pg.ClientConfig,
): Promise<Service> {
  const url = /API\s+(http:\S+)/.exec(server.output)?.[1] ?? ''
  const http = new Pool(url, { connections: CONNECTIONS, pipelining: 1 })
  const direct = new pg.Client(connection)
  await direct.connect()
  const backend = await direct.query<{ pid: number }>('select pg_backend_pid() as pid')
  const postgresPid = await parentOf(backend.rows[0]?.pid ?? 0)
  const serverPid = server.process.pid ?? 0
  return {
    url,
    http,
    serverPid,
    workspace: /\/(home-\w+)\.local/.exec(server.output)?.[1] ?? '',
    direct,
    cpuMeters: (barePid) => ({
      ours: new CpuMeter({ serverPid, postgresPids: [postgresPid] }),
      baseline: new CpuMeter({ serverPid: barePid, postgresPids: [postgresPid] }),
    }),
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
    },
  }
}

export function headers(body?: unknown): Record<string, string> {
  return {
    authorization: `Bearer ${KEY}`,
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  }
}

/** The environment of this process without the settings of the benchmark, which the service refuses. */
function ownEnvironment(): NodeJS.ProcessEnv {
  const entries = Object.entries(process.env)
  return Object.fromEntries(entries.filter(([name]) => !name.startsWith('OFFSHOOT_BENCH_')))
}

/** Starts a Node process and waits until it prints its address. */
export async function startProcess(
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<{ process: ChildProcess; output: string }> {
  const child = spawn(process.execPath, args, {
    env: { ...ownEnvironment(), ...env },
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

/** Memory of a process and of all that it started, in MiB; shared pages are counted once. */
export function proportionalMiB(pid: number): Promise<number> {
  return sumMiB(pid, /^Pss:\s+(\d+)/m)
}

/** Like `proportionalMiB`, without shared memory: PostgreSQL fills its cache as far as there is data. */
export function privateMiB(pid: number): Promise<number> {
  return sumMiB(pid, /^Pss_Anon:\s+(\d+)/m)
}

async function sumMiB(pid: number, line: RegExp): Promise<number> {
  const rollup = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8').catch(() => '')
  let sum = Number(line.exec(rollup)?.[1] ?? 0) / 1024
  for (const child of await childrenOf(pid)) sum += await sumMiB(child, line)
  return sum
}

/** Resident memory of a process, in MiB. */
export async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8')
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1] ?? 0) / 1024
}
