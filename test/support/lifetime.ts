import { setTimeout as delay } from 'node:timers/promises'

const FIRST_SECONDS = 1
const FACTOR = 4

/**
 * Runs an attempt with something that lives for so many seconds, and returns when that time is over.
 * An attempt that a slow machine did not finish within the lifetime says nothing: it is made again
 * with a longer one.
 */
export async function withinLifetime<Result>(
  attempt: (seconds: number) => Promise<Result>,
): Promise<Result> {
  for (let seconds = FIRST_SECONDS; ; seconds *= FACTOR) {
    const startedAt = performance.now()
    const isOver = () => performance.now() - startedAt >= seconds * 1000
    try {
      const result = await attempt(seconds)
      if (isOver()) continue
      // The lifetime began after the attempt, and some of them are counted in whole seconds.
      const endsAt = performance.now() + seconds * 1000 + 1000
      while (performance.now() < endsAt) await delay(endsAt - performance.now())
      return result
    } catch (error) {
      if (!isOver()) throw error
    }
  }
}
