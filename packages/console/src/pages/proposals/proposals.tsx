import { useQuery, useQueryClient } from '@tanstack/react-query'
import { useState } from 'react'
import { Link, useSearch } from 'wouter'
import { keys } from '../../api/answers.js'
import { useClient, usePlace } from '../../api/place.js'
import { useBranches } from '../../api/queries.js'
import { useRights } from '../../api/session.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { FormDialog } from '../../ui/dialog.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { LongTextField, SuggestField, TextField } from '../../ui/field.js'
import { Page } from '../../ui/page.js'
import { TableHead } from '../../ui/table-head.js'
import { Ago } from '../../ui/time.js'
import { Wide } from '../../ui/wide.js'

const STATES = ['open', 'merged', 'closed'] as const

/** The proposals of a database, by their state. */
export function Proposals() {
  const place = usePlace()
  const { database } = useClient()
  const { canWrite } = useRights()
  const query = new URLSearchParams(useSearch())
  const state = STATES.find((each) => each === query.get('state')) ?? 'open'
  const proposed = query.get('propose')
  const here = paths.proposals(place)
  const addressOf = (each: string) => (each === 'open' ? here : `${here}?state=${each}`)
  const proposals = useQuery({
    queryKey: [...keys.database(place), 'proposals', state],
    queryFn: async ({ signal }) => {
      const found = []
      for await (const each of database.proposals({ state, signal })) found.push(each)
      return found
    },
  })
  return (
    <Page
      title="Proposals"
      subtitle="Branches that are reviewed before they are merged"
      actions={
        <>
          {STATES.map((each) => (
            <Button key={each} aria-pressed={each === state} onClick={() => goTo(addressOf(each))}>
              {each}
            </Button>
          ))}
          {canWrite && (
            <Button kind="primary" icon="plus" onClick={() => goTo(`${here}?propose=`)}>
              Propose a merge
            </Button>
          )}
        </>
      }
    >
      <ErrorNote error={proposals.error} onRetry={() => void proposals.refetch()} />
      {proposals.isPending && <Loading lines={4} />}
      {proposals.data?.length === 0 && (
        <Empty
          icon="merge"
          title={`No proposal is ${state}`}
          actions={
            canWrite &&
            state === 'open' && (
              <Button kind="primary" onClick={() => goTo(`${here}?propose=`)}>
                Make the first proposal
              </Button>
            )
          }
        >
          A proposal shows what a branch would change, and collects comments and reviews.
        </Empty>
      )}
      {proposals.data !== undefined && proposals.data.length > 0 && (
        <section className="card">
          <Wide label="Proposals">
            <table className="facts">
              <TableHead titles={['Proposal', 'From', 'Into', 'Author', 'Comments', 'Made']} />
              <tbody>
                {proposals.data.map(
                  ({ number, title, from, into, author, comments, createdAt }) => (
                    <tr key={number}>
                      <td>
                        <Link href={href(paths.proposal(place, number))}>
                          #{number} {title}
                        </Link>
                      </td>
                      <td>
                        <code>{from}</code>
                      </td>
                      <td>{into !== undefined && <code>{into}</code>}</td>
                      <td className="muted">{author.email ?? author.id}</td>
                      <td>{comments > 0 && <Tag>{comments}</Tag>}</td>
                      <td className="muted">
                        <Ago time={createdAt} />
                      </td>
                    </tr>
                  ),
                )}
              </tbody>
            </table>
          </Wide>
        </section>
      )}
      {canWrite && proposed !== null && (
        <CreateDialog branch={proposed} onClose={() => goTo(here, { replace: true })} />
      )}
    </Page>
  )
}

function CreateDialog({ branch, onClose }: { branch: string; onClose: () => void }) {
  const place = usePlace()
  const { database } = useClient()
  const queries = useQueryClient()
  const branches = useBranches(place).data?.map(({ name }) => name) ?? []
  const [from, setFrom] = useState(branch)
  const [into, setInto] = useState('')
  const [title, setTitle] = useState('')
  const [body, setBody] = useState('')
  return (
    <FormDialog
      title="Propose a merge"
      action="Propose"
      onClose={onClose}
      isDisabled={from === '' || title === ''}
      onSubmit={async () => {
        const proposal = await database.propose({
          from,
          title,
          ...(into === '' ? {} : { into }),
          ...(body === '' ? {} : { body }),
        })
        await queries.invalidateQueries({ queryKey: keys.database(place) })
        goTo(paths.proposal(place, proposal.number), { replace: true })
      }}
      // The page of the proposal has taken the place of this one.
      onDone={() => undefined}
    >
      <SuggestField label="Branch" value={from} onChange={setFrom} suggestions={branches} />
      <SuggestField
        label="Into"
        hint="By default the branch that it was forked from"
        value={into}
        onChange={setInto}
        suggestions={branches}
      />
      <TextField label="Title" maxLength={255} value={title} onChange={setTitle} />
      <LongTextField
        label="Text"
        hint="What the branch changes, and why."
        maxLength={10_000}
        value={body}
        onChange={setBody}
      />
    </FormDialog>
  )
}
