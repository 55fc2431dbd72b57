import { type Static, Type } from 'typebox'
import { ErrorBodySchema } from './errors.js'
import { LIMITS } from './limits.js'
import { DateTimeSchema, TEXT_PATTERN } from './names.js'

/** Operations that have ended are kept for this number of days. */
export const OPERATION_DAYS_MAX = 7

/** The most operations that a list has. */
export const OPERATIONS_LISTED_MAX = 100

/** The kinds of requests that may go on as an operation, and builds of indexes. */
const KINDS = [
  'merge',
  'pull',
  'revert',
  'update',
  'delete',
  'migration',
  'import',
  'index',
] as const
export type OperationKind = (typeof KINDS)[number]

const ProgressSchema = Type.Object(
  {
    step: Type.String({
      description: 'What is being done.',
      examples: ['comparing table [items]'],
    }),
    done: Type.Integer({
      description: 'Parts that are done. All of them, when the operation is.',
      minimum: 0,
    }),
    total: Type.Integer({ description: 'All parts. It can grow.', minimum: 1 }),
  },
  { description: 'How far it has come. Parts differ in size.' },
)
export type Progress = Static<typeof ProgressSchema>

const known = {
  id: Type.String({ examples: ['op_d2m4o9k8v3q1t7h5n6c0'] }),
  kind: Type.Enum([...KINDS]),
  state: Type.Enum(['running', 'done', 'failed', 'cancelled'], {
    description: 'Unless it is `done`, the operation has changed nothing.',
  }),
  database: Type.String(),
  branch: Type.String({ description: 'The branch of the request.' }),
  startedAt: DateTimeSchema,
  endedAt: Type.Optional(DateTimeSchema),
  progress: ProgressSchema,
  error: Type.Optional(ErrorBodySchema),
}

export const OperationSchema = Type.Object(
  {
    ...known,
    result: Type.Optional(
      Type.Unknown({
        description: 'The answer that the request would have got. Only if the state is `done`.',
      }),
    ),
  },
  {
    title: 'Operation',
    description:
      'Work that takes longer than a request may and goes on after its answer, and the build of an index.',
    examples: [
      {
        id: 'op_d2m4o9k8v3q1t7h5n6c0',
        kind: 'merge',
        state: 'running',
        database: 'store',
        branch: 'sale',
        startedAt: '2026-01-31T09:30:00.000Z',
        progress: { step: 'comparing table [items]', done: 1, total: 5 },
      },
    ],
  },
)
export type Operation = Static<typeof OperationSchema>

export const OperationStartedSchema = Type.Object(
  { operation: OperationSchema },
  {
    title: 'OperationStarted',
    description:
      'The request takes longer than `answerWithinMs`. It goes on; `GET /operations/{id}` has its outcome.',
  },
)
export type OperationStarted = Static<typeof OperationStartedSchema>

export const OperationsSchema = Type.Object(
  {
    operations: Type.Array(Type.Object(known), { maxItems: OPERATIONS_LISTED_MAX }),
  },
  { title: 'Operations', description: 'Operations of a branch, without their results.' },
)
export type Operations = Static<typeof OperationsSchema>

export const OperationParamsSchema = Type.Object({
  operationId: Type.String({
    minLength: 1,
    maxLength: LIMITS.nameLengthMax,
    pattern: TEXT_PATTERN,
    examples: ['op_d2m4o9k8v3q1t7h5n6c0'],
  }),
})
