import { setTimeout as delay } from 'node:timers/promises'

const FIRST_SECONDS = 1
const FACTOR = 4

/**
 * Runs an attempt with something that expires after some seconds, and returns after the expiry. If
 * the attempt was not finished within the lifetime, because the machine is slow, it is repeated
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
      // The lifetime may start at the end of the attempt, and may be rounded up to whole seconds.
      const endsAt = performance.now() + seconds * 1000 + 1000
      while (performance.now() < endsAt) await delay(endsAt - performance.now())
      return result
    } catch (error) {
      if (!isOver()) throw error
    }
  }
}
