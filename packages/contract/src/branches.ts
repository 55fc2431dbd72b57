import { type Static, Type } from 'typebox'
import { AtSchema, CheckpointScheduleSchema } from './checkpoints.js'
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
  description: 'Time to live: the branch expires this many seconds after its last use.',
  minimum: 1,
  maximum: LIMITS.ttlSecondsMax,
  examples: [86_400],
})

const ProtectedSchema = Type.Boolean({
  description:
    'A protected branch does not expire. Requests to delete it or to edit its schema are refused; ' +
    'its schema changes by merges.',
})

/** Approvals that a branch can require of a proposal. */
const REQUIRED_APPROVALS_MAX = 10

const RequiredApprovalsSchema = Type.Integer({
  description:
    'A protected branch that requires approvals changes by proposals alone: each needs this number of ' +
    'approvals by others than its author. All other writes, merges, pulls and resets are refused. Only ' +
    'an owner can lower the number.',
  minimum: 0,
  maximum: REQUIRED_APPROVALS_MAX,
})

/** Expiry and protection of a branch. Fields that are not set are omitted. */
const lifeFields = {
  expiresAt: Type.Optional(ExpirySchema),
  ttl: Type.Optional(TtlSchema),
  protected: Type.Optional(ProtectedSchema),
  requiredApprovals: Type.Optional(RequiredApprovalsSchema),
  checkpoints: Type.Optional(CheckpointScheduleSchema),
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
    at: Type.Optional(AtSchema),
    data: Type.Optional(
      Type.Boolean({
        description: '`false`: the branch gets the schema of its source, but no rows.',
      }),
    ),
    metadata: Type.Optional(BranchMetadataSchema),
    ...lifeFields,
  },
  {
    ...closed,
    title: 'CreateBranch',
    description:
      'Fields that are left out are taken from the first rule of the database that matches the ' +
      'name. The branch expires at `expiresAt`, or `ttl` seconds after its last use. A request with ' +
      'both is refused.',
    examples: [{ from: 'main' }, { from: 'main', ttl: 86_400 }],
  },
)
export type CreateBranch = Static<typeof CreateBranchSchema>

export const UpdateBranchSchema = Type.Object(
  {
    expiresAt: Type.Optional(Type.Union([ExpirySchema, Type.Null()])),
    ttl: Type.Optional(Type.Union([TtlSchema, Type.Null()])),
    protected: Type.Optional(ProtectedSchema),
    requiredApprovals: Type.Optional(RequiredApprovalsSchema),
    checkpoints: Type.Optional(Type.Union([CheckpointScheduleSchema, Type.Null()])),
  },
  {
    ...closed,
    title: 'UpdateBranch',
    description:
      'A null removes the expiry. Setting `expiresAt` removes `ttl`, and setting `ttl` replaces ' +
      '`expiresAt`.',
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
      Type.Boolean({
        description: '`false`: branches get the schema of their source, but no rows.',
      }),
    ),
    protected: Type.Optional(ProtectedSchema),
    requiredApprovals: Type.Optional(RequiredApprovalsSchema),
    checkpoints: Type.Optional(CheckpointScheduleSchema),
  },
  {
    ...closed,
    title: 'BranchRule',
    description: 'Settings for new branches whose name matches `pattern`.',
  },
)
export type BranchRule = Static<typeof BranchRuleSchema>

export const BranchRulesSchema = Type.Object(
  { rules: Type.Array(BranchRuleSchema, { maxItems: LIMITS.branchRulesMax }) },
  {
    ...closed,
    title: 'BranchRules',
    description: 'A new branch uses the first rule whose pattern matches its name.',
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
        merges: Type.Optional(
          Type.Array(Type.Object({ from: BranchNameSchema, at: DateTimeSchema }), {
            description:
              'The last merge or pull from each of the other branches into this one, if there was any ' +
              'since the last compaction of the history.',
          }),
        ),
        ...lifeFields,
      }),
    ),
  },
  { title: 'BranchList' },
)

const GitBranchSchema = Type.String({
  description: 'Name of a git branch. It may contain any character that git allows.',
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
    description: '`serviceBranch` is required. `xataBranch` is an alias of it.',
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
        'If no branch belongs to `gitBranch`, create one and add it to the mapping. It is forked ' +
        'from `fallbackBranch`, if that exists. Requires an API key with write access.',
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
