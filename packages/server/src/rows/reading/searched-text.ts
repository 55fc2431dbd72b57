import type { ColumnType } from '@offshoot/contract/schema'
import { type Sql, sql } from '../../postgres/sql.js'

/** How a column is converted to text for searching. */
export class SearchedText {
  /** Returns undefined for columns that cannot be searched. */
  static of(type: ColumnType): SearchedText | undefined {
    return BY_TYPE[type]
  }

  constructor(
    readonly kind: 'text' | 'list' | 'json' | 'number',
    /**
     * Returns the expression that a search index indexes. undefined: numbers are not in the index, because they are only
     * compared as a whole.
     */
    readonly indexed?: (value: Sql) => Sql,
  ) {}
}

const TEXT = new SearchedText('text', (value) => value)
const NUMBER = new SearchedText('number')

const BY_TYPE: Readonly<Partial<Record<ColumnType, SearchedText>>> = {
  string: TEXT,
  text: TEXT,
  email: TEXT,
  multiple: new SearchedText('list', (value) => sql`offshoot.list_text(${value})`),
  json: new SearchedText('json', (value) => sql`${value}::text`),
  int: NUMBER,
  float: NUMBER,
}
