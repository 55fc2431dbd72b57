import { OffshootError } from '@offshoot/client'

let isAway = false
const listeners = new Set<() => void>()

/** Codes of answers while the service is away, or about to be. */
const AWAY: ReadonlySet<string> = new Set(['unreachable', 'starting', 'draining', 'unavailable'])

/** Learns from an answer, or from an error, whether the service can be reached. */
export function noteAnswer(error: unknown): void {
  const next = error instanceof OffshootError && AWAY.has(error.code)
  if (next === isAway) return
  isAway = next
  for (const listener of listeners) listener()
}

export function isServiceAway(): boolean {
  return isAway
}

/** Calls the listener when the service goes away or comes back. Returns a function that stops it. */
export function watchService(listener: () => void): () => void {
  listeners.add(listener)
  return () => listeners.delete(listener)
}
