import { openSync, readSync } from 'node:fs'

/**
 * CPU time of one piece of work on the machine and at the speed that limits of CPU time were set for. Linux counts CPU
 * time in steps of a few milliseconds, so a piece is longer than that.
 */
const USUAL_PIECE_MS = 16
/** Time between two pieces. */
const PAUSE_MS = 40
const VALUES = 2 ** 20
/** Steps of a piece from value to value all over the memory, and within a part that the caches hold. */
const FAR_STEPS = 120_000
const NEAR_STEPS = 2_500_000
const NEAR_VALUES = 2 ** 12

/** The work makes no garbage, whose collection would be counted. */
const values = Uint32Array.from({ length: VALUES }, (_, index) => Math.imul(index, 2_654_435_761))
let statistics: number | undefined
const buffer = Buffer.alloc(128)

/** CPU time of the calling thread so far. */
function threadCpuMs(): number {
  statistics ??= openSync('/proc/thread-self/schedstat', 'r')
  const length = readSync(statistics, buffer, 0, buffer.length, 0)
  return Number(buffer.toString('latin1', 0, length).split(' ')[0]) / 1e6
}

/** Does a fixed piece of work, which computes and reads memory here and there, and returns its CPU time. */
function doPiece(): number {
  const from = threadCpuMs()
  const at = walk(VALUES, FAR_STEPS) + walk(NEAR_VALUES, NEAR_STEPS)
  const took = threadCpuMs() - from
  // The result is used, so that the loop is not optimised away.
  values[0] = at
  return took
}

function walk(among: number, steps: number): number {
  let at = 0
  for (let step = 0; step < steps; step++) at = ((values[at] ?? 0) ^ step) & (among - 1)
  return at
}

/**
 * Compares the machine with its usual speed while something is measured. The same work takes several times its usual
 * CPU time while other machines on the same host, or other programs, use the cores and the caches. Returns the result
 * and how many times longer the slowest of equal pieces of work took, at least 1.
 */
export async function withSlowness<Result>(
  measured: () => Promise<Result>,
): Promise<{ readonly result: Result; readonly slowness: number }> {
  let slowestMs = doPiece()
  const timer = setInterval(() => {
    slowestMs = Math.max(slowestMs, doPiece())
  }, PAUSE_MS)
  try {
    const result = await measured()
    slowestMs = Math.max(slowestMs, doPiece())
    return { result, slowness: Math.max(1, slowestMs / USUAL_PIECE_MS) }
  } finally {
    clearInterval(timer)
  }
}
