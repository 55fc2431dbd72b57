import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import { ColumnNameSchema, NAME_PATTERN, TableNameSchema, TEXT_PATTERN } from './names.js'

export const COLUMN_TYPES = [
  'bool',
  'int',
  'float',
  'string',
  'text',
  'email',
  'multiple',
  'link',
  'object',
  'datetime',
  'decimal',
  'date',
  'time',
  'uuid',
  'enum',
  'vector',
  'file[]',
  'file',
  'json',
] as const
export type ColumnType = (typeof COLUMN_TYPES)[number]

const closed = { additionalProperties: false } as const

/** The types that the ids of a table can have. Requests and answers write all of them as texts. */
export const ID_TYPES = ['string', 'int', 'uuid'] as const
export type IdType = (typeof ID_TYPES)[number]

export const IdTypeSchema = Type.Enum([...ID_TYPES], {
  description:
    'The type by which ids are compared and sorted, `string` by default. New ids of type `int` are numbers that no ' +
    'other branch makes, and those of type `uuid` are UUIDs of version 7.',
})

/** The sizes that whole numbers can be limited to, in bits with the sign. */
export const INT_BITS = [16, 32] as const
export type IntBits = (typeof INT_BITS)[number]

/** The whole numbers of an `int` column. */
export const ColumnBitsSchema = Type.Enum([...INT_BITS], {
  description:
    'The size of the whole numbers of an `int` column: 16 for -32768 to 32767, 32 for -2147483648 to 2147483647. ' +
    'Without it, all whole numbers that JSON represents exactly fit.',
})

/** The characters of a `string` or `text` column. */
export const ColumnMaxLengthSchema = Type.Integer({
  minimum: 1,
  maximum: LIMITS.recordBytesMax,
  description:
    `The largest number of characters of a \`string\` (1 to ${LIMITS.stringLengthMax}) or a \`text\`. ` +
    'Characters are Unicode code points, as PostgreSQL counts them.',
})

/** How SQL shows a `datetime`. */
export const ColumnWithoutZoneSchema = Type.Boolean({
  description:
    'SQL shows a `datetime` as `timestamp`, without a time zone: in that of its session, which is UTC unless a client ' +
    'sets another one. It is stored and returned by other requests as without this.',
})

/** The numbers that the ids of a table can be. */
export const IdBitsSchema = Type.Enum([...INT_BITS], {
  description:
    'The size of ids of type `int`, and of links to the table: 16 or 32 bits. Without it, ids have 64 bits.',
})

export const HiddenIdSchema = Type.Literal(true, {
  description:
    'The id is not among the columns of SQL statements without a list of columns: `insert into t values (...)` and `copy t`. Tables that SQL creates without a column `id` have it.',
})

/** What a column is for, in the words of its owner. */
export const ColumnDescriptionSchema = Type.String({
  maxLength: LIMITS.labelLengthMax,
  pattern: TEXT_PATTERN,
  description: 'What the column is for.',
})

export const ColumnVectorSchema = Type.Object(
  {
    dimension: Type.Integer({
      minimum: LIMITS.vectorDimensionMin,
      maximum: LIMITS.vectorDimensionMax,
    }),
  },
  closed,
)

export const ColumnDecimalSchema = Type.Object(
  {
    precision: Type.Integer({
      minimum: 1,
      maximum: LIMITS.decimalPrecisionMax,
      description: 'Digits in all.',
    }),
    scale: Type.Integer({
      minimum: 0,
      maximum: LIMITS.decimalPrecisionMax,
      description: 'Digits after the decimal point.',
    }),
  },
  closed,
)

export const ColumnEnumSchema = Type.Object(
  {
    values: Type.Array(
      Type.String({ minLength: 1, maxLength: LIMITS.enumValueLengthMax, pattern: TEXT_PATTERN }),
      {
        minItems: 1,
        maxItems: LIMITS.enumValuesMax,
        description: 'The possible values, in their order.',
      },
    ),
    type: Type.Optional(
      Type.String({
        minLength: 1,
        maxLength: 63,
        pattern: NAME_PATTERN,
        description: 'The name of the type in SQL. Columns of one type have the same values.',
      }),
    ),
  },
  closed,
)

export const COLUMN_GENERATORS = ['uuid', 'user', 'updatedAt', 'sequence'] as const
export type ColumnGenerator = (typeof COLUMN_GENERATORS)[number]

/** What gives a column its value, if a request does not. */
export const ColumnGenerateSchema = Type.Enum([...COLUMN_GENERATORS], {
  description:
    'What gives the column its value if a request does not. `uuid`: a new UUID of version 7, for each new ' +
    'record. `user`: the id of the user whose key creates the record. `updatedAt`: the time of each change. ' +
    '`sequence`: a number that no other record of the table gets, on no branch.',
})

/** The expression of a computed column. */
export const ColumnComputedSchema = Type.String({
  minLength: 1,
  maxLength: LIMITS.expressionLengthMax,
  description:
    'An expression in SQL over the other columns of the record, whose value the column has. It cannot be written.',
})

/** The effect on a link of deleting the linked record. With `none`, linked records need not exist. */
export const LINK_ACTIONS = ['none', 'restrict', 'setNull', 'cascade'] as const
export type LinkAction = (typeof LINK_ACTIONS)[number]

export const OnDeleteSchema = Type.Enum([...LINK_ACTIONS], {
  description:
    'Whether linked records must exist, and what happens if one is deleted. `none`, the default: they need not ' +
    'exist. `restrict`: a linked record cannot be deleted. `setNull`: links to it become null. `cascade`: the ' +
    'records that link to it are deleted, too.',
})

export const ConstraintNameSchema = Type.String({
  title: 'ConstraintName',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: NAME_PATTERN,
  examples: ['one_per_day'],
})

export const LinkRuleNameSchema = Type.String({
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: NAME_PATTERN,
  description:
    'The name of the rule that linked records exist, `{table}_{column}_fkey` by default. It goes with [onDelete].',
})

const ColumnLinkSchema = Type.Object(
  {
    table: TableNameSchema,
    onDelete: Type.Optional(OnDeleteSchema),
    constraint: Type.Optional(LinkRuleNameSchema),
  },
  closed,
)

const ColumnFileSchema = Type.Object({ defaultPublicAccess: Type.Optional(Type.Boolean()) }, closed)

export const ColumnSchema = Type.Object(
  {
    name: ColumnNameSchema,
    type: Type.Enum([...COLUMN_TYPES]),
    link: Type.Optional(ColumnLinkSchema),
    vector: Type.Optional(ColumnVectorSchema),
    decimal: Type.Optional(ColumnDecimalSchema),
    bits: Type.Optional(ColumnBitsSchema),
    maxLength: Type.Optional(ColumnMaxLengthSchema),
    withoutZone: Type.Optional(ColumnWithoutZoneSchema),
    enum: Type.Optional(ColumnEnumSchema),
    file: Type.Optional(ColumnFileSchema),
    'file[]': Type.Optional(ColumnFileSchema),
    notNull: Type.Optional(Type.Boolean()),
    defaultValue: Type.Optional(Type.String()),
    unique: Type.Optional(Type.Boolean()),
    generate: Type.Optional(ColumnGenerateSchema),
    computed: Type.Optional(ColumnComputedSchema),
    description: Type.Optional(ColumnDescriptionSchema),
    columns: Type.Optional(Type.Array(Type.Ref('Column'))),
  },
  {
    ...closed,
    $id: 'Column',
    title: 'Column',
    examples: [{ name: 'email', type: 'email', unique: true }],
  },
)

/** A column as a client writes and reads it. Nested `columns` belong to `object` columns. */
export interface Column {
  readonly name: string
  readonly type: ColumnType
  readonly link?: {
    readonly table: string
    readonly onDelete?: LinkAction
    /** The name of the rule that linked records exist, if it is not the usual one. */
    readonly constraint?: string
  }
  readonly vector?: { readonly dimension: number }
  readonly decimal?: { readonly precision: number; readonly scale: number }
  /** The size of an `int`. undefined: 64 bits, of which those are used that JSON represents exactly. */
  readonly bits?: IntBits
  /** The largest number of characters of a `string` or `text`. undefined: that of the type. */
  readonly maxLength?: number
  /** SQL shows a `datetime` as `timestamp`. */
  readonly withoutZone?: boolean
  readonly enum?: { readonly values: readonly string[]; readonly type?: string }
  readonly file?: { readonly defaultPublicAccess?: boolean }
  readonly 'file[]'?: { readonly defaultPublicAccess?: boolean }
  readonly notNull?: boolean
  readonly defaultValue?: string
  readonly unique?: boolean
  readonly generate?: ColumnGenerator
  readonly computed?: string
  readonly description?: string
  readonly columns?: readonly Column[]
}

const RevLinkSchema = Type.Object(
  { table: TableNameSchema, column: Type.String() },
  { title: 'RevLink' },
)
export type RevLink = Static<typeof RevLinkSchema>

/** The rules of a constraint, which has exactly one of them. */
export const CONSTRAINT_RULES = {
  unique: Type.Optional(
    Type.Array(Type.String(), {
      minItems: 1,
      maxItems: LIMITS.constraintColumnsMax,
      uniqueItems: true,
      description:
        'The columns whose values together belong to one record only. Records without a value in one of them do not count.',
    }),
  ),
  check: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: LIMITS.expressionLengthMax,
      description:
        'A condition in SQL over the columns of one record, which no record may fail. A condition without a result, ' +
        'because a value is missing, is not failed.',
    }),
  ),
  index: Type.Optional(
    Type.Boolean({
      description:
        'For `unique` only: clients of PostgreSQL see a unique index instead of a constraint, as `create unique index` makes it. ' +
        'The rule is the same.',
    }),
  ),
}

export const ConstraintSchema = Type.Object(
  {
    name: ConstraintNameSchema,
    ...CONSTRAINT_RULES,
  },
  {
    ...closed,
    $id: 'Constraint',
    title: 'Constraint',
    minProperties: 2,
    maxProperties: 3,
    examples: [{ name: 'one_per_day', unique: ['room', 'day'] }],
  },
)
export type ConstraintRule = { readonly index?: boolean } & (
  | { readonly unique: readonly string[] }
  | { readonly check: string }
)
export type Constraint = { readonly name: string } & ConstraintRule

/** The longest time for which the versions of records are kept, in days. */
export const HISTORY_DAYS_MAX = 3650

/** How long the versions of the records of a table are kept. */
export const TableHistorySchema = Type.Object(
  {
    keep: Type.String({
      pattern: '^[1-9][0-9]{0,4}[hd]$',
      description: `How long a version is kept after it was replaced: a number of hours (\`12h\`) or days (\`30d\`), at most ${HISTORY_DAYS_MAX} days.`,
      examples: ['30d'],
    }),
  },
  { ...closed, title: 'TableHistory', examples: [{ keep: '30d' }] },
)
export interface TableHistory {
  readonly keep: string
}

export const TableSchema = Type.Object(
  {
    id: Type.Optional(Type.String()),
    name: TableNameSchema,
    idType: Type.Optional(IdTypeSchema),
    idBits: Type.Optional(IdBitsSchema),
    hiddenId: Type.Optional(HiddenIdSchema),
    columns: Type.Array(Type.Ref('Column')),
    constraints: Type.Optional(Type.Array(Type.Ref('Constraint'))),
    history: Type.Optional(TableHistorySchema),
    revLinks: Type.Optional(Type.Array(RevLinkSchema)),
  },
  { ...closed, $id: 'Table', title: 'Table' },
)
export interface Table {
  readonly id?: string
  readonly name: string
  readonly idType?: IdType
  /** The size of ids of type `int`. undefined: 64 bits. */
  readonly idBits?: IntBits
  /** SQL statements without a list of columns have no id. Never changes. */
  readonly hiddenId?: true
  readonly columns: readonly Column[]
  readonly constraints?: readonly Constraint[]
  /** undefined: versions of records are not kept. */
  readonly history?: TableHistory
  readonly revLinks?: readonly RevLink[]
}

export const SchemaSchema = Type.Object(
  {
    tables: Type.Array(Type.Ref('Table')),
    tablesOrder: Type.Optional(Type.Array(Type.String())),
  },
  {
    ...closed,
    $id: 'Schema',
    title: 'Schema',
    examples: [
      {
        tables: [
          {
            name: 'users',
            columns: [
              { name: 'email', type: 'email', unique: true },
              { name: 'name', type: 'string' },
            ],
          },
        ],
      },
    ],
  },
)
export interface Schema {
  readonly tables: readonly Table[]
  readonly tablesOrder?: readonly string[]
}
