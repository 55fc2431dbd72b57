import type { Role } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { account } from '../../api/clients.js'
import { useWorkspaces } from '../../api/queries.js'
import { useRights, useSession } from '../../api/session.js'
import { paths } from '../../app/paths.js'
import { usePlaceOfAddress } from '../../app/use-address.js'
import { Button, IconButton } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Checkbox, Field, TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { type Secret, SecretsOnce } from '../../ui/secret.js'
import { TableHead } from '../../ui/table-head.js'
import { Ago } from '../../ui/time.js'
import { notify, notifyError } from '../../ui/toasts.js'
import { Wide } from '../../ui/wide.js'

/** Members of a workspace, and invites that are open. */
export function Members() {
  const { workspace = '' } = usePlaceOfAddress()
  const session = useSession()
  const { hasWholeWorkspace } = useRights()
  const role = useWorkspaces().data?.find(({ id }) => id === workspace)?.role
  const isOwner = hasWholeWorkspace && role === 'owner'
  const queries = useQueryClient()
  const key = ['members', workspace]
  const members = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => account.workspace(workspace).members({ signal }),
  })
  const [isInviting, setInviting] = useState(false)
  const [removed, setRemoved] = useState<{ userId: string; fullname: string } | null>(null)
  const [secrets, setSecrets] = useState<readonly Secret[]>([])
  const change = async (work: Promise<unknown>, done: string) => {
    try {
      await work
      notify(done)
    } catch (error) {
      notifyError(error)
    }
    await queries.invalidateQueries({ queryKey: key })
  }
  const space = account.workspace(workspace)
  return (
    <Page
      title="Members"
      subtitle="Owners and maintainers work with databases, and invite and remove maintainers. Only owners give and take the role owner."
      actions={
        hasWholeWorkspace && (
          <Button kind="primary" icon="plus" onClick={() => setInviting(true)}>
            Invite
          </Button>
        )
      }
    >
      <ErrorNote error={members.error} onRetry={() => void members.refetch()} />
      {members.isPending && <Loading />}
      {members.data && (
        <Wide className="card" label="Members">
          <table className="facts">
            <TableHead titles={['Name', 'E-mail', 'Role']} hasActions />
            <tbody>
              {members.data.members.map((member) => (
                <tr key={member.userId}>
                  <td>
                    {member.fullname} {member.userId === session.user.id && <Tag>you</Tag>}
                  </td>
                  <td>{member.email}</td>
                  <td>
                    {isOwner ? (
                      <select
                        aria-label={`Role of ${member.fullname}`}
                        value={member.role}
                        onChange={(event) =>
                          void change(
                            space.setRole(member.userId, event.target.value as Role),
                            'The role is changed',
                          )
                        }
                      >
                        <option value="owner">owner</option>
                        <option value="maintainer">maintainer</option>
                      </select>
                    ) : (
                      member.role
                    )}
                  </td>
                  <td className="number">
                    {(isOwner || (hasWholeWorkspace && member.role !== 'owner')) && (
                      <IconButton
                        label={`Remove ${member.fullname}`}
                        icon="trash"
                        onClick={() => setRemoved(member)}
                      />
                    )}
                  </td>
                </tr>
              ))}
              {members.data.invites.map((invite) => (
                <tr key={invite.inviteId}>
                  <td>
                    <Tag kind="info">invited</Tag>
                  </td>
                  <td>{invite.email}</td>
                  <td>
                    {invite.role}, open until <Ago time={invite.expires} />
                  </td>
                  <td className="number">
                    {hasWholeWorkspace && (
                      <IconButton
                        label={`Cancel the invite of ${invite.email}`}
                        icon="close"
                        onClick={() =>
                          void change(
                            space.cancelInvite(invite.inviteId),
                            'The invite is cancelled',
                          )
                        }
                      />
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      )}
      {isInviting && (
        <Invite
          isOwner={isOwner}
          onClose={() => setInviting(false)}
          onInvite={async (invite, fullname) => {
            setSecrets(await createInvite(workspace, invite, fullname))
            await queries.invalidateQueries({ queryKey: key })
          }}
        />
      )}
      {removed !== null && (
        <FormDialog
          title="Remove the member"
          description={
            <>
              <strong>{removed.fullname}</strong> and all of their API keys lose access to this
              workspace at once.
            </>
          }
          action="Remove member"
          isDangerous
          onClose={() => setRemoved(null)}
          onSubmit={async () => {
            await space.removeMember(removed.userId)
            await queries.invalidateQueries({ queryKey: key })
            notify(`${removed.fullname} is no longer a member`)
          }}
        />
      )}
      {secrets.length > 0 && (
        <SecretsOnce title="The invite is ready" secrets={secrets} onClose={() => setSecrets([])}>
          {secrets.length === 1
            ? 'Send this link to the person. They open it, sign in with an API key of their own, and accept. It is shown only now.'
            : 'Send both to the person. They open the link, sign in with the key, and accept. Both are shown only now.'}
        </SecretsOnce>
      )}
    </Page>
  )
}

interface NewInvite {
  readonly email: string
  readonly role: Role
}

/** Creates an invite, and an account for the person if a name is given. */
async function createInvite(
  workspace: string,
  invite: NewInvite,
  fullname: string | undefined,
): Promise<readonly Secret[]> {
  const space = account.workspace(workspace)
  const { inviteId, key } = await space.invite(invite)
  const link = `${location.origin}/console${paths.join(workspace, key)}`
  if (fullname === undefined) return [{ text: link }]
  try {
    const user = await account.createUser({ email: invite.email, fullname })
    return [
      { label: 'Invite link', text: link },
      { label: `API key of ${fullname}`, text: user.key },
    ]
  } catch (error) {
    // The link was not shown, so nobody could use the invite.
    await space.cancelInvite(inviteId)
    throw error
  }
}

function Invite({
  isOwner,
  onInvite,
  onClose,
}: {
  isOwner: boolean
  onInvite: (invite: NewInvite, fullname: string | undefined) => Promise<void>
  onClose: () => void
}) {
  const { administrator } = useSession()
  const { isUnlimited } = useRights()
  const [email, setEmail] = useState('')
  const [role, setRole] = useState<Role>('maintainer')
  const [isNew, setNew] = useState(false)
  const [fullname, setFullname] = useState('')
  return (
    <FormDialog
      title="Invite somebody"
      description="No mail is sent: you get a link to pass on."
      action="Create invite"
      isDisabled={email === '' || (isNew && fullname === '')}
      onClose={onClose}
      onSubmit={() => onInvite({ email, role }, isNew ? fullname : undefined)}
    >
      <TextField label="E-mail" type="email" value={email} onChange={setEmail} />
      <Field label="Role">
        <select value={role} onChange={(event) => setRole(event.target.value as Role)}>
          <option value="maintainer">maintainer</option>
          {isOwner && <option value="owner">owner</option>}
        </select>
      </Field>
      {administrator && isUnlimited && (
        <Checkbox
          label="They have no account on this service yet"
          hint="Creates one, with an API key to sign in with. Only you can, as the administrator."
          checked={isNew}
          onChange={setNew}
        />
      )}
      {isNew && <TextField label="Full name" value={fullname} onChange={setFullname} />}
    </FormDialog>
  )
}
