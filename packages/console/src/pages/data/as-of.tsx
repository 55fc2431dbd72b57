import type { Checkpoint } from '@offshoot/client'
import { useState } from 'react'
import { Link } from 'wouter'
import { usePlace } from '../../api/place.js'
import { useCheckpoints } from '../../api/queries.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { Icon } from '../../ui/icon.js'
import { Switcher } from '../../ui/switcher.js'
import { Ago, relativeTime } from '../../ui/time.js'

const NO_CHECKPOINTS: readonly Checkpoint[] = []

/**
 * Finds the checkpoint that `at` stands for, as the service does: by its id, by its name, or the newest one at or before
 * a time. `checkpoints` are sorted, newest first.
 */
function checkpointOf(at: string, checkpoints: readonly Checkpoint[]): Checkpoint | undefined {
  const named = checkpoints.find(({ id, name }) => id === at || name === at)
  const time = Date.parse(at)
  return named ?? checkpoints.find(({ createdAt }) => Date.parse(createdAt) <= time)
}

/** Chooses the state of the branch that is shown: the present, a checkpoint, or the last checkpoint before a time. */
export function AsOf({ at, onChange }: { at: string; onChange: (at: string) => void }) {
  const place = usePlace()
  const [isOpened, setOpened] = useState(false)
  const [typed, setTyped] = useState('')
  // The present needs no checkpoints until the list is opened.
  const found = useCheckpoints(place, at !== '' || isOpened)
  const checkpoints = found.data ?? NO_CHECKPOINTS
  const shown = checkpointOf(at, checkpoints)
  return (
    <Switcher
      label="As of"
      className="plain"
      onOpen={() => setOpened(true)}
      current={
        <>
          <Icon name="clock" size={13} /> {at === '' ? 'now' : (shown?.name ?? at)}
        </>
      }
      choices={[
        { id: '', text: 'now' },
        ...checkpoints.map(({ id, name, createdAt }) => ({
          id,
          text: name,
          hint: relativeTime(createdAt),
        })),
      ]}
      onChoose={({ id }) => onChange(id)}
      footer={
        <form
          className="popover-foot row"
          onSubmit={(event) => {
            event.preventDefault()
            if (typed !== '') onChange(new Date(typed).toISOString())
          }}
        >
          <input
            type="datetime-local"
            aria-label="The last checkpoint before"
            className="grow"
            required
            value={typed}
            onChange={(event) => setTyped(event.target.value)}
          />
          <Button type="submit">Show</Button>
          {found.data?.length === 0 && (
            <p className="muted">
              There are no checkpoints yet.{' '}
              <Link className="link" href={href(paths.timeline(place))}>
                Make one on the timeline
              </Link>
            </p>
          )}
        </form>
      }
    />
  )
}

/** Says which state of the past is shown, with a link back to the present. Shows nothing for the present. */
export function AsOfNote({ at, path }: { at: string; path: string }) {
  const checkpoints = useCheckpoints(usePlace(), at !== '').data ?? NO_CHECKPOINTS
  if (at === '') return null
  const shown = checkpointOf(at, checkpoints)
  return (
    <p className="note warn" role="status">
      <Icon name="clock" />
      <span className="grow">
        As of checkpoint{' '}
        <strong className="as-of-name clip" title={shown?.name ?? at}>
          {shown?.name ?? at}
        </strong>
        {shown !== undefined && (
          <>
            , <Ago time={shown.createdAt} />
          </>
        )}
        . The past is read-only.
      </span>
      <Link className="link" href={href(path)}>
        Back to the present
      </Link>
    </p>
  )
}
