import type { ColumnDefinition } from '@offshoot/client'
import { IconButton } from '../../ui/button.js'
import { Menu } from '../../ui/menu.js'
import { describeColumn } from '../../ui/schema-words.js'
import type { SortTerm, View } from './view.js'

/** Types that have an order. */
const SORTABLE: ReadonlySet<string> = new Set([
  'bool',
  'int',
  'float',
  'string',
  'text',
  'email',
  'datetime',
  'decimal',
  'date',
  'time',
  'uuid',
  'enum',
  'link',
])

/** The header of a column. A click sorts by it; with Shift, in addition to the other columns. */
export function ColumnHeader({
  column,
  sort,
  onSort,
  onChange,
  onHide,
  onMove,
}: {
  column: ColumnDefinition
  sort: readonly SortTerm[]
  onSort: (column: string, isAdded: boolean) => void
  onChange: (view: Partial<View>) => void
  onHide: () => void
  onMove: (by: -1 | 1) => void
}) {
  const position = sort.findIndex((term) => term.column === column.name)
  const term = sort[position]
  const isSortable = SORTABLE.has(column.type)
  const order = (direction: 'asc' | 'desc') => ({
    label: direction === 'asc' ? 'Sort ascending' : 'Sort descending',
    icon: 'sort' as const,
    onSelect: () => onChange({ sort: [{ column: column.name, direction }] }),
  })
  return (
    <div className="column-header">
      <button
        type="button"
        className="column-name"
        title={`${column.name}: ${describeColumn(column)}`}
        disabled={!isSortable}
        onClick={(event) => onSort(column.name, event.shiftKey)}
      >
        <span className="clip">{column.name}</span>
        {term !== undefined && (
          <span className="column-sort">
            {term.direction === 'asc' ? '↑' : '↓'}
            {sort.length > 1 ? position + 1 : ''}
          </span>
        )}
        <span className="faint">{column.type}</span>
      </button>
      <Menu
        label={`Column ${column.name}`}
        trigger={<IconButton label={`Column ${column.name}`} icon="chevron" />}
        items={[
          isSortable && order('asc'),
          isSortable && order('desc'),
          isSortable && {
            label: term === undefined ? 'Then sort by this' : 'Do not sort by this',
            icon: 'sort',
            onSelect: () =>
              onChange({
                sort:
                  term === undefined
                    ? [...sort, { column: column.name, direction: 'asc' }]
                    : sort.filter((one) => one !== term),
              }),
          },
          { label: 'Move left', icon: 'left', startsGroup: true, onSelect: () => onMove(-1) },
          { label: 'Move right', icon: 'right', onSelect: () => onMove(1) },
          { label: 'Hide', icon: 'close', onSelect: onHide },
        ]}
      />
    </div>
  )
}
