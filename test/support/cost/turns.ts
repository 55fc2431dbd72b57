import type { Reply } from './exchange.js'
import { withSlowness } from './machine-speed.js'
import { type MeasuredService, ownCpuMs } from './measured-service.js'

/** CPU time of the longest turn of the event loop during a request. */
export interface Turns {
  /** Without garbage collection. */
  readonly ownMs: number
  readonly turnMs: number
}

/** How many times a request is sent until its turns are short. */
const ATTEMPTS = 4

/** Sends a request and measures the longest turn meanwhile. */
export async function measureTurns(
  service: MeasuredService,
  request: () => Promise<Reply>,
): Promise<{ readonly reply: Reply; readonly turns: Turns }> {
  const from = Date.now()
  const reply = await request()
  // The turn that sends the answer ends after the answer has arrived.
  await service.nextTurn()
  const turns = {
    ownMs: service.longestTurn(from, Date.now(), ownCpuMs),
    turnMs: service.longestTurn(from, Date.now(), ({ cpuMs }) => cpuMs),
  }
  return { reply, turns }
}

/**
 * Sends a request until its turns are short, at most `ATTEMPTS` times, and returns its first answer and its shortest
 * turns. The same work takes more CPU time at some times than at others, so when a turn was long, the speed of the
 * machine is measured beside the next attempt, and its turns count as at the usual speed.
 */
export async function measureShortest(
  service: MeasuredService,
  request: () => Promise<Reply>,
  isLong: (turns: Turns) => boolean,
): Promise<{ readonly reply: Reply; readonly turns: Turns }> {
  const { reply, turns } = await measureTurns(service, request)
  let { ownMs, turnMs } = turns
  for (let count = 1; count < ATTEMPTS && isLong({ ownMs, turnMs }); count++) {
    const { result, slowness } = await withSlowness(() => measureTurns(service, request))
    ownMs = Math.min(ownMs, result.turns.ownMs / slowness)
    turnMs = Math.min(turnMs, result.turns.turnMs / slowness)
  }
  return { reply, turns: { ownMs, turnMs } }
}
