import type { Pool } from 'undici'

export interface Request {
  readonly method: 'GET' | 'POST' | 'PATCH'
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  readonly body?: string
}

/** Measures requests per second, with one concurrent request per connection of the pool. */
export async function requestRate(
  pool: Pool,
  options: { connections: number; durationMs: number; next(): Request },
): Promise<number> {
  const end = performance.now() + options.durationMs
  let count = 0
  const worker = async () => {
    while (performance.now() < end) {
      const { body, ...request } = options.next()
      const response = await pool.request({ ...request, body: body ?? null })
      const text = await response.body.text()
      if (response.statusCode >= 300) throw new Error(`${response.statusCode}: ${text}`)
      count++
    }
  }
  const startedAt = performance.now()
  await Promise.all(Array.from({ length: options.connections }, worker))
  return (count / (performance.now() - startedAt)) * 1000
}

export async function timeMs(body: () => Promise<unknown>): Promise<number> {
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
