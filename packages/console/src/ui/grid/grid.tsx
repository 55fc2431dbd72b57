import { defaultRangeExtractor, type Range, useVirtualizer } from '@tanstack/react-virtual'
import {
  type ClipboardEvent,
  type KeyboardEvent,
  memo,
  type MouseEvent as ReactMouseEvent,
  type ReactNode,
  useCallback,
  useEffect,
  useId,
  useLayoutEffect,
  useRef,
  useState,
} from 'react'
import './grid.css'
import { toTabSeparated } from './tab-separated.js'
import {
  type CellPosition,
  COLUMN_WIDTH_MAX,
  COLUMN_WIDTH_MIN,
  type GridColumn,
  type GridProps,
  HEAD_HEIGHT,
  type Move,
  ROW_HEAD_WIDTH,
  ROW_HEIGHT,
  type RowState,
  rangeOf,
} from './types.js'

interface Editing extends CellPosition {
  readonly typed: string | undefined
}

const ORIGIN: CellPosition = { row: 0, column: 0 }

/**
 * A spreadsheet-like grid of rows and columns, both virtual. It knows nothing about where rows come from.
 * The keyboard stays on the grid itself; `aria-activedescendant` names the active cell.
 */
export function Grid(props: GridProps) {
  const { columns, rowCount, label, onView, onSelect } = props
  const scroller = useRef<HTMLDivElement>(null)
  const [active, setActive] = useState<CellPosition>(ORIGIN)
  const [anchor, setAnchor] = useState<CellPosition>(ORIGIN)
  const [editing, setEditing] = useState<Editing | null>(null)
  const id = useId()
  const keep = (index: number | undefined) => (range: Range) => {
    const shown = defaultRangeExtractor(range)
    // An editor must not disappear when its cell is scrolled away.
    return index === undefined || shown.includes(index)
      ? shown
      : [...shown, index].sort((left, right) => left - right)
  }
  const rows = useVirtualizer({
    count: rowCount,
    getScrollElement: () => scroller.current,
    estimateSize: () => ROW_HEIGHT,
    overscan: 10,
    scrollMargin: HEAD_HEIGHT,
    scrollPaddingStart: HEAD_HEIGHT,
    initialRect: { width: 1000, height: 600 },
    rangeExtractor: keep(editing?.row),
  })
  const fields = useVirtualizer({
    horizontal: true,
    count: columns.length,
    getScrollElement: () => scroller.current,
    estimateSize: (index) => columns[index]?.width ?? COLUMN_WIDTH_MIN,
    overscan: 3,
    paddingStart: ROW_HEAD_WIDTH,
    scrollPaddingStart: ROW_HEAD_WIDTH,
    initialRect: { width: 1000, height: 600 },
    rangeExtractor: keep(editing?.column),
  })
  // biome-ignore lint/correctness/useExhaustiveDependencies: other columns have other widths.
  useLayoutEffect(() => fields.measure(), [columns])
  const shownRows = rows.getVirtualItems()
  const shownColumns = fields.getVirtualItems()
  const first = shownRows[0]?.index ?? 0
  const last = shownRows.at(-1)?.index ?? 0
  useEffect(() => onView?.(first, last), [onView, first, last])
  const range = rangeOf(anchor, active)
  const { top, bottom, left, right } = range
  useEffect(() => onSelect?.({ top, bottom, left, right }), [onSelect, top, bottom, left, right])

  const clamp = ({ row, column }: CellPosition): CellPosition => ({
    row: Math.max(0, Math.min(rowCount - 1, row)),
    column: Math.max(0, Math.min(columns.length - 1, column)),
  })
  const go = (to: CellPosition, extend = false) => {
    const next = clamp(to)
    setActive(next)
    if (!extend) setAnchor(next)
    rows.scrollToIndex(next.row)
    fields.scrollToIndex(next.column)
  }
  const focus = () => scroller.current?.focus({ preventScroll: true })
  const startEdit = (cell: CellPosition, typed?: string) => {
    if (props.editor === undefined || rowCount === 0) return
    if (typed === undefined && props.onToggle?.(cell)) return
    setEditing({ ...clamp(cell), typed })
  }
  const endEdit = useRef((_move: Move) => {})
  endEdit.current = (move) => {
    setEditing(null)
    focus()
    if (move === 'down') go({ ...active, row: active.row + 1 })
    else if (move === 'up') go({ ...active, row: active.row - 1 })
    else if (move === 'right') go({ ...active, column: active.column + 1 })
    else if (move === 'left') go({ ...active, column: active.column - 1 })
  }

  const onKeyDown = (event: KeyboardEvent) => {
    if (editing !== null || event.target !== scroller.current) return
    const { row, column } = active
    const isControl = event.ctrlKey || event.metaKey
    const page = Math.max(1, Math.floor((scroller.current?.clientHeight ?? 0) / ROW_HEIGHT) - 2)
    const targets: Record<string, CellPosition> = {
      ArrowDown: { row: row + 1, column },
      ArrowUp: { row: row - 1, column },
      ArrowRight: { row, column: isControl ? columns.length - 1 : column + 1 },
      ArrowLeft: { row, column: isControl ? 0 : column - 1 },
      PageDown: { row: row + page, column },
      PageUp: { row: row - page, column },
      Home: { row: isControl ? 0 : row, column: 0 },
      End: { row: isControl ? rowCount - 1 : row, column: columns.length - 1 },
    }
    const target = targets[event.key]
    if (target !== undefined) go(target, event.shiftKey)
    else if (event.key === 'Enter' || event.key === 'F2') startEdit(active)
    else if (event.key === 'Delete' || event.key === 'Backspace') {
      if (event.shiftKey) return
      props.onClear?.(range)
    } else if (event.key === ' ' && event.shiftKey) {
      setAnchor({ row, column: 0 })
      setActive({ row, column: columns.length - 1 })
    } else if (event.key === 'Escape') setAnchor(active)
    else if (event.key.length === 1 && !isControl && !event.altKey) startEdit(active, event.key)
    else return
    event.preventDefault()
  }

  const copy = (event: ClipboardEvent, cut = false) => {
    if (editing !== null || rowCount === 0) return
    event.preventDefault()
    const lines: string[][] = []
    for (let row = top; row <= bottom; row++) {
      const line: string[] = []
      for (let column = left; column <= right; column++) line.push(props.cellText(row, column))
      lines.push(line)
    }
    event.clipboardData.setData('text/plain', toTabSeparated(lines))
    if (cut) props.onClear?.(range)
  }

  const cellOf = (event: ReactMouseEvent | MouseEvent): CellPosition | undefined => {
    const element = (event.target as HTMLElement).closest<HTMLElement>('[data-cell]')
    if (!element || !scroller.current?.contains(element)) return undefined
    const [row, column] = (element.dataset.cell ?? '').split(':').map(Number)
    return row === undefined || column === undefined ? undefined : { row, column }
  }
  const onMouseDown = (event: ReactMouseEvent) => {
    if (event.button !== 0) return
    const cell = cellOf(event)
    if (cell === undefined || isSame(cell, editing)) return
    // The grid keeps the focus, so that keys go on working.
    event.preventDefault()
    focus()
    if (cell.column < 0) {
      const isSpan = event.shiftKey
      setAnchor({ row: isSpan ? anchor.row : cell.row, column: 0 })
      setActive({ row: cell.row, column: columns.length - 1 })
      return
    }
    setActive(cell)
    if (!event.shiftKey) setAnchor(cell)
    const drag = (moved: MouseEvent) => {
      const over = cellOf(moved)
      if (over !== undefined && over.column >= 0) setActive(over)
    }
    const stop = () => {
      window.removeEventListener('mousemove', drag)
      window.removeEventListener('mouseup', stop)
    }
    window.addEventListener('mousemove', drag)
    window.addEventListener('mouseup', stop)
  }

  const width = fields.getTotalSize()
  const isActiveShown =
    shownRows.some(({ index }) => index === active.row) &&
    shownColumns.some(({ index }) => index === active.column)
  const onEnd = useCallback((move: Move) => endEdit.current(move), [])
  return (
    <div
      ref={scroller}
      className="grid"
      role="grid"
      aria-label={label}
      aria-rowcount={props.isOpenEnded === true ? -1 : rowCount + 1}
      aria-colcount={columns.length + 1}
      aria-multiselectable="true"
      aria-readonly={props.editor === undefined}
      aria-activedescendant={
        isActiveShown ? `${id}-${active.row}-${columns[active.column]?.id}` : undefined
      }
      tabIndex={0}
      onKeyDown={onKeyDown}
      onCopy={copy}
      onCut={(event) => copy(event, true)}
      onPaste={(event) => {
        if (editing !== null || props.onPaste === undefined) return
        event.preventDefault()
        props.onPaste(range, event.clipboardData.getData('text/plain'))
      }}
      onMouseDown={onMouseDown}
      onDoubleClick={(event) => {
        const cell = cellOf(event)
        if (cell !== undefined && cell.column >= 0) startEdit(cell)
      }}
    >
      <div role="rowgroup" className="grid-head" style={{ width }}>
        <div role="row" aria-rowindex={1} className="grid-row" style={{ height: HEAD_HEIGHT }}>
          <div
            role="columnheader"
            aria-colindex={1}
            className="grid-corner"
            style={{ width: ROW_HEAD_WIDTH }}
          >
            <span className="sr-only">Row</span>
          </div>
          {shownColumns.map(({ index, start, size }) => {
            const column = columns[index]
            if (column === undefined) return null
            return (
              <div
                key={column.id}
                role="columnheader"
                aria-colindex={index + 2}
                aria-sort={props.sortOf?.(index)}
                className="grid-column"
                style={{ left: start, width: size }}
              >
                {props.header?.(index) ?? <HeaderText column={column} />}
                {props.onResize && (
                  <Resizer column={column} onResize={(to) => props.onResize?.(column.id, to)} />
                )}
              </div>
            )
          })}
        </div>
      </div>
      {rowCount > 0 && (
        <div
          role="rowgroup"
          className="grid-body"
          style={{ width, height: rows.getTotalSize() - HEAD_HEIGHT }}
        >
          {shownRows.map(({ index, start }) => {
            const isEdited = editing?.row === index
            return (
              <GridRow
                key={props.rowKey(index)}
                id={id}
                row={index}
                top={start - HEAD_HEIGHT}
                width={width}
                columns={columns}
                shown={shownColumns}
                version={props.version}
                state={props.rowState?.(index)}
                label={props.rowLabel?.(index) ?? String(index + 1)}
                cell={props.cell}
                activeColumn={active.row === index ? active.column : -1}
                from={index >= top && index <= bottom ? left : -1}
                to={index >= top && index <= bottom ? right : -2}
                editor={isEdited ? props.editor?.({ ...editing, onEnd }) : null}
                editedColumn={isEdited ? editing.column : -1}
              />
            )
          })}
        </div>
      )}
    </div>
  )
}

interface GridRowProps {
  readonly id: string
  readonly row: number
  readonly top: number
  readonly width: number
  readonly columns: readonly GridColumn[]
  readonly shown: readonly { index: number; start: number; size: number }[]
  readonly version: unknown
  readonly state: RowState
  readonly label: string
  readonly cell: GridProps['cell']
  readonly activeColumn: number
  /** The selected columns; none if `to` is below `from`. */
  readonly from: number
  readonly to: number
  readonly editor: ReactNode
  readonly editedColumn: number
}

const MARKS: Partial<Record<NonNullable<RowState>, { sign: string; text: string }>> = {
  new: { sign: '+', text: 'new' },
  changed: { sign: '•', text: 'changed' },
  deleted: { sign: '−', text: 'will be deleted' },
  conflict: { sign: '!', text: 'changed by someone else' },
}

const GridRow = memo(function GridRow(props: GridRowProps) {
  const { id, row, columns, shown, state, from, to } = props
  const mark = state === undefined ? undefined : MARKS[state]
  return (
    <div
      role="row"
      aria-rowindex={row + 2}
      className={`grid-row ${state ?? ''}`}
      aria-busy={state === 'loading'}
      style={{
        transform: `translateY(${props.top}px)`,
        width: props.width,
        height: ROW_HEIGHT,
        // An open editor covers the rows below it.
        ...(props.editedColumn >= 0 ? { zIndex: 2 } : {}),
      }}
    >
      <div
        role="rowheader"
        aria-colindex={1}
        className="grid-row-head"
        data-cell={`${row}:-1`}
        title={mark?.text}
        style={{ width: ROW_HEAD_WIDTH }}
      >
        {mark === undefined ? (
          props.label
        ) : (
          <>
            <b aria-hidden="true">{mark.sign}</b>
            <span className="sr-only">
              {props.label} {mark.text}
            </span>
          </>
        )}
      </div>
      {shown.map(({ index, start, size }) => {
        const column = columns[index]
        if (column === undefined) return null
        const isEdited = props.editedColumn === index
        const view: ReturnType<GridProps['cell']> =
          state === 'loading' ? { content: <i className="grid-bar" /> } : props.cell(row, index)
        const isSelected = index >= from && index <= to
        return (
          <div
            key={column.id}
            id={`${id}-${row}-${column.id}`}
            role="gridcell"
            aria-colindex={index + 2}
            aria-selected={isSelected}
            data-cell={`${row}:${index}`}
            title={view.title}
            className={[
              'grid-cell',
              column.isNumeric === true ? 'number' : '',
              isSelected ? 'selected' : '',
              props.activeColumn === index ? 'active' : '',
              isEdited ? 'edited' : '',
              view.className ?? '',
            ].join(' ')}
            style={{ left: start, width: size }}
          >
            {isEdited ? props.editor : view.content}
          </div>
        )
      })}
    </div>
  )
})

function HeaderText({ column }: { column: GridColumn }) {
  return (
    <span className="grid-header-text">
      <span className="clip">{column.label}</span>
      {column.hint !== undefined && <span className="faint">{column.hint}</span>}
    </span>
  )
}

/** The edge of a header. Dragging it changes the width; so do the arrow keys. */
function Resizer({ column, onResize }: { column: GridColumn; onResize: (width: number) => void }) {
  const clamp = (width: number) =>
    Math.round(Math.max(COLUMN_WIDTH_MIN, Math.min(COLUMN_WIDTH_MAX, width)))
  return (
    <hr
      className="grid-resizer"
      aria-label={`Width of ${column.label}`}
      aria-orientation="vertical"
      aria-valuenow={column.width}
      aria-valuemin={COLUMN_WIDTH_MIN}
      aria-valuemax={COLUMN_WIDTH_MAX}
      tabIndex={0}
      onKeyDown={(event) => {
        const step = event.key === 'ArrowRight' ? 16 : event.key === 'ArrowLeft' ? -16 : 0
        if (step === 0) return
        event.preventDefault()
        onResize(clamp(column.width + step))
      }}
      onPointerDown={(event) => {
        event.preventDefault()
        const from = event.clientX
        const drag = (moved: PointerEvent) => onResize(clamp(column.width + moved.clientX - from))
        const stop = () => {
          window.removeEventListener('pointermove', drag)
          window.removeEventListener('pointerup', stop)
        }
        window.addEventListener('pointermove', drag)
        window.addEventListener('pointerup', stop)
      }}
    />
  )
}

function isSame(left: CellPosition, right: CellPosition | null): boolean {
  return right !== null && left.row === right.row && left.column === right.column
}
