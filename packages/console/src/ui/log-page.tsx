import type { ReactNode } from 'react'
import type { ShownLog } from '../api/use-log.js'
import { goTo } from '../app/navigate.js'
import { Button } from './button.js'
import { Empty, ErrorNote, Loading } from './feedback.js'
import { Page } from './page.js'

/** A page with the entries of a log, newest first, of all kinds or of one. */
export function LogPage({
  title,
  subtitle,
  path,
  kinds,
  log,
  isEmpty,
  empty,
  actions,
  children,
}: {
  title: string
  subtitle: ReactNode
  /** The page without a kind. */
  path: string
  /** The kinds of entries, with their titles. */
  kinds: Readonly<Record<string, string>>
  log: ShownLog
  isEmpty: boolean
  /** Says why there is nothing of any kind. */
  empty: ReactNode
  actions: ReactNode
  children: ReactNode
}) {
  const { kind, entries, hasMore, error, isFetching, readOlder, retry } = log
  return (
    <Page
      title={title}
      subtitle={subtitle}
      actions={
        <>
          <select
            aria-label="Kind of entry"
            value={kind in kinds ? kind : ''}
            onChange={({ target: { value } }) =>
              goTo(value === '' ? path : `${path}?kind=${value}`)
            }
          >
            <option value="">Everything</option>
            {Object.entries(kinds).map(([name, words]) => (
              <option key={name} value={name}>
                {words}
              </option>
            ))}
          </select>
          {actions}
        </>
      }
    >
      <ErrorNote error={error} onRetry={retry} />
      {entries === undefined && error === null && <Loading lines={8} />}
      {entries !== undefined && isEmpty && (
        <Empty icon="clock" title="Nothing to show">
          {kind === '' ? empty : 'Nothing of this kind has happened. Choose another kind above.'}
        </Empty>
      )}
      {children}
      {hasMore && (
        <div>
          <Button isBusy={isFetching} onClick={readOlder}>
            Show older entries
          </Button>
        </div>
      )}
    </Page>
  )
}
