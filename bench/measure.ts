import type { Pool } from 'undici'
import type { CpuMeter } from './cpu.js'

export interface Request {
  readonly method: 'GET' | 'POST' | 'PUT' | 'PATCH'
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

/** Measures requests per second, with one concurrent request per connection of the pool. */
export async function requestRate(
  pool: Pool,
  options: { connections: number; durationMs: number; next(): Request; cpu?: CpuMeter | undefined },
): Promise<number> {
  let count = 0
  let end = 0
  const worker = async () => {
    while (performance.now() < end) {
      const { body, ...request } = options.next()
      const response = await pool.request({ ...request, body: body ?? null })
      const text = await response.body.text()
      if (response.statusCode >= 300) throw new Error(`${response.statusCode}: ${text}`)
      count++
    }
  }
  let elapsedMs = 0
  const run = async () => {
    end = performance.now() + options.durationMs
    elapsedMs = await timeMs(() => Promise.all(Array.from({ length: options.connections }, worker)))
    return count
  }
  await (options.cpu === undefined ? run() : options.cpu.round(run))
  return (count / elapsedMs) * 1000
}

/** Measures the time of one operation, and its CPU time with a meter. */
export async function timeMs(body: () => Promise<unknown>, cpu?: CpuMeter): Promise<number> {
  if (cpu !== undefined) {
    let elapsedMs = 0
    await cpu.round(async () => {
      elapsedMs = await timeMs(body)
      return 1
    })
    return elapsedMs
  }
  const startedAt = performance.now()
  await body()
  return performance.now() - startedAt
}

export function median(values: readonly number[]): number {
  const sorted = [...values].sort((left, right) => left - right)
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((left, right) => left - right)
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN
}

/** Runs both alternately, so that other load on the machine affects both. */
export async function inTurns(
  rounds: number,
  bodies: { ours(): Promise<number>; baseline(): Promise<number> },
): Promise<{ ours: number; baseline: number }> {
  const ours: number[] = []
  const baseline: number[] = []
  for (let round = 0; round < rounds; round++) {
    baseline.push(await bodies.baseline())
    ours.push(await bodies.ours())
  }
  return { ours: median(ours), baseline: median(baseline) }
}
