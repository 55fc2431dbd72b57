import { readdirSync, readFileSync } from 'node:fs'
import { afterAll } from 'vitest'
import { serverOfWorker } from './server-of-worker.js'

declare module 'vitest' {
  interface TaskMeta {
    /** CPU time of a file: of its process, of all processes that it started, and of the PostgreSQL that it used. */
    cpuMs?: number
  }
}

/** Linux counts CPU time in hundredths of a second. */
const TICK_MS = 10

const before = readCpuMs()

// biome-ignore lint/correctness/noEmptyPattern: vitest requires an object of fixtures, and passes the file after it.
afterAll(({}, file) => {
  file.meta.cpuMs = readCpuMs() - before
})

interface Process {
  readonly parent: number
  /** Includes the time of the children that have ended and were waited for. */
  readonly cpuMs: number
}

/**
 * Sums up the CPU time of this process, of its PostgreSQL, and of what they have started. The time of a process
 * whose parent was killed is lost.
 */
function readCpuMs(): number {
  const processes = readProcesses()
  const roots = new Set([process.pid, serverOfWorker()?.pid ?? 0])
  let sum = 0
  for (const [pid, { cpuMs }] of processes) {
    if (isBelow(pid, roots, processes)) sum += cpuMs
  }
  return sum
}

function isBelow(pid: number, roots: ReadonlySet<number>, processes: Map<number, Process>) {
  let current = pid
  while (current > 1) {
    if (roots.has(current)) return true
    current = processes.get(current)?.parent ?? 0
  }
  return false
}

function readProcesses(): Map<number, Process> {
  const processes = new Map<number, Process>()
  // Only Linux has the folder. Elsewhere nothing is measured.
  for (const name of listFolder('/proc')) {
    if (!/^\d+$/.test(name)) continue
    try {
      const text = readFileSync(`/proc/${name}/stat`, 'utf8')
      // The name of the program is in parentheses, and may contain anything.
      const fields = text.slice(text.lastIndexOf(')') + 2).split(' ')
      const ticks = fields.slice(11, 15).reduce((sum, field) => sum + Number(field), 0)
      processes.set(Number(name), { parent: Number(fields[1]), cpuMs: ticks * TICK_MS })
    } catch {
      // The process has ended.
    }
  }
  return processes
}

function listFolder(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}
