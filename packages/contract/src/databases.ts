import { type Static, Type } from 'typebox'
import { BranchMetadataSchema } from './branches.js'
import {
  BranchNameSchema,
  DatabaseNameSchema,
  DateTimeSchema,
  LabelSchema,
  MigrationStatusSchema,
  TEXT_PATTERN,
  WorkspaceIdSchema,
} from './names.js'

const closed = { additionalProperties: false } as const

export const DatabaseParamsSchema = Type.Object({
  workspaceId: WorkspaceIdSchema,
  databaseName: DatabaseNameSchema,
})

const UiSchema = Type.Object(
  { color: Type.Optional(Type.String({ maxLength: 2048, pattern: TEXT_PATTERN })) },
  closed,
)

export const DatabaseSchema = Type.Object(
  {
    name: DatabaseNameSchema,
    region: Type.String({ examples: ['local'] }),
    createdAt: DateTimeSchema,
    ui: Type.Optional(Type.Object({ color: Type.Optional(Type.String()) })),
  },
  { $id: 'Database', title: 'Database' },
)
export type Database = Static<typeof DatabaseSchema>

export const CreateDatabaseSchema = Type.Object(
  {
    region: Type.String({ minLength: 1, maxLength: 255 }),
    branchName: Type.Optional(BranchNameSchema),
    ui: Type.Optional(UiSchema),
    metadata: Type.Optional(BranchMetadataSchema),
    postgresEnabled: Type.Optional(Type.Boolean({ description: 'Accepted and ignored.' })),
    defaultClusterID: Type.Optional(Type.String({ description: 'Accepted and ignored.' })),
  },
  { ...closed, title: 'CreateDatabase', examples: [{ region: 'local', branchName: 'main' }] },
)
export type CreateDatabase = Static<typeof CreateDatabaseSchema>

export const CreatedDatabaseSchema = Type.Object(
  {
    databaseName: DatabaseNameSchema,
    branchName: BranchNameSchema,
    status: MigrationStatusSchema,
  },
  { title: 'CreatedDatabase' },
)

export const UpdateDatabaseSchema = Type.Object(
  {
    ui: Type.Optional(Type.Object({ color: Type.Optional(LabelSchema) }, closed)),
  },
  {
    ...closed,
    title: 'UpdateDatabaseMetadata',
    minProperties: 1,
    examples: [{ ui: { color: 'teal' } }],
  },
)
export type UpdateDatabase = Static<typeof UpdateDatabaseSchema>

export const DatabaseListSchema = Type.Object(
  { databases: Type.Array(Type.Ref('Database')) },
  { title: 'DatabaseList' },
)

export const StatusSchema = Type.Object({ status: MigrationStatusSchema }, { title: 'Status' })

export const RenameDatabaseSchema = Type.Object(
  { newName: DatabaseNameSchema },
  { ...closed, examples: [{ newName: 'store' }] },
)

export const RepositorySchema = Type.Object(
  { owner: LabelSchema, repo: LabelSchema },
  { ...closed, title: 'Repository', examples: [{ owner: 'acme', repo: 'shop' }] },
)
export type Repository = Static<typeof RepositorySchema>

export const DatabaseSettingsSchema = Type.Object(
  { searchEnabled: Type.Boolean() },
  { title: 'DatabaseSettings' },
)
export const UpdateDatabaseSettingsSchema = Type.Object(
  { searchEnabled: Type.Optional(Type.Boolean()) },
  { ...closed, examples: [{ searchEnabled: true }] },
)
