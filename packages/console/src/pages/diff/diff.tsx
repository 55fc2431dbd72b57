import { useQuery } from '@tanstack/react-query'
import { Link, useSearch } from 'wouter'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useBranches, useCheckpoints } from '../../api/queries.js'
import { clientSample, curlSample } from '../../api/samples.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { CodeButton } from '../../ui/code-samples.js'
import { Empty, ErrorNote, Loading } from '../../ui/feedback.js'
import { Page } from '../../ui/page.js'
import { Switcher } from '../../ui/switcher.js'
import { DifferenceView } from './difference-view.js'

const STATES: readonly { id: string; text: string }[] = [
  { id: 'base', text: 'its last common state' },
  { id: 'source', text: 'its source now' },
  { id: 'fork', text: 'the state at the fork' },
]

/** The difference between a branch and its source, or another branch. */
export function DiffPage() {
  const place = usePlace()
  const branch = useBranch()
  const branches = useBranches(place)
  const query = new URLSearchParams(useSearch())
  const since = query.get('since')
  const against = query.get('against') ?? 'base'
  const other = since === null ? { against } : { againstAt: since }
  const checkpoints = useCheckpoints(place).data ?? []
  const summary = branches.data?.find(({ name }) => name === place.branch)
  const hasSource = summary?.from !== undefined
  const isNamed = !STATES.some(({ id }) => id === against)
  const canCompare = hasSource || isNamed || since !== null
  const difference = useQuery({
    queryKey: [...keys.branch(place), 'diff', other],
    queryFn: ({ signal }) => branch.diff({ ...other, size: 0, signal }),
    enabled: branches.isSuccess && canCompare,
  })
  const choices = [
    ...(hasSource ? STATES : []),
    ...(branches.data ?? [])
      .filter(({ name }) => name !== place.branch)
      .map(({ name }) => ({ id: name, text: name, hint: 'branch' })),
    ...checkpoints.map(({ id, name }) => ({ id: `at ${id}`, text: name, hint: 'checkpoint' })),
  ]
  const current =
    since === null
      ? (STATES.find(({ id }) => id === against)?.text ?? against)
      : (checkpoints.find(({ id }) => id === since)?.name ?? since)
  return (
    <Page
      title="Difference"
      subtitle={
        <span className="row">
          What <strong>{place.branch}</strong> changed, compared with
          <Switcher
            label="Compare with"
            current={canCompare ? current : 'choose a branch'}
            choices={choices}
            onChoose={({ id }) =>
              // Names of branches have no spaces.
              goTo(
                id.startsWith('at ') ? paths.diffSince(place, id.slice(3)) : paths.diff(place, id),
              )
            }
          />
        </span>
      }
      actions={
        <>
          {canCompare && <DiffCode other={other} />}
          {hasSource && (
            <>
              <Link className="button plain" href={href(`${paths.merge(place)}?action=pull`)}>
                Pull from {summary?.from}
              </Link>
              <Link className="button primary" href={href(paths.merge(place))}>
                Merge into {summary?.from}
              </Link>
            </>
          )}
        </>
      }
    >
      {branches.isSuccess && !canCompare && (
        <Empty
          icon="diff"
          title={`${place.branch} was not forked from a branch`}
          actions={
            <Link className="button primary" href={href(paths.branches(place))}>
              Choose a branch
            </Link>
          }
        >
          Open the difference of one of its forks, or choose a branch to compare with.
        </Empty>
      )}
      <ErrorNote error={difference.error} onRetry={() => void difference.refetch()} />
      {difference.isLoading && <Loading lines={8} />}
      {difference.data && (
        <DifferenceView
          difference={difference.data}
          queryKey={[...keys.branch(place), 'diff', other]}
          read={(page) => branch.diff({ ...other, ...page })}
        />
      )}
    </Page>
  )
}

/** The difference on screen as a request, and as code of the client. */
function DiffCode({ other }: { other: { against: string } | { againstAt: string } }) {
  const place = usePlace()
  const options = JSON.stringify(other)
  return (
    <CodeButton
      title="Use this difference elsewhere"
      samples={() => ({
        'Client code': clientSample(
          place,
          `const branch = client.branch()
const { schema, tables } = await branch.diff(${options})
console.log(schema.operations, tables)
for await (const change of branch.changes(${options})) console.log(change)`,
        ),
        curl: curlSample(place, `/diff?${new URLSearchParams(other)}`),
      })}
    />
  )
}
