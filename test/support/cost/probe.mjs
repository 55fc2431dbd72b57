// Loaded into a service with `node --import`. It writes to the file that COST_PROBE_FILE names a line
// for every turn of the event loop that took much CPU time of the main thread, and the size of the
// heap after a collection when it is sent SIGUSR2, and a line for every garbage collection. CPU time,
// unlike time, does not grow on a busy machine.
import { openSync, readSync, writeSync } from 'node:fs'
import { PerformanceObserver } from 'node:perf_hooks'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { isMainThread } from 'node:worker_threads'

const TICK_MS = 5
const NOTED_CPU_MS = 15

const file = process.env.COST_PROBE_FILE
// The processes that the service starts inherit its options.
const isService = process.argv.includes('start') && isMainThread
if (file !== undefined && isService) {
  const output = openSync(file, 'a')
  const statistics = openSync(`/proc/self/task/${process.pid}/schedstat`, 'r')
  const buffer = Buffer.alloc(128)
  const cpuMs = () => {
    const length = readSync(statistics, buffer, 0, buffer.length, 0)
    return Number(buffer.toString('latin1', 0, length).split(' ')[0]) / 1e6
  }
  const write = (line) => writeSync(output, `${JSON.stringify(line)}\n`)

  // The timer is due in every turn of the loop, so what the thread used between two of its calls is
  // at most one tick and one turn.
  let last = cpuMs()
  let lastAt = Date.now()
  setInterval(() => {
    const now = cpuMs()
    const at = Date.now()
    if (now - last > NOTED_CPU_MS)
      write({ kind: 'turn', from: lastAt, until: at, cpuMs: now - last })
    last = cpuMs()
    lastAt = at
  }, TICK_MS).unref()

  // Garbage collection is reported after the turn that it was part of.
  new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries()) {
      write({ kind: 'gc', at: performance.timeOrigin + startTime, ms: duration })
    }
  }).observe({ entryTypes: ['gc'] })

  setFlagsFromString('--expose-gc')
  const collect = runInNewContext('gc')
  process.on('SIGUSR2', () => {
    collect()
    const { heapUsed, external, rss } = process.memoryUsage()
    write({ kind: 'heap', bytes: heapUsed + external, rss })
    last = cpuMs()
  })
}
