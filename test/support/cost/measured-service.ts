import { readFileSync } from 'node:fs'
import { readFile, rm } from 'node:fs/promises'
import path from 'node:path'
import { fileURLToPath } from 'node:url'
import { makeDataFolder } from '../data-folder.js'
import {
  type Banner,
  endAll,
  type OffshootProcess,
  postgresProcesses,
  runOffshoot,
  until,
} from '../process.js'

const PROBE = fileURLToPath(new URL('./probe.mjs', import.meta.url))

/** A turn of the event loop that used a lot of CPU time. */
export interface Turn {
  /** Milliseconds since 1970. */
  readonly from: number
  readonly until: number
  readonly cpuMs: number
  /**
   * Time of garbage collection during the turn. It is measured by the clock, because V8 does not
   * report its CPU time, so on a busy machine it can be more than the turn used.
   */
  readonly gcMs: number
}

/** CPU time of a turn without garbage collection, which cannot be divided. */
export function ownCpuMs({ cpuMs, gcMs }: Turn): number {
  return Math.max(0, cpuMs - gcMs)
}

/** Resources that the processes have used so far. */
export interface Usage {
  /** CPU time of all threads of the service. */
  readonly cpuMs: number
  readonly residentBytes: number
  readonly postgresCpuMs: number
  /** Private memory of the largest backend. */
  readonly backendBytes: number
}

/** The service as a process whose cost is measured from outside. */
export class MeasuredService {
  readonly #folder: string
  readonly #process: OffshootProcess
  readonly banner: Banner

  private constructor(folder: string, process: OffshootProcess, banner: Banner) {
    this.#folder = folder
    this.#process = process
    this.banner = banner
  }

  static async start(env: Record<string, string> = {}): Promise<MeasuredService> {
    const folder = await makeDataFolder('cost')
    const process = runOffshoot(['start'], {
      env: {
        OFFSHOOT_PORT: '0',
        OFFSHOOT_DATA_DIR: folder,
        NODE_OPTIONS: `--import=${PROBE}`,
        COST_PROBE_FILE: path.join(folder, 'cost'),
        ...env,
      },
    })
    return new MeasuredService(folder, process, await process.ready())
  }

  get isRunning(): boolean {
    return this.#process.child.exitCode === null && this.#process.child.signalCode === null
  }

  get log(): string {
    return this.#process.stderr
  }

  /** All turns so far that exceeded the threshold of the probe. */
  turns(): Turn[] {
    const lines = this.#lines()
    const collections = lines.filter(({ kind }) => kind === 'gc')
    return lines
      .filter(({ kind }) => kind === 'turn')
      .map(({ from = 0, until = 0, cpuMs = 0 }) => {
        // The times of a turn are whole milliseconds.
        const within = collections.filter(({ at = 0 }) => at >= from - 1 && at <= until + 1)
        return { from, until, cpuMs, gcMs: within.reduce((sum, { ms = 0 }) => sum + ms, 0) }
      })
  }

  /** Bytes of heap and buffers after a garbage collection. */
  async heapBytes(): Promise<number> {
    const count = () => this.#lines().filter(({ kind }) => kind === 'heap')
    const before = count().length
    this.#process.child.kill('SIGUSR2')
    await until(async () => count().length > before)
    return count().at(-1)?.bytes ?? 0
  }

  async usage(): Promise<Usage> {
    const pid = this.#process.child.pid ?? 0
    const backends = await Promise.all((await this.#backends()).map(usageOf))
    const own = await usageOf(pid)
    return {
      cpuMs: own.cpuMs,
      residentBytes: own.residentBytes,
      postgresCpuMs: backends.reduce((sum, { cpuMs }) => sum + cpuMs, 0),
      backendBytes: Math.max(0, ...backends.map(({ ownBytes }) => ownBytes)),
    }
  }

  async end(): Promise<void> {
    await this.#process.end('SIGTERM')
    await endAll([this.#folder])
    await rm(this.#folder, { recursive: true, force: true })
  }

  async #backends(): Promise<number[]> {
    const [postmaster = 0] = this.#postmaster ?? (await postgresProcesses(this.#folder))
    this.#postmaster = [postmaster]
    const children = `/proc/${postmaster}/task/${postmaster}/children`
    const text = await readFile(children, 'utf8').catch(() => '')
    return text.trim().split(' ').filter(Boolean).map(Number)
  }
  #postmaster: number[] | undefined

  #lines(): ProbeLine[] {
    const text = readFileSync(path.join(this.#folder, 'cost'), 'utf8')
    return text
      .split('\n')
      .slice(0, -1)
      .map((line) => JSON.parse(line))
  }
}

/** A line of the probe: a turn, a garbage collection, or the size of the heap. */
interface ProbeLine {
  readonly kind: 'turn' | 'gc' | 'heap'
  readonly from?: number
  readonly until?: number
  readonly cpuMs?: number
  readonly at?: number
  readonly ms?: number
  readonly bytes?: number
}

const CLOCK_MS = 10

async function usageOf(
  pid: number,
): Promise<{ cpuMs: number; residentBytes: number; ownBytes: number }> {
  const [stat, status] = await Promise.all(
    ['stat', 'status'].map((name) => readFile(`/proc/${pid}/${name}`, 'utf8').catch(() => '')),
  )
  // The process name in parentheses may contain spaces.
  const fields = (stat ?? '').slice((stat ?? '').lastIndexOf(')') + 2).split(' ')
  const bytes = (name: string) =>
    Number(new RegExp(`${name}:\\s+(\\d+)`).exec(status ?? '')?.[1] ?? 0) * 1024
  return {
    cpuMs: (Number(fields[11] ?? 0) + Number(fields[12] ?? 0)) * CLOCK_MS,
    residentBytes: bytes('VmRSS'),
    ownBytes: bytes('RssAnon'),
  }
}
