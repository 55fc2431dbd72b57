import { useCallback, useMemo } from 'react'
import { useSearch } from 'wouter'
import { goTo } from '../../app/navigate.js'
import { formatView, parseView, type View } from './view.js'

/** The view of the page at `path`, and a function that changes it. */
export function useView(path: string): readonly [View, (change: Partial<View>) => void] {
  const text = useSearch()
  const view = useMemo(() => parseView(text), [text])
  const change = useCallback(
    (next: Partial<View>) => {
      const search = formatView({ ...view, ...next })
      goTo(search === '' ? path : `${path}?${search}`)
    },
    [view, path],
  )
  return [view, change]
}
