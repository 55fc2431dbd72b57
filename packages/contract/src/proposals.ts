import { type Static, Type } from 'typebox'
import { DifferenceSchema, MergeResultSchema, mergeProperties } from './branch-changes.js'
import { LIMITS } from './limits.js'
import {
  BranchNameSchema,
  DatabaseNameSchema,
  DateTimeSchema,
  TableNameSchema,
  TEXT_PATTERN,
} from './names.js'
import { pageOf, pageOfNumbered } from './paging.js'

const closed = { additionalProperties: false } as const

/** Characters of the title of a proposal. */
export const PROPOSAL_TITLE_LENGTH_MAX = 255
/** Characters of the text of a proposal, a comment or a review. */
export const PROPOSAL_TEXT_LENGTH_MAX = 10_000
/** The newest merged and closed proposals of a database are kept, up to this number. */
export const ENDED_PROPOSALS_MAX = 500
/** Merged and closed proposals are kept for this number of days. */
export const ENDED_PROPOSAL_DAYS_MAX = 365

const TextSchema = Type.String({
  maxLength: PROPOSAL_TEXT_LENGTH_MAX,
  pattern: TEXT_PATTERN,
})

const WordsSchema = Type.String({
  minLength: 1,
  maxLength: PROPOSAL_TEXT_LENGTH_MAX,
  pattern: TEXT_PATTERN,
})

const TitleSchema = Type.String({
  minLength: 1,
  maxLength: PROPOSAL_TITLE_LENGTH_MAX,
  pattern: TEXT_PATTERN,
})

export const CreateProposalSchema = Type.Object(
  {
    from: BranchNameSchema,
    into: Type.Optional(BranchNameSchema),
    title: TitleSchema,
    body: Type.Optional(TextSchema),
  },
  {
    ...closed,
    title: 'CreateProposal',
    description:
      '`into` defaults to the source of the branch `from`. A key that reaches only `from` can propose to ' +
      'merge it into its source or into the default branch.',
    examples: [{ from: 'sale', into: 'main', title: 'Prices of the sale' }],
  },
)
export type CreateProposal = Static<typeof CreateProposalSchema>

export const UpdateProposalSchema = Type.Object(
  { title: Type.Optional(TitleSchema), body: Type.Optional(TextSchema) },
  {
    ...closed,
    title: 'UpdateProposal',
    description: 'Fields that are not given stay as they are.',
    minProperties: 1,
    examples: [{ title: 'Prices of the winter sale' }],
  },
)
export type UpdateProposal = Static<typeof UpdateProposalSchema>

const PersonSchema = Type.Object({
  id: Type.String({ description: 'The id of the user.' }),
  email: Type.Optional(Type.String({ description: 'Omitted if the user no longer exists.' })),
  key: Type.Optional(Type.String({ description: 'The name of the API key.' })),
})

const StateSchema = Type.Enum(['open', 'merged', 'closed'])

const SideSchema = Type.Enum(['from', 'into'])

const VerdictSchema = Type.Enum(['approve', 'requestChanges'])

const ReviewSchema = Type.Object({
  by: PersonSchema,
  verdict: VerdictSchema,
  body: Type.Optional(Type.String()),
  revision: Type.Integer({ description: 'The revision that was reviewed.' }),
  stale: Type.Boolean({
    description: 'Whether one of the branches has changed since the review.',
  }),
  createdAt: DateTimeSchema,
})
export type Review = Static<typeof ReviewSchema>

const summaryFields = {
  number: Type.Integer(),
  state: StateSchema,
  title: Type.String(),
  from: BranchNameSchema,
  into: Type.Optional(
    Type.String({ description: 'Omitted if the scope of the API key excludes that branch.' }),
  ),
  author: PersonSchema,
  comments: Type.Integer({ description: 'The number of comments.' }),
  createdAt: DateTimeSchema,
  endedAt: Type.Optional(
    Type.String({ format: 'date-time', description: 'When it was merged or closed.' }),
  ),
  endedBy: Type.Optional(Type.String({ description: 'The id of the user who did it.' })),
  entry: Type.Optional(
    Type.String({ description: 'The entry of the log that its merge has made.' }),
  ),
}

const summaryExample = {
  number: 7,
  state: 'open',
  title: 'Prices of the sale',
  from: 'sale',
  into: 'main',
  author: { id: 'usr_d2m4o9k8v3q1t7h5n6bg', email: 'ada@example.com', key: 'laptop' },
  comments: 0,
  createdAt: '2026-01-31T09:30:00.000Z',
} as const

const ProposalSummarySchema = Type.Object(summaryFields, { title: 'ProposalSummary' })

export const ProposalSchema = Type.Object(
  {
    ...summaryFields,
    body: Type.String(),
    revision: Type.Integer({
      description:
        'Counts the states that were kept for reviews. A review is stale if there is a later revision, ' +
        'or if a branch has changed since.',
    }),
    changed: Type.Array(SideSchema, {
      description: 'The branches that have changed since the revision.',
    }),
    deleted: Type.Array(SideSchema, { description: 'The branches that no longer exist.' }),
    requiredApprovals: Type.Integer({
      description: 'The approvals that the target requires, by others than the author.',
    }),
    approvals: Type.Integer({ description: 'The approvals that count now.' }),
    reviews: Type.Array(ReviewSchema),
  },
  {
    title: 'Proposal',
    examples: [
      {
        ...summaryExample,
        body: '',
        revision: 1,
        changed: [],
        deleted: [],
        requiredApprovals: 1,
        approvals: 0,
        reviews: [],
      },
    ],
  },
)
export type Proposal = Static<typeof ProposalSchema>

/** The largest `integer` of PostgreSQL. */
const NUMBER_MAX = 2_147_483_647

const proposalPage = pageOfNumbered('proposals', NUMBER_MAX)

export const ProposalListSchema = Type.Object(
  {
    proposals: Type.Array(ProposalSummarySchema),
    meta: proposalPage.meta,
  },
  { title: 'ProposalList', description: 'Proposals, newest first.' },
)
export type ProposalList = Static<typeof ProposalListSchema>

const NumberSchema = Type.Integer({ minimum: 1, maximum: NUMBER_MAX, examples: [1] })

export const ProposalListQuerySchema = Type.Object({
  state: Type.Optional(
    Type.Enum(['open', 'merged', 'closed', 'all'], { description: 'By default `open`.' }),
  ),
  from: Type.Optional(BranchNameSchema),
  ...proposalPage.query,
})
export type ProposalListQuery = Static<typeof ProposalListQuerySchema>

export const ProposalsParamsSchema = Type.Object({ databaseName: DatabaseNameSchema })

export const ProposalParamsSchema = Type.Object({
  databaseName: DatabaseNameSchema,
  number: NumberSchema,
})

const PlaceFields = {
  table: Type.Optional(TableNameSchema),
  record: Type.Optional(
    Type.String({
      description: 'The id of a record. Needs `table`.',
      minLength: 1,
      maxLength: LIMITS.nameLengthMax,
      pattern: TEXT_PATTERN,
    }),
  ),
  column: Type.Optional(
    Type.String({
      description:
        'A column, or the path of one in an object, such as `address.city`. Needs `record`.',
      minLength: 1,
      maxLength: LIMITS.nameLengthMax,
      pattern: '^[a-zA-Z0-9_\\-~.]+$',
    }),
  ),
}

export const CreateCommentSchema = Type.Object(
  { body: WordsSchema, ...PlaceFields },
  {
    ...closed,
    title: 'CreateComment',
    description:
      'A comment is about the whole proposal, a table, a record (`table` and `record`) or a cell ' +
      '(`table`, `record` and `column`).',
    examples: [
      { body: 'Looks good.' },
      { body: 'Is this in euros?', table: 'items', record: 'tea', column: 'price' },
    ],
  },
)
export type CreateComment = Static<typeof CreateCommentSchema>

export const CommentSchema = Type.Object(
  {
    id: Type.String(),
    by: PersonSchema,
    body: Type.String(),
    table: Type.Optional(Type.String()),
    record: Type.Optional(Type.String()),
    column: Type.Optional(Type.String()),
    revision: Type.Integer(),
    createdAt: DateTimeSchema,
  },
  { title: 'Comment' },
)
export type Comment = Static<typeof CommentSchema>

const commentPage = pageOf('comments')

export const CommentListSchema = Type.Object(
  {
    comments: Type.Array(CommentSchema),
    meta: commentPage.meta,
  },
  { title: 'CommentList', description: 'Comments, oldest first.' },
)
export type CommentList = Static<typeof CommentListSchema>

export const CommentListQuerySchema = Type.Object(commentPage.query)
export type CommentListQuery = Static<typeof CommentListQuerySchema>

export const CreateReviewSchema = Type.Object(
  {
    verdict: Type.Optional(
      Type.Enum(['approve', 'requestChanges'], { description: 'By default `approve`.' }),
    ),
    body: Type.Optional(TextSchema),
    revision: Type.Optional(
      Type.Integer({
        description:
          'The revision that was read. If a branch has changed since, the review is refused, and the ' +
          'proposal gets a new revision.',
        minimum: 1,
        maximum: NUMBER_MAX,
      }),
    ),
  },
  {
    ...closed,
    title: 'CreateReview',
    examples: [
      { verdict: 'approve', revision: 1 },
      { verdict: 'requestChanges', body: 'No.' },
    ],
  },
)
export type CreateReview = Static<typeof CreateReviewSchema>

/** A proposal is merged as a whole. */
const { only: _part, ...wholeProperties } = mergeProperties

export const MergeProposalSchema = Type.Object(wholeProperties, {
  ...closed,
  title: 'MergeProposal',
  description:
    'Like the merge of a branch. If the target requires approvals, `strategy`, `tables` and `resolutions` ' +
    'are refused: nobody has reviewed them.',
  examples: [{ dryRun: true }],
})
export type MergeProposal = Static<typeof MergeProposalSchema>

export const ProposalDifferenceQuerySchema = Type.Object({
  table: Type.Optional(TableNameSchema),
  size: Type.Optional(Type.Integer({ minimum: 0, maximum: LIMITS.pageSizeMax })),
  after: Type.Optional(
    Type.String({
      description: 'The `cursor` of the previous page. Requires `table`.',
      minLength: 1,
    }),
  ),
})
export type ProposalDifferenceQuery = Static<typeof ProposalDifferenceQuerySchema>

export const ProposalDifferenceSchema = Type.Object(
  {
    live: Type.Boolean({
      description:
        'Whether the branches were compared as they are now. A proposal that was merged or closed, or ' +
        'whose branch was deleted, shows its last revision.',
    }),
    revision: Type.Integer(),
    difference: DifferenceSchema,
    merge: Type.Optional(
      Type.Unsafe<Static<typeof MergeResultSchema>>({
        ...MergeResultSchema,
        description:
          'What a merge would do now, with its conflicts. Only for a live difference, with the first page, ' +
          'and for a key that can write to the target.',
      }),
    ),
  },
  { title: 'ProposalDifference' },
)
