import type { Role } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { account } from '../../api/clients.js'
import { useWorkspaces } from '../../api/queries.js'
import { useRights, useSession } from '../../api/session.js'
import { usePlaceOfAddress } from '../../app/address.js'
import { Button, IconButton } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Field } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { SecretOnce } from '../../ui/secret.js'
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
  const mayChange = hasWholeWorkspace && role === 'owner'
  const queries = useQueryClient()
  const key = ['members', workspace]
  const members = useQuery({
    queryKey: key,
    queryFn: ({ signal }) => account.workspace(workspace).members({ signal }),
  })
  const [isInviting, setInviting] = useState(false)
  const [removed, setRemoved] = useState<{ userId: string; fullname: string } | null>(null)
  const [inviteKey, setInviteKey] = useState<string | null>(null)
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
      subtitle="Owners may change members and settings; maintainers work with databases."
      actions={
        mayChange && (
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
                    {mayChange ? (
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
                    {mayChange && (
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
                    {mayChange && (
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
          onClose={() => setInviting(false)}
          onInvite={async (invite) => {
            const created = await space.invite(invite)
            setInviteKey(created.key)
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
      {inviteKey !== null && (
        <SecretOnce
          title="The invite is ready"
          secret={inviteKey}
          onClose={() => setInviteKey(null)}
        >
          Send this key to the person. They accept the invite with it. It is shown only now.
        </SecretOnce>
      )}
    </Page>
  )
}

function Invite({
  onInvite,
  onClose,
}: {
  onInvite: (invite: { email: string; role: Role }) => Promise<void>
  onClose: () => void
}) {
  const [email, setEmail] = useState('')
  const [role, setRole] = useState<Role>('maintainer')
  return (
    <FormDialog
      title="Invite somebody"
      action="Create invite"
      isDisabled={email === ''}
      onClose={onClose}
      onSubmit={() => onInvite({ email, role })}
    >
      <Field label="E-mail" hint="No mail is sent: you get a key to pass on.">
        <input type="email" value={email} onChange={(event) => setEmail(event.target.value)} />
      </Field>
      <Field label="Role">
        <select value={role} onChange={(event) => setRole(event.target.value as Role)}>
          <option value="maintainer">maintainer</option>
          <option value="owner">owner</option>
        </select>
      </Field>
    </FormDialog>
  )
}
