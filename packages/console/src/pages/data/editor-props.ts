import type { ColumnDefinition } from '@offshoot/client'
import type { Move } from '../../ui/grid/types.js'

export interface EditorProps {
  readonly column: ColumnDefinition
  readonly value: unknown
  /** The key that started the edit. */
  readonly typed: string | undefined
  readonly onChange: (value: unknown) => void
  readonly onEnd: (move: Move) => void
}
