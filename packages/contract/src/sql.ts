import { type Static, Type } from 'typebox'
import { AllowDataLossSchema } from './data-loss.js'

const closed = { additionalProperties: false } as const

const statement = {
  statement: Type.String({
    minLength: 1,
    description:
      'One SELECT, INSERT, UPDATE or DELETE statement in the SQL of PostgreSQL, or statements that change the schema, such as CREATE TABLE.',
  }),
  params: Type.Optional(
    Type.Union([Type.Array(Type.Unknown()), Type.Null()], {
      description: 'Values of the parameters `$1`, `$2` and so on.',
    }),
  ),
}

const options = {
  consistency: Type.Optional(
    Type.Enum(['strong', 'eventual'], {
      description: 'Accepted and ignored: reads are always strongly consistent.',
    }),
  ),
  responseType: Type.Optional(
    Type.Enum(['json', 'array'], {
      default: 'json',
      description: '`json` returns rows as objects in `records`, `array` as arrays in `rows`.',
    }),
  ),
  allowDataLoss: Type.Optional(AllowDataLossSchema),
  rowsMax: Type.Optional(
    Type.Integer({
      minimum: 1,
      description:
        'Returns at most this many rows of each statement, and `warning` if there are more. Without it, the result is whole, and one that is too large is refused.',
    }),
  ),
}

const SqlStatementSchema = Type.Object(statement, { ...closed, title: 'SqlStatement' })
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
        type: Type.String({ description: 'Name of the PostgreSQL type, such as `int8`.' }),
      }),
    ),
    total: Type.Integer({ description: 'Number of rows returned or of records written.' }),
    warning: Type.Optional(
      Type.String({ description: 'The statement has more rows than `rowsMax`.' }),
    ),
    notices: Type.Optional(
      Type.Array(Type.String(), {
        description: 'In what the statement differs from the same one in PostgreSQL.',
      }),
    ),
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
