import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useSyncExternalStore } from 'react'
import { isServiceAway, noteAnswer, watchService } from './reachable.js'

const POLL_MS = 1500

/** Says that the service does not answer, asks until it does, and then reads everything again. */
export function ConnectionBanner() {
  const away = useSyncExternalStore(watchService, isServiceAway)
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
