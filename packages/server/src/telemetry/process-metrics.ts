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
    gauge('offshoot_build_info', 'The version of the service.', () => [
      { labels: { version, node: process.version }, value: 1 },
    ]),
    gauge(
      'process_start_time_seconds',
      'Start time of the process, in seconds since 1970.',
      () => startedAt,
    ),
    counterOf('process_cpu_seconds_total', 'CPU time of the process.', () => {
      const { user, system } = process.cpuUsage()
      return (user + system) / 1e6
    }),
    gauge('process_resident_memory_bytes', 'Resident memory.', () => process.memoryUsage.rss()),
    gauge('nodejs_heap_size_total_bytes', 'Reserved heap.', memory('heapTotal')),
    gauge('nodejs_heap_size_used_bytes', 'Used heap.', memory('heapUsed')),
    gauge('nodejs_external_memory_bytes', 'Memory outside the heap.', memory('external')),
    gauge(
      'nodejs_eventloop_lag_mean_seconds',
      'Mean delay of the event loop since the last scrape.',
      () => orZero(delay.mean),
    ),
    gauge(
      'nodejs_eventloop_lag_p99_seconds',
      '99th percentile of the delay of the event loop since the last scrape.',
      () => orZero(delay.percentile(99)),
    ),
    gauge(
      'nodejs_eventloop_lag_max_seconds',
      'Maximum delay of the event loop since the last scrape.',
      () => {
        const worst = orZero(delay.max)
        // The last of the three readers resets the histogram for the next interval.
        delay.reset()
        return worst
      },
    ),
  ]
  return { families, stop: () => delay.disable() }
}

/** The value is NaN before the first sample. */
function orZero(nanoseconds: number): number {
  return Number.isFinite(nanoseconds) && nanoseconds > 0 ? nanoseconds / NANOSECONDS : 0
}
