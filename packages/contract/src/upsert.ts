import { Type } from 'typebox'
import { brokenRule, ViolationCodeSchema } from './errors.js'
import { LIMITS } from './limits.js'
import { BulkInsertedSchema, InputRecordSchema } from './records.js'

const by = Type.Optional(
  Type.String({
    minLength: 1,
    default: 'id',
    description:
      'How records are found: by their `id`, or by the name of a unique column or of a unique constraint.',
  }),
)

export const UpsertQuerySchema = Type.Object({ by })

const UpsertedRecordSchema = Type.Union([
  InputRecordSchema,
  Type.Unknown({ description: 'What is no record fails alone, as a record at fault does.' }),
])

export const UpsertSchema = Type.Object(
  { records: Type.Array(UpsertedRecordSchema, { maxItems: LIMITS.bulkRecordsMax }), by },
  {
    additionalProperties: false,
    title: 'Upsert',
    examples: [{ records: [{ email: 'ada@example.com', name: 'Ada' }], by: 'email' }],
  },
)

const { inserted, failed, errors } = BulkInsertedSchema.properties

export const UpsertedSchema = Type.Object(
  {
    results: Type.Optional(
      Type.Array(
        Type.Object({
          id: Type.Optional(
            Type.String({
              description:
                'The id of the record. One that has failed may have none, or the invalid one that was given.',
            }),
          ),
          outcome: Type.Enum(['inserted', 'updated', 'unchanged', 'failed'], {
            description:
              '`unchanged`: the record already had the values, and keeps its version. `failed`: the record was refused.',
          }),
          error: Type.Optional(
            Type.Object({
              message: Type.String(),
              code: Type.Optional(ViolationCodeSchema),
              ...brokenRule,
            }),
          ),
        }),
      ),
    ),
    inserted,
    updated: Type.Optional(
      Type.Integer({ description: 'For a stream: the number of updated records.' }),
    ),
    unchanged: Type.Optional(
      Type.Integer({ description: 'For a stream: the number of records that had the values.' }),
    ),
    failed,
    errors,
  },
  {
    title: 'Upserted',
    description:
      '`results`, in the order of the records. For a stream, the numbers of records by outcome, too. A stream of more ' +
      `records than a body may have (${LIMITS.bulkRecordsMax}) is answered with the numbers alone.`,
    examples: [{ results: [{ id: 'rec_d2m4o9k8v3q1t7h5n6c0', outcome: 'inserted' }] }],
  },
)
