import type { RecordState, RecordVersion, TableDefinition } from '@offshoot/client'
import { useInfiniteQuery } from '@tanstack/react-query'
import { useState } from 'react'
import { Link } from 'wouter'
import { keys } from '../../api/answers.js'
import { actorOf } from '../../api/log-words.js'
import { useBranch, usePlace } from '../../api/place.js'
import { useRights } from '../../api/session.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button } from '../../ui/button.js'
import { Dialog } from '../../ui/dialog.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { TableHead } from '../../ui/table-head.js'
import { Ago } from '../../ui/time.js'
import { notify } from '../../ui/toasts.js'
import { Value } from '../../ui/value.js'
import { Wide } from '../../ui/wide.js'
import { columnValue, type Row } from './values.js'

type Fields = Readonly<Record<string, unknown>>
type Version = RecordVersion<Fields>

const KINDS = { insert: 'good', update: 'info', delete: 'bad' } as const
const WORDS = { insert: 'inserted', update: 'updated', delete: 'deleted' } as const

/**
 * The versions of a record, newest first, each of which can be restored. A table that keeps no versions shows the record
 * at checkpoints and on other branches.
 */
export function RecordHistoryDialog({
  table,
  row,
  onRestored,
  onClose,
}: {
  table: TableDefinition
  row: Row
  onRestored: () => void
  onClose: () => void
}) {
  const place = usePlace()
  const { canWrite } = useRights()
  const handle = useBranch().table(table.name)
  const [error, setError] = useState<unknown>(null)
  const [restored, setRestored] = useState<string | null>(null)
  const history = useInfiniteQuery({
    queryKey: [...keys.branch(place), 'history', table.name, row.id],
    queryFn: ({ pageParam, signal }) =>
      handle.history(row.id, { ...(pageParam === '' ? {} : { cursor: pageParam }), signal }),
    initialPageParam: '',
    getNextPageParam: ({ meta }) => (meta.more ? meta.cursor : undefined),
    gcTime: 0,
  })
  const pages = history.data?.pages ?? []
  const versions = pages.flatMap((page) => page.versions) as unknown as readonly Version[]
  const states = pages[0]?.states as unknown as readonly RecordState<Fields>[] | undefined
  const restore = async ({ version }: Version) => {
    setRestored(version)
    setError(null)
    try {
      await handle.restoreVersion(row.id, version)
      notify(`${row.id} has the values of that version`)
      onRestored()
      await history.refetch()
    } catch (caught) {
      setError(caught)
    } finally {
      setRestored(null)
    }
  }
  return (
    <Dialog
      title={`History of ${row.id}`}
      description={
        states === undefined
          ? 'The versions of the record, newest first. A restored version becomes a new one.'
          : undefined
      }
      onClose={onClose}
      wide
    >
      <ErrorNote error={history.error} onRetry={() => void history.refetch()} />
      <ErrorNote error={error} />
      {history.isPending && <Loading lines={5} />}
      {states !== undefined && <States table={table} row={row} states={states} />}
      {states === undefined && history.isSuccess && versions.length === 0 && (
        <Empty icon="clock" title="No versions yet">
          The next change of the record is the first one that is kept.
        </Empty>
      )}
      {versions.length > 0 && (
        <ol className="versions" aria-label="Versions">
          {versions.map((version, index) => (
            <li key={version.version} className="card">
              <div className="card-head">
                <Tag kind={KINDS[version.operation]}>{WORDS[version.operation]}</Tag>
                {version.cause !== undefined && <Tag>{version.cause}</Tag>}
                <span className="grow muted">
                  <Ago time={version.at} />
                  {version.user !== undefined && ` by ${actorOf(version)}`}
                </span>
                {index === 0 && <Tag kind="good">present</Tag>}
                {canWrite && index > 0 && version.record !== null && (
                  <Button
                    className="small"
                    icon="undo"
                    isBusy={restored === version.version}
                    disabled={restored !== null}
                    onClick={() => void restore(version)}
                  >
                    Restore
                  </Button>
                )}
              </div>
              <Cells label={`Changes of version ${version.version}`} cells={cellsOf(version)} />
            </li>
          ))}
        </ol>
      )}
      {history.hasNextPage && (
        <div>
          <Button isBusy={history.isFetchingNextPage} onClick={() => void history.fetchNextPage()}>
            Show older versions
          </Button>
        </div>
      )}
    </Dialog>
  )
}

type CellChange = readonly [name: string, from: unknown, to: unknown]

/** The cells that a version has changed; all of them for a record that was inserted. */
function cellsOf({ changes, record }: Version): readonly CellChange[] {
  if (changes !== undefined) {
    return Object.entries(changes).map(([name, { from, to }]) => [name, from, to])
  }
  return Object.entries(record ?? {})
    .filter(([name]) => name !== 'id' && name !== 'service')
    .map(([name, value]) => [name, undefined, value])
}

function Cells({ label, cells }: { label: string; cells: readonly CellChange[] }) {
  if (cells.length === 0) return null
  return (
    <Wide label={label}>
      <table className="facts">
        <TableHead titles={['Column', 'Before', 'After']} />
        <tbody>
          {cells.map(([name, from, to]) => (
            <tr key={name}>
              <td>{name}</td>
              <td>
                <Value value={from} />
              </td>
              <td>
                <Value value={to} />
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Wide>
  )
}

/** The record at checkpoints and on other branches, compared with the row on screen. */
function States({
  table,
  row,
  states,
}: {
  table: TableDefinition
  row: Row
  states: readonly RecordState<Fields>[]
}) {
  const place = usePlace()
  const differenceOf = (record: Fields): readonly CellChange[] =>
    table.columns
      // Columns that are hidden were not read.
      .filter(({ name }) => name in row)
      .map(
        ({ name }): CellChange => [
          name,
          columnValue(record, name) ?? null,
          columnValue(row, name) ?? null,
        ],
      )
      .filter(([, then, now]) => JSON.stringify(then) !== JSON.stringify(now))
  return (
    <>
      <p className="note">
        <span className="grow">
          The table keeps no versions of its records.{' '}
          <Link className="link" href={href(paths.schema(place))}>
            Turn on their history in the schema
          </Link>{' '}
          to see every change from then on. Until then, this is the record at checkpoints and on
          other branches, compared with the row of the grid.
        </span>
      </p>
      {states.length === 0 && (
        <p className="muted">There are neither checkpoints nor other branches yet.</p>
      )}
      <ol className="versions" aria-label="States">
        {states.map(({ checkpoint, branch, record }) => {
          const cells = record === null ? [] : differenceOf(record)
          return (
            <li key={checkpoint?.id ?? branch} className="card">
              <div className="card-head">
                <Tag kind="info">{checkpoint === undefined ? 'branch' : 'checkpoint'}</Tag>
                <strong className="grow clip">{checkpoint?.name ?? branch}</strong>
                <span className="muted">
                  {record === null
                    ? 'did not have the record'
                    : cells.length === 0
                      ? 'the same as now'
                      : checkpoint !== undefined && <Ago time={checkpoint.createdAt} />}
                </span>
              </div>
              <Cells label={`Differences to ${checkpoint?.name ?? branch}`} cells={cells} />
            </li>
          )
        })}
      </ol>
    </>
  )
}
