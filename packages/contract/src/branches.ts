import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import {
  BranchNameSchema,
  DatabaseBranchNameSchema,
  DatabaseNameSchema,
  DateTimeSchema,
  LabelSchema,
  MigrationStatusSchema,
  TEXT_PATTERN,
} from './names.js'

const closed = { additionalProperties: false } as const

export const BranchParamsSchema = Type.Object({ databaseBranch: DatabaseBranchNameSchema })

export const BranchMetadataSchema = Type.Object(
  {
    repository: Type.Optional(LabelSchema),
    branch: Type.Optional(BranchNameSchema),
    stage: Type.Optional(LabelSchema),
    labels: Type.Optional(
      Type.Array(Type.String({ maxLength: LIMITS.labelLengthMax, pattern: TEXT_PATTERN }), {
        maxItems: LIMITS.labelsMax,
      }),
    ),
  },
  {
    ...closed,
    title: 'BranchMetadata',
    examples: [{ repository: 'github.com/acme/shop', branch: 'main', stage: 'prod' }],
  },
)
export type BranchMetadata = Static<typeof BranchMetadataSchema>

export const StartedFromSchema = Type.Object(
  { branchName: BranchNameSchema, dbBranchID: Type.String(), migrationID: Type.String() },
  { title: 'StartedFromMetadata' },
)
export type StartedFrom = Static<typeof StartedFromSchema>

export const BranchSchema = Type.Object(
  {
    databaseName: DatabaseNameSchema,
    branchName: BranchNameSchema,
    createdAt: DateTimeSchema,
    id: Type.String({ examples: ['bb_d2m4o9k8v3q1t7h5n6c0d2m4o9_k3f9qa'] }),
    version: Type.Number({ examples: [1] }),
    lastMigrationID: Type.String({ examples: ['mig_d2m4o9k8v3q1t7h5n6c0'] }),
    metadata: BranchMetadataSchema,
    startedFrom: Type.Optional(StartedFromSchema),
    schema: Type.Ref('Schema'),
  },
  { $id: 'Branch', title: 'Branch' },
)

export const CreateBranchQuerySchema = Type.Object({ from: Type.Optional(BranchNameSchema) })

export const CreateBranchSchema = Type.Object(
  {
    from: Type.Optional(BranchNameSchema),
    data: Type.Optional(
      Type.Boolean({ description: '`false` starts the branch with the schema alone.' }),
    ),
    metadata: Type.Optional(BranchMetadataSchema),
  },
  { ...closed, title: 'CreateBranch', examples: [{ from: 'main' }] },
)
export type CreateBranch = Static<typeof CreateBranchSchema>

export const CreatedBranchSchema = Type.Object(
  {
    databaseName: DatabaseNameSchema,
    branchName: BranchNameSchema,
    status: MigrationStatusSchema,
  },
  { title: 'CreatedBranch' },
)

export const BranchListSchema = Type.Object(
  {
    databaseName: DatabaseNameSchema,
    branches: Type.Array(
      Type.Object({
        name: BranchNameSchema,
        id: Type.String(),
        createdAt: DateTimeSchema,
        default: Type.Boolean(),
        from: Type.Optional(BranchNameSchema),
      }),
    ),
  },
  { title: 'BranchList' },
)

const GitBranchSchema = Type.String({
  description: 'Name of a git branch, with any characters git allows.',
  minLength: 1,
  maxLength: LIMITS.gitBranchLengthMax,
  pattern: TEXT_PATTERN,
  examples: ['feat/login'],
})

export const GitMappingSchema = Type.Object(
  {
    mapping: Type.Array(
      Type.Object({
        gitBranch: Type.String(),
        serviceBranch: Type.Optional(BranchNameSchema),
        xataBranch: Type.Optional(BranchNameSchema),
      }),
    ),
  },
  {
    title: 'GitMapping',
    examples: [{ mapping: [{ gitBranch: 'feat/login', serviceBranch: 'feat-login' }] }],
  },
)

export const GitMappingEntrySchema = Type.Object(
  {
    gitBranch: GitBranchSchema,
    serviceBranch: Type.Optional(BranchNameSchema),
    xataBranch: Type.Optional(BranchNameSchema),
  },
  {
    ...closed,
    title: 'GitMappingEntry',
    description: '`serviceBranch` is required; `xataBranch` is read as another name for it.',
    examples: [{ gitBranch: 'feat/login', serviceBranch: 'feat-login' }],
  },
)
export type GitMappingEntry = Static<typeof GitMappingEntrySchema>

export const GitMappingWarningSchema = Type.Object({ warning: Type.String() })

export const GitBranchQuerySchema = Type.Object({ gitBranch: GitBranchSchema })

export const ResolveBranchQuerySchema = Type.Object({
  gitBranch: Type.Optional(GitBranchSchema),
  fallbackBranch: Type.Optional(BranchNameSchema),
})

export const ResolvedBranchSchema = Type.Object(
  {
    branch: BranchNameSchema,
    reason: Type.Object({
      code: Type.Enum(['FOUND_IN_MAPPING', 'BRANCH_EXISTS', 'FALLBACK_BRANCH', 'DEFAULT_BRANCH']),
      message: Type.String(),
    }),
  },
  {
    title: 'ResolvedBranch',
    examples: [
      {
        branch: 'main',
        reason: { code: 'DEFAULT_BRANCH', message: 'Default branch for this database' },
      },
    ],
  },
)
export type ResolvedBranch = Static<typeof ResolvedBranchSchema>
