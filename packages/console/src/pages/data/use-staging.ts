import { useCallback, useEffect, useSyncExternalStore } from 'react'
import { countOf, NOTHING, type Staged } from './staging.js'

interface History {
  readonly now: Staged
  readonly past: readonly Staged[]
  readonly future: readonly Staged[]
}

const EMPTY: History = { now: NOTHING, past: [], future: [] }
/** Steps that can be undone. */
const UNDO_MAX = 200

/** Changes that are not saved stay while other pages are shown. */
const histories = new Map<string, History>()
const listeners = new Set<() => void>()

interface Staging {
  readonly staged: Staged
  readonly canUndo: boolean
  readonly canRedo: boolean
  change(step: (staged: Staged) => Staged): void
  undo(): void
  redo(): void
  /** Forgets everything, also what could be undone. */
  clear(): void
}

/** The staged changes of a table; `name` tells tables apart. */
export function useStaging(name: string): Staging {
  const history = useSyncExternalStore(
    (listener) => {
      listeners.add(listener)
      return () => listeners.delete(listener)
    },
    () => histories.get(name) ?? EMPTY,
  )
  const set = useCallback(
    (step: (history: History) => History) => {
      histories.set(name, step(histories.get(name) ?? EMPTY))
      for (const listener of listeners) listener()
    },
    [name],
  )
  useEffect(() => {
    const warn = (event: BeforeUnloadEvent) => {
      if ([...histories.values()].some(({ now }) => countOf(now) > 0)) event.preventDefault()
    }
    window.addEventListener('beforeunload', warn)
    return () => window.removeEventListener('beforeunload', warn)
  }, [])
  return {
    staged: history.now,
    canUndo: history.past.length > 0,
    canRedo: history.future.length > 0,
    change: useCallback(
      (step) =>
        set(({ now, past, future }) => {
          const next = step(now)
          if (next === now) return { now, past, future }
          return { now: next, past: [...past.slice(-UNDO_MAX), now], future: [] }
        }),
      [set],
    ),
    undo: useCallback(
      () =>
        set((history) => {
          const { now, past, future } = history
          const before = past.at(-1)
          if (before === undefined) return history
          return { now: before, past: past.slice(0, -1), future: [now, ...future] }
        }),
      [set],
    ),
    redo: useCallback(
      () =>
        set((history) => {
          const { now, past, future } = history
          const [next, ...rest] = future
          return next === undefined ? history : { now: next, past: [...past, now], future: rest }
        }),
      [set],
    ),
    clear: useCallback(() => set(() => EMPTY), [set]),
  }
}
