import type { Comment, ProposalDetails } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link, useParams } from 'wouter'
import { keys } from '../../api/answers.js'
import { useClient, usePlace } from '../../api/place.js'
import { useRights, useSession } from '../../api/session.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button, IconButton } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { Ago } from '../../ui/time.js'
import { notify, notifyError } from '../../ui/toasts.js'
import { type ChangedPlace, DifferenceView } from '../diff/difference-view.js'

/** A proposal: what it changes, its reviews and its comments. */
export function ProposalPage() {
  const place = usePlace()
  const number = Number(useParams().number)
  const proposal = useClient().database.proposal(number)
  const queries = useQueryClient()
  const base = [...keys.database(place), 'proposal', number]
  const [about, setAbout] = useState<Partial<ChangedPlace>>()
  const details = useQuery({
    queryKey: base,
    queryFn: ({ signal }) => proposal.get({ signal }),
  })
  const shown = useQuery({
    queryKey: [...base, 'diff'],
    queryFn: ({ signal }) => proposal.diff({ size: 0, signal }),
  })
  const comments = useQuery({
    queryKey: [...base, 'comments'],
    queryFn: async ({ signal }) => {
      const found: Comment[] = []
      for await (const each of proposal.comments({ signal })) found.push(each)
      return found
    },
  })
  const refresh = () => queries.invalidateQueries({ queryKey: keys.database(place) })
  const change = async (work: Promise<unknown>, done: string) => {
    try {
      await work
      notify(done)
    } catch (error) {
      notifyError(error)
    }
    await refresh()
  }
  const { data } = details
  return (
    <Page
      title={data === undefined ? `Proposal ${number}` : `#${number} ${data.title}`}
      subtitle={data && <Subtitle proposal={data} />}
      actions={data && <Actions proposal={data} onChange={change} />}
    >
      <ErrorNote error={details.error} onRetry={() => void details.refetch()} />
      {data && data.body !== '' && <p className="card pad">{data.body}</p>}
      {data && data.reviews.length > 0 && <Reviews proposal={data} />}
      {shown.data?.merge !== undefined && shown.data.merge.conflictCount > 0 && (
        <p className="note danger">
          {shown.data.merge.conflictCount} conflicts with {data?.into}.
        </p>
      )}
      <ErrorNote error={shown.error} onRetry={() => void shown.refetch()} />
      {shown.isLoading && <Loading lines={6} />}
      {shown.data && (
        <DifferenceView
          difference={shown.data.difference}
          queryKey={[...base, 'diff']}
          read={async (page) => (await proposal.diff(page)).difference}
          beside={(at) => (
            <Beside comments={comments.data ?? []} at={at} onComment={() => setAbout(at)} />
          )}
        />
      )}
      <section className="card">
        <header className="card-head">
          <h2 className="grow">Comments</h2>
          <Button icon="plus" onClick={() => setAbout({})}>
            Comment
          </Button>
        </header>
        <ErrorNote error={comments.error} onRetry={() => void comments.refetch()} />
        {comments.data?.length === 0 && <p className="muted pad">No comments yet.</p>}
        {comments.data?.map((comment) => (
          <div key={comment.id} className="pad">
            <strong>{comment.by.email ?? comment.by.id}</strong>{' '}
            <span className="muted">
              <Ago time={comment.createdAt} /> <code>{placeOf(comment)}</code>
            </span>
            <p>{comment.body}</p>
          </div>
        ))}
      </section>
      {about !== undefined && (
        <CommentDialog
          about={about}
          onSubmit={async (body) => {
            await proposal.comment(body, about)
            await refresh()
          }}
          onClose={() => setAbout(undefined)}
        />
      )}
    </Page>
  )
}

const STATES = { open: 'info', merged: 'good', closed: 'plain' } as const

function Subtitle({ proposal }: { proposal: ProposalDetails }) {
  const place = usePlace()
  const { state, from, into, author, createdAt, deleted } = proposal
  const source = deleted.includes('from') ? (
    <code>{from}</code>
  ) : (
    <Link href={href(paths.branch({ ...place, branch: from }))}>{from}</Link>
  )
  return (
    <span className="row">
      <Tag kind={STATES[state]}>{state}</Tag> {source} into <strong>{into ?? 'its target'}</strong>,
      by {author.email ?? author.id}, <Ago time={createdAt} />
    </span>
  )
}

function Reviews({ proposal }: { proposal: ProposalDetails }) {
  return (
    <section className="card pad">
      {proposal.reviews.map(({ by, verdict, stale, body, createdAt }) => (
        <p key={by.id}>
          <Tag kind={verdict === 'approve' ? 'good' : 'bad'}>
            {verdict === 'approve' ? 'approved' : 'changes requested'}
          </Tag>{' '}
          {stale && <Tag title="A branch has changed since">stale</Tag>} {by.email ?? by.id},{' '}
          <Ago time={createdAt} />
          {body !== undefined && `: ${body}`}
        </p>
      ))}
    </section>
  )
}

function Actions({
  proposal,
  onChange,
}: {
  proposal: ProposalDetails
  onChange: (work: Promise<unknown>, done: string) => Promise<void>
}) {
  const { canWrite } = useRights()
  const { user } = useSession()
  const handle = useClient().database.proposal(proposal.number)
  const { state, revision, approvals, requiredApprovals } = proposal
  if (!canWrite || state === 'merged') return null
  if (state === 'closed') {
    return (
      <Button onClick={() => void onChange(handle.reopen(), 'It is open again')}>Reopen</Button>
    )
  }
  const isAuthor = user.id === proposal.author.id
  return (
    <>
      {requiredApprovals > 0 && (
        <Tag kind={approvals >= requiredApprovals ? 'good' : 'plain'}>
          {approvals} of {requiredApprovals} approvals
        </Tag>
      )}
      {!isAuthor && (
        <>
          <Button onClick={() => void onChange(handle.approve({ revision }), 'Approved')}>
            Approve
          </Button>
          <Button
            onClick={() => void onChange(handle.requestChanges({ revision }), 'Changes requested')}
          >
            Request changes
          </Button>
        </>
      )}
      <Button onClick={() => void onChange(handle.close(), 'It is closed')}>Close</Button>
      <Button kind="primary" onClick={() => void onChange(handle.merge(), 'Merged')}>
        Merge
      </Button>
    </>
  )
}

/** The comments on a record or a cell, and the button for another one. */
function Beside({
  comments,
  at,
  onComment,
}: {
  comments: readonly Comment[]
  at: ChangedPlace
  onComment: () => void
}) {
  const here = comments.filter(
    ({ table, record, column }) =>
      table === at.table && record === at.record && column === at.column,
  )
  const name = placeOf(at)
  return (
    <>
      <IconButton label={`Comment on ${name}`} icon="plus" onClick={onComment} />
      {here.map(({ id, by, body }) => (
        <p key={id} className="muted">
          <strong>{by.email ?? by.id}</strong> {body}
        </p>
      ))}
    </>
  )
}

function placeOf({ table, record, column }: Partial<ChangedPlace>): string {
  return [table, record, column].filter((part) => part !== undefined).join(' ')
}

function CommentDialog({
  about,
  onSubmit,
  onClose,
}: {
  about: Partial<ChangedPlace>
  onSubmit: (body: string) => Promise<void>
  onClose: () => void
}) {
  const [body, setBody] = useState('')
  const name = placeOf(about)
  return (
    <FormDialog
      title={name === '' ? 'Comment' : `Comment on ${name}`}
      action="Comment"
      isDisabled={body === ''}
      onSubmit={() => onSubmit(body)}
      onClose={onClose}
    >
      <TextField label="Text" value={body} onChange={setBody} autoFocus />
    </FormDialog>
  )
}
