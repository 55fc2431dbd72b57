import { type Static, Type } from 'typebox'
import { AtQuerySchema } from './checkpoints.js'
import {
  DatabaseBranchNameSchema,
  DateTimeSchema,
  RecordIdSchema,
  TableNameSchema,
} from './names.js'
import { RecordSchema } from './records.js'

/** Versions of a page, unless the request says otherwise. */
export const VERSIONS_PAGE_SIZE = 20
/** Versions of a page. */
export const VERSIONS_PAGE_SIZE_MAX = 200
/** States that the answer for a table without a history has: those of checkpoints, and those of other branches. */
export const RECORD_STATES_MAX = 20

/** The moment of the change, in microseconds. With a `b`, the state before the oldest change that is kept. */
export const VERSION_PATTERN = '^[1-9][0-9]{0,17}b?$'

const VersionSchema = Type.String({
  title: 'Version',
  description: 'Names a version of a record.',
  pattern: VERSION_PATTERN,
  examples: ['1769851800000000'],
})

export const RecordHistoryQuerySchema = Type.Object({
  size: Type.Optional(
    Type.Integer({
      description: 'The maximum number of versions to list.',
      minimum: 1,
      maximum: VERSIONS_PAGE_SIZE_MAX,
    }),
  ),
  cursor: Type.Optional(
    Type.String({ description: 'The `cursor` of the previous page.', pattern: VERSION_PATTERN }),
  ),
  ...AtQuerySchema.properties,
})

export const RecordVersionParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  tableName: TableNameSchema,
  recordId: RecordIdSchema,
  version: VersionSchema,
})

const KnownRecordSchema = Type.Union([RecordSchema, Type.Null()], {
  description: 'The record, without files and computed columns. Null: it did not exist.',
})

export const RecordVersionSchema = Type.Object(
  {
    version: VersionSchema,
    at: DateTimeSchema,
    operation: Type.Enum(['insert', 'update', 'delete'], {
      description: 'What was done to the record.',
    }),
    cause: Type.Optional(
      Type.Enum(['merge', 'pull', 'revert'], {
        description:
          'The operation on the branch that has changed the record. Omitted for a write of the record.',
      }),
    ),
    user: Type.Optional(
      Type.String({ description: 'The id of the user. Omitted if it is not known.' }),
    ),
    email: Type.Optional(Type.String({ description: 'Omitted if the user no longer exists.' })),
    key: Type.Optional(Type.String({ description: 'The name of the API key.' })),
    record: KnownRecordSchema,
    unconverted: Type.Optional(
      Type.Record(Type.String(), Type.String(), {
        description:
          'By column, the values of the record that do not convert to the type that the column has now. Such a version cannot be restored.',
      }),
    ),
    changes: Type.Optional(
      Type.Record(Type.String(), Type.Object({ from: Type.Unknown(), to: Type.Unknown() }), {
        description: 'The columns that an update has changed, with their values before and after.',
      }),
    ),
  },
  { title: 'RecordVersion' },
)

const RecordStateSchema = Type.Object(
  {
    checkpoint: Type.Optional(
      Type.Object({ id: Type.String(), name: Type.String(), createdAt: DateTimeSchema }),
    ),
    branch: Type.Optional(Type.String({ description: 'The name of another branch.' })),
    record: KnownRecordSchema,
  },
  { title: 'RecordState' },
)

export const RecordHistorySchema = Type.Object(
  {
    versions: Type.Array(RecordVersionSchema),
    states: Type.Optional(
      Type.Array(RecordStateSchema, {
        description:
          'Only for a table without a history: the record at the last checkpoints of the branch, newest first, and on other branches.',
      }),
    ),
    meta: Type.Object({
      cursor: Type.Optional(Type.String({ description: 'The last version of the page.' })),
      more: Type.Boolean(),
    }),
  },
  {
    title: 'RecordHistory',
    description: 'The versions of a record, newest first.',
    examples: [
      {
        versions: [
          {
            version: '1769851800000000',
            at: '2026-01-31T09:30:00.000Z',
            operation: 'update',
            user: 'usr_d2m4o9k8v3q1t7h5n6bg',
            email: 'ada@example.com',
            key: 'ci',
            record: {
              id: 'pen',
              price: 3,
              service: {
                version: 1,
                createdAt: '2026-01-30T09:30:00.000Z',
                updatedAt: '2026-01-31T09:30:00.000Z',
              },
            },
            changes: { price: { from: 2, to: 3 } },
          },
        ],
        meta: { cursor: '1769851800000000', more: true },
      },
    ],
  },
)
export type RecordHistory = Static<typeof RecordHistorySchema>
