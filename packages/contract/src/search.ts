import { type Static, Type } from 'typebox'
import { DatabaseBranchNameSchema, RecordIdSchema, TableNameSchema, TEXT_PATTERN } from './names.js'

const closed = { additionalProperties: false } as const

/** Limits of searches. Where hosted Xata Lite had a limit, the value is the same. */
export const SEARCH_LIMITS = {
  queryLengthMax: 2048,
  fuzzinessMax: 2,
  weightMax: 10,
  boostersMax: 50,
  targetsMax: 1000,
  /** Tables that one request searches. */
  tablesMax: 100,
  /** Columns that one request searches, in all its tables together. */
  columnsMax: 1000,
  pageSize: 25,
  pageSizeMax: 200,
  offsetMax: 800,
  vectorSize: 10,
  vectorSizeMax: 1000,
} as const

const ColumnSchema = Type.String({ minLength: 1 })
const FilterSchema = Type.Optional(
  Type.Unknown({ description: 'Only records that match this filter are searched. See queries.' }),
)
const ConditionSchema = Type.Optional(
  Type.Unknown({ description: 'The booster applies to records that match this filter.' }),
)
const ModifierSchema = Type.Optional(
  Type.Enum(['none', 'log', 'log1p', 'ln', 'ln1p', 'square', 'sqrt', 'reciprocal']),
)

/** An object with exactly one key, not a union, so that errors can name the invalid field. */
const BoosterSchema = Type.Object(
  {
    valueBooster: Type.Optional(
      Type.Object(
        {
          column: ColumnSchema,
          value: Type.Unsafe<string | number | boolean>({
            type: ['string', 'number', 'boolean'],
          }),
          factor: Type.Number(),
          modifier: ModifierSchema,
          ifMatchesFilter: ConditionSchema,
        },
        { ...closed, description: 'Adds `factor` to the score if the column has the value.' },
      ),
    ),
    numericBooster: Type.Optional(
      Type.Object(
        {
          column: ColumnSchema,
          factor: Type.Number(),
          modifier: ModifierSchema,
          ifMatchesFilter: ConditionSchema,
        },
        { ...closed, description: 'Adds `modifier(factor * value)` to the score.' },
      ),
    ),
    dateBooster: Type.Optional(
      Type.Object(
        {
          column: ColumnSchema,
          origin: Type.Optional(Type.String({ description: 'A timestamp. Defaults to `now`.' })),
          scale: Type.String({ examples: ['30d'] }),
          decay: Type.Number(),
          factor: Type.Optional(Type.Number({ minimum: 0 })),
          ifMatchesFilter: ConditionSchema,
        },
        {
          ...closed,
          description:
            'Adds `factor` to the score at `origin`. The amount is multiplied by `decay` for each ' +
            '`scale` of distance from it.',
        },
      ),
    ),
  },
  { ...closed, minProperties: 1, maxProperties: 1, title: 'Booster' },
)
const BoostersSchema = Type.Optional(
  Type.Array(BoosterSchema, { maxItems: SEARCH_LIMITS.boostersMax }),
)

/**
 * A column name or an object. The schema describes both in one, and the search validates the value
 * itself, so that errors can name the invalid field.
 */
const TargetSchema = Type.Optional(
  Type.Array(
    Type.Unsafe<string | { readonly column: string; readonly weight?: number }>({
      type: ['string', 'object'],
      minLength: 1,
      properties: {
        column: { type: 'string', minLength: 1 },
        weight: { type: 'number', minimum: 1, maximum: SEARCH_LIMITS.weightMax },
      },
      required: ['column'],
      additionalProperties: false,
    }),
    {
      maxItems: SEARCH_LIMITS.targetsMax,
      description:
        'Columns to search, with the weight of a match in each of them. `*` stands for all columns.',
    },
  ),
)

const SearchTableSchema = Type.Object(
  {
    table: Type.String({ minLength: 1 }),
    filter: FilterSchema,
    target: TargetSchema,
    boosters: BoostersSchema,
  },
  closed,
)

const QuerySchema = Type.String({
  minLength: 1,
  maxLength: SEARCH_LIMITS.queryLengthMax,
  pattern: TEXT_PATTERN,
  description: 'Words to search for. A record matches if it contains one of them.',
})

const options = {
  fuzziness: Type.Optional(
    Type.Integer({
      minimum: 0,
      maximum: SEARCH_LIMITS.fuzzinessMax,
      description: 'Number of typing errors per word that are tolerated. Defaults to 1.',
    }),
  ),
  prefix: Type.Optional(
    Type.Enum(['phrase', 'disabled'], {
      description: '`phrase`: the last word of the query also matches words that begin with it.',
    }),
  ),
  highlight: Type.Optional(
    Type.Object(
      { enabled: Type.Optional(Type.Boolean()), encodeHTML: Type.Optional(Type.Boolean()) },
      {
        ...closed,
        description:
          '`enabled`: return the parts of the text that matched. `encodeHTML`: escape them for ' +
          'HTML. Both default to true.',
      },
    ),
  ),
  page: Type.Optional(
    Type.Object(
      {
        size: Type.Optional(Type.Integer({ minimum: 1, maximum: SEARCH_LIMITS.pageSizeMax })),
        offset: Type.Optional(Type.Integer({ minimum: 0, maximum: SEARCH_LIMITS.offsetMax })),
      },
      closed,
    ),
  ),
}

export const SearchParamsSchema = Type.Object({ databaseBranch: DatabaseBranchNameSchema })

export const BranchSearchSchema = Type.Object(
  {
    query: QuerySchema,
    tables: Type.Optional(
      Type.Array(
        Type.Unsafe<string | Static<typeof SearchTableSchema>>({
          ...SearchTableSchema,
          type: ['string', 'object'],
          minLength: 1,
        }),
        { description: 'Tables to search. Defaults to all tables.' },
      ),
    ),
    ...options,
  },
  {
    ...closed,
    title: 'BranchSearch',
    examples: [
      {
        query: 'ada lovelace',
        tables: ['authors', { table: 'books', target: [{ column: 'title', weight: 5 }, '*'] }],
        prefix: 'phrase',
      },
    ],
  },
)
export type BranchSearch = Static<typeof BranchSearchSchema>

export const TableSearchSchema = Type.Object(
  {
    query: Type.Optional(QuerySchema),
    filter: FilterSchema,
    target: TargetSchema,
    boosters: BoostersSchema,
    ...options,
  },
  {
    ...closed,
    title: 'TableSearch',
    examples: [
      {
        query: 'analitical engine',
        fuzziness: 1,
        target: ['title', { column: 'summary', weight: 2 }],
        filter: { pages: { $ge: 50 } },
        boosters: [{ numericBooster: { column: 'stars', factor: 0.1, modifier: 'ln1p' } }],
        page: { size: 10 },
      },
    ],
  },
)
export type TableSearch = Static<typeof TableSearchSchema>

const SIMILARITY_FUNCTIONS = ['cosineSimilarity', 'l1', 'l2'] as const
export type SimilarityFunction = (typeof SIMILARITY_FUNCTIONS)[number]

export const VectorSearchSchema = Type.Object(
  {
    queryVector: Type.Array(Type.Number(), { minItems: 1 }),
    column: ColumnSchema,
    similarityFunction: Type.Optional(Type.Enum([...SIMILARITY_FUNCTIONS])),
    size: Type.Optional(Type.Integer({ minimum: 1, maximum: SEARCH_LIMITS.vectorSizeMax })),
    filter: FilterSchema,
  },
  {
    ...closed,
    title: 'VectorSearch',
    examples: [{ queryVector: [0.1, 0.2, 0.3], column: 'embedding', size: 5 }],
  },
)
export type VectorSearch = Static<typeof VectorSearchSchema>

const metadata = Type.Object({
  version: Type.Number(),
  createdAt: Type.String(),
  updatedAt: Type.String(),
  table: TableNameSchema,
  score: Type.Number({ description: 'Relevance of the record; higher is better.' }),
  highlight: Type.Optional(
    Type.Object(
      {},
      {
        additionalProperties: true,
        description:
          'For each column with a match: parts of its text, with matches between `<em>` and `</em>`.',
      },
    ),
  ),
})

export const SearchResultSchema = Type.Object(
  {
    totalCount: Type.Integer({ description: 'Number of all matching records.' }),
    records: Type.Array(
      Type.Object(
        { id: RecordIdSchema, service: Type.Optional(metadata), xata: Type.Optional(metadata) },
        { additionalProperties: true },
      ),
    ),
    warning: Type.Optional(Type.String()),
  },
  {
    title: 'SearchResult',
    examples: [
      {
        totalCount: 1,
        records: [
          {
            id: 'notes',
            title: 'Notes on the Analytical Engine',
            service: {
              version: 0,
              createdAt: '2026-01-31T09:30:00.000Z',
              updatedAt: '2026-01-31T09:30:00.000Z',
              table: 'books',
              score: 0.98,
              highlight: { title: ['Notes on the <em>Analytical</em> <em>Engine</em>'] },
            },
          },
        ],
      },
    ],
  },
)
