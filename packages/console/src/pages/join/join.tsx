import { useQueryClient } from '@tanstack/react-query'
import { type FormEvent, useState } from 'react'
import { Link, useParams } from 'wouter'
import { keys } from '../../api/answers.js'
import { account } from '../../api/clients.js'
import { useWorkspaces } from '../../api/queries.js'
import { useRights, useSession } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { ErrorNote } from '../../ui/feedback.js'
import { TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { notify } from '../../ui/toasts.js'

/** Accepts an invite to a workspace. Its key is in the address, behind the `#`. */
export function Join() {
  const { workspace = '' } = useParams()
  const { user } = useSession()
  const { isUnlimited } = useRights()
  const workspaces = useWorkspaces()
  const queries = useQueryClient()
  const [key, setKey] = useState(
    () => new URLSearchParams(location.hash.slice(1)).get('invite') ?? '',
  )
  const [isBusy, setBusy] = useState(false)
  const [error, setError] = useState<unknown>(null)
  const accept = async (event: FormEvent) => {
    event.preventDefault()
    setBusy(true)
    setError(null)
    try {
      await account.workspace(workspace).acceptInvite(key.trim())
      await queries.invalidateQueries({ queryKey: keys.workspaces() })
      notify('You are a member of the workspace')
      goTo(paths.workspace(workspace), { replace: true })
    } catch (caught) {
      setError(caught)
      setBusy(false)
    }
  }
  return (
    <Page title="Join a workspace" subtitle={<code>{workspace}</code>}>
      <ErrorNote error={workspaces.error} />
      {workspaces.data?.some(({ id }) => id === workspace) ? (
        <p className="note">
          <span>
            {user.fullname} is a member of this workspace.{' '}
            <Link href={href(paths.workspace(workspace))}>Open it</Link>
          </span>
        </p>
      ) : !isUnlimited ? (
        <p className="note warn">
          This session is limited by the scope of its key. Sign in with a key without a scope to
          accept the invite.
        </p>
      ) : (
        <form className="card form pad" onSubmit={(event) => void accept(event)}>
          <p>
            You are signed in as <strong>{user.fullname}</strong> ({user.email}). If you accept,
            this user becomes a member of the workspace.
          </p>
          <TextField
            label="Key of the invite"
            value={key}
            autoComplete="off"
            spellCheck={false}
            onChange={setKey}
          />
          <ErrorNote error={error} />
          <div className="row">
            <Button type="submit" kind="primary" isBusy={isBusy} disabled={key.trim() === ''}>
              Accept the invite
            </Button>
          </div>
        </form>
      )}
    </Page>
  )
}
