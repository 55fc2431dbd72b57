import type { Difference, RecordChange } from '@offshoot/client'
import { useInfiniteQuery, useQuery } from '@tanstack/react-query'
import { Link, useSearch } from 'wouter'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useBranches } from '../../api/queries.js'
import { clientSample, curlSample } from '../../api/samples.js'
import { goTo, href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { CodeButton } from '../../ui/code-samples.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Page } from '../../ui/page.js'
import { Counts, SchemaChanges } from '../../ui/schema-changes.js'
import { Switcher } from '../../ui/switcher.js'
import { TableHead } from '../../ui/table-head.js'
import { Value } from '../../ui/value.js'
import { Wide } from '../../ui/wide.js'
import './diff.css'

const PAGE_SIZE = 50
/** With more tables than this, their rows are shown on demand. */
const OPEN_TABLES_MAX = 4

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
  const against = new URLSearchParams(useSearch()).get('against') ?? 'base'
  const summary = branches.data?.find(({ name }) => name === place.branch)
  const hasSource = summary?.from !== undefined
  const isNamed = !STATES.some(({ id }) => id === against)
  const canCompare = hasSource || isNamed
  const difference = useQuery({
    queryKey: [...keys.branch(place), 'diff', against],
    queryFn: ({ signal }) => branch.diff({ against, size: 0, signal }),
    enabled: branches.isSuccess && canCompare,
  })
  const choices = [
    ...(hasSource ? STATES : []),
    ...(branches.data ?? [])
      .filter(({ name }) => name !== place.branch)
      .map(({ name }) => ({ id: name, text: name, hint: 'branch' })),
  ]
  const current = STATES.find(({ id }) => id === against)?.text ?? against
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
            onChoose={({ id }) => goTo(paths.diff(place, id))}
          />
        </span>
      }
      actions={
        <>
          {canCompare && <DiffCode against={against} />}
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
      {difference.data && <DifferenceView difference={difference.data} against={against} />}
    </Page>
  )
}

/** The difference on screen as a request, and as code of the client. */
function DiffCode({ against }: { against: string }) {
  const place = usePlace()
  return (
    <CodeButton
      title="Use this difference elsewhere"
      samples={() => ({
        'Client code': clientSample(
          place,
          `const branch = client.branch()
const { schema, tables } = await branch.diff({ against: ${JSON.stringify(against)} })
console.log(schema.operations, tables)
for await (const change of branch.changes({ against: ${JSON.stringify(against)} })) console.log(change)`,
        ),
        curl: curlSample(place, `/diff?against=${encodeURIComponent(against)}`),
      })}
    />
  )
}

function DifferenceView({ difference, against }: { difference: Difference; against: string }) {
  const { schema, tables } = difference
  const changed = tables.filter(
    ({ inserted, updated, deleted }) => inserted + updated + deleted > 0,
  )
  if (schema.operations.length === 0 && changed.length === 0) {
    return (
      <Empty icon="check" title="No difference">
        Schema and rows are the same on both sides.
      </Empty>
    )
  }
  return (
    <>
      {schema.operations.length > 0 && (
        <section className="card">
          <header className="card-head">
            <h2>Schema</h2>
            <Tag>{schema.operations.length}</Tag>
          </header>
          <div className="card-body">
            <SchemaChanges operations={schema.operations} />
          </div>
        </section>
      )}
      {changed.map((table) => (
        <details
          key={table.name}
          className="card diff-table"
          open={changed.length <= OPEN_TABLES_MAX}
        >
          <summary className="card-head">
            <h2 className="grow clip">{table.name}</h2>
            <Counts {...table} />
          </summary>
          <TableChanges table={table.name} against={against} />
        </details>
      ))}
    </>
  )
}

/** The changed rows of a table, a page at a time. */
function TableChanges({ table, against }: { table: string; against: string }) {
  const place = usePlace()
  const branch = useBranch()
  const pages = useInfiniteQuery({
    queryKey: [...keys.branch(place), 'diff', against, table],
    queryFn: async ({ pageParam, signal }) => {
      const answer = await branch.diff({
        against,
        table,
        size: PAGE_SIZE,
        ...(pageParam === '' ? {} : { after: pageParam }),
        signal,
      })
      return answer.tables.find(({ name }) => name === table)
    },
    initialPageParam: '',
    getNextPageParam: (last) => (last?.more ? last.cursor : undefined),
  })
  const changes = pages.data?.pages.flatMap((page) => page?.changes ?? []) ?? []
  return (
    <Wide label={`Changes of ${table}`}>
      <ErrorNote error={pages.error} onRetry={() => void pages.refetch()} />
      {pages.isPending && (
        <div className="pad">
          <Loading lines={3} />
        </div>
      )}
      {changes.length > 0 && (
        <table className="facts changes">
          <TableHead titles={['Record', 'Column', 'Before', 'After']} />
          {changes.map((change) => (
            <ChangeRows key={change.id} change={change} />
          ))}
        </table>
      )}
      {pages.hasNextPage && (
        <div className="pad">
          <Button isBusy={pages.isFetchingNextPage} onClick={() => void pages.fetchNextPage()}>
            Show more rows
          </Button>
        </div>
      )}
    </Wide>
  )
}

const KINDS = { inserted: 'good', updated: 'info', deleted: 'bad' } as const

function ChangeRows({ change: { change, id, record, columns } }: { change: RecordChange }) {
  const cells: [name: string, value: { from?: unknown; to?: unknown }][] =
    change === 'updated'
      ? Object.entries(columns ?? {})
      : Object.entries(record ?? {})
          .filter(([name]) => name !== 'id' && name !== 'xata')
          .map(([name, value]) => [name, change === 'inserted' ? { to: value } : { from: value }])
  // A record without columns still has a row.
  const rows = cells.length === 0 ? ([['', {}]] satisfies typeof cells) : cells
  return (
    <tbody className={change}>
      {rows.map(([name, { from, to }], i) => (
        <tr key={name}>
          {i === 0 && (
            <th scope="rowgroup" rowSpan={rows.length}>
              <Tag kind={KINDS[change]}>{change}</Tag> <code>{id}</code>
            </th>
          )}
          <td className="muted">{name}</td>
          <td className="before">
            {change !== 'inserted' && name !== '' && <Value value={from} />}
          </td>
          <td className="after">{change !== 'deleted' && name !== '' && <Value value={to} />}</td>
        </tr>
      ))}
    </tbody>
  )
}
