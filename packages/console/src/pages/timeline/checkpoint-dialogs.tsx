import type { Checkpoint } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { goTo } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading } from '../../ui/feedback.js'
import { TextField } from '../../ui/field.js'
import { Counts, SchemaChanges } from '../../ui/schema-changes.js'
import { Ago } from '../../ui/time.js'
import { notify } from '../../ui/toasts.js'

export type CheckpointAction =
  | { readonly kind: 'create' }
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
