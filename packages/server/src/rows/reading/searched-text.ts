import type { ColumnType } from '@offshoot/contract/schema'
import { type Sql, sql } from '../../postgres/sql.js'

/** How a column is converted to text for searching. */
type TextKind = 'text' | 'list' | 'json' | 'number'

/** Columns of other types cannot be searched. */
const KINDS: Readonly<Partial<Record<ColumnType, TextKind>>> = {
  string: 'text',
  text: 'text',
  email: 'text',
  multiple: 'list',
  json: 'json',
  int: 'number',
  float: 'number',
}

export function textKindOf(type: ColumnType): TextKind | undefined {
  return KINDS[type]
}

/** Numbers are not in the search index, because they are only compared as a whole. */
type IndexedKind = Exclude<TextKind, 'number'>

/** Returns how a search index stores a column, or undefined if it does not. */
export function indexedKindOf(type: ColumnType): IndexedKind | undefined {
  const kind = textKindOf(type)
  return kind === 'number' ? undefined : kind
}

/** Returns the expression that a search index indexes. */
export function indexedText(kind: IndexedKind, value: Sql): Sql {
  switch (kind) {
    case 'text':
      return value
    case 'list':
      return sql`offshoot.list_text(${value})`
    case 'json':
      return sql`${value}::text`
  }
}
