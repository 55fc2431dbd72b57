import { Type } from 'typebox'
import { AtQuerySchema } from './checkpoints.js'
import { brokenRule, ViolationCodeSchema } from './errors.js'
import { LIMITS } from './limits.js'
import {
  DatabaseBranchNameSchema,
  GivenIdSchema,
  RecordIdSchema,
  TableNameSchema,
} from './names.js'

const closed = { additionalProperties: false } as const

/** `columns=a,b` and `columns=a&columns=b` are equivalent. */
export const ColumnsQuerySchema = Type.Object({
  columns: Type.Optional(
    Type.Union([Type.Array(Type.String()), Type.String()], {
      description: 'Columns to return, separated by commas or as repeated parameters.',
      examples: ['name,owner.name'],
    }),
  ),
})

export const ReadRecordQuerySchema = Type.Object({
  ...ColumnsQuerySchema.properties,
  ...AtQuerySchema.properties,
})

export const IDEMPOTENCY_KEY_LENGTH_MAX = 255
/** The time for which the answer to a request with an idempotency key is kept. */
export const IDEMPOTENCY_HOURS = 24

export const IdempotencyHeadersSchema = Type.Object({
  'Idempotency-Key': Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: IDEMPOTENCY_KEY_LENGTH_MAX,
      description: `Makes the request repeatable: for ${IDEMPOTENCY_HOURS} hours, the same request with the same key of a user on a branch is executed once, and answered like the first time.`,
      examples: ['import-7'],
    }),
  ),
})

const IfVersionSchema = Type.Optional(
  Type.Integer({
    minimum: 0,
    maximum: Number.MAX_SAFE_INTEGER,
    description:
      'The write is refused unless the record has this version. Each change of a record has a version of its own, until the record is deleted or the branch is reset: a record that is created anew starts at 0 again.',
  }),
)

export const RecordParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  tableName: TableNameSchema,
  recordId: RecordIdSchema,
})

export const WriteRecordQuerySchema = Type.Object({
  ...ColumnsQuerySchema.properties,
  createOnly: Type.Optional(Type.Boolean({ description: 'Refuse the request if the id exists.' })),
  ifVersion: IfVersionSchema,
})

export const UpdateRecordQuerySchema = Type.Object({
  ...ColumnsQuerySchema.properties,
  ifVersion: IfVersionSchema,
})

/** Column names and their values. They are validated against the schema of the branch. */
export const InputRecordSchema = Type.Unsafe<Record<string, unknown>>(
  Type.Object(
    {},
    {
      additionalProperties: true,
      title: 'InputRecord',
      description: 'Column names and their values.',
      examples: [{ email: 'ada@example.com', name: 'Ada' }],
    },
  ),
)

const metadata = Type.Object({
  version: Type.Number({
    description:
      'Starts at 0, also if a record with this id was deleted before, and grows by one with each change.',
  }),
  createdAt: Type.Optional(Type.String()),
  updatedAt: Type.Optional(Type.String()),
})

export const RecordSchema = Type.Object(
  { id: RecordIdSchema, service: Type.Optional(metadata), xata: Type.Optional(metadata) },
  {
    additionalProperties: true,
    title: 'Record',
    description: 'A record. Its metadata is in `service`, or in `xata` for Xata clients.',
    examples: [
      {
        id: 'rec_d2m4o9k8v3q1t7h5n6c0',
        name: 'Ada',
        service: {
          version: 0,
          createdAt: '2026-01-31T09:30:00.000Z',
          updatedAt: '2026-01-31T09:30:00.000Z',
        },
      },
    ],
  },
)

export const BulkInsertSchema = Type.Object(
  { records: Type.Array(InputRecordSchema, { maxItems: LIMITS.bulkRecordsMax }) },
  {
    ...closed,
    title: 'BulkInsert',
    examples: [{ records: [{ email: 'ada@example.com' }, { email: 'grace@example.com' }] }],
  },
)

export const BulkInsertedSchema = Type.Object(
  {
    recordIDs: Type.Optional(Type.Array(RecordIdSchema)),
    records: Type.Optional(Type.Array(RecordSchema)),
    inserted: Type.Optional(
      Type.Integer({ description: 'For a stream: the number of inserted records.' }),
    ),
    updated: Type.Optional(
      Type.Integer({
        description: 'For a stream with `existing=replace`: the number of replaced records.',
      }),
    ),
    skipped: Type.Optional(
      Type.Integer({
        description:
          'For a stream with `existing=skip`: the number of records whose id exists, which were left out.',
      }),
    ),
    failed: Type.Optional(
      Type.Integer({ description: 'For a stream: the number of refused records.' }),
    ),
    errors: Type.Optional(
      Type.Array(
        Type.Object({
          line: Type.Integer(),
          message: Type.String(),
          code: Type.Optional(ViolationCodeSchema),
          ...brokenRule,
        }),
        {
          description: 'For a stream: the first refused lines. Line numbers start at 1.',
        },
      ),
    ),
  },
  {
    title: 'BulkInserted',
    description:
      '`recordIDs`, or `records` if columns were requested. For a stream, the numbers of inserted ' +
      'and refused records.',
    examples: [{ recordIDs: ['rec_d2m4o9k8v3q1t7h5n6c0'] }],
  },
)

export const StreamQuerySchema = Type.Object({
  ...ColumnsQuerySchema.properties,
  mode: Type.Optional(
    Type.Enum(['atomic', 'partial'], {
      description:
        'For a stream: `atomic` inserts all records or none, `partial` inserts every valid record.',
    }),
  ),
  existing: Type.Optional(
    Type.Enum(['refuse', 'skip', 'replace'], {
      default: 'refuse',
      description:
        'For an atomic stream: what happens to a record whose id exists. `refuse` refuses the stream, `skip` leaves the record out, `replace` replaces the existing record.',
    }),
  ),
})

const ColumnListSchema = Type.Optional(Type.Array(Type.String()))

/**
 * One operation of a transaction: an object with exactly one key. Operations are validated against
 * the branch one by one, so that all faults can be reported with their index.
 */
const OperationSchema = Type.Object(
  {
    insert: Type.Optional(
      Type.Object(
        {
          table: TableNameSchema,
          record: InputRecordSchema,
          createOnly: Type.Optional(Type.Boolean()),
          ifVersion: IfVersionSchema,
          columns: ColumnListSchema,
        },
        closed,
      ),
    ),
    update: Type.Optional(
      Type.Object(
        {
          table: TableNameSchema,
          id: GivenIdSchema,
          fields: InputRecordSchema,
          ifVersion: IfVersionSchema,
          upsert: Type.Optional(Type.Boolean()),
          columns: ColumnListSchema,
        },
        closed,
      ),
    ),
    delete: Type.Optional(
      Type.Object(
        {
          table: TableNameSchema,
          id: GivenIdSchema,
          failIfMissing: Type.Optional(Type.Boolean()),
          columns: ColumnListSchema,
        },
        closed,
      ),
    ),
    get: Type.Optional(
      Type.Object({ table: TableNameSchema, id: GivenIdSchema, columns: ColumnListSchema }, closed),
    ),
  },
  {
    ...closed,
    title: 'TransactionOperation',
    description: 'One operation: an object with exactly one key.',
    minProperties: 1,
    maxProperties: 1,
  },
)

export const TransactionSchema = Type.Object(
  { operations: Type.Array(OperationSchema, { maxItems: LIMITS.transactionOperationsMax }) },
  {
    ...closed,
    title: 'Transaction',
    examples: [
      {
        operations: [
          { insert: { table: 'users', record: { email: 'ada@example.com' } } },
          { update: { table: 'users', id: 'ada', fields: { name: 'Ada' }, upsert: true } },
          { get: { table: 'users', id: 'ada', columns: ['name'] } },
          { delete: { table: 'users', id: 'old' } },
        ],
      },
    ],
  },
)

export const TransactionResultSchema = Type.Object(
  {
    results: Type.Array(
      Type.Object({
        operation: Type.Enum(['insert', 'update', 'delete', 'get']),
        rows: Type.Optional(Type.Integer()),
        id: Type.Optional(RecordIdSchema),
        columns: Type.Optional(Type.Object({}, { additionalProperties: true })),
      }),
    ),
  },
  {
    title: 'TransactionResult',
    examples: [{ results: [{ operation: 'insert', rows: 1, id: 'rec_d2m4o9k8v3q1t7h5n6c0' }] }],
  },
)
