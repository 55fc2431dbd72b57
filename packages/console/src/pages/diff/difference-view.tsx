import type { Difference, RecordChange } from '@offshoot/client'
import { useInfiniteQuery } from '@tanstack/react-query'
import type { ReactNode } from 'react'
import { Button } from '../../ui/button.js'
import { Empty, ErrorNote, Loading, Tag } from '../../ui/feedback.js'
import { Counts, SchemaChanges } from '../../ui/schema-changes.js'
import { TableHead } from '../../ui/table-head.js'
import { Value } from '../../ui/value.js'
import { Wide } from '../../ui/wide.js'
import './diff.css'

const PAGE_SIZE = 50
/** With more tables than this, their rows are shown on demand. */
const OPEN_TABLES_MAX = 4

/** What a page of changed rows is read with. */
interface PageRequest {
  readonly table: string
  readonly size: number
  readonly after?: string
  readonly signal: AbortSignal
}

/** A record or a cell of a difference. */
export interface ChangedPlace {
  readonly table: string
  readonly record: string
  /** Undefined: the whole record. */
  readonly column?: string
}

interface Source {
  /** Identifies the difference in the cache. */
  readonly queryKey: readonly unknown[]
  read(page: PageRequest): Promise<Difference>
  /** Shows something beside a record or a cell, such as its comments. */
  beside?(place: ChangedPlace): ReactNode
}

/** The schema edits of a difference, and the changed rows of each table. */
export function DifferenceView({ difference, ...source }: Source & { difference: Difference }) {
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
          <TableChanges table={table.name} {...source} />
        </details>
      ))}
    </>
  )
}

/** The changed rows of a table, a page at a time. */
function TableChanges({ table, queryKey, read, beside }: Source & { table: string }) {
  const pages = useInfiniteQuery({
    queryKey: [...queryKey, table],
    queryFn: async ({ pageParam, signal }) => {
      const answer = await read({
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
            <ChangeRows key={change.id} change={change} table={table} beside={beside} />
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

function ChangeRows({
  change: { change, id, record, columns },
  table,
  beside,
}: {
  change: RecordChange
  table: string
  beside: Source['beside']
}) {
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
              {beside?.({ table, record: id })}
            </th>
          )}
          <td className="muted">
            {name}
            {name !== '' && beside?.({ table, record: id, column: name })}
          </td>
          <td className="before">
            {change !== 'inserted' && name !== '' && <Value value={from} />}
          </td>
          <td className="after">{change !== 'deleted' && name !== '' && <Value value={to} />}</td>
        </tr>
      ))}
    </tbody>
  )
}
