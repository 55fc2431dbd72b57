import type {
  ColumnDefinition,
  IndexInfo,
  SchemaOperation,
  TableDefinition,
} from '@offshoot/client'
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query'
import { Link } from 'wouter'
import { keys } from '../../api/answers.js'
import { useBranch, usePlace } from '../../api/place.js'
import { href } from '../../app/navigate.js'
import { paths } from '../../app/paths.js'
import { Button, IconButton } from '../../ui/button.js'
import { ErrorNote, Tag } from '../../ui/feedback.js'
import { Menu } from '../../ui/menu.js'
import { describeColumn } from '../../ui/schema-words.js'
import { notifyError } from '../../ui/toasts.js'

const INDEXABLE: ReadonlySet<string> = new Set([
  'bool',
  'int',
  'float',
  'string',
  'email',
  'datetime',
  'decimal',
  'date',
  'time',
  'uuid',
  'enum',
  'link',
  'vector',
])
/** How often the state of an index that is being built is read. */
const BUILDING_POLL_MS = 2000

const STATES = { ready: 'good', building: 'warn', failed: 'bad' } as const

/** A table with its columns and their indexes. */
export function TableCard({
  table,
  stored,
  canWrite,
  onAddColumn,
  onAddConstraint,
  onHistory,
  onRename,
  onRenameColumn,
  onAlterColumn,
  onRemove,
}: {
  table: TableDefinition
  /** The table as it is on the branch; undefined if it is not applied yet. */
  stored: TableDefinition | undefined
  canWrite: boolean
  onAddColumn: () => void
  onAddConstraint: () => void
  onHistory: () => void
  onRename: () => void
  onRenameColumn: (column: string) => void
  onAlterColumn: (column: ColumnDefinition) => void
  onRemove: (operation: SchemaOperation) => Promise<unknown>
}) {
  const place = usePlace()
  const handle = useBranch().table(table.name)
  const queries = useQueryClient()
  const queryKey = [...keys.branch(place), 'indexes', table.name]
  const found = useQuery({
    queryKey,
    queryFn: ({ signal }) => handle.indexes({ signal }),
    enabled: stored !== undefined,
    refetchInterval: ({ state: { data } }) =>
      [...(data?.indexes ?? []), ...(data?.searchIndex ? [data.searchIndex] : [])].some(
        ({ state }) => state === 'building',
      )
        ? BUILDING_POLL_MS
        : false,
  })
  const change = useMutation({
    mutationFn: (work: () => Promise<unknown>) => work(),
    onSettled: () => queries.invalidateQueries({ queryKey }),
    onError: notifyError,
  })
  const { indexes = [], searchIndex } = found.data ?? {}
  const remove = (operation: SchemaOperation) => void onRemove(operation).catch(notifyError)
  return (
    <section className="card" aria-label={`Table ${table.name}`}>
      <header className="card-head">
        <h2 className="grow clip">
          {stored === undefined ? (
            <span className="is-new">{table.name} (new)</span>
          ) : (
            <Link href={href(paths.table(place, table.name))}>{table.name}</Link>
          )}
        </h2>
        {table.history !== undefined && (
          <Tag kind="info" title="Versions of the records are kept for this time">
            history {table.history.keep}
          </Tag>
        )}
        {searchIndex !== undefined && (
          <Tag kind={STATES[searchIndex.state]} title={searchIndex.message ?? ''}>
            search index {searchIndex.state}
          </Tag>
        )}
        {canWrite && (
          <>
            <Button className="small" icon="plus" onClick={onAddColumn}>
              Column
            </Button>
            <Menu
              label={`Table ${table.name}`}
              trigger={<IconButton label={`Actions of ${table.name}`} icon="more" />}
              items={[
                { label: 'Rename', icon: 'edit', onSelect: onRename },
                table.columns.length > 0 && {
                  label: 'Add constraint…',
                  icon: 'lock',
                  onSelect: onAddConstraint,
                },
                { label: 'History of records…', icon: 'clock', onSelect: onHistory },
                stored !== undefined && {
                  label: searchIndex === undefined ? 'Create search index' : 'Remove search index',
                  icon: 'search',
                  onSelect: () =>
                    change.mutate(() =>
                      searchIndex === undefined
                        ? handle.createSearchIndex()
                        : handle.deleteSearchIndex(),
                    ),
                },
                {
                  label: 'Remove table',
                  icon: 'trash',
                  isDangerous: true,
                  startsGroup: true,
                  onSelect: () => remove({ removeTable: { table: table.name } }),
                },
              ]}
            />
          </>
        )}
      </header>
      <ErrorNote error={found.error} />
      <div className="table-wrap">
        <table className="facts columns">
          <thead>
            <tr>
              <th>Column</th>
              <th>Type and options</th>
              <th>Index</th>
              {canWrite && (
                <th>
                  <span className="sr-only">Actions</span>
                </th>
              )}
            </tr>
          </thead>
          <tbody>
            <tr>
              <td>
                <code>id</code>
              </td>
              <td className="muted">
                {table.idType ?? 'string'}
                {table.idBits !== undefined && `, ${table.idBits} bits`}, unique, generated
              </td>
              <td>
                <Tag kind="good">ready</Tag>
              </td>
              {canWrite && <td className="actions" />}
            </tr>
            {table.columns.map((column) => (
              <ColumnRow
                key={column.name}
                column={column}
                isNew={!stored?.columns.some(({ name }) => name === column.name)}
                index={indexes.find((one) => one.column === column.name)}
                canWrite={canWrite}
                onRename={() => onRenameColumn(column.name)}
                onAlter={() => onAlterColumn(column)}
                onRemove={() =>
                  remove({ removeColumn: { table: table.name, column: column.name } })
                }
                onIndex={(wanted) =>
                  change.mutate(() =>
                    wanted ? handle.createIndex(column.name) : handle.deleteIndex(column.name),
                  )
                }
              />
            ))}
          </tbody>
        </table>
      </div>
      {(table.constraints ?? []).length > 0 && (
        <ul className="constraints" aria-label={`Constraints of ${table.name}`}>
          {table.constraints?.map((constraint) => (
            <li key={constraint.name}>
              <Tag>{'unique' in constraint ? 'unique' : 'check'}</Tag>
              <code className={isStored(stored, constraint.name) ? '' : 'is-new'}>
                {constraint.name}
              </code>
              <code className="grow muted">
                {'unique' in constraint ? constraint.unique.join(', ') : constraint.check}
              </code>
              {canWrite && (
                <IconButton
                  label={`Remove constraint ${constraint.name}`}
                  icon="trash"
                  onClick={() =>
                    remove({
                      removeConstraint: { table: table.name, constraint: constraint.name },
                    })
                  }
                />
              )}
            </li>
          ))}
        </ul>
      )}
    </section>
  )
}

function isStored(table: TableDefinition | undefined, constraint: string): boolean {
  return table?.constraints?.some(({ name }) => name === constraint) === true
}

function ColumnRow({
  column,
  isNew,
  index,
  canWrite,
  onRename,
  onAlter,
  onRemove,
  onIndex,
}: {
  column: ColumnDefinition
  isNew: boolean
  index: IndexInfo | undefined
  canWrite: boolean
  onRename: () => void
  onAlter: () => void
  onRemove: () => void
  onIndex: (wanted: boolean) => void
}) {
  return (
    <tr>
      <td>
        <code className={isNew ? 'is-new' : ''}>{column.name}</code>
      </td>
      <td className="muted">
        {describeColumn(column)}
        {column.description !== undefined && <div className="faint">{column.description}</div>}
      </td>
      <td>
        {index !== undefined && (
          <Tag kind={STATES[index.state]} title={index.message ?? ''}>
            {index.state}
          </Tag>
        )}
        {index?.message !== undefined && <div className="faint">{index.message}</div>}
      </td>
      {canWrite && (
        <td className="actions">
          <Menu
            label={`Column ${column.name}`}
            trigger={<IconButton label={`Actions of column ${column.name}`} icon="more" />}
            items={[
              { label: 'Rename', icon: 'edit', onSelect: onRename },
              !isNew && { label: 'Change', icon: 'schema', onSelect: onAlter },
              !isNew &&
                INDEXABLE.has(column.type) &&
                index?.origin !== 'unique' && {
                  label: index === undefined ? 'Create index' : 'Remove index',
                  icon: 'sort',
                  onSelect: () => onIndex(index === undefined),
                },
              {
                label: 'Remove column',
                icon: 'trash',
                isDangerous: true,
                startsGroup: true,
                onSelect: onRemove,
              },
            ]}
          />
        </td>
      )}
    </tr>
  )
}
