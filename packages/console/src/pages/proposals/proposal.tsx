import type { Comment, MergeResult, ProposalDetails } from '@offshoot/client'
import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link, useParams } from 'wouter'
import { keys } from '../../api/answers.js'
import { cancelOperation, useLongWork } from '../../api/long-work.js'
import { useClient, usePlace } from '../../api/place.js'
import { useRights, useSession } from '../../api/session.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button, IconButton } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { LongTextField, TextField } from '../../ui/field.js'
import { OperationProgress } from '../../ui/operation-progress.js'
import { Page } from '../../ui/page.js'
import { Ago } from '../../ui/time.js'
import { notify, notifyError } from '../../ui/toasts.js'
import { type ChangedPlace, DifferenceView } from '../diff/difference-view.js'

/** Characters of a text of a proposal or a review. */
const TEXT_MAX = 10_000

/** A proposal: what it changes, its reviews and its comments. */
export function ProposalPage() {
  const place = usePlace()
  const number = Number(useParams().number)
  const proposal = useClient().database.proposal(number)
  const queries = useQueryClient()
  const base = [...keys.database(place), 'proposal', number]
  const [about, setAbout] = useState<Partial<ChangedPlace>>()
  const [dialog, setDialog] = useState<'edit' | 'requestChanges'>()
  const [refusal, setRefusal] = useState<unknown>(null)
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
  const merging = useLongWork<MergeResult>((outcome) => {
    if ('result' in outcome) notify('Merged')
    else setRefusal(outcome.error)
    void refresh()
  })
  const merge = async () => {
    setRefusal(null)
    try {
      await merging.run((onProgress) => proposal.merge({ onProgress }))
      notify('Merged')
    } catch (error) {
      setRefusal(error)
    }
    await refresh()
  }
  const { data } = details
  return (
    <Page
      title={data === undefined ? `Proposal ${number}` : `#${number} ${data.title}`}
      subtitle={data && <Subtitle proposal={data} />}
      actions={
        data && (
          <Actions
            proposal={data}
            onChange={change}
            onOpen={setDialog}
            isMerging={merging.isUnderWay}
            onMerge={merge}
          />
        )
      }
    >
      {merging.operation !== undefined && (
        <OperationProgress operation={merging.operation} onCancel={cancelOperation} />
      )}
      <ErrorNote error={merging.error} onRetry={merging.forget} />
      <ErrorNote error={refusal} />
      <ErrorNote error={details.error} onRetry={() => void details.refetch()} />
      {data && data.body !== '' && <p className="card pad value">{data.body}</p>}
      {data && <Changed proposal={data} />}
      {data && data.reviews.length > 0 && <Reviews proposal={data} />}
      {data && shown.data?.merge !== undefined && shown.data.merge.conflictCount > 0 && (
        <p className="note danger">
          <span className="grow">
            {countOf(shown.data.merge.conflictCount, 'conflict')} with {data.into}. Pull {data.into}{' '}
            into {data.from} and settle them there.
          </span>
          <Link
            className="link"
            href={href(`${paths.merge({ ...place, branch: data.from }, data.into)}&action=pull`)}
          >
            Pull and settle
          </Link>
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
      {dialog === 'edit' && data && (
        <EditDialog
          proposal={data}
          onSubmit={async (texts) => {
            await proposal.update(texts)
            await refresh()
          }}
          onClose={() => setDialog(undefined)}
        />
      )}
      {dialog === 'requestChanges' && data && (
        <RequestDialog
          onSubmit={async (body) => {
            await proposal.requestChanges({
              revision: data.revision,
              ...(body !== '' && { body }),
            })
            await refresh()
          }}
          onClose={() => setDialog(undefined)}
        />
      )}
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
      <Tag kind={STATES[state]}>{state}</Tag> {source} into <strong>{into ?? 'its target'}</strong>
      <span>
        by {author.email ?? author.id}, <Ago time={createdAt} />
      </span>
    </span>
  )
}

const countOf = (count: number, noun: string) => `${count} ${noun}${count === 1 ? '' : 's'}`

/** Says which branches have changed since the last review, or are gone. */
function Changed({ proposal }: { proposal: ProposalDetails }) {
  const { state, changed, deleted, reviews, from, into } = proposal
  if (state !== 'open') return null
  const namesOf = (sides: readonly ('from' | 'into')[]) =>
    sides.map((side) => (side === 'from' ? from : (into ?? 'its target'))).join(' and ')
  if (deleted.length > 0) {
    return (
      <p className="note danger">
        {namesOf(deleted)} {deleted.length === 1 ? 'was' : 'were'} deleted, so it cannot be merged.
        The difference is that of the last review.
      </p>
    )
  }
  if (changed.length === 0 || reviews.length === 0) return null
  return (
    <p className="note warn">
      {namesOf(changed)} {changed.length === 1 ? 'has' : 'have'} changed since the last review.
      Earlier approvals no longer count.
    </p>
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
          {stale && (
            <Tag
              kind="warn"
              title="A branch has changed since, so the review is of an earlier state"
            >
              stale
            </Tag>
          )}{' '}
          {by.email ?? by.id}, <Ago time={createdAt} />
          {body !== undefined && `: ${body}`}
        </p>
      ))}
    </section>
  )
}

function Actions({
  proposal,
  isMerging,
  onChange,
  onMerge,
  onOpen,
}: {
  proposal: ProposalDetails
  isMerging: boolean
  onChange: (work: Promise<unknown>, done: string) => Promise<void>
  onMerge: () => Promise<void>
  onOpen: (dialog: 'edit' | 'requestChanges') => void
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
          <Button onClick={() => onOpen('requestChanges')}>Request changes</Button>
        </>
      )}
      {proposal.reviews.some(({ by }) => by.id === user.id) && (
        <Button onClick={() => void onChange(handle.withdraw(), 'Your review is withdrawn')}>
          Withdraw review
        </Button>
      )}
      <Button icon="edit" onClick={() => onOpen('edit')}>
        Edit
      </Button>
      <Button onClick={() => void onChange(handle.close(), 'It is closed')}>Close</Button>
      <Button kind="primary" isBusy={isMerging} onClick={() => void onMerge()}>
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

function EditDialog({
  proposal,
  onSubmit,
  onClose,
}: {
  proposal: ProposalDetails
  onSubmit: (texts: { title: string; body: string }) => Promise<void>
  onClose: () => void
}) {
  const [title, setTitle] = useState(proposal.title)
  const [body, setBody] = useState(proposal.body)
  return (
    <FormDialog
      title={`Edit proposal #${proposal.number}`}
      description="Reviews and comments stay."
      action="Save"
      isDisabled={title === ''}
      onSubmit={() => onSubmit({ title, body })}
      onClose={onClose}
    >
      <TextField label="Title" maxLength={255} value={title} onChange={setTitle} />
      <LongTextField label="Text" maxLength={TEXT_MAX} value={body} onChange={setBody} />
    </FormDialog>
  )
}

function RequestDialog({
  onSubmit,
  onClose,
}: {
  onSubmit: (body: string) => Promise<void>
  onClose: () => void
}) {
  const [body, setBody] = useState('')
  return (
    <FormDialog
      title="Request changes"
      description="The proposal cannot be merged until you approve it, or withdraw your review."
      action="Request changes"
      onSubmit={() => onSubmit(body)}
      onClose={onClose}
    >
      <LongTextField
        label="What should change"
        maxLength={TEXT_MAX}
        value={body}
        onChange={setBody}
      />
    </FormDialog>
  )
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
