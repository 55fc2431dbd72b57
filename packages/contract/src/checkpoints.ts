import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import { EntryIdSchema } from './log.js'
import { DatabaseBranchNameSchema, DateTimeSchema, NAME_PATTERN, TEXT_PATTERN } from './names.js'
import { pageOf } from './paging.js'

const closed = { additionalProperties: false } as const

/** Checkpoints that the service makes before changes are kept for this number of days. */
export const AUTOMATIC_CHECKPOINT_DAYS_MAX = 30
/** Scheduled checkpoints of a branch that can be kept. */
const SCHEDULED_CHECKPOINTS_MAX = 1000
/** The shortest time between two scheduled checkpoints, in seconds. */
export const CHECKPOINT_EVERY_SECONDS_MIN = 60

const NameSchema = Type.String({
  description: 'Unique among the checkpoints of the branch. By default it is the id.',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: NAME_PATTERN,
  examples: ['before-import'],
})

const NoteSchema = Type.String({ maxLength: LIMITS.labelLengthMax, pattern: TEXT_PATTERN })

export const CreateCheckpointSchema = Type.Object(
  { name: Type.Optional(NameSchema), note: Type.Optional(NoteSchema) },
  {
    ...closed,
    title: 'CreateCheckpoint',
    examples: [{ name: 'before-import', note: 'prices of 2026' }],
  },
)
export type CreateCheckpoint = Static<typeof CreateCheckpointSchema>

export const UpdateCheckpointSchema = Type.Object(
  { name: Type.Optional(NameSchema), note: Type.Optional(Type.Union([NoteSchema, Type.Null()])) },
  { ...closed, title: 'UpdateCheckpoint', examples: [{ name: 'prices-2026' }] },
)
export type UpdateCheckpoint = Static<typeof UpdateCheckpointSchema>

const checkpointExample = {
  id: 'cp_d2m4o9k8v3q1t7h5n6c0',
  name: 'before-import',
  note: 'prices of 2026',
  kind: 'manual',
  createdAt: '2026-01-31T09:30:00.000Z',
} as const

export const CheckpointSchema = Type.Object(
  {
    id: Type.String(),
    name: Type.String(),
    note: Type.Optional(Type.String()),
    kind: Type.Enum(['manual', 'automatic', 'scheduled'], {
      description:
        '`automatic`: made by the service before a change. `scheduled`: made by the schedule of the branch.',
    }),
    before: Type.Optional(
      Type.String({ description: 'The kind of the change that an automatic one was made before.' }),
    ),
    createdAt: DateTimeSchema,
    entry: Type.Optional(EntryIdSchema),
  },
  { title: 'Checkpoint', examples: [checkpointExample] },
)
export type Checkpoint = Static<typeof CheckpointSchema>

const page = pageOf('checkpoints')

export const CheckpointListSchema = Type.Object(
  {
    checkpoints: Type.Array(CheckpointSchema),
    meta: page.meta,
  },
  { title: 'CheckpointList', description: 'Checkpoints, newest first.' },
)
export type CheckpointList = Static<typeof CheckpointListSchema>

export const CheckpointListQuerySchema = Type.Object(page.query)
export type CheckpointListQuery = Static<typeof CheckpointListQuerySchema>

export const CheckpointParamsSchema = Type.Object({
  databaseBranch: DatabaseBranchNameSchema,
  checkpoint: Type.String({
    description: 'The id or the name of a checkpoint.',
    minLength: 1,
    maxLength: LIMITS.nameLengthMax,
    pattern: TEXT_PATTERN,
    examples: ['before-import'],
  }),
})

export const CheckpointScheduleSchema = Type.Object(
  {
    every: Type.Integer({
      description: 'Seconds between two checkpoints.',
      minimum: CHECKPOINT_EVERY_SECONDS_MIN,
      maximum: LIMITS.ttlSecondsMax,
    }),
    keep: Type.Integer({
      description: 'The number of scheduled checkpoints that are kept.',
      minimum: 1,
      maximum: SCHEDULED_CHECKPOINTS_MAX,
    }),
  },
  {
    ...closed,
    title: 'CheckpointSchedule',
    description: 'Makes a checkpoint regularly, and keeps the newest ones.',
    examples: [{ every: 3600, keep: 24 }],
  },
)
export type CheckpointSchedule = Static<typeof CheckpointScheduleSchema>

/** Names a state of the past, as a parameter or a field of a request. */
export const AtSchema = Type.String({
  description:
    'A state of the past: the id or the name of a checkpoint of the branch, or a time (RFC 3339), which ' +
    'stands for the newest checkpoint at or before it. The header `Offshoot-Checkpoint` of the answer ' +
    'has the id of the checkpoint.',
  minLength: 1,
  maxLength: LIMITS.nameLengthMax,
  pattern: TEXT_PATTERN,
  examples: ['before-import'],
})

export const AtQuerySchema = Type.Object({ at: Type.Optional(AtSchema) })
