import type { BranchSummary, ForkOptions } from '@offshoot/client'
import { useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { keys } from '../../api/answers.js'
import { clientOf } from '../../api/clients.js'
import { usePlace } from '../../api/place.js'
import { ConfirmByName, FormDialog } from '../../ui/dialog.js'
import { Checkbox, DaysField, SuggestField, TextField } from '../../ui/field.js'
import { notify } from '../../ui/toasts.js'
import { ScheduleDialog, scheduleSaved } from '../timeline/checkpoint-dialogs.js'

export interface BranchAction {
  readonly kind: 'fork' | 'delete' | 'protect' | 'approvals' | 'expiry' | 'schedule' | 'reset'
  readonly branch: string
}

const DAY_SECONDS = 86_400

/** The dialog of an action on a branch. */
export function BranchDialog({
  action: { kind, branch },
  branches,
  onClose,
}: {
  action: BranchAction
  branches: readonly BranchSummary[]
  onClose: () => void
}) {
  const place = usePlace()
  const queries = useQueryClient()
  const handle = clientOf(place).branch(branch)
  const current = branches.find(({ name }) => name === branch)
  /** Runs a change, reads everything of the database again, and says so. */
  const run = async (work: Promise<unknown>, done: string) => {
    await work
    // The list first: a branch that is gone must not be asked for anything else.
    await queries.invalidateQueries({ queryKey: keys.branches(place) })
    await queries.invalidateQueries({ queryKey: keys.database(place) })
    notify(done)
  }
  switch (kind) {
    case 'fork':
      return (
        <ForkDialog
          source={branch}
          branches={branches}
          onClose={onClose}
          onFork={(source, name, options) =>
            run(clientOf(place).branch(source).fork(name, options), `Branch ${name} is created`)
          }
        />
      )
    case 'protect':
      return current?.protected === true ? (
        <FormDialog
          title={`Remove the protection of ${branch}`}
          description="It can be deleted again, and its expiry counts again."
          action="Remove protection"
          onClose={onClose}
          onSubmit={() =>
            run(handle.update({ protected: false }), `${branch} is no longer protected`)
          }
        />
      ) : (
        <ProtectDialog
          title={`Protect ${branch}`}
          description="It cannot be deleted, does not expire, and its schema changes only by merges."
          action="Protect"
          approvals={current?.requiredApprovals}
          onClose={onClose}
          onSave={(requiredApprovals) =>
            run(handle.update({ protected: true, requiredApprovals }), `${branch} is protected`)
          }
        />
      )
    case 'approvals':
      return (
        <ProtectDialog
          title={`Approvals for ${branch}`}
          description="Only an owner of the workspace can lower the number."
          action="Save"
          approvals={current?.requiredApprovals}
          onClose={onClose}
          onSave={(requiredApprovals) =>
            run(handle.update({ requiredApprovals }), 'The number of approvals is changed')
          }
        />
      )
    case 'expiry':
      return (
        <ExpiryDialog
          branch={branch}
          ttl={current?.ttl}
          onClose={onClose}
          onSave={(ttl) =>
            run(
              handle.update(ttl === null ? { ttl: null, expiresAt: null } : { ttl }),
              'The expiry is changed',
            )
          }
        />
      )
    case 'schedule':
      return (
        <ScheduleDialog
          branch={branch}
          schedule={current?.checkpoints}
          onClose={onClose}
          onSave={(checkpoints) => run(handle.update({ checkpoints }), scheduleSaved(checkpoints))}
        />
      )
    case 'reset':
      return (
        <ConfirmByName
          title={`Reset ${branch}`}
          name={branch}
          description={`All changes of the branch are discarded. It becomes a fresh fork of ${current?.from ?? 'its source'}.`}
          action="Reset branch"
          onClose={onClose}
          onSubmit={() => run(handle.reset(), `${branch} is a fresh fork of ${current?.from}`)}
        />
      )
    case 'delete':
      return (
        <ConfirmByName
          title={`Delete ${branch}`}
          name={branch}
          description="Rows that only this branch has are lost. Branches that were forked from it keep theirs."
          action="Delete branch"
          onClose={onClose}
          onSubmit={() => run(handle.delete(), `Branch ${branch} is deleted`)}
        />
      )
  }
}

function ForkDialog({
  source,
  branches,
  onFork,
  onClose,
}: {
  source: string
  branches: readonly BranchSummary[]
  onFork: (source: string, name: string, options: ForkOptions) => Promise<void>
  onClose: () => void
}) {
  const [from, setFrom] = useState(source)
  const [name, setName] = useState('')
  const [hasRows, setHasRows] = useState(true)
  const [days, setDays] = useState('')
  return (
    <FormDialog
      title="New branch"
      description="A fork takes milliseconds and copies nothing, whatever the size."
      action="Create branch"
      isDisabled={name === ''}
      onClose={onClose}
      onSubmit={() =>
        onFork(from, name, {
          ...(hasRows ? {} : { data: false }),
          ...(days === '' ? {} : { ttl: Math.round(Number(days) * DAY_SECONDS) }),
        })
      }
    >
      <TextField label="Name" value={name} onChange={setName} />
      <SuggestField
        label="Fork of"
        suggestions={branches.map((branch) => branch.name)}
        value={from}
        onChange={setFrom}
      />
      <Checkbox
        label="With rows"
        hint="Without them, the branch gets only the schema."
        checked={hasRows}
        onChange={setHasRows}
      />
      <DaysField
        label="Expires after days without use"
        hint="Empty: as the rules of the database say, or never."
        value={days}
        onChange={setDays}
      />
    </FormDialog>
  )
}

/** Approvals that a proposal can need. */
const APPROVALS_MAX = 10

function ProtectDialog({
  title,
  description,
  action,
  approvals,
  onSave,
  onClose,
}: {
  title: string
  description: string
  action: string
  approvals: number | undefined
  onSave: (approvals: number) => Promise<void>
  onClose: () => void
}) {
  const [typed, setTyped] = useState(String(approvals ?? 0))
  return (
    <FormDialog
      title={title}
      description={description}
      action={action}
      onClose={onClose}
      onSubmit={() => onSave(Number(typed))}
    >
      <TextField
        label="Approvals that a change needs"
        hint="0: members change the branch directly. Otherwise it changes by proposals alone, which that many others have approved."
        type="number"
        min="0"
        max={APPROVALS_MAX}
        step="1"
        required
        value={typed}
        onChange={setTyped}
      />
    </FormDialog>
  )
}

function ExpiryDialog({
  branch,
  ttl,
  onSave,
  onClose,
}: {
  branch: string
  ttl: number | undefined
  onSave: (ttl: number | null) => Promise<void>
  onClose: () => void
}) {
  const [days, setDays] = useState(ttl === undefined ? '' : String(ttl / DAY_SECONDS))
  return (
    <FormDialog
      title={`Expiry of ${branch}`}
      action="Save"
      onClose={onClose}
      onSubmit={() => onSave(days === '' ? null : Math.round(Number(days) * DAY_SECONDS))}
    >
      <DaysField
        label="Expires after days without use"
        hint="Empty: never."
        value={days}
        onChange={setDays}
      />
    </FormDialog>
  )
}
