import { readdir, readFile } from 'node:fs/promises'

interface CpuTime {
  readonly serverUs: number
  readonly postgresUs: number
}

/** Measures the CPU time per operation of a server process and of PostgreSQL, on Linux. */
export class CpuMeter {
  readonly #serverPid: number | undefined
  readonly #postgresPids: readonly number[]
  readonly #rounds: CpuTime[] = []

  /** Without `serverPid`, only PostgreSQL is measured. */
  constructor(pids: { serverPid?: number | undefined; postgresPids: readonly number[] }) {
    this.#serverPid = pids.serverPid
    this.#postgresPids = pids.postgresPids
  }

  /** Runs operations, whose number `body` returns, as one round. */
  async round(body: () => Promise<number>): Promise<number> {
    const before = await this.#read()
    const operations = await body()
    const after = await this.#read()
    // A process that ended meanwhile is left out.
    let postgresUs = 0
    for (const [pid, time] of after.postgresUs)
      postgresUs += time - (before.postgresUs.get(pid) ?? 0)
    this.#rounds.push({
      serverUs: (after.serverUs - before.serverUs) / operations,
      postgresUs: postgresUs / operations,
    })
    return operations
  }

  /** Returns the CPU time per operation of the last round. */
  latest(): CpuTime {
    return this.#rounds.at(-1) ?? { serverUs: Number.NaN, postgresUs: Number.NaN }
  }

  /** Returns the CPU time per operation of the round with the least, of the server and PostgreSQL together. */
  leastUs(): number {
    return Math.min(...this.#rounds.map(({ serverUs, postgresUs }) => serverUs + postgresUs))
  }

  /** Describes the round with the least CPU time, which other load has disturbed least. */
  toString(): string {
    const least = (part: keyof CpuTime) => Math.min(...this.#rounds.map((round) => round[part]))
    const postgres = `${least('postgresUs').toFixed(0)} µs PostgreSQL`
    if (this.#serverPid === undefined) return postgres
    return `${least('serverUs').toFixed(0)} µs server and ${postgres}`
  }

  /** Reads the CPU time since the start of the server, and of each process of PostgreSQL. */
  async #read(): Promise<{ serverUs: number; postgresUs: ReadonlyMap<number, number> }> {
    const children = await Promise.all(this.#postgresPids.map(childrenOf))
    const pids = [...this.#postgresPids, ...children.flat()]
    const times = await Promise.all(pids.map(async (pid) => [pid, await cpuUsOf(pid)] as const))
    return {
      serverUs: this.#serverPid === undefined ? 0 : await cpuUsOf(this.#serverPid),
      postgresUs: new Map(times.filter(([, time]) => time > 0)),
    }
  }
}

/** Meters of the two sides that a figure compares. */
export interface CpuMeters {
  readonly ours: CpuMeter
  readonly baseline: CpuMeter
}

export function describeCpu({ ours, baseline }: CpuMeters): string {
  return `; CPU per operation: ${ours}, baseline ${baseline}`
}

/** Returns the CPU time of all threads of a process; 0 if it has ended. */
async function cpuUsOf(pid: number): Promise<number> {
  const folder = `/proc/${pid}/task`
  const threads = await readdir(folder).catch(() => [])
  const times = await Promise.all(
    threads.map(async (thread) => {
      const text = await readFile(`${folder}/${thread}/schedstat`, 'utf8').catch(() => '0')
      return Number(text.split(' ')[0]) / 1000
    }),
  )
  return times.reduce((sum, time) => sum + time, 0)
}

export async function childrenOf(pid: number): Promise<number[]> {
  // Each thread lists the processes that it started.
  const threads = await readdir(`/proc/${pid}/task`).catch(() => [])
  const lists = await Promise.all(
    threads.map((thread) =>
      readFile(`/proc/${pid}/task/${thread}/children`, 'utf8').catch(() => ''),
    ),
  )
  return lists.flatMap((text) => text.split(' ').filter(Boolean).map(Number))
}

export async function parentOf(pid: number): Promise<number> {
  const text = await readFile(`/proc/${pid}/status`, 'utf8').catch(() => '')
  return Number(/PPid:\s+(\d+)/.exec(text)?.[1] ?? 0)
}
