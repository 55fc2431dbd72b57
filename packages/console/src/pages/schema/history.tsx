import type { Migration } from '@offshoot/client'
import { useQuery } from '@tanstack/react-query'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { Empty, ErrorNote, Loading } from '../../ui/feedback.js'
import { SchemaChanges } from '../../ui/schema-changes.js'
import { Ago } from '../../ui/time.js'

/** Migrations that the page shows. */
const SHOWN_MAX = 100

/** The migrations of the branch, newest first. */
export function History() {
  const branch = useBranch()
  const history = useQuery({
    queryKey: [...keys.schema(usePlace()), 'history'],
    queryFn: async ({ signal }) => {
      const found: Migration[] = []
      for await (const migration of branch.migrations({ signal })) {
        found.push(migration)
        if (found.length > SHOWN_MAX) break
      }
      return found
    },
  })
  if (history.isPending) return <Loading lines={6} />
  if (history.isError) {
    return <ErrorNote error={history.error} onRetry={() => void history.refetch()} />
  }
  const shown = history.data.filter(({ operations }) => operations.length > 0).slice(0, SHOWN_MAX)
  if (shown.length === 0) {
    return (
      <Empty icon="clock" title="No migrations yet">
        Every edit of the schema is listed here.
      </Empty>
    )
  }
  return (
    <ol className="schema-tables">
      {shown.map(({ id, createdAt, operations, title }) => (
        <li key={id} className="card">
          <div className="card-head">
            <strong className="grow clip">{title ?? <Ago time={createdAt} />}</strong>
            <code className="faint">{id}</code>
          </div>
          <div className="card-body">
            <SchemaChanges operations={operations} />
          </div>
        </li>
      ))}
      {history.data.length > SHOWN_MAX && (
        <li className="faint">Only the newest {SHOWN_MAX} are shown.</li>
      )}
    </ol>
  )
}
