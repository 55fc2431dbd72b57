import { OffshootError } from '@offshoot/client'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useMemo, useSyncExternalStore } from 'react'
import { useBranch, usePlace } from '../../api/place.js'
import { PageStore } from '../../ui/grid/page-store.js'
import { takeFirstRows } from './first-rows.js'
import { FIRST_PAGE_SIZE, isTooLarge, pageReader, SEARCH_PAGE_SIZE } from './row-pages.js'
import type { Row } from './values.js'
import type { View } from './view.js'

const PAGE_SIZE = 200
const PAGES_MAX = 15
const RETRY_MS = 1500

let requests = 0

/** The rows of a table that match the view, read as they are scrolled to. */
export function useRows(
  table: string,
  view: View,
  columns: readonly string[] | undefined,
): PageStore<Row> {
  const place = usePlace()
  const branch = useBranch()
  const queries = useQueryClient()
  const chosen = columns?.join('\n')
  const store = useMemo(() => {
    const names = chosen?.split('\n')
    const read = pageReader(branch, table, { view, columns: names })
    const first = takeFirstRows(place, table, view, names)
    let coming = first instanceof Promise ? first : undefined
    const readNext = (after: string | undefined, size: number) => {
      const page = coming ?? read(after, size)
      coming = undefined
      return page
    }
    return new PageStore<Row>(
      // Reads pass through the cache of queries, which watches whether the service answers.
      (after, size) =>
        queries.fetchQuery({
          queryKey: ['rows', ++requests],
          queryFn: () => readNext(after, size),
          gcTime: 0,
        }),
      {
        firstSize: view.search === '' ? FIRST_PAGE_SIZE : SEARCH_PAGE_SIZE,
        size: PAGE_SIZE,
        pagesMax: PAGES_MAX,
        isTooLarge,
        first: first instanceof Promise ? undefined : first,
      },
    )
  }, [place, branch, queries, table, view, chosen])
  useSyncExternalStore(store.subscribe, () => store.version)
  const { error } = store
  useEffect(() => {
    const isAway = error instanceof OffshootError && (error.status === 0 || error.status === 503)
    if (!isAway) return
    const timer = setTimeout(() => store.retry(), RETRY_MS)
    return () => clearTimeout(timer)
  }, [error, store])
  return store
}
