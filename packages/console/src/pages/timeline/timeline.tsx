import type { Checkpoint } from '@offshoot/client'
import { useState } from 'react'
import { Link } from 'wouter'
import { keys } from '../../api/answers.js'
import {
  actorOf,
  BRANCH_KINDS,
  describeCounts,
  describeEntry,
  isRevertible,
  whyNotRevertible,
} from '../../api/log-words.js'
import { cancelOperation, useRunningOperations } from '../../api/long-work.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useCheckpoints } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { useLog } from '../../api/use-log.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button, IconButton } from '../../ui/button.js'
import { ErrorNote, Tag } from '../../ui/feedback.js'
import { LogPage } from '../../ui/log-page.js'
import { Menu } from '../../ui/menu.js'
import { OperationProgress } from '../../ui/operation-progress.js'
import { Ago } from '../../ui/time.js'
import { type CheckpointAction, CheckpointDialog } from './checkpoint-dialogs.js'
import { eventsOf, type TimelineEvent } from './events.js'
import './timeline.css'

const NO_CHECKPOINTS: readonly Checkpoint[] = []

/** What happened to the branch, newest first, with its checkpoints and what can be done with them. */
export function Timeline() {
  const place = usePlace()
  const branch = useBranch()
  const { canWrite } = useRights()
  const [action, setAction] = useState<CheckpointAction | null>(null)
  const log = useLog({
    queryKey: [...keys.branch(place), 'log'],
    read: (options) => branch.log(options),
  })
  const { kind, entries } = log
  const checkpoints = useCheckpoints(place)
  const running = useRunningOperations(place)
  const known = checkpoints.data ?? NO_CHECKPOINTS
  const shownCheckpoints = kind === '' || kind === 'checkpoint' ? known : NO_CHECKPOINTS
  const events = entries === undefined ? [] : eventsOf(entries, shownCheckpoints, log)
  // A line of another kind still names the checkpoint from before its change.
  const beforeOf = ({ before, entry }: TimelineEvent) =>
    before ?? known.find(({ id }) => id === entry?.checkpoint && entry?.kind !== 'checkpoint')
  /** The checkpoint before this one that somebody has made, or the schedule. */
  const previousOf = (checkpoint: Checkpoint | undefined) =>
    checkpoint &&
    known
      .slice(known.indexOf(checkpoint) + 1)
      .find(({ kind: made, id }) => made !== 'automatic' && id !== checkpoint.id)
  return (
    <LogPage
      title="Timeline"
      subtitle={`What happened to ${place.branch}, newest first`}
      path={paths.timeline(place)}
      kinds={BRANCH_KINDS}
      log={log}
      isEmpty={events.length === 0}
      empty="Merges, resets, schema changes, bulk loads and checkpoints are listed here."
      actions={
        canWrite && (
          <>
            <Button icon="clock" onClick={() => setAction({ kind: 'schedule' })}>
              Schedule
            </Button>
            <Button kind="primary" icon="plus" onClick={() => setAction({ kind: 'create' })}>
              Checkpoint
            </Button>
          </>
        )
      }
    >
      <ErrorNote error={checkpoints.error} onRetry={() => void checkpoints.refetch()} />
      {running.data?.map((operation) => (
        <OperationProgress key={operation.id} operation={operation} onCancel={cancelOperation} />
      ))}
      {events.length > 0 && (
        <ol className="timeline card" aria-label="Timeline">
          {events.map((event) => (
            <EventItem
              key={event.id}
              event={event}
              before={beforeOf(event)}
              previous={previousOf(event.checkpoint)}
              canWrite={canWrite}
              onAction={setAction}
            />
          ))}
        </ol>
      )}
      {action !== null && <CheckpointDialog action={action} onClose={() => setAction(null)} />}
    </LogPage>
  )
}

function EventItem({
  event: { id, at, entry, checkpoint },
  before,
  previous,
  canWrite,
  onAction,
}: {
  event: TimelineEvent
  before: Checkpoint | undefined
  previous: Checkpoint | undefined
  canWrite: boolean
  onAction: (action: CheckpointAction) => void
}) {
  const place = usePlace()
  const title = checkpoint === undefined && entry !== undefined ? describeEntry(entry) : ''
  const counts = entry === undefined ? '' : describeCounts(entry)
  const state = checkpoint ?? before
  const isKept = entry?.checkpoint === undefined || before !== undefined
  const canRevert = canWrite && entry !== undefined && isRevertible(entry) && isKept
  const whyNot = entry === undefined ? undefined : whyNotRevertible(entry)
  const name = checkpoint?.name ?? title
  return (
    <li className={`timeline-item ${checkpoint === undefined ? '' : 'checkpoint'}`}>
      <span className="grow">
        <span className="row">
          {checkpoint === undefined ? (
            <strong>{title}</strong>
          ) : (
            <>
              <Tag kind="info">checkpoint</Tag>
              <strong>{checkpoint.name}</strong>
              {checkpoint.kind !== 'manual' && <Tag>{checkpoint.kind}</Tag>}
            </>
          )}
          {counts !== '' && <span className="muted">{counts}</span>}
          {entry?.kind === 'checkpoint' && checkpoint === undefined && (
            <Tag title="It was deleted since">deleted</Tag>
          )}
        </span>
        {whyNot !== undefined && <span className="timeline-note muted">{whyNot}</span>}
        {checkpoint?.note !== undefined && <span className="timeline-note">{checkpoint.note}</span>}
        <span className="faint">
          {entry === undefined ? 'the service' : actorOf(entry)} · <Ago time={at} />
        </span>
      </span>
      {canRevert && (
        <Link
          className="button plain small"
          aria-label={`Revert: ${title}`}
          href={href(paths.revert(place, { entry: id, what: `“${title}”` }))}
        >
          Revert
        </Link>
      )}
      {checkpoint !== undefined && (
        <Link
          className="button plain small"
          aria-label={`Read at ${checkpoint.name}`}
          href={href(paths.branch(place, checkpoint.id))}
        >
          Read at
        </Link>
      )}
      {state !== undefined && (
        <Menu
          label={`Actions of ${name}`}
          trigger={<IconButton label={`Actions of ${name}`} icon="more" />}
          items={[
            {
              label: checkpoint === undefined ? 'Read the state before' : 'Read at',
              icon: 'table',
              onSelect: () => goTo(paths.branch(place, state.id)),
            },
            {
              label: 'Difference to the present',
              icon: 'diff',
              onSelect: () => goTo(paths.diffSince(place, state.id)),
            },
            canWrite && {
              label: checkpoint === undefined ? 'Fork the state before…' : 'Fork from here…',
              icon: 'branch',
              onSelect: () => onAction({ kind: 'fork', checkpoint: state }),
            },
            canWrite &&
              checkpoint !== undefined && {
                label: 'Rename…',
                icon: 'edit',
                startsGroup: true,
                onSelect: () => onAction({ kind: 'rename', checkpoint }),
              },
            canWrite &&
              checkpoint !== undefined &&
              previous !== undefined && {
                label: `Revert what came after ${previous.name}…`,
                icon: 'undo',
                onSelect: () =>
                  goTo(
                    paths.revert(place, {
                      since: previous.id,
                      until: checkpoint.id,
                      what: `what happened between ${previous.name} and ${checkpoint.name}`,
                    }),
                  ),
              },
            canWrite && {
              label: checkpoint === undefined ? 'Reset to the state before…' : 'Reset to here…',
              icon: 'reset',
              startsGroup: true,
              isDangerous: true,
              onSelect: () => onAction({ kind: 'reset', checkpoint: state }),
            },
            canWrite &&
              checkpoint !== undefined && {
                label: 'Delete…',
                icon: 'trash',
                isDangerous: true,
                onSelect: () => onAction({ kind: 'delete', checkpoint }),
              },
          ]}
        />
      )}
    </li>
  )
}
