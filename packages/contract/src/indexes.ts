import { type Static, Type } from 'typebox'
import { ColumnPathSchema } from './schema-edits.js'

const state = Type.Enum(['building', 'ready', 'failed'], {
  description: 'An index is built in the background. Queries use it once it is `ready`.',
})
const message = Type.Optional(
  Type.String({ description: 'Why the index failed, or which rows it does not cover.' }),
)

export const IndexSchema = Type.Object(
  {
    column: ColumnPathSchema,
    origin: Type.Enum(['asked', 'link', 'unique'], {
      description:
        'Why the index exists: it was requested (`asked`), the column is a link, or the column is ' +
        'unique.',
    }),
    state,
    message,
  },
  {
    title: 'Index',
    examples: [{ column: 'age', origin: 'asked', state: 'ready' }],
  },
)
export type Index = Static<typeof IndexSchema>

export const SearchIndexSchema = Type.Object(
  {
    columns: Type.Array(ColumnPathSchema, {
      description:
        'The columns that the index covers: all columns of the table that contain words.',
    }),
    state,
    message,
  },
  {
    title: 'SearchIndex',
    examples: [{ columns: ['title', 'plot'], state: 'ready' }],
  },
)
export type SearchIndex = Static<typeof SearchIndexSchema>

export const IndexesSchema = Type.Object(
  {
    indexes: Type.Array(IndexSchema),
    searchIndex: Type.Optional(SearchIndexSchema),
  },
  {
    title: 'Indexes',
    description:
      'The indexes of a table, in the order of its columns, and its search index if it has one.',
    examples: [
      {
        indexes: [
          { column: 'email', origin: 'unique', state: 'ready' },
          { column: 'age', origin: 'asked', state: 'building' },
        ],
      },
    ],
  },
)
export type Indexes = Static<typeof IndexesSchema>
