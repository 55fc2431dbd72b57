/** One line of the Prometheus text format. */
interface Sample {
  readonly name: string
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$/
const LABEL = /(\w+)="((?:[^"\\]|\\.)*)"/g

/** Parses the Prometheus text format. Comments and lines that it does not know are left out. */
export function parseMetrics(text: string): Sample[] {
  return text.split('\n').flatMap((line) => {
    const [, name, labels = '', value] = LINE.exec(line) ?? []
    if (name === undefined || value === undefined) return []
    const pairs = [...labels.matchAll(LABEL)].map(([, key = '', text = '']) => [key, text])
    return [{ name, labels: Object.fromEntries(pairs), value: Number(value) }]
  })
}

/** The values of one reading that are plotted. Counters are totals since the start of the process. */
export interface Reading {
  readonly atSeconds: number
  readonly requests: number
  readonly refused: number
  readonly failed: number
  /** Requests by the upper bound of their duration in seconds, as totals. */
  readonly durations: ReadonlyMap<number, number>
  readonly poolInUse: number
  readonly poolMax: number
  readonly poolWaiting: number
  readonly memoryBytes: number
  readonly lagSeconds: number
}

export function readingOf(samples: readonly Sample[], atSeconds: number): Reading {
  const sum = (name: string, isCounted: (sample: Sample) => boolean = () => true) =>
    samples
      .filter((sample) => sample.name === name && isCounted(sample))
      .reduce((total, { value }) => total + value, 0)
  const status = ({ labels }: Sample) => labels.status ?? labels.code ?? ''
  const durations = new Map<number, number>()
  for (const { name, labels, value } of samples) {
    if (name !== 'offshoot_http_request_duration_seconds_bucket') continue
    const bound = labels.le === '+Inf' ? Number.POSITIVE_INFINITY : Number(labels.le)
    durations.set(bound, (durations.get(bound) ?? 0) + value)
  }
  return {
    atSeconds,
    requests: sum('offshoot_http_requests_total'),
    refused: sum('offshoot_http_requests_total', (sample) => status(sample).startsWith('4')),
    failed: sum('offshoot_http_requests_total', (sample) => status(sample).startsWith('5')),
    durations,
    poolInUse: sum('offshoot_pool_connections_in_use'),
    poolMax: sum('offshoot_pool_connections_max'),
    poolWaiting: sum('offshoot_pool_waiting'),
    memoryBytes: sum('process_resident_memory_bytes'),
    lagSeconds: sum('nodejs_eventloop_lag_p99_seconds'),
  }
}

/** The change of a counter per second. A restart of the process begins at 0 again. */
export function rateOf(before: Reading, after: Reading, of: (reading: Reading) => number): number {
  const seconds = after.atSeconds - before.atSeconds
  const change = of(after) - of(before)
  return seconds <= 0 ? 0 : (change < 0 ? of(after) : change) / seconds
}

/** Estimates a quantile of the durations between two readings: the bound of the bucket that contains it. */
export function quantileOf(before: Reading, after: Reading, quantile: number): number | null {
  const bounds = [...after.durations.keys()].sort((left, right) => left - right)
  const counts = bounds.map(
    (bound) => (after.durations.get(bound) ?? 0) - (before.durations.get(bound) ?? 0),
  )
  const total = counts.at(-1) ?? 0
  if (total <= 0) return null
  const bound = bounds[counts.findIndex((count) => count >= total * quantile)] ?? null
  return bound === Number.POSITIVE_INFINITY ? (bounds.at(-2) ?? null) : bound
}
