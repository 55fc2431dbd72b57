import type { KeyScope } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { account } from '../../api/clients.js'
import { useWorkspaces } from '../../api/queries.js'
import { useRights, useSession } from '../../api/session.js'
import { Button, IconButton } from '../../ui/button.js'
import { ConfirmByName, FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Checkbox, CountField, Field, TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { SecretsOnce } from '../../ui/secret.js'
import { TableHead } from '../../ui/table-head.js'
import { Ago } from '../../ui/time.js'
import { notify } from '../../ui/toasts.js'
import { Wide } from '../../ui/wide.js'

const KEYS = ['keys']

/** The API keys of the user. */
export function Keys() {
  const session = useSession()
  const { isUnlimited } = useRights()
  const queries = useQueryClient()
  const keys = useQuery({ queryKey: KEYS, queryFn: ({ signal }) => account.keys({ signal }) })
  const [isCreating, setCreating] = useState(false)
  const [created, setCreated] = useState<string | null>(null)
  const [deleting, setDeleting] = useState<string | null>(null)
  return (
    <Page
      title="API keys"
      subtitle={`Keys of ${session.user.fullname}. A key acts as its user, within its scope.`}
      actions={
        isUnlimited && (
          <Button kind="primary" icon="plus" onClick={() => setCreating(true)}>
            New key
          </Button>
        )
      }
    >
      {!isUnlimited && (
        <p className="note">
          This session is limited by the scope of its key, so it shows only that key and cannot
          create others.
        </p>
      )}
      <ErrorNote error={keys.error} onRetry={() => void keys.refetch()} />
      {keys.isPending && <Loading />}
      {keys.data && (
        <Wide className="card" label="API keys">
          <table className="facts">
            <TableHead titles={['Name', 'Scope', 'Created', 'Expires']} hasActions />
            <tbody>
              {keys.data.map((key) => (
                <tr key={key.name}>
                  <td>
                    {key.name} {key.name === session.key && <Tag kind="good">this session</Tag>}
                  </td>
                  <td>
                    <ScopeTags scope={key.scope ?? {}} />
                  </td>
                  <td>
                    <Ago time={key.createdAt} />
                  </td>
                  <td>{key.expiresAt === undefined ? 'never' : <Ago time={key.expiresAt} />}</td>
                  <td className="number">
                    {isUnlimited && (
                      <IconButton
                        label={`Delete key ${key.name}`}
                        icon="trash"
                        onClick={() => setDeleting(key.name)}
                      />
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Wide>
      )}
      {isCreating && (
        <CreateKey
          onClose={() => setCreating(false)}
          onCreated={async (secret) => {
            setCreated(secret)
            await queries.invalidateQueries({ queryKey: KEYS })
          }}
        />
      )}
      {created !== null && (
        <SecretsOnce
          title="The key is ready"
          secrets={[{ text: created }]}
          onClose={() => setCreated(null)}
        >
          Store it now. The service keeps only a hash of it, so it cannot be shown again.
        </SecretsOnce>
      )}
      {deleting !== null && (
        <ConfirmByName
          title="Delete the key"
          name={deleting}
          description={
            deleting === session.key
              ? 'This session was opened with the key, so you are signed out.'
              : 'Programs that use the key are refused from now on, and its sessions end.'
          }
          action="Delete key"
          onClose={() => setDeleting(null)}
          onSubmit={async () => {
            await account.deleteKey(deleting)
            notify(`Key ${deleting} is deleted`)
            await queries.invalidateQueries()
          }}
        />
      )}
    </Page>
  )
}

function ScopeTags({ scope }: { scope: KeyScope }) {
  const parts = [
    ...(scope.workspaces ?? []).map((name) => `workspace ${name}`),
    ...(scope.databases ?? []).map((name) => `database ${name}`),
    ...(scope.branches ?? []).map((name) => `branch ${name}`),
    ...(scope.access === 'read' ? ['read only'] : []),
    ...(scope.audit === true ? ['audit log'] : []),
    ...(scope.requestsPerSecond === undefined ? [] : [`${scope.requestsPerSecond}/s`]),
    ...(scope.requestsAtOnce === undefined ? [] : [`${scope.requestsAtOnce} at once`]),
  ]
  if (parts.length === 0) return <span className="muted">everything</span>
  return (
    <span className="row">
      {parts.map((part) => (
        <Tag key={part} kind={part === 'read only' ? 'info' : 'plain'}>
          {part}
        </Tag>
      ))}
    </span>
  )
}

function CreateKey({
  onCreated,
  onClose,
}: {
  onCreated: (secret: string) => Promise<void>
  onClose: () => void
}) {
  const [name, setName] = useState('')
  const [access, setAccess] = useState<'write' | 'read'>('write')
  const workspaces = useWorkspaces().data ?? []
  const [chosen, setChosen] = useState<readonly string[]>([])
  const [databases, setDatabases] = useState('')
  const [branches, setBranches] = useState('')
  const [audit, setAudit] = useState(false)
  const [perSecond, setPerSecond] = useState('')
  const [atOnce, setAtOnce] = useState('')
  const [days, setDays] = useState('')
  const list = (text: string) => text.split(/[\s,]+/).filter((part) => part !== '')
  const submit = async () => {
    const scope: KeyScope = {
      ...(access === 'read' ? { access } : {}),
      ...(chosen.length === 0 ? {} : { workspaces: [...chosen] }),
      ...(list(databases).length === 0 ? {} : { databases: list(databases) }),
      ...(list(branches).length === 0 ? {} : { branches: list(branches) }),
      ...(audit ? { audit } : {}),
      ...(perSecond === '' ? {} : { requestsPerSecond: Number(perSecond) }),
      ...(atOnce === '' ? {} : { requestsAtOnce: Number(atOnce) }),
    }
    const { key } = await account.createKey(name, {
      ...(Object.keys(scope).length === 0 ? {} : { scope }),
      ...(days === ''
        ? {}
        : { expiresAt: new Date(Date.now() + Number(days) * 86_400_000).toISOString() }),
    })
    await onCreated(key)
  }
  return (
    <FormDialog
      title="New API key"
      action="Create key"
      isDisabled={name === ''}
      onClose={onClose}
      onSubmit={submit}
    >
      <TextField label="Name" value={name} onChange={setName} />
      <Field label="Access">
        <select
          value={access}
          onChange={(event) => setAccess(event.target.value as 'read' | 'write')}
        >
          <option value="write">read and write</option>
          <option value="read">read only</option>
        </select>
      </Field>
      <fieldset className="check-list">
        <legend>Workspaces</legend>
        {workspaces.map(({ id, name: workspace }) => (
          <Checkbox
            key={id}
            label={workspace}
            hint={` ${id}`}
            checked={chosen.includes(id)}
            onChange={(isChosen) =>
              setChosen(isChosen ? [...chosen, id] : chosen.filter((one) => one !== id))
            }
          />
        ))}
        <small className="faint">None chosen: all workspaces, also later ones.</small>
      </fieldset>
      <TextField
        label="Databases"
        hint="Names, separated by commas. Empty: all databases."
        value={databases}
        onChange={setDatabases}
      />
      <TextField
        label="Branches"
        hint="Names or patterns such as preview-*. Empty: all branches."
        value={branches}
        onChange={setBranches}
      />
      <Checkbox
        label="Read the audit log"
        hint="A key that is limited above cannot read it otherwise. You must be an owner of the workspace."
        checked={audit}
        onChange={setAudit}
      />
      <CountField
        label="Requests per second"
        hint="Empty: the limit of the service."
        value={perSecond}
        onChange={setPerSecond}
      />
      <CountField
        label="Requests at once"
        hint="Empty: the limit of the service."
        value={atOnce}
        onChange={setAtOnce}
      />
      <TextField
        label="Expires after days"
        hint="Empty: never."
        type="number"
        min="1"
        value={days}
        onChange={setDays}
      />
    </FormDialog>
  )
}
