import { type Static, Type } from 'typebox'

const closed = { additionalProperties: false } as const

export const SummarizeRequestSchema = Type.Object(
  {
    columns: Type.Optional(Type.Array(Type.String({ minLength: 1 }))),
    summaries: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
    filter: Type.Optional(Type.Unknown()),
    summariesFilter: Type.Optional(Type.Unknown()),
    sort: Type.Optional(Type.Unknown()),
    consistency: Type.Optional(Type.Enum(['strong', 'eventual'])),
    page: Type.Optional(Type.Object({ size: Type.Optional(Type.Integer({ minimum: 1 })) }, closed)),
  },
  {
    ...closed,
    title: 'SummarizeRequest',
    examples: [
      {
        columns: ['team.name'],
        summaries: { people: { count: '*' }, oldest: { max: 'age' } },
        sort: [{ people: 'desc' }],
      },
    ],
  },
)
export type SummarizeRequest = Static<typeof SummarizeRequestSchema>

export const SummarizeResultSchema = Type.Object(
  { summaries: Type.Array(Type.Record(Type.String(), Type.Unknown())) },
  {
    title: 'SummarizeResult',
    examples: [{ summaries: [{ team: { name: 'core' }, people: 2, oldest: 41 }] }],
  },
)

export const AggregateRequestSchema = Type.Object(
  {
    filter: Type.Optional(Type.Unknown()),
    aggs: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
  },
  {
    ...closed,
    title: 'AggregateRequest',
    examples: [
      {
        filter: { active: true },
        aggs: {
          total: { count: '*' },
          byName: {
            topValues: { column: 'name', size: 5, aggs: { oldest: { max: { column: 'age' } } } },
          },
        },
      },
    ],
  },
)
export type AggregateRequest = Static<typeof AggregateRequestSchema>

export const AggregateResultSchema = Type.Object(
  { aggs: Type.Record(Type.String(), Type.Unknown()) },
  {
    title: 'AggregateResult',
    examples: [
      { aggs: { total: 2, byName: { values: [{ $key: 'Ada', $count: 2, oldest: 36 }] } } },
    ],
  },
)
