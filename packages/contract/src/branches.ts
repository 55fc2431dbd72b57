import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import {
  BranchNameSchema,
  BranchPatternSchema,
  DatabaseBranchNameSchema,
  DatabaseNameSchema,
  DateTimeSchema,
  ExpirySchema,
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

const TtlSchema = Type.Integer({
  title: 'TTL',
  description: 'Seconds that the branch lives on after each use.',
  minimum: 1,
  maximum: LIMITS.ttlSecondsMax,
  examples: [86_400],
})

const ProtectedSchema = Type.Boolean({
  description: 'Refuses deletion and direct schema edits; nor does a protected branch expire.',
})

/** How long a branch lives, where it is shown. What is not set is left out. */
const lifeFields = {
  expiresAt: Type.Optional(ExpirySchema),
  ttl: Type.Optional(TtlSchema),
  protected: Type.Optional(ProtectedSchema),
}

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
    ...lifeFields,
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
    ...lifeFields,
  },
  {
    ...closed,
    title: 'CreateBranch',
    description:
      'The first rule of the database that matches the name supplies what is left out. The branch ' +
      'ends at `expiresAt`, or `ttl` seconds after its last use; both together are refused.',
    examples: [{ from: 'main' }, { from: 'main', ttl: 86_400 }],
  },
)
export type CreateBranch = Static<typeof CreateBranchSchema>

export const UpdateBranchSchema = Type.Object(
  {
    expiresAt: Type.Optional(Type.Union([ExpirySchema, Type.Null()])),
    ttl: Type.Optional(Type.Union([TtlSchema, Type.Null()])),
    protected: Type.Optional(ProtectedSchema),
  },
  {
    ...closed,
    title: 'UpdateBranch',
    description: 'null takes the expiry away. `expiresAt` replaces `ttl`, and the reverse.',
    minProperties: 1,
    examples: [{ ttl: 86_400 }, { expiresAt: null, protected: true }],
  },
)
export type UpdateBranch = Static<typeof UpdateBranchSchema>

export const BranchRuleSchema = Type.Object(
  {
    pattern: BranchPatternSchema,
    from: Type.Optional(BranchNameSchema),
    ttl: Type.Optional(TtlSchema),
    data: Type.Optional(
      Type.Boolean({ description: '`false` starts branches with the schema alone.' }),
    ),
    protected: Type.Optional(ProtectedSchema),
  },
  { ...closed, title: 'BranchRule', description: 'What new branches get by their name.' },
)
export type BranchRule = Static<typeof BranchRuleSchema>

export const BranchRulesSchema = Type.Object(
  { rules: Type.Array(BranchRuleSchema, { maxItems: LIMITS.branchRulesMax }) },
  {
    ...closed,
    title: 'BranchRules',
    description: 'The first rule whose pattern matches the name of a new branch is the one used.',
    examples: [
      {
        rules: [
          { pattern: 'preview-*', from: 'staging', ttl: 86_400 },
          { pattern: 'release-*', protected: true },
        ],
      },
    ],
  },
)

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
        ...lifeFields,
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
  create: Type.Optional(
    Type.Boolean({
      description:
        'Creates and maps a branch for `gitBranch` when there is none, from `fallbackBranch` when ' +
        'that exists. Needs a key that can write.',
    }),
  ),
})

export const ResolvedBranchSchema = Type.Object(
  {
    branch: BranchNameSchema,
    reason: Type.Object({
      code: Type.Enum([
        'FOUND_IN_MAPPING',
        'BRANCH_EXISTS',
        'BRANCH_CREATED',
        'FALLBACK_BRANCH',
        'DEFAULT_BRANCH',
      ]),
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
