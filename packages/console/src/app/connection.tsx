import { OffshootError } from '@offshoot/client'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useSyncExternalStore } from 'react'

let isAway = false
const listeners = new Set<() => void>()
const POLL_MS = 1500

/** Codes of answers while the service is away, or about to be. */
const AWAY: ReadonlySet<string> = new Set(['unreachable', 'starting', 'draining', 'unavailable'])

/** Learns from an answer, or from an error, whether the service can be reached. */
export function noteAnswer(error: unknown): void {
  const next = error instanceof OffshootError && AWAY.has(error.code)
  if (next === isAway) return
  isAway = next
  for (const listener of listeners) listener()
}

/** Says that the service does not answer, asks until it does, and then reads everything again. */
export function ConnectionBanner() {
  const away = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => isAway,
  )
  const queries = useQueryClient()
  useEffect(() => {
    if (!away) return
    const timer = setInterval(async () => {
      const isBack = await fetch('/health').then(
        (response) => response.ok,
        () => false,
      )
      if (!isBack) return
      noteAnswer(null)
      await queries.invalidateQueries()
    }, POLL_MS)
    return () => clearInterval(timer)
  }, [away, queries])
  if (!away) return null
  return (
    <div className="banner" role="status">
      <span className="spinner" /> The service does not answer. Trying again; nothing that you have
      typed is lost.
    </div>
  )
}
