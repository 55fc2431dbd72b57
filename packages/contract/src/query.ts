import { Type } from 'typebox'
import { RecordSchema } from './records.js'

const closed = { additionalProperties: false } as const

/** Null means no cursor, so that a loop can send the same request for its first page. */
const CursorSchema = Type.Union([Type.String({ minLength: 1 }), Type.Null()])

export const QueryRequestSchema = Type.Object(
  {
    filter: Type.Optional(Type.Unknown()),
    sort: Type.Optional(Type.Unknown()),
    columns: Type.Optional(Type.Array(Type.Unknown())),
    page: Type.Optional(
      Type.Object(
        {
          size: Type.Optional(Type.Integer({ minimum: 1 })),
          offset: Type.Optional(Type.Integer({ minimum: 0 })),
          after: Type.Optional(CursorSchema),
          before: Type.Optional(CursorSchema),
          start: Type.Optional(CursorSchema),
          end: Type.Optional(CursorSchema),
        },
        closed,
      ),
    ),
    consistency: Type.Optional(Type.Enum(['strong', 'eventual'])),
  },
  {
    ...closed,
    title: 'QueryRequest',
    examples: [
      {
        filter: { age: { $ge: 18 }, 'team.name': 'core' },
        sort: [{ name: 'asc' }],
        columns: ['name', 'team.*'],
        page: { size: 20 },
      },
    ],
  },
)

export const QueryResultSchema = Type.Object(
  {
    records: Type.Array(RecordSchema),
    meta: Type.Object({
      page: Type.Object({
        cursor: Type.String(),
        more: Type.Boolean(),
        size: Type.Integer(),
      }),
    }),
  },
  {
    title: 'QueryResult',
    examples: [
      {
        records: [{ id: 'ada' }],
        meta: { page: { cursor: 'q1YqVrJS0gEA', more: false, size: 20 } },
      },
    ],
  },
)
