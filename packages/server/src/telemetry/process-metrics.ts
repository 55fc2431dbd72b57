import { monitorEventLoopDelay } from 'node:perf_hooks'
import { counterOf, type Family, gauge } from './metrics.js'

const NANOSECONDS = 1e9
const DELAY_RESOLUTION_MS = 20

/** Metrics of the process, with the names that Node.js dashboards use. */
export function processMetrics(version: string): { families: readonly Family[]; stop(): void } {
  const delay = monitorEventLoopDelay({ resolution: DELAY_RESOLUTION_MS })
  delay.enable()
  const startedAt = Date.now() / 1000 - process.uptime()
  const memory = (name: keyof NodeJS.MemoryUsage) => () => process.memoryUsage()[name]
  const families = [
    gauge('offshoot_build_info', 'The version that runs.', () => [
      { labels: { version, node: process.version }, value: 1 },
    ]),
    gauge('process_start_time_seconds', 'When the process started.', () => startedAt),
    counterOf('process_cpu_seconds_total', 'Processor time.', () => {
      const { user, system } = process.cpuUsage()
      return (user + system) / 1e6
    }),
    gauge('process_resident_memory_bytes', 'Resident memory.', () => process.memoryUsage.rss()),
    gauge('nodejs_heap_size_total_bytes', 'Heap that is reserved.', memory('heapTotal')),
    gauge('nodejs_heap_size_used_bytes', 'Heap that is used.', memory('heapUsed')),
    gauge('nodejs_external_memory_bytes', 'Memory outside of the heap.', memory('external')),
    gauge(
      'nodejs_eventloop_lag_mean_seconds',
      'Mean delay of the event loop since the last look.',
      () => orZero(delay.mean),
    ),
    gauge('nodejs_eventloop_lag_p99_seconds', 'The same, 99th percentile.', () =>
      orZero(delay.percentile(99)),
    ),
    gauge('nodejs_eventloop_lag_max_seconds', 'The same, at the worst.', () => {
      const worst = orZero(delay.max)
      // The last of the three readers resets the histogram for the next interval.
      delay.reset()
      return worst
    }),
  ]
  return { families, stop: () => delay.disable() }
}

/** The value is NaN before the first sample. */
function orZero(nanoseconds: number): number {
  return Number.isFinite(nanoseconds) && nanoseconds > 0 ? nanoseconds / NANOSECONDS : 0
}
