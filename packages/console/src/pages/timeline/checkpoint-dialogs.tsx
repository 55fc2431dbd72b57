import type { Checkpoint, CheckpointSchedule } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useBranches } from '../../api/queries.js'
import { goTo } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading } from '../../ui/feedback.js'
import { Checkbox, CountField, Field, TextField } from '../../ui/field.js'
import { Counts, SchemaChanges } from '../../ui/schema-changes.js'
import { Ago } from '../../ui/time.js'
import { notify } from '../../ui/toasts.js'

export type CheckpointAction =
  | { readonly kind: 'create' }
  | { readonly kind: 'schedule' }
  | {
      readonly kind: 'rename' | 'fork' | 'reset' | 'delete'
      readonly checkpoint: Checkpoint
    }

/** The dialog of an action on a checkpoint. */
export function CheckpointDialog({
  action,
  onClose,
}: {
  action: CheckpointAction
  onClose: () => void
}) {
  const place = usePlace()
  const branch = useBranch()
  const queries = useQueryClient()
  const run = async (work: Promise<unknown>, done: string) => {
    await work
    await queries.invalidateQueries({ queryKey: keys.database(place) })
    notify(done)
  }
  if (action.kind === 'create') {
    return (
      <NameAndNote
        title={`New checkpoint of ${place.branch}`}
        description="It keeps the schema and the rows as they are now, and takes milliseconds."
        action="Make checkpoint"
        onClose={onClose}
        onSubmit={({ name, note }) =>
          run(
            branch.checkpoint({ ...(name !== '' && { name }), ...(note !== '' && { note }) }),
            'The checkpoint is made',
          )
        }
      />
    )
  }
  if (action.kind === 'schedule') {
    return (
      <ScheduleOfBranch
        onClose={onClose}
        onSave={(schedule) =>
          run(branch.update({ checkpoints: schedule }), scheduleSaved(schedule))
        }
      />
    )
  }
  const { checkpoint } = action
  switch (action.kind) {
    case 'rename':
      return (
        <NameAndNote
          title={`Rename ${checkpoint.name}`}
          action="Save"
          checkpoint={checkpoint}
          onClose={onClose}
          onSubmit={({ name, note }) =>
            run(
              branch.updateCheckpoint(checkpoint.id, {
                ...(name !== '' && { name }),
                note: note === '' ? null : note,
              }),
              'The checkpoint is changed',
            )
          }
        />
      )
    case 'fork':
      return (
        <ForkFrom
          checkpoint={checkpoint}
          onClose={onClose}
          onFork={async (name) => {
            await run(branch.fork(name, { at: checkpoint.id }), `Branch ${name} is created`)
            goTo(paths.branch({ ...place, branch: name }))
          }}
        />
      )
    case 'reset':
      return (
        <ResetTo
          checkpoint={checkpoint}
          onClose={onClose}
          onReset={() =>
            run(branch.reset({ at: checkpoint.id }), `${place.branch} is as it was at that time`)
          }
        />
      )
    case 'delete':
      return (
        <FormDialog
          title={`Delete ${checkpoint.name}`}
          description="The state cannot be read, forked or compared any more. The branch stays as it is."
          action="Delete checkpoint"
          isDangerous
          onClose={onClose}
          onSubmit={() => run(branch.deleteCheckpoint(checkpoint.id), 'The checkpoint is deleted')}
        />
      )
  }
}

/** Asks for the schedule of the branch of the page, when it is known. */
function ScheduleOfBranch({
  onSave,
  onClose,
}: {
  onSave: (schedule: CheckpointSchedule | null) => Promise<unknown>
  onClose: () => void
}) {
  const place = usePlace()
  const branches = useBranches(place)
  if (branches.data === undefined) return null
  const current = branches.data.find(({ name }) => name === place.branch)
  return (
    <ScheduleDialog
      branch={place.branch}
      schedule={current?.checkpoints}
      onSave={onSave}
      onClose={onClose}
    />
  )
}

const UNITS = { minutes: 60, hours: 3600, days: 86_400 } as const
type Unit = keyof typeof UNITS

/** Splits a time into a number and the largest unit of which it is a multiple. */
function inUnits(seconds: number): { readonly count: string; readonly unit: Unit } {
  const unit =
    (['days', 'hours'] as const).find((one) => seconds % UNITS[one] === 0) ?? ('minutes' as const)
  return { count: String(seconds / UNITS[unit]), unit }
}

/** Says that a schedule was saved. */
export function scheduleSaved(schedule: CheckpointSchedule | null): string {
  return schedule === null ? 'There is no schedule any more' : 'The schedule is saved'
}

/** Scheduled checkpoints that can be kept. */
const KEEP_MAX = 1000

/** Asks how often the service makes a checkpoint of a branch, and how many it keeps. */
export function ScheduleDialog({
  branch,
  schedule,
  onSave,
  onClose,
}: {
  branch: string
  schedule: CheckpointSchedule | undefined
  onSave: (schedule: CheckpointSchedule | null) => Promise<unknown>
  onClose: () => void
}) {
  const before = inUnits(schedule?.every ?? UNITS.hours)
  const [isOn, setOn] = useState(schedule !== undefined)
  const [count, setCount] = useState(before.count)
  const [unit, setUnit] = useState<Unit>(before.unit)
  const [keep, setKeep] = useState(String(schedule?.keep ?? 24))
  return (
    <FormDialog
      title={`Checkpoints of ${branch}`}
      description="The service makes a checkpoint regularly, and deletes the oldest of these. Checkpoints that somebody has made stay."
      action="Save"
      onClose={onClose}
      onSubmit={() =>
        onSave(isOn ? { every: Math.round(Number(count) * UNITS[unit]), keep: Number(keep) } : null)
      }
    >
      <Checkbox label="Make checkpoints regularly" checked={isOn} onChange={setOn} />
      {isOn && (
        <>
          <div className="row fields-row">
            <CountField label="Every" required value={count} onChange={setCount} />
            <Field label="Unit">
              <select value={unit} onChange={(event) => setUnit(event.target.value as Unit)}>
                {Object.keys(UNITS).map((one) => (
                  <option key={one}>{one}</option>
                ))}
              </select>
            </Field>
          </div>
          <CountField
            label="Keep the newest"
            required
            max={KEEP_MAX}
            value={keep}
            onChange={setKeep}
          />
        </>
      )}
    </FormDialog>
  )
}

function NameAndNote({
  title,
  description,
  action,
  checkpoint,
  onSubmit,
  onClose,
}: {
  title: string
  description?: string
  action: string
  checkpoint?: Checkpoint
  onSubmit: (fields: { name: string; note: string }) => Promise<unknown>
  onClose: () => void
}) {
  const [name, setName] = useState(checkpoint?.name ?? '')
  const [note, setNote] = useState(checkpoint?.note ?? '')
  return (
    <FormDialog
      title={title}
      {...(description === undefined ? {} : { description })}
      action={action}
      onClose={onClose}
      onSubmit={() => onSubmit({ name, note })}
    >
      <TextField
        label="Name"
        hint={
          checkpoint === undefined
            ? 'Letters, digits and _ - ~. Empty: the service chooses one.'
            : 'Letters, digits and _ - ~'
        }
        maxLength={255}
        required={checkpoint !== undefined}
        spellCheck={false}
        value={name}
        onChange={setName}
      />
      <TextField label="Note" maxLength={2048} value={note} onChange={setNote} />
    </FormDialog>
  )
}

function ForkFrom({
  checkpoint,
  onFork,
  onClose,
}: {
  checkpoint: Checkpoint
  onFork: (name: string) => Promise<void>
  onClose: () => void
}) {
  const [name, setName] = useState('')
  return (
    <FormDialog
      title={`Fork from ${checkpoint.name}`}
      description="The new branch starts with the schema and the rows of the checkpoint."
      action="Create branch"
      isDisabled={name === ''}
      onClose={onClose}
      onSubmit={() => onFork(name)}
    >
      <TextField label="Name" value={name} onChange={setName} spellCheck={false} />
    </FormDialog>
  )
}

/** Shows what a reset takes away before it is confirmed. */
function ResetTo({
  checkpoint,
  onReset,
  onClose,
}: {
  checkpoint: Checkpoint
  onReset: () => Promise<unknown>
  onClose: () => void
}) {
  const place = usePlace()
  const branch = useBranch()
  const difference = useQuery({
    queryKey: [...keys.branch(place), 'since', checkpoint.id],
    queryFn: ({ signal }) => branch.diff({ againstAt: checkpoint.id, size: 0, signal }),
    gcTime: 0,
  })
  const { schema, tables = [] } = difference.data ?? {}
  const changed = tables.filter(
    ({ inserted, updated, deleted }) => inserted + updated + deleted > 0,
  )
  const operations = schema?.operations ?? []
  return (
    <FormDialog
      title={`Reset ${place.branch} to ${checkpoint.name}`}
      description={
        <>
          Everything that changed since the checkpoint, which was made{' '}
          <Ago time={checkpoint.createdAt} />, is taken away, whoever wrote it. The service makes a
          checkpoint before, so the present state can be brought back.
        </>
      }
      action="Reset branch"
      isDangerous
      onClose={onClose}
      onSubmit={onReset}
    >
      <ErrorNote error={difference.error} onRetry={() => void difference.refetch()} />
      {difference.isPending && <Loading lines={2} label="Comparing with the present" />}
      {difference.isSuccess && (
        <section className="note warn" aria-label="What the reset loses">
          <div className="grow">
            {changed.length === 0 && operations.length === 0 ? (
              <p>Nothing has changed since the checkpoint.</p>
            ) : (
              <p>These changes since the checkpoint are lost:</p>
            )}
            <SchemaChanges operations={operations} />
            <ul>
              {changed.map((table) => (
                <li key={table.name} className="row">
                  {table.name} <Counts {...table} />
                </li>
              ))}
            </ul>
          </div>
        </section>
      )}
    </FormDialog>
  )
}
