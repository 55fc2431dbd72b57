import { type Static, Type } from 'typebox'

const closed = { additionalProperties: false } as const

const statement = {
  statement: Type.String({
    minLength: 1,
    description: 'One SELECT, INSERT, UPDATE or DELETE of PostgreSQL.',
  }),
  params: Type.Optional(
    Type.Union([Type.Array(Type.Unknown()), Type.Null()], {
      description: 'What `$1`, `$2` and so on stand for.',
    }),
  ),
}

const options = {
  consistency: Type.Optional(
    Type.Enum(['strong', 'eventual'], {
      description: 'Taken and ignored: reads are always strong.',
    }),
  ),
  responseType: Type.Optional(
    Type.Enum(['json', 'array'], {
      default: 'json',
      description: 'Rows as objects, `records`, or as arrays, `rows`.',
    }),
  ),
}

export const SqlStatementSchema = Type.Object(statement, { ...closed, title: 'SqlStatement' })
export type SqlStatement = Static<typeof SqlStatementSchema>

export const SqlRequestSchema = Type.Object(
  { ...statement, ...options },
  {
    ...closed,
    title: 'SqlRequest',
    examples: [{ statement: 'select upper($1::text) as name', params: ['ada'] }],
  },
)
export type SqlRequest = Static<typeof SqlRequestSchema>

export const SqlBatchRequestSchema = Type.Object(
  { statements: Type.Array(SqlStatementSchema), ...options },
  {
    ...closed,
    title: 'SqlBatchRequest',
    examples: [
      {
        statements: [
          { statement: 'select 1 as one' },
          { statement: 'select $1::int + 1 as two', params: [1] },
        ],
      },
    ],
  },
)

export const SqlResultSchema = Type.Object(
  {
    records: Type.Optional(Type.Array(Type.Record(Type.String(), Type.Unknown()))),
    rows: Type.Optional(Type.Array(Type.Array(Type.Unknown()))),
    columns: Type.Array(
      Type.Object({
        name: Type.String(),
        type: Type.String({ description: 'The name PostgreSQL has for the type, such as `int8`.' }),
      }),
    ),
    total: Type.Integer({ description: 'Rows in the answer, or records that were written.' }),
    warning: Type.Optional(Type.String()),
  },
  {
    title: 'SqlResult',
    examples: [{ records: [{ name: 'ADA' }], columns: [{ name: 'name', type: 'text' }], total: 1 }],
  },
)

export const SqlBatchResultSchema = Type.Object(
  { results: Type.Array(SqlResultSchema) },
  {
    title: 'SqlBatchResult',
    examples: [
      { results: [{ records: [{ one: 1 }], columns: [{ name: 'one', type: 'int4' }], total: 1 }] },
    ],
  },
)
