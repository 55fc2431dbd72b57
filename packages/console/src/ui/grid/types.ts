import type { ReactNode } from 'react'

export interface GridColumn {
  readonly id: string
  readonly label: string
  readonly width: number
  readonly isNumeric?: boolean
  /** A short remark in the header, such as the type. */
  readonly hint?: string
}

export interface CellPosition {
  readonly row: number
  readonly column: number
}

/** A rectangle of cells; all ends are inclusive. */
export interface CellRange {
  readonly top: number
  readonly bottom: number
  readonly left: number
  readonly right: number
}

export type RowState = 'new' | 'changed' | 'deleted' | 'conflict' | 'loading' | undefined

export interface CellView {
  readonly content: ReactNode
  readonly className?: string
  readonly title?: string
}

/** Where the cursor goes after an edit. */
export type Move = 'stay' | 'down' | 'up' | 'right' | 'left'

interface EditorRequest extends CellPosition {
  /** The key that started the edit; undefined if the present value is to be edited. */
  readonly typed: string | undefined
  readonly onEnd: (move: Move) => void
}

export interface GridProps {
  readonly label: string
  readonly columns: readonly GridColumn[]
  readonly rowCount: number
  /** More rows may follow those that are known. */
  readonly isOpenEnded?: boolean
  /** Changes whenever rows have changed. */
  readonly version: unknown
  readonly rowKey: (row: number) => string
  readonly rowState?: (row: number) => RowState
  readonly rowLabel?: (row: number) => string
  readonly cell: (row: number, column: number) => CellView
  /** The value of a cell as text for the clipboard. */
  readonly cellText: (row: number, column: number) => string
  readonly header?: (column: number) => ReactNode
  readonly sortOf?: (column: number) => 'ascending' | 'descending' | undefined
  readonly onView?: (first: number, last: number) => void
  readonly onSelect?: (range: CellRange) => void
  readonly onResize?: (column: string, width: number) => void
  /** Renders the editor of a cell; without it the grid is read-only. */
  readonly editor?: (request: EditorRequest) => ReactNode
  /** Changes a cell without an editor, as for yes and no. Returns whether it did. */
  readonly onToggle?: (cell: CellPosition) => boolean
  readonly onPaste?: (cell: CellRange, text: string) => void
  readonly onClear?: (range: CellRange) => void
}

export const ROW_HEIGHT = 30
export const HEAD_HEIGHT = 36
export const ROW_HEAD_WIDTH = 52
export const COLUMN_WIDTH_MIN = 60
export const COLUMN_WIDTH_MAX = 1200
/** Browsers cannot lay out elements of more than about 33 million pixels. */
export const GRID_ROWS_MAX = 1_000_000

/** Returns the rectangle between two cells. */
export function rangeOf(from: CellPosition, to: CellPosition): CellRange {
  return {
    top: Math.min(from.row, to.row),
    bottom: Math.max(from.row, to.row),
    left: Math.min(from.column, to.column),
    right: Math.max(from.column, to.column),
  }
}
