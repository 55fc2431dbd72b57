import { type Static, Type } from 'typebox'
import { ColumnProblemSchema } from './column-problems.js'
import { AllowDataLossSchema, DataLossListSchema } from './data-loss.js'
import { LIMITS } from './limits.js'
import { EntryIdSchema } from './log.js'
import {
  BranchNameSchema,
  ColumnNameSchema,
  DatabaseBranchNameSchema,
  DateTimeSchema,
  MigrationStatusSchema,
  NAME_PATTERN,
  TableNameSchema,
  TEXT_PATTERN,
} from './names.js'
import {
  COLUMN_TYPES,
  CONSTRAINT_RULES,
  type Column,
  ColumnBitsSchema,
  ColumnComputedSchema,
  ColumnDecimalSchema,
  ColumnDescriptionSchema,
  ColumnEnumSchema,
  ColumnGenerateSchema,
  ColumnMaxLengthSchema,
  ColumnSchema,
  ColumnVectorSchema,
  ColumnWithoutZoneSchema,
  type Constraint,
  ConstraintNameSchema,
  type ConstraintRule,
  HiddenIdSchema,
  IdBitsSchema,
  IdTypeSchema,
  LinkRuleNameSchema,
  OnDeleteSchema,
  type Schema,
  TableHistorySchema,
} from './schema.js'

const closed = { additionalProperties: false } as const

// `Type.Ref` has no static type, so each reference is given the type that it refers to.
const ColumnReference = Type.Unsafe<Column>(Type.Ref('Column'))
const ConstraintReference = Type.Unsafe<Constraint>(Type.Ref('Constraint'))
const SchemaReference = Type.Unsafe<Schema>(Type.Ref('Schema'))

/** Name of a column, or a dotted path to a column inside an `object` column. */
export const ColumnPathSchema = Type.String({
  title: 'ColumnPath',
  description: 'Name of a column. A dotted path names a column inside an `object` column.',
  minLength: 1,
  pattern: '^[a-zA-Z0-9_\\-~]+(\\.[a-zA-Z0-9_\\-~]+)*$',
  examples: ['address.city'],
})

export const MigrationIdSchema = Type.String({
  title: 'MigrationID',
  description: 'Id of a migration.',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: NAME_PATTERN,
  examples: ['mig_d2m4o9k8v3q1t7h5n6c0'],
})

export const ChecksumSchema = Type.String({
  title: 'Checksum',
  description: 'Checksum of the operations of a migration.',
  pattern: '^1:[0-9a-f]{64}$',
  examples: ['1:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945'],
})

const NoteSchema = Type.String({ maxLength: LIMITS.labelLengthMax, pattern: TEXT_PATTERN })

export const TableParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  tableName: TableNameSchema,
})

export const ColumnParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  tableName: TableNameSchema,
  columnName: ColumnPathSchema,
})

export const ConstraintParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  tableName: TableNameSchema,
  constraintName: ConstraintNameSchema,
})

export const CompareBranchParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  branchName: BranchNameSchema,
})

const AddTableSchema = Type.Object(
  {
    table: TableNameSchema,
    idType: Type.Optional(IdTypeSchema),
    idBits: Type.Optional(IdBitsSchema),
    hiddenId: Type.Optional(HiddenIdSchema),
    history: Type.Optional(TableHistorySchema),
  },
  closed,
)

const HistoryChangeSchema = Type.Union([TableHistorySchema, Type.Null()], {
  description:
    'How long versions of records are kept. Null: they are not, and those that exist are deleted.',
})

const IdBitsChangeSchema = Type.Union([IdBitsSchema, Type.Null()], {
  description:
    'The size of ids of type `int`, and of links to the table. Null: 64 bits. All ids and links must fit.',
})

const AlterTableSchema = Type.Object(
  {
    table: TableNameSchema,
    history: Type.Optional(HistoryChangeSchema),
    idBits: Type.Optional(IdBitsChangeSchema),
  },
  { ...closed, minProperties: 2 },
)
const RemoveTableSchema = Type.Object({ table: TableNameSchema }, closed)
const RenameTableOperationSchema = Type.Object(
  { oldName: TableNameSchema, newName: TableNameSchema },
  closed,
)
/** What gives existing records a value of a new column. */
const ColumnFillSchema = Type.Object(
  {
    defaultValue: Type.Optional(Type.String()),
    generate: Type.Optional(ColumnGenerateSchema),
  },
  {
    ...closed,
    minProperties: 1,
    maxProperties: 1,
    description:
      'What existing records get: a value, written as a default, or a generated one. Without it, they get the default ' +
      'or a generated value of a `notNull` column, and no value of another one.',
  },
)

const AddColumnSchema = Type.Object(
  { table: TableNameSchema, column: ColumnReference, fill: Type.Optional(ColumnFillSchema) },
  closed,
)
const RemoveColumnSchema = Type.Object({ table: TableNameSchema, column: ColumnNameSchema }, closed)
const RenameColumnOperationSchema = Type.Object(
  { table: TableNameSchema, oldName: ColumnNameSchema, newName: ColumnNameSchema },
  closed,
)

const AddConstraintSchema = Type.Object(
  { table: TableNameSchema, constraint: ConstraintReference },
  closed,
)
const RemoveConstraintSchema = Type.Object(
  { table: TableNameSchema, constraint: ConstraintNameSchema },
  closed,
)

/** What can be changed in a column. Fields that are not given stay as they are. */
const columnChanges = {
  name: Type.Optional(ColumnNameSchema),
  type: Type.Optional(
    Type.Enum([...COLUMN_TYPES], {
      description: 'The new type. All values of the column must convert to it.',
    }),
  ),
  using: Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: LIMITS.expressionLengthMax,
      description:
        'An expression in SQL over the columns of the record, whose value the column gets. All records are written anew.',
    }),
  ),
  link: Type.Optional(
    Type.Object(
      {
        table: Type.Optional(TableNameSchema),
        onDelete: Type.Optional(OnDeleteSchema),
        constraint: Type.Optional(Type.Union([LinkRuleNameSchema, Type.Null()])),
      },
      {
        ...closed,
        minProperties: 1,
        description:
          'A link keeps its table. A column that becomes a link has ids of the table that is named here. ' +
          'Null gives the rule its usual name.',
      },
    ),
  ),
  vector: Type.Optional(ColumnVectorSchema),
  decimal: Type.Optional(ColumnDecimalSchema),
  bits: Type.Optional(
    Type.Union([ColumnBitsSchema, Type.Null()], {
      description: 'The size of an `int`. Null: 64 bits. All values of the column must fit.',
    }),
  ),
  maxLength: Type.Optional(
    Type.Union([ColumnMaxLengthSchema, Type.Null()], {
      description:
        'The largest number of characters of a `string` or `text`. Null: that of the type. All values of the column must fit.',
    }),
  ),
  withoutZone: Type.Optional(
    Type.Union([ColumnWithoutZoneSchema, Type.Null()], {
      description:
        'How SQL shows a `datetime`. Null and false: with a time zone, as `timestamptz`.',
    }),
  ),
  enum: Type.Optional(ColumnEnumSchema),
  notNull: Type.Optional(Type.Boolean()),
  unique: Type.Optional(Type.Boolean()),
  defaultValue: Type.Optional(
    Type.Union([Type.String(), Type.Null()], { description: 'Null removes the default value.' }),
  ),
  generate: Type.Optional(
    Type.Union([ColumnGenerateSchema, Type.Null()], {
      description: 'Null: nothing gives new records a value any more.',
    }),
  ),
  computed: Type.Optional(ColumnComputedSchema),
  description: Type.Optional(
    Type.Union([ColumnDescriptionSchema, Type.Null()], {
      description: 'What the column is for. Null removes the description.',
    }),
  ),
  fillNulls: Type.Optional(
    Type.Boolean({
      description:
        'Whether records without a value get the default value when the column becomes `notNull`.',
    }),
  ),
}

const AlterColumnSchema = Type.Object(
  { table: TableNameSchema, column: ColumnNameSchema, ...columnChanges },
  { ...closed, minProperties: 3 },
)

/**
 * One edit of a schema. It is declared as an object with exactly one key and not as a union, so that
 * a validator can name the invalid field instead of reporting that no member of the union matches.
 */
export const SchemaOperationSchema = Type.Object(
  {
    addTable: Type.Optional(AddTableSchema),
    removeTable: Type.Optional(RemoveTableSchema),
    renameTable: Type.Optional(RenameTableOperationSchema),
    addColumn: Type.Optional(AddColumnSchema),
    removeColumn: Type.Optional(RemoveColumnSchema),
    renameColumn: Type.Optional(RenameColumnOperationSchema),
    addConstraint: Type.Optional(AddConstraintSchema),
    removeConstraint: Type.Optional(RemoveConstraintSchema),
    alterColumn: Type.Optional(AlterColumnSchema),
    alterTable: Type.Optional(AlterTableSchema),
  },
  {
    ...closed,
    $id: 'SchemaOperation',
    title: 'SchemaOperation',
    description: 'One edit of a schema: an object with exactly one key.',
    minProperties: 1,
    maxProperties: 1,
    examples: [
      { addTable: { table: 'users' } },
      { removeTable: { table: 'users' } },
      { renameTable: { oldName: 'users', newName: 'people' } },
      { addColumn: { table: 'users', column: { name: 'email', type: 'email', unique: true } } },
      { removeColumn: { table: 'users', column: 'email' } },
      { renameColumn: { table: 'users', oldName: 'email', newName: 'address' } },
      {
        addConstraint: {
          table: 'bookings',
          constraint: { name: 'one_per_day', unique: ['room', 'day'] },
        },
      },
      { removeConstraint: { table: 'bookings', constraint: 'one_per_day' } },
      { alterColumn: { table: 'users', column: 'age', type: 'int' } },
      { alterColumn: { table: 'users', column: 'name', maxLength: 100 } },
      { alterTable: { table: 'users', history: { keep: '30d' } } },
    ],
  },
)

type Read<T> = { readonly [Key in keyof T]: T[Key] }

export type SchemaOperation =
  | { readonly addTable: Read<Static<typeof AddTableSchema>> }
  | { readonly removeTable: Read<Static<typeof RemoveTableSchema>> }
  | { readonly renameTable: Read<Static<typeof RenameTableOperationSchema>> }
  | { readonly addColumn: Read<Static<typeof AddColumnSchema>> }
  | { readonly removeColumn: Read<Static<typeof RemoveColumnSchema>> }
  | { readonly renameColumn: Read<Static<typeof RenameColumnOperationSchema>> }
  | { readonly addConstraint: Read<Static<typeof AddConstraintSchema>> }
  | { readonly removeConstraint: Read<Static<typeof RemoveConstraintSchema>> }
  | { readonly alterColumn: Read<Static<typeof AlterColumnSchema>> }
  | { readonly alterTable: Read<Static<typeof AlterTableSchema>> }

const OperationReference = Type.Unsafe<SchemaOperation>(Type.Ref('SchemaOperation'))
const OperationsSchema = Type.Array(OperationReference)

/** The response to a schema edit. */
export const SchemaUpdateSchema = Type.Object(
  {
    migrationID: Type.String(),
    parentMigrationID: Type.String(),
    status: MigrationStatusSchema,
    entry: Type.Optional(EntryIdSchema),
  },
  {
    title: 'SchemaUpdate',
    examples: [
      {
        migrationID: 'mig_d2m4o9k8v3q1t7h5n6c0',
        parentMigrationID: 'mig_d2m4o9k8v3q1t7h5n6bg',
        status: 'completed',
      },
    ],
  },
)
export type SchemaUpdate = Static<typeof SchemaUpdateSchema>

export const CreateTableSchema = Type.Object(
  {
    id: Type.Optional(
      Type.Object({ type: IdTypeSchema, bits: Type.Optional(IdBitsSchema) }, closed),
    ),
    history: Type.Optional(TableHistorySchema),
  },
  {
    ...closed,
    title: 'CreateTable',
    description:
      'The type and size of the ids, and how long versions of records are kept. Without a body, ids are strings, and no versions are kept.',
    examples: [
      { id: { type: 'int' }, history: { keep: '30d' } },
      { id: { type: 'int', bits: 32 } },
    ],
  },
)
export type CreateTable = Static<typeof CreateTableSchema>

export const CreatedTableSchema = Type.Object(
  {
    branchName: DatabaseBranchNameSchema,
    tableName: TableNameSchema,
    status: MigrationStatusSchema,
    entry: Type.Optional(EntryIdSchema),
  },
  {
    title: 'CreatedTable',
    examples: [{ branchName: 'shop:main', tableName: 'users', status: 'completed' }],
  },
)
export type CreatedTable = Static<typeof CreatedTableSchema>

export const DeletedTableSchema = Type.Object(
  { status: MigrationStatusSchema, entry: Type.Optional(EntryIdSchema) },
  { title: 'DeletedTable', examples: [{ status: 'completed' }] },
)
export type DeletedTable = Static<typeof DeletedTableSchema>

export const UpdateTableSchema = Type.Object(
  {
    name: Type.Optional(TableNameSchema),
    id: Type.Optional(Type.Object({ bits: IdBitsChangeSchema }, closed)),
    history: Type.Optional(HistoryChangeSchema),
  },
  {
    ...closed,
    title: 'UpdateTable',
    description: 'Fields that are not given stay as they are.',
    minProperties: 1,
    examples: [{ name: 'people' }, { history: { keep: '30d' } }, { id: { bits: 32 } }],
  },
)
export type UpdateTable = Static<typeof UpdateTableSchema>

const columnsExample = {
  columns: [
    { name: 'email', type: 'email', unique: true },
    { name: 'name', type: 'string' },
  ],
}

/** The whole column list of a table. */
export const TableColumnsSchema = Type.Object(
  { columns: Type.Array(ColumnReference) },
  { ...closed, title: 'TableColumns', examples: [columnsExample] },
)
export type TableColumns = Static<typeof TableColumnsSchema>

const allowDataLoss = Type.Optional(AllowDataLossSchema)

export const ReplaceColumnsSchema = Type.Object(
  { ...TableColumnsSchema.properties, allowDataLoss },
  {
    ...closed,
    title: 'ReplaceColumns',
    description:
      'The columns that the table should have. All other columns are removed. A column that exists ' +
      'with a different definition is changed and keeps its values. If that is impossible, it is removed and added again.',
    examples: [columnsExample],
  },
)

export const FlatColumnsSchema = Type.Object(
  { columns: Type.Array(Type.Object({ ...ColumnSchema.properties, name: ColumnPathSchema })) },
  {
    title: 'FlatColumns',
    description: 'The columns of a table. Columns inside `object` columns have dotted names.',
    examples: [
      {
        columns: [
          { name: 'email', type: 'email', unique: true },
          { name: 'address.city', type: 'string' },
        ],
      },
    ],
  },
)

export const AlterColumnRequestSchema = Type.Object(
  {
    ...columnChanges,
    dryRun: Type.Optional(
      Type.Boolean({ description: 'Whether to look for problems only, and to change nothing.' }),
    ),
  },
  {
    ...closed,
    title: 'AlterColumn',
    minProperties: 1,
    examples: [{ name: 'address' }, { type: 'int', notNull: true, dryRun: true }],
  },
)
export type AlterColumnRequest = Static<typeof AlterColumnRequestSchema>

/** The answer to a dry run of a change of a column. */
export const ColumnPreviewSchema = Type.Object(
  {
    column: ColumnReference,
    problems: Type.Array(ColumnProblemSchema),
  },
  {
    title: 'ColumnPreview',
    description: 'The column after the change, and what prevents the change.',
    examples: [{ column: { name: 'age', type: 'int', notNull: true }, problems: [] }],
  },
)
export type ColumnPreview = Static<typeof ColumnPreviewSchema>

/** A constraint, or a dry run of adding it. */
export const PutConstraintSchema = Type.Object(
  {
    ...CONSTRAINT_RULES,
    dryRun: Type.Optional(
      Type.Boolean({ description: 'Whether to look for problems only, and to change nothing.' }),
    ),
  },
  {
    ...closed,
    title: 'PutConstraint',
    minProperties: 1,
    maxProperties: 3,
    examples: [
      { unique: ['room', 'day'] },
      { unique: ['room', 'day'], index: true },
      { check: 'price >= 0' },
      { check: 'price >= 0', dryRun: true },
    ],
  },
)
export type PutConstraint = ConstraintRule & { readonly dryRun?: boolean }

/** The answer to a dry run of adding a constraint. */
export const ConstraintPreviewSchema = Type.Object(
  {
    constraint: ConstraintReference,
    problems: Type.Array(ColumnProblemSchema),
  },
  {
    title: 'ConstraintPreview',
    description: 'The constraint, and what prevents that it is added.',
    examples: [{ constraint: { name: 'not_negative', check: 'price >= 0' }, problems: [] }],
  },
)
export interface ConstraintPreview {
  readonly constraint: Constraint
  readonly problems: Static<typeof ColumnProblemSchema>[]
}

/** Schema edits, as a comparison returns them and as applying them takes them. */
export const SchemaEditsSchema = Type.Object(
  {
    sourceMigrationID: Type.Optional(MigrationIdSchema),
    targetMigrationID: Type.Optional(MigrationIdSchema),
    operations: OperationsSchema,
  },
  {
    ...closed,
    title: 'SchemaEdits',
    examples: [{ operations: [{ addTable: { table: 'users' } }] }],
  },
)
export type SchemaEdits = Static<typeof SchemaEditsSchema>

export const CompareSchemaSchema = Type.Object(
  {
    schema: SchemaReference,
    schemaOperations: Type.Optional(OperationsSchema),
    branchOperations: Type.Optional(OperationsSchema),
  },
  {
    ...closed,
    title: 'CompareSchema',
    description:
      'The schema to compare the branch with. Before the comparison, `branchOperations` are applied ' +
      'to the schema of the branch, and `schemaOperations` to the given schema.',
    examples: [
      { schema: { tables: [{ name: 'users', columns: [{ name: 'name', type: 'string' }] }] } },
    ],
  },
)
export type CompareSchema = Static<typeof CompareSchemaSchema>

export const CompareBranchSchema = Type.Object(
  {
    sourceBranchOperations: Type.Optional(OperationsSchema),
    targetBranchOperations: Type.Optional(OperationsSchema),
  },
  {
    ...closed,
    title: 'CompareBranch',
    description:
      'Operations that are applied to the schema of the source branch and of the target branch ' +
      'before the comparison.',
    examples: [{}, { sourceBranchOperations: [{ removeTable: { table: 'drafts' } }] }],
  },
)
export type CompareBranch = Static<typeof CompareBranchSchema>

export const ComparisonSchema = Type.Object(
  {
    source: SchemaReference,
    target: SchemaReference,
    edits: SchemaEditsSchema,
    dataLoss: Type.Optional(DataLossListSchema),
  },
  {
    title: 'Comparison',
    description: 'Two schemas and the edits that turn the source into the target.',
    examples: [
      {
        source: { tables: [], tablesOrder: [] },
        target: { tables: [{ name: 'users', columns: [] }], tablesOrder: ['users'] },
        edits: { operations: [{ addTable: { table: 'users' } }] },
      },
    ],
  },
)
export type Comparison = Static<typeof ComparisonSchema>

export const PreviewEditsSchema = Type.Object(
  { edits: Type.Optional(SchemaEditsSchema) },
  {
    ...closed,
    title: 'PreviewEdits',
    examples: [{ edits: { operations: [{ addTable: { table: 'users' } }] } }],
  },
)
export type PreviewEdits = Static<typeof PreviewEditsSchema>

export const PreviewSchema = Type.Object(
  {
    original: SchemaReference,
    updated: SchemaReference,
    dataLoss: Type.Optional(DataLossListSchema),
    problems: Type.Optional(
      Type.Array(ColumnProblemSchema, {
        description:
          'The records that do not allow changes of columns, new columns or constraints.',
      }),
    ),
  },
  {
    title: 'Preview',
    description: 'The schema of the branch before and after the edits.',
    examples: [
      {
        original: { tables: [], tablesOrder: [] },
        updated: { tables: [{ name: 'users', columns: [] }], tablesOrder: ['users'] },
      },
    ],
  },
)
export type Preview = Static<typeof PreviewSchema>

export const ApplyEditsSchema = Type.Object(
  { edits: SchemaEditsSchema, allowDataLoss },
  {
    ...closed,
    title: 'ApplyEdits',
    examples: [{ edits: { operations: [{ addTable: { table: 'users' } }] } }],
  },
)
export type ApplyEdits = Static<typeof ApplyEditsSchema>

export const UpdateSchemaSchema = Type.Object(
  {
    parentID: Type.Optional(MigrationIdSchema),
    operations: OperationsSchema,
    allowDataLoss,
  },
  {
    ...closed,
    title: 'UpdateSchema',
    description: 'Schema edits. `parentID`, if given, must be the last migration of the branch.',
    examples: [{ operations: [{ addTable: { table: 'users' } }] }],
  },
)
export type UpdateSchema = Static<typeof UpdateSchemaSchema>

export const HISTORY_PAGE_SIZE = 20

export const HistoryRequestSchema = Type.Object(
  {
    page: Type.Optional(
      Type.Object(
        {
          after: Type.Optional(Type.String({ minLength: 1 })),
          before: Type.Optional(Type.String({ minLength: 1 })),
          size: Type.Optional(
            Type.Integer({ minimum: 1, maximum: LIMITS.pageSizeMax, default: HISTORY_PAGE_SIZE }),
          ),
        },
        closed,
      ),
    ),
    since: Type.Optional(MigrationIdSchema),
  },
  {
    ...closed,
    title: 'HistoryRequest',
    description:
      'Selects a page of the migrations of a branch. With `since`, only migrations that are newer ' +
      'than the given one are returned.',
    examples: [{ page: { size: 200 } }],
  },
)
export type HistoryRequest = Static<typeof HistoryRequestSchema>

const migrationProperties = {
  id: MigrationIdSchema,
  parentID: Type.Optional(MigrationIdSchema),
  checksum: ChecksumSchema,
  operations: OperationsSchema,
  title: Type.Optional(NoteSchema),
  message: Type.Optional(NoteSchema),
}

const migrationExample = {
  id: 'mig_d2m4o9k8v3q1t7h5n6c0',
  parentID: 'mig_d2m4o9k8v3q1t7h5n6bg',
  checksum: '1:d61a9e48c65f7931e398fd78ca796d6cf375ec4449c93882ec1a2c275dc5a76a',
  operations: [{ addTable: { table: 'users' } }],
}

/** A migration in the form in which clients store and push it. */
export const MigrationSchema = Type.Object(migrationProperties, {
  ...closed,
  title: 'Migration',
  examples: [migrationExample],
})
export type Migration = Static<typeof MigrationSchema>

export const HistorySchema = Type.Object(
  {
    meta: Type.Object({ cursor: Type.String(), more: Type.Boolean() }),
    logs: Type.Array(
      Type.Object({
        ...migrationProperties,
        createdAt: DateTimeSchema,
        mergeParentID: Type.Optional(MigrationIdSchema),
      }),
    ),
  },
  {
    title: 'History',
    description: 'The migrations of a branch, newest first.',
    examples: [
      {
        meta: { cursor: 'mig_d2m4o9k8v3q1t7h5n6c0', more: false },
        logs: [{ ...migrationExample, createdAt: '2026-01-31T09:30:00.000Z' }],
      },
    ],
  },
)
export type History = Static<typeof HistorySchema>

export const PushMigrationsSchema = Type.Object(
  { migrations: Type.Array(MigrationSchema), allowDataLoss },
  {
    ...closed,
    title: 'PushMigrations',
    description:
      'Migrations, oldest first. They must contain the last migration of the branch, or follow it.',
    examples: [{ migrations: [migrationExample] }],
  },
)
export type PushMigrations = Static<typeof PushMigrationsSchema>
