import { closeSync, fstatSync, openSync, readSync } from 'node:fs'
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
interface Turn {
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
        OFFSHOOT_PG_PORT: '0',
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

  /** Describes whether the process still runs, and otherwise how it ended and what it logged last. */
  get state(): string {
    if (this.isRunning) return 'the service is running'
    const { exitCode, signalCode } = this.#process.child
    return `the service ended with ${signalCode ?? exitCode}: ${this.log.slice(-4000)}`
  }

  /** Returns the largest measure of the turns between two times that exceeded the threshold of the probe. */
  longestTurn(from: number, until: number, measure: (turn: Turn) => number): number {
    const lines = this.#linesFrom(from).filter((line) => (line.from ?? line.at ?? 0) <= until + 1)
    const collections = lines.filter(({ kind }) => kind === 'gc')
    const turns = lines
      .filter(({ kind }) => kind === 'turn')
      .map(({ from = 0, until = 0, cpuMs = 0 }) => {
        // The times of a turn are whole milliseconds.
        const within = collections.filter(({ at = 0 }) => at >= from - 1 && at <= until + 1)
        return { from, until, cpuMs, gcMs: within.reduce((sum, { ms = 0 }) => sum + ms, 0) }
      })
    return Math.max(0, ...turns.map(measure))
  }

  /** Waits until the running turn has ended, because a later turn answers the next request. */
  async nextTurn(): Promise<void> {
    const answer = await fetch(new URL('/health', this.banner.address)).catch(() => undefined)
    await answer?.arrayBuffer()
  }

  /** Bytes of heap and buffers after a garbage collection. */
  async heapBytes(): Promise<number> {
    const count = () => this.#lines().filter(({ kind }) => kind === 'heap')
    const before = count().length
    this.#process.child.kill('SIGUSR2')
    await until(async () => count().length > before || !this.isRunning)
    if (!this.isRunning) throw new Error(this.state)
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

  /** Returns the lines that end after a time. Lines are written in about the order of their times. */
  #linesFrom(from: number): ProbeLine[] {
    const lines = this.#lines()
    const first = lines.findLastIndex((line) => endOf(line) < from - DISORDER_MS) + 1
    return lines.slice(first).filter((line) => endOf(line) >= from - 1)
  }

  /** Returns all lines so far, and reads only what was added to the file since the last call. */
  #lines(): readonly ProbeLine[] {
    const file = openSync(path.join(this.#folder, 'cost'), 'r')
    try {
      const added = Buffer.alloc(fstatSync(file).size - this.#readBytes)
      readSync(file, added, 0, added.length, this.#readBytes)
      const complete = added.subarray(0, added.lastIndexOf('\n') + 1)
      this.#readBytes += complete.length
      for (const line of complete.toString().split('\n').slice(0, -1)) {
        this.#probeLines.push(JSON.parse(line))
      }
    } finally {
      closeSync(file)
    }
    return this.#probeLines
  }
  #readBytes = 0
  readonly #probeLines: ProbeLine[] = []
}

const endOf = ({ until, at }: ProbeLine) => until ?? at ?? 0

/** By how much a line may be written after one with a later time. */
const DISORDER_MS = 10_000

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
