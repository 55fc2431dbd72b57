import { useQuery, useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useEffect, useState } from 'react'
import { keys } from '../../api/answers.js'
import { account } from '../../api/clients.js'
import { useWorkspaces } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { Button } from '../../ui/button.js'
import { formatBytes } from '../../ui/bytes.js'
import { ConfirmByName } from '../../ui/dialog.js'
import { ErrorNote } from '../../ui/feedback.js'
import { TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { Ago } from '../../ui/time.js'
import { notify } from '../../ui/toasts.js'

/** Name, storage and deletion of a workspace. */
export function WorkspaceSettings() {
  const { workspace = '' } = usePlaceOfAddress()
  const info = useWorkspaces().data?.find(({ id }) => id === workspace)
  const { hasWholeWorkspace, isUnlimited } = useRights()
  const queries = useQueryClient()
  const usage = useQuery({
    queryKey: ['usage', workspace],
    queryFn: ({ signal }) => account.workspace(workspace).usage({ signal }),
  })
  const [name, setName] = useState(info?.name ?? '')
  const [error, setError] = useState<unknown>(null)
  const [isDeleting, setDeleting] = useState(false)
  useEffect(() => setName(info?.name ?? ''), [info?.name])
  const refresh = () => queries.invalidateQueries({ queryKey: keys.workspaces() })
  const save = async (event: FormEvent) => {
    event.preventDefault()
    setError(null)
    try {
      await account.workspace(workspace).rename(name)
      await refresh()
      notify('Saved')
    } catch (caught) {
      setError(caught)
    }
  }
  return (
    <Page title="Workspace settings" subtitle={<code>{workspace}</code>}>
      <form className="card form pad" onSubmit={(event) => void save(event)}>
        <TextField label="Name" value={name} disabled={!hasWholeWorkspace} onChange={setName} />
        <ErrorNote error={error} />
        {hasWholeWorkspace && (
          <div className="row">
            <Button
              type="submit"
              kind="primary"
              disabled={name.trim() === '' || name === info?.name}
            >
              Save
            </Button>
          </div>
        )}
      </form>
      <section className="card pad stack">
        <h2>Storage</h2>
        <ErrorNote error={usage.error} />
        {usage.data && (
          <>
            <p>
              {formatBytes(usage.data.bytesUsed)}
              {usage.data.bytesMax === null
                ? ' used; there is no quota'
                : ` of ${formatBytes(usage.data.bytesMax)} used`}
            </p>
            {usage.data.bytesMax !== null && (
              <progress
                aria-label="Storage used"
                max={usage.data.bytesMax}
                value={usage.data.bytesUsed}
              />
            )}
            <p className="faint">
              Rows {formatBytes(usage.data.rowBytes)} · files {formatBytes(usage.data.fileBytes)}
              {usage.data.measuredAt !== null && (
                <>
                  {' '}
                  · measured <Ago time={usage.data.measuredAt} />
                </>
              )}
            </p>
          </>
        )}
      </section>
      {info?.role === 'owner' && isUnlimited && (
        <section className="card danger-zone pad row between">
          <div>
            <h2>Delete this workspace</h2>
            <p className="muted">All its databases go with it. There is no undo.</p>
          </div>
          <Button kind="danger" icon="trash" onClick={() => setDeleting(true)}>
            Delete workspace
          </Button>
        </section>
      )}
      {isDeleting && (
        <ConfirmByName
          title="Delete the workspace"
          name={workspace}
          description="All databases of the workspace are deleted. There is no undo."
          action="Delete workspace"
          onClose={() => setDeleting(false)}
          onSubmit={async () => {
            await account.workspace(workspace).delete()
            await refresh()
            notify('The workspace is deleted')
            goTo(paths.home(), { replace: true })
          }}
        />
      )}
    </Page>
  )
}
