import { useEffect, useState } from 'react'
import { Loading } from '../ui/feedback.js'
import type { LazyPage } from './pages.js'

/**
 * Shows a page as soon as its code is here. Not `Suspense`: React shows what comes after a placeholder 300 ms
 * later at the earliest.
 */
export function PageView({ page }: { page: LazyPage }) {
  const [, setArrived] = useState<LazyPage>()
  const [failure, setFailure] = useState<{ page: LazyPage; error: unknown }>()
  useEffect(() => {
    if (page.loaded !== undefined) return
    page.load().then(
      () => setArrived(page),
      (error: unknown) => setFailure({ page, error }),
    )
  }, [page])
  // The boundary around the pages shows it.
  if (failure?.page === page) throw failure.error
  const Page = page.loaded
  return Page === undefined ? <PageLoading /> : <Page />
}

/** Stands in the place of a page that is not there yet. */
export function PageLoading() {
  return (
    <div className="page">
      <Loading lines={6} />
    </div>
  )
}
