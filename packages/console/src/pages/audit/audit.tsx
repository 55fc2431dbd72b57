import { keepPreviousData, useMutation, useQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { useSearch } from 'wouter'
import { account } from '../../api/clients.js'
import { send } from '../../api/http.js'
import { AUDIT_KINDS, actorOf, describeCounts, describeEntry, take } from '../../api/log-words.js'
import { useCanAudit } from '../../api/queries.js'
import { goTo } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { Button } from '../../ui/button.js'
import { Empty, ErrorNote, Loading } from '../../ui/feedback.js'
import { KindFilter } from '../../ui/kind-filter.js'
import { Page } from '../../ui/page.js'
import { saveBlob } from '../../ui/save-blob.js'
import { TableHead } from '../../ui/table-head.js'
import { Ago } from '../../ui/time.js'
import { notifyError } from '../../ui/toasts.js'
import { Wide } from '../../ui/wide.js'

/** Entries that are read at once. */
const STEP = 200

/** Everything that happened in a workspace, newest first. */
export function Audit() {
  const { workspace = '' } = usePlaceOfAddress()
  const canAudit = useCanAudit(workspace)
  const kind = new URLSearchParams(useSearch()).get('kind') ?? ''
  const [size, setSize] = useState(STEP)
  const options = kind === '' ? {} : { kind }
  const log = useQuery({
    queryKey: ['audit', workspace, kind, size],
    queryFn: ({ signal }) => take(account.workspace(workspace).audit({ signal, ...options }), size),
    placeholderData: keepPreviousData,
    enabled: canAudit,
  })
  const download = useMutation({
    mutationFn: async () => {
      const query = new URLSearchParams({ format: 'ndjson', ...options })
      const answer = await send(
        'GET',
        `/workspaces/${encodeURIComponent(workspace)}/audit?${query}`,
      )
      saveBlob(await answer.blob(), `audit-${workspace}.ndjson`)
    },
    onError: notifyError,
  })
  if (!canAudit) {
    return (
      <Page title="Audit log">
        <Empty icon="lock" title="Only owners can read the audit log">
          Ask an owner of the workspace. An API key that is limited by its scope needs{' '}
          <code>audit</code> in it.
        </Empty>
      </Page>
    )
  }
  return (
    <Page
      title="Audit log"
      subtitle="What happened in the workspace, newest first, for up to a year"
      actions={
        <>
          <KindFilter
            kinds={AUDIT_KINDS}
            value={kind}
            onChange={(next) =>
              goTo(`${paths.audit(workspace)}${next === '' ? '' : `?kind=${next}`}`)
            }
          />
          <Button icon="download" isBusy={download.isPending} onClick={() => download.mutate()}>
            Download NDJSON
          </Button>
        </>
      }
    >
      <ErrorNote error={log.error} onRetry={() => void log.refetch()} />
      {log.isPending && <Loading lines={8} />}
      {log.data?.items.length === 0 && (
        <Empty icon="clock" title="Nothing to show">
          Nothing of this kind has happened. Choose another kind above.
        </Empty>
      )}
      {log.data !== undefined && log.data.items.length > 0 && (
        <section className="card">
          <Wide label="Entries of the audit log">
            <table className="facts">
              <TableHead titles={['When', 'What', 'Where', 'Who', 'Request']} />
              <tbody>
                {log.data.items.map((entry) => (
                  <tr key={entry.id}>
                    <td className="muted">
                      <Ago time={entry.at} />
                    </td>
                    <td>
                      {describeEntry(entry)}
                      <span className="faint"> {describeCounts(entry)}</span>
                    </td>
                    <td>
                      {entry.database !== undefined && (
                        <code>
                          {[entry.database, entry.branch].filter((part) => part).join(':')}
                        </code>
                      )}
                    </td>
                    <td className="muted">{actorOf(entry)}</td>
                    <td>
                      {entry.requestId !== undefined && (
                        <code className="faint">{entry.requestId}</code>
                      )}
                    </td>
                  </tr>
                ))}
              </tbody>
            </table>
          </Wide>
        </section>
      )}
      {log.data?.hasMore && (
        <div>
          <Button isBusy={log.isFetching} onClick={() => setSize(size + STEP)}>
            Show older entries
          </Button>
        </div>
      )}
    </Page>
  )
}
