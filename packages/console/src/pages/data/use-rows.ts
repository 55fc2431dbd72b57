import { OffshootError } from '@offshoot/client'
import { useQueryClient } from '@tanstack/react-query'
import { useEffect, useMemo, useSyncExternalStore } from 'react'
import { useBranch } from '../../api/clients.js'
import { PageStore, type ReadPage } from '../../ui/grid/page-store.js'
import type { Row } from './values.js'
import { sortOf, type View } from './view.js'

/** Enough for the first screen. */
const FIRST_PAGE_SIZE = 60
const PAGE_SIZE = 200
const PAGES_MAX = 15
/** The service finds at most the first 1000 records of a full-text search. */
export const SEARCH_ROWS_MAX = 1000
const SEARCH_PAGE_SIZE = 200
const RETRY_MS = 1500

let requests = 0

/** The rows of a table that match the view, read as they are scrolled to. */
export function useRows(
  table: string,
  view: View,
  columns: readonly string[] | undefined,
): PageStore<Row> {
  const branch = useBranch()
  const queries = useQueryClient()
  const chosen = columns?.join('\n')
  const store = useMemo(() => {
    const { filter, sort, search } = view
    const question = {
      ...(filter === undefined ? {} : { filter }),
      ...(sort.length === 0 ? {} : { sort: sortOf(sort) }),
      ...(chosen === undefined ? {} : { columns: chosen.split('\n') }),
    }
    const query: ReadPage<Row> = async (after, size) => {
      const page = await branch
        .table(table)
        .query({ ...question, size })
        .page(after)
      return { ...page, records: page.records as unknown as readonly Row[] }
    }
    const find: ReadPage<Row> = async (after) => {
      const offset = Number(after ?? 0)
      const { records } = await branch.table(table).search(search, {
        prefix: 'phrase',
        highlight: { enabled: false },
        ...(filter === undefined ? {} : { filter }),
        page: { size: SEARCH_PAGE_SIZE, offset },
      })
      const next = offset + SEARCH_PAGE_SIZE
      return {
        records: records as unknown as readonly Row[],
        cursor: String(next),
        hasMore: records.length === SEARCH_PAGE_SIZE && next < SEARCH_ROWS_MAX,
      }
    }
    const read = search === '' ? query : find
    return new PageStore<Row>(
      // Reads pass through the cache of queries, which watches whether the service answers.
      (after, size) =>
        queries.fetchQuery({
          queryKey: ['rows', ++requests],
          queryFn: () => read(after, size),
          gcTime: 0,
        }),
      {
        firstSize: search === '' ? FIRST_PAGE_SIZE : SEARCH_PAGE_SIZE,
        size: PAGE_SIZE,
        pagesMax: PAGES_MAX,
        isTooLarge: (error) => error instanceof OffshootError && error.code === 'query_too_costly',
      },
    )
  }, [branch, queries, table, view, chosen])
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
