import type { ColumnType } from '@offshoot/contract/schema'
import { type Sql, sql } from '../../postgres/sql.js'

/** How the text of a column is had that a search looks in. */
export type TextKind = 'text' | 'list' | 'json' | 'number'

/** Columns of other types have no words. */
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

/** Numbers are only ever looked for as they are. */
export type IndexedKind = Exclude<TextKind, 'number'>

/** How a search index has the column; undefined where it has not. */
export function indexedKindOf(type: ColumnType): IndexedKind | undefined {
  const kind = textKindOf(type)
  return kind === 'number' ? undefined : kind
}

/** The text of a column in the form that a search index has it. */
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
