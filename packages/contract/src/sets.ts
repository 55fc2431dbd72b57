import { type Static, Type } from 'typebox'
import { InputRecordSchema } from './records.js'

const closed = { additionalProperties: false } as const

const set = {
  filter: Type.Optional(
    Type.Unknown({ description: 'A filter as in queries. It must have a condition.' }),
  ),
  all: Type.Optional(
    Type.Boolean({ description: 'Stands for all records of the table, instead of a filter.' }),
  ),
  dryRun: Type.Optional(
    Type.Boolean({
      description:
        'Stores nothing. The answer or the refusal is that of the same request without it.',
    }),
  ),
}

export const UpdateSetSchema = Type.Object(
  { ...set, set: InputRecordSchema },
  {
    ...closed,
    title: 'UpdateSet',
    examples: [{ filter: { plan: 'trial' }, set: { plan: 'free', changes: { $increment: 1 } } }],
  },
)

export const UpdatedSetSchema = Type.Object(
  { updated: Type.Integer({ description: 'The number of changed records.' }) },
  { title: 'UpdatedSet', examples: [{ updated: 120 }] },
)

export type UpdatedSet = Static<typeof UpdatedSetSchema>

export const DeleteSetSchema = Type.Object(set, {
  ...closed,
  title: 'DeleteSet',
  examples: [{ filter: { 'service.updatedAt': { $lt: '2026-01-01T00:00:00Z' } }, dryRun: true }],
})

export const DeletedSetSchema = Type.Object(
  {
    deleted: Type.Integer({ description: 'The number of deleted records that meet the filter.' }),
    linked: Type.Optional(
      Type.Record(
        Type.String(),
        Type.Object({
          deleted: Type.Optional(
            Type.Integer({ description: 'The number of records that were deleted with them.' }),
          ),
          cleared: Type.Optional(Type.Integer({ description: 'The number of links set to null.' })),
        }),
        {
          description:
            'The records that links to the deleted ones have deleted or changed, by table.',
        },
      ),
    ),
  },
  {
    title: 'DeletedSet',
    examples: [{ deleted: 120, linked: { orders: { deleted: 50 }, visits: { cleared: 7 } } }],
  },
)

export type DeletedSet = Static<typeof DeletedSetSchema>
