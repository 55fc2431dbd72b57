import { useMutation } from '@tanstack/react-query'
import { account } from '../../api/clients.js'
import { send } from '../../api/http.js'
import { AUDIT_KINDS, actorOf, describeCounts, describeEntry } from '../../api/log-words.js'
import { useCanAudit } from '../../api/queries.js'
import { useLog } from '../../api/use-log.js'
import { paths } from '../../app/paths.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { Button } from '../../ui/button.js'
import { Empty } from '../../ui/feedback.js'
import { LogPage } from '../../ui/log-page.js'
import { Page } from '../../ui/page.js'
import { saveBlob } from '../../ui/save-blob.js'
import { TableHead } from '../../ui/table-head.js'
import { Ago } from '../../ui/time.js'
import { notifyError } from '../../ui/toasts.js'
import { Wide } from '../../ui/wide.js'

/** Everything that happened in a workspace, newest first. */
export function Audit() {
  const { workspace = '' } = usePlaceOfAddress()
  const canAudit = useCanAudit(workspace)
  const log = useLog({
    queryKey: ['audit', workspace],
    read: (options) => account.workspace(workspace).audit(options),
    enabled: canAudit,
  })
  const { kind, entries = [] } = log
  const download = useMutation({
    mutationFn: async () => {
      const query = new URLSearchParams({ format: 'ndjson', ...(kind !== '' && { kind }) })
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
    <LogPage
      title="Audit log"
      subtitle="What happened in the workspace, newest first, for up to a year"
      path={paths.audit(workspace)}
      kinds={AUDIT_KINDS}
      log={log}
      isEmpty={entries.length === 0}
      empty="Changes of databases, branches, keys and members are listed here."
      actions={
        <Button icon="download" isBusy={download.isPending} onClick={() => download.mutate()}>
          Download NDJSON
        </Button>
      }
    >
      {entries.length > 0 && (
        <section className="card">
          <Wide label="Entries of the audit log">
            <table className="facts">
              <TableHead titles={['When', 'What', 'Where', 'Who', 'Request']} />
              <tbody>
                {entries.map((entry) => (
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
    </LogPage>
  )
}
