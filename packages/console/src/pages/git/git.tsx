import type { BranchRule } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { keys } from '../../api/answers.js'
import { useClient, usePlace } from '../../api/place.js'
import { useBranches } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { Button, IconButton } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Checkbox, DaysField, SuggestField, TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { TableHead } from '../../ui/table-head.js'
import { notify, notifyError } from '../../ui/toasts.js'

const DAY_SECONDS = 86_400

/** Which branch belongs to which git branch, and the rules for new branches. */
export function Git() {
  const place = usePlace()
  const { database } = useClient()
  const { canWrite, hasWholeDatabase } = useRights()
  const queries = useQueryClient()
  const base = [...keys.database(place), 'git']
  const mapping = useQuery({
    queryKey: base,
    queryFn: ({ signal }) => database.gitBranches({ signal }),
  })
  const rules = useQuery({
    queryKey: [...base, 'rules'],
    queryFn: ({ signal }) => database.rules({ signal }),
  })
  const [dialog, setDialog] = useState<'map' | 'rule' | null>(null)
  const refresh = () => queries.invalidateQueries({ queryKey: base })
  const change = async (work: Promise<unknown>, done: string) => {
    try {
      await work
      notify(done)
    } catch (error) {
      notifyError(error)
    }
    await refresh()
  }
  const list = rules.data ?? []
  const setRules = (next: readonly BranchRule[]) =>
    change(database.setRules(next), 'The rules are changed')
  const move = (index: number) => {
    const next = [...list]
    const [rule] = next.splice(index, 1)
    if (rule !== undefined) next.splice(index - 1, 0, rule)
    return setRules(next)
  }
  return (
    <Page
      title="Git and rules"
      subtitle="Programs ask for the branch of a git branch. Rules decide how a new branch is made."
    >
      <section className="card">
        <header className="card-head">
          <h2 className="grow">Git branches</h2>
          {canWrite && (
            <Button icon="plus" onClick={() => setDialog('map')}>
              Map a git branch
            </Button>
          )}
        </header>
        <ErrorNote error={mapping.error} onRetry={() => void mapping.refetch()} />
        {mapping.isPending && (
          <div className="pad">
            <Loading lines={2} />
          </div>
        )}
        {mapping.data?.length === 0 && (
          <p className="muted pad">
            No git branch is mapped. A git branch with the name of a branch finds it without a
            mapping.
          </p>
        )}
        {mapping.data !== undefined && mapping.data.length > 0 && (
          <table className="facts">
            <TableHead titles={['Git branch', 'Branch']} hasActions />
            <tbody>
              {mapping.data.map(({ gitBranch, serviceBranch }) => (
                <tr key={gitBranch}>
                  <td>
                    <code>{gitBranch}</code>
                  </td>
                  <td>{serviceBranch}</td>
                  <td className="number">
                    {canWrite && (
                      <IconButton
                        label={`Remove the mapping of ${gitBranch}`}
                        icon="trash"
                        onClick={() =>
                          void change(database.unmapGitBranch(gitBranch), 'The mapping is removed')
                        }
                      />
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </section>
      <section className="card">
        <header className="card-head">
          <h2 className="grow">Rules for new branches</h2>
          {hasWholeDatabase && (
            <Button icon="plus" onClick={() => setDialog('rule')}>
              Add a rule
            </Button>
          )}
        </header>
        <ErrorNote error={rules.error} onRetry={() => void rules.refetch()} />
        {rules.data?.length === 0 && (
          <p className="muted pad">
            No rules yet. For example, preview-* can expire after a week without use.
          </p>
        )}
        {list.length > 0 && (
          <table className="facts">
            <TableHead titles={['Name', 'Then']} hasActions />
            <tbody>
              {list.map((rule, i) => (
                <tr key={rule.pattern}>
                  <td>
                    <code>{rule.pattern}</code>
                  </td>
                  <td>
                    <span className="row">
                      {rule.from !== undefined && <Tag>fork of {rule.from}</Tag>}
                      {rule.data === false && <Tag>without rows</Tag>}
                      {rule.ttl !== undefined && (
                        <Tag kind="warn">expires after {rule.ttl / DAY_SECONDS} days</Tag>
                      )}
                      {rule.protected && <Tag kind="info">protected</Tag>}
                    </span>
                  </td>
                  <td className="number">
                    {hasWholeDatabase && i > 0 && (
                      <Button className="small" kind="quiet" onClick={() => void move(i)}>
                        Move up
                      </Button>
                    )}
                    {hasWholeDatabase && (
                      <IconButton
                        label={`Remove the rule ${rule.pattern}`}
                        icon="trash"
                        onClick={() => void setRules(list.filter((one) => one !== rule))}
                      />
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </section>
      {dialog === 'map' && (
        <MapDialog
          onClose={() => setDialog(null)}
          onMap={async (gitBranch, serviceBranch) => {
            await database.mapGitBranch({ gitBranch, serviceBranch })
            await refresh()
          }}
        />
      )}
      {dialog === 'rule' && (
        <RuleDialog
          onClose={() => setDialog(null)}
          onAdd={async (rule) => {
            await database.setRules([...list, rule])
            await refresh()
          }}
        />
      )}
    </Page>
  )
}

function MapDialog({
  onMap,
  onClose,
}: {
  onMap: (gitBranch: string, serviceBranch: string) => Promise<void>
  onClose: () => void
}) {
  const branches = useBranches(usePlace()).data ?? []
  const [gitBranch, setGitBranch] = useState('')
  const [serviceBranch, setServiceBranch] = useState('')
  return (
    <FormDialog
      title="Map a git branch"
      action="Map"
      isDisabled={gitBranch === '' || serviceBranch === ''}
      onClose={onClose}
      onSubmit={() => onMap(gitBranch, serviceBranch)}
    >
      <TextField label="Git branch" value={gitBranch} onChange={setGitBranch} />
      <SuggestField
        label="Branch"
        suggestions={branches.map(({ name }) => name)}
        value={serviceBranch}
        onChange={setServiceBranch}
      />
    </FormDialog>
  )
}

function RuleDialog({
  onAdd,
  onClose,
}: {
  onAdd: (rule: BranchRule) => Promise<void>
  onClose: () => void
}) {
  const [pattern, setPattern] = useState('')
  const [from, setFrom] = useState('')
  const [days, setDays] = useState('')
  const [hasRows, setHasRows] = useState(true)
  const [isProtected, setProtected] = useState(false)
  return (
    <FormDialog
      title="Add a rule"
      description="The first rule that fits the name of a new branch counts."
      action="Add rule"
      isDisabled={pattern === ''}
      onClose={onClose}
      onSubmit={() =>
        onAdd({
          pattern,
          ...(from === '' ? {} : { from }),
          ...(days === '' ? {} : { ttl: Math.round(Number(days) * DAY_SECONDS) }),
          ...(hasRows ? {} : { data: false }),
          ...(isProtected ? { protected: true } : {}),
        })
      }
    >
      <TextField
        label="Name or pattern"
        hint="For example preview-*"
        value={pattern}
        onChange={setPattern}
      />
      <TextField
        label="Fork of"
        hint="Empty: the default branch."
        value={from}
        onChange={setFrom}
      />
      <DaysField
        label="Expires after days without use"
        hint="Empty: never."
        value={days}
        onChange={setDays}
      />
      <Checkbox label="With rows" checked={hasRows} onChange={setHasRows} />
      <Checkbox label="Protected" checked={isProtected} onChange={setProtected} />
    </FormDialog>
  )
}
