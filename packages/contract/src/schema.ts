import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import { ColumnNameSchema, TableNameSchema, TEXT_PATTERN } from './names.js'

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
    values: Type.Array(Type.String({ minLength: 1, maxLength: LIMITS.enumValueLengthMax }), {
      minItems: 1,
      maxItems: LIMITS.enumValuesMax,
      description: 'The possible values, in their order.',
    }),
  },
  closed,
)

export const COLUMN_GENERATORS = ['uuid', 'user', 'updatedAt'] as const
export type ColumnGenerator = (typeof COLUMN_GENERATORS)[number]

/** What gives a column its value, if a request does not. */
export const ColumnGenerateSchema = Type.Enum([...COLUMN_GENERATORS], {
  description:
    'What gives the column its value if a request does not. `uuid`: a new UUID of version 7, for each new ' +
    'record. `user`: the id of the user whose key creates the record. `updatedAt`: the time of each change.',
})

const ColumnFileSchema = Type.Object({ defaultPublicAccess: Type.Optional(Type.Boolean()) }, closed)

export const ColumnSchema = Type.Object(
  {
    name: ColumnNameSchema,
    type: Type.Enum([...COLUMN_TYPES]),
    link: Type.Optional(Type.Object({ table: TableNameSchema }, closed)),
    vector: Type.Optional(ColumnVectorSchema),
    decimal: Type.Optional(ColumnDecimalSchema),
    enum: Type.Optional(ColumnEnumSchema),
    file: Type.Optional(ColumnFileSchema),
    'file[]': Type.Optional(ColumnFileSchema),
    notNull: Type.Optional(Type.Boolean()),
    defaultValue: Type.Optional(Type.String()),
    unique: Type.Optional(Type.Boolean()),
    generate: Type.Optional(ColumnGenerateSchema),
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
  readonly link?: { readonly table: string }
  readonly vector?: { readonly dimension: number }
  readonly decimal?: { readonly precision: number; readonly scale: number }
  readonly enum?: { readonly values: readonly string[] }
  readonly file?: { readonly defaultPublicAccess?: boolean }
  readonly 'file[]'?: { readonly defaultPublicAccess?: boolean }
  readonly notNull?: boolean
  readonly defaultValue?: string
  readonly unique?: boolean
  readonly generate?: ColumnGenerator
  readonly description?: string
  readonly columns?: readonly Column[]
}

const RevLinkSchema = Type.Object(
  { table: TableNameSchema, column: Type.String() },
  { title: 'RevLink' },
)
export type RevLink = Static<typeof RevLinkSchema>

export const TableSchema = Type.Object(
  {
    id: Type.Optional(Type.String()),
    name: TableNameSchema,
    idType: Type.Optional(IdTypeSchema),
    columns: Type.Array(Type.Ref('Column')),
    revLinks: Type.Optional(Type.Array(RevLinkSchema)),
  },
  { ...closed, $id: 'Table', title: 'Table' },
)
export interface Table {
  readonly id?: string
  readonly name: string
  readonly idType?: IdType
  readonly columns: readonly Column[]
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
