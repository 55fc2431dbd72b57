import { type Static, Type } from 'typebox'
import { AtSchema } from './checkpoints.js'
import { AllowDataLossSchema, DataLossListSchema } from './data-loss.js'
import { LIMITS } from './limits.js'
import { EntryIdSchema } from './log.js'
import { ConflictPageSchema, conflictFields, ResolutionsSchema } from './merge-conflicts.js'
import {
  BranchNameSchema,
  DatabaseNameSchema,
  GivenIdSchema,
  MigrationStatusSchema,
  NAME_PATTERN,
  TableNameSchema,
  TEXT_PATTERN,
} from './names.js'
import type { SchemaOperation } from './schema-edits.js'

const closed = { additionalProperties: false } as const

const OperationsSchema = Type.Array(Type.Unsafe<SchemaOperation>(Type.Ref('SchemaOperation')))

export const DIFFERENCE_PAGE_SIZE = 20

export const DifferenceQuerySchema = Type.Object({
  against: Type.Optional(
    Type.String({
      description:
        'The state to compare the branch with: `base` (the last state that it has in common with its ' +
        'source, by its fork, a pull or a merge; the default), `fork` (the state that it was forked ' +
        'from or last reset to), `source` (its source now), or the name of a related branch.',
      minLength: 1,
      maxLength: LIMITS.nameLengthMax,
      pattern: NAME_PATTERN,
      examples: ['base'],
    }),
  ),
  at: Type.Optional(AtSchema),
  againstAt: Type.Optional(
    Type.String({
      description:
        'Compares with a checkpoint of the branch `against`: its id, its name, or a time.',
      minLength: 1,
      maxLength: LIMITS.nameLengthMax,
      pattern: TEXT_PATTERN,
      examples: ['before-import'],
    }),
  ),
  table: Type.Optional(TableNameSchema),
  size: Type.Optional(
    Type.Integer({
      description: 'The maximum number of changed records to list per table.',
      minimum: 0,
      maximum: LIMITS.pageSizeMax,
    }),
  ),
  after: Type.Optional(
    Type.String({
      description: 'The `cursor` of the previous page. Requires `table`.',
      minLength: 1,
    }),
  ),
})

const RecordChangeSchema = Type.Object({
  change: Type.Enum(['inserted', 'updated', 'deleted']),
  id: Type.String(),
  record: Type.Optional(
    Type.Object(
      {},
      {
        additionalProperties: true,
        description: 'The columns of an inserted record, or the last columns of a deleted one.',
      },
    ),
  ),
  columns: Type.Optional(
    Type.Object(
      {},
      {
        additionalProperties: true,
        description: 'The changed columns of an updated record, each with `from` and `to`.',
      },
    ),
  ),
})

export const DifferenceSchema = Type.Object(
  {
    branch: BranchNameSchema,
    checkpoint: Type.Optional(
      Type.String({ description: 'The id of the checkpoint of the branch that `at` stands for.' }),
    ),
    against: Type.Object({
      branch: Type.Optional(
        Type.String({ description: 'Omitted if the scope of the API key excludes that branch.' }),
      ),
      checkpoint: Type.Optional(Type.String()),
      at: Type.Enum(['base', 'fork', 'now', 'checkpoint'], {
        description:
          '`fork`: the state that the branch was forked from. `base`: a later state that it has in ' +
          'common with its source. `now`: the current state. `checkpoint`: a checkpoint, named by its id.',
      }),
    }),
    schema: Type.Object({ operations: OperationsSchema }),
    tables: Type.Array(
      Type.Object({
        name: TableNameSchema,
        inserted: Type.Integer(),
        updated: Type.Integer(),
        deleted: Type.Integer(),
        changes: Type.Array(RecordChangeSchema),
        cursor: Type.Optional(Type.String()),
        more: Type.Boolean(),
      }),
    ),
  },
  {
    title: 'Difference',
    examples: [
      {
        branch: 'dev',
        against: { branch: 'main', at: 'fork' },
        schema: { operations: [] },
        tables: [
          {
            name: 'users',
            inserted: 0,
            updated: 1,
            deleted: 0,
            changes: [
              { change: 'updated', id: 'ada', columns: { name: { from: 'Ada', to: 'Ada L.' } } },
            ],
            cursor: 'ada',
            more: false,
          },
        ],
      },
    ],
  },
)

const StrategySchema = Type.Enum(['fail', 'ours', 'theirs'], {
  description:
    'How to resolve changes that contradict each other: `fail` refuses the merge, `ours` keeps the ' +
    'state of the target, `theirs` takes the state of the merged branch.',
})

const OnlySchema = Type.Object(
  {
    tables: Type.Optional(
      Type.Array(TableNameSchema, {
        description: 'Names of tables, as the target or the merged branch calls them.',
        minItems: 1,
        maxItems: LIMITS.onlyMax,
      }),
    ),
    records: Type.Optional(
      Type.Array(Type.Object({ table: TableNameSchema, id: GivenIdSchema }, closed), {
        description:
          'Records that are inserted, updated or deleted as the merged branch has them. Their tables must ' +
          'have the same schema already.',
        minItems: 1,
        maxItems: LIMITS.onlyMax,
      }),
    ),
  },
  {
    ...closed,
    description:
      'Merges only these tables, with their schema, or only these records. Everything else is left out, and ' +
      'is still there in the next difference. Either `tables` or `records`.',
    examples: [{ tables: ['users'] }],
  },
)
export type Only = Static<typeof OnlySchema>

/** The options of a merge. */
export const mergeProperties = {
  only: Type.Optional(OnlySchema),
  dryRun: Type.Optional(Type.Boolean({ description: 'Report the result without applying it.' })),
  strategy: Type.Optional(StrategySchema),
  resolutions: Type.Optional(ResolutionsSchema),
  page: Type.Optional(ConflictPageSchema),
  allowDataLoss: Type.Optional(AllowDataLossSchema),
  tables: Type.Optional(
    Type.Record(
      Type.String(),
      Type.Object(
        {
          strategy: Type.Optional(StrategySchema),
          mode: Type.Optional(
            Type.Enum(['merge', 'skip', 'schema'], {
              description:
                '`merge` merges schema and rows of the table, `skip` leaves the table out, ' +
                '`schema` merges its schema only.',
            }),
          ),
        },
        closed,
      ),
      { description: 'Options for single tables, by table name.' },
    ),
  ),
}

export const MergeRequestSchema = Type.Object(
  {
    into: Type.Optional(BranchNameSchema),
    ...mergeProperties,
  },
  {
    ...closed,
    title: 'MergeRequest',
    description: '`into` defaults to the source of the branch.',
    examples: [{ into: 'main', dryRun: true }],
  },
)
export type MergeRequest = Static<typeof MergeRequestSchema>

export const PullRequestSchema = Type.Object(
  { from: Type.Optional(BranchNameSchema), ...mergeProperties },
  {
    ...closed,
    title: 'PullRequest',
    description: '`from` defaults to the source of the branch.',
    examples: [{ strategy: 'theirs' }],
  },
)
export type PullRequest = Static<typeof PullRequestSchema>

export const RevertRequestSchema = Type.Object(
  {
    entry: Type.Optional(
      Type.String({
        description: 'The entry of the log whose change is taken back.',
        minLength: 1,
        maxLength: LIMITS.nameLengthMax,
        pattern: TEXT_PATTERN,
      }),
    ),
    from: Type.Optional(
      Type.String({
        description:
          'Instead of `entry`: the checkpoint before the changes: its id, its name, or a time.',
        minLength: 1,
        maxLength: LIMITS.nameLengthMax,
        pattern: TEXT_PATTERN,
      }),
    ),
    to: Type.Optional(
      Type.String({
        description: 'Only with `from`: the checkpoint after the changes.',
        minLength: 1,
        maxLength: LIMITS.nameLengthMax,
        pattern: TEXT_PATTERN,
      }),
    ),
    ...mergeProperties,
  },
  {
    ...closed,
    title: 'RevertRequest',
    description: 'Either `entry`, or `from` and `to`. The other fields are those of a merge.',
    examples: [{ entry: 'log_d2m4o9k8v3q1t7h5n6c0', dryRun: true }],
  },
)
export type RevertRequest = Static<typeof RevertRequestSchema>

export const MergeResultSchema = Type.Object(
  {
    merged: Type.Boolean({ description: 'Whether the merge was applied; false for a dry run.' }),
    entry: Type.Optional(EntryIdSchema),
    from: BranchNameSchema,
    into: BranchNameSchema,
    schema: Type.Object({ operations: OperationsSchema }),
    tables: Type.Array(
      Type.Object({
        name: TableNameSchema,
        inserted: Type.Integer(),
        updated: Type.Integer(),
        deleted: Type.Integer(),
      }),
    ),
    ...conflictFields,
    dataLoss: DataLossListSchema,
  },
  {
    title: 'MergeResult',
    examples: [
      {
        merged: true,
        from: 'dev',
        into: 'main',
        schema: { operations: [] },
        tables: [{ name: 'users', inserted: 1, updated: 2, deleted: 0 }],
        conflicts: [],
        conflictCount: 0,
        conflictTables: [],
        dataLoss: [],
      },
    ],
  },
)
export type MergeResult = Static<typeof MergeResultSchema>

export const ResetRequestSchema = Type.Object(
  {
    to: Type.Optional(BranchNameSchema),
    at: Type.Optional(AtSchema),
    dryRun: Type.Optional(
      Type.Boolean({ description: 'Report what would be discarded, and change nothing.' }),
    ),
  },
  {
    ...closed,
    title: 'ResetRequest',
    description:
      '`to` defaults to the source of the branch. With `at`, the branch is reset to a checkpoint of `to`, ' +
      'which then defaults to the branch itself.',
    examples: [{ to: 'before-import' }],
  },
)
export type ResetRequest = Static<typeof ResetRequestSchema>

export const ResetResultSchema = Type.Object(
  {
    databaseName: DatabaseNameSchema,
    branchName: BranchNameSchema,
    status: MigrationStatusSchema,
    entry: Type.Optional(EntryIdSchema),
    difference: Type.Optional(
      Type.Unsafe<Static<typeof DifferenceSchema>>({
        ...DifferenceSchema,
        description:
          'Only for a dry run: the difference between the branch and the state it would be reset to, ' +
          'with the numbers of records and without their values. It would be discarded.',
      }),
    ),
  },
  { title: 'ResetResult' },
)
export type ResetResult = Static<typeof ResetResultSchema>

const amounts = Type.Object({ owned: Type.Integer(), inherited: Type.Integer() })

export const BranchStatsSchema = Type.Object(
  {
    timestamp: Type.String(),
    interval: Type.String(),
    rows: amounts,
    bytes: amounts,
    tables: Type.Array(Type.Object({ name: TableNameSchema, rows: amounts, bytes: amounts })),
  },
  {
    title: 'BranchStats',
    description:
      'Rows and bytes that the branch stores itself (`owned`), and that it inherits from other ' +
      'branches (`inherited`). Inherited bytes are the sizes of the tables that hold the inherited ' +
      'rows; other branches share these tables.',
  },
)
export type BranchStats = Static<typeof BranchStatsSchema>
