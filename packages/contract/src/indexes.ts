import { type Static, Type } from 'typebox'
import { ColumnPathSchema } from './schema-edits.js'

export const IndexSchema = Type.Object(
  {
    column: ColumnPathSchema,
    origin: Type.Enum(['asked', 'link', 'unique'], {
      description:
        'Why there is an index: it was asked for, the column is a link, or its values are unique.',
    }),
    state: Type.Enum(['building', 'ready', 'failed'], {
      description: 'An index is made in the background; until it is ready nothing uses it.',
    }),
    message: Type.Optional(
      Type.String({ description: 'Why it failed, or which rows it does not help to find.' }),
    ),
  },
  {
    title: 'Index',
    examples: [{ column: 'age', origin: 'asked', state: 'ready' }],
  },
)
export type Index = Static<typeof IndexSchema>

export const IndexesSchema = Type.Object(
  { indexes: Type.Array(IndexSchema) },
  {
    title: 'Indexes',
    description: 'The indexes of a table, in the order of its columns.',
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
