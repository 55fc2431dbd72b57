import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link, Redirect } from 'wouter'
import { keys } from '../../api/answers.js'
import { account } from '../../api/clients.js'
import { useWorkspaces } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { TextField } from '../../ui/field.js'
import { Icon } from '../../ui/icon.js'
import { Page } from '../../ui/page.js'

/** All workspaces of the user. */
export function Home() {
  const workspaces = useWorkspaces()
  const { isUnlimited } = useRights()
  const [isCreating, setCreating] = useState(false)
  // Somebody with a single workspace wants its databases; the list stays at `?all`.
  const [only, ...others] = workspaces.data ?? []
  if (!location.search.includes('all')) {
    if (workspaces.isPending) return <Loading />
    if (only !== undefined && others.length === 0) {
      return <Redirect to={paths.workspace(only.id)} replace />
    }
  }
  return (
    <Page
      title="Workspaces"
      actions={
        isUnlimited && (
          <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>
            New workspace
          </Button>
        )
      }
    >
      <ErrorNote error={workspaces.error} onRetry={() => void workspaces.refetch()} />
      {workspaces.isPending && <Loading />}
      {workspaces.data?.length === 0 && (
        <Empty icon="home" title="No workspace yet">
          A workspace holds databases and the people who may use them. Create one, or open the link
          of an invite.
        </Empty>
      )}
      <ul className="cards">
        {workspaces.data?.map(({ id, name, role }) => (
          <li key={id}>
            <Link className="card card-link" href={href(paths.workspace(id))}>
              <span className="row">
                <Icon name="home" />
                <strong className="grow clip">{name}</strong>
                <Tag>{role}</Tag>
              </span>
              <span className="faint mono">{id}</span>
            </Link>
          </li>
        ))}
      </ul>
      {isCreating && <CreateWorkspace onClose={() => setCreating(false)} />}
    </Page>
  )
}

function CreateWorkspace({ onClose }: { onClose: () => void }) {
  const [name, setName] = useState('')
  const queries = useQueryClient()
  return (
    <FormDialog
      title="New workspace"
      action="Create workspace"
      isDisabled={name.trim() === ''}
      onClose={onClose}
      onSubmit={async () => {
        const { id } = await account.createWorkspace(name.trim())
        await queries.invalidateQueries({ queryKey: keys.workspaces() })
        goTo(paths.workspace(id))
      }}
    >
      <TextField label="Name" value={name} onChange={setName} />
    </FormDialog>
  )
}
