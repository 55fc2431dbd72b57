import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import {
  BranchPatternSchema,
  DatabaseNameSchema,
  DateTimeSchema,
  EmailSchema,
  ExpirySchema,
  LabelSchema,
  RecordIdSchema,
  TEXT_PATTERN,
  WorkspaceIdSchema,
} from './names.js'

const closed = { additionalProperties: false } as const

const ImageSchema = Type.String({ maxLength: LIMITS.labelLengthMax, pattern: TEXT_PATTERN })

export const UpdateUserSchema = Type.Object(
  { email: EmailSchema, fullname: LabelSchema, image: ImageSchema },
  {
    ...closed,
    title: 'UpdateUser',
    examples: [{ email: 'ada@example.com', fullname: 'Ada', image: '' }],
  },
)
export type UpdateUser = Static<typeof UpdateUserSchema>

export const UserSchema = Type.Object(
  { id: RecordIdSchema, email: EmailSchema, fullname: Type.String(), image: Type.String() },
  { $id: 'User', title: 'User' },
)
export type User = Static<typeof UserSchema>

export const CreateUserSchema = Type.Object(
  { email: EmailSchema, fullname: LabelSchema, image: Type.Optional(ImageSchema) },
  {
    ...closed,
    title: 'CreateUser',
    examples: [{ email: 'grace@example.com', fullname: 'Grace' }],
  },
)
export type CreateUser = Static<typeof CreateUserSchema>

export const CreatedUserSchema = Type.Object(
  {
    id: RecordIdSchema,
    email: EmailSchema,
    fullname: Type.String(),
    image: Type.String(),
    key: Type.String({ description: 'The first API key of the user. It cannot be shown again.' }),
  },
  { title: 'CreatedUser' },
)

const KeyScopeSchema = Type.Object(
  {
    workspaces: Type.Optional(Type.Array(WorkspaceIdSchema, { minItems: 1, maxItems: 100 })),
    databases: Type.Optional(Type.Array(DatabaseNameSchema, { minItems: 1, maxItems: 100 })),
    branches: Type.Optional(Type.Array(BranchPatternSchema, { minItems: 1, maxItems: 100 })),
    access: Type.Optional(Type.Enum(['read', 'write'])),
    audit: Type.Optional(
      Type.Boolean({
        description:
          'Whether the key can read the audit log of the workspace. A key that is limited by its ' +
          'scope needs it; others need not.',
      }),
    ),
    requestsPerSecond: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
    requestsAtOnce: Type.Optional(Type.Integer({ minimum: 1, maximum: 1_000_000 })),
  },
  {
    ...closed,
    title: 'KeyScope',
    description:
      'Restricts what an API key can access, and its request rate. Fields that are left out do not ' +
      'restrict it.',
    examples: [{ databases: ['shop'], branches: ['preview-*'], access: 'write' }],
  },
)
export type KeyScope = Static<typeof KeyScopeSchema>

export const KeyNameParamsSchema = Type.Object({
  keyName: Type.String({
    minLength: 1,
    maxLength: LIMITS.nameLengthMax,
    pattern: TEXT_PATTERN,
    description: 'Name of an API key. It is unique among the keys of the user.',
    examples: ['ci'],
  }),
})

export const CreateKeySchema = Type.Object(
  { expiresAt: Type.Optional(ExpirySchema), scope: Type.Optional(KeyScopeSchema) },
  { ...closed, title: 'CreateKey', examples: [{ scope: { access: 'read' } }] },
)
export type CreateKey = Static<typeof CreateKeySchema>

const keyFields = {
  name: Type.String(),
  createdAt: DateTimeSchema,
  expiresAt: Type.Optional(DateTimeSchema),
  scope: Type.Optional(KeyScopeSchema),
}

export const KeyListSchema = Type.Object(
  { keys: Type.Array(Type.Object(keyFields)) },
  { title: 'KeyList' },
)

export const SessionListSchema = Type.Object(
  {
    sessions: Type.Array(
      Type.Object({
        id: Type.String(),
        key: Type.String({
          description: 'Name of the key that the session belongs to. The session ends with it.',
        }),
        createdAt: DateTimeSchema,
        expiresAt: DateTimeSchema,
        isCurrent: Type.Boolean({ description: 'Whether the request uses this session.' }),
      }),
    ),
  },
  { title: 'SessionList' },
)

export const SessionParamsSchema = Type.Object({
  sessionId: Type.String({
    pattern: '^[1-9][0-9]{0,17}$',
    description: 'Id of a session of the console.',
    examples: ['42'],
  }),
})

export const CreatedKeySchema = Type.Object(
  {
    ...keyFields,
    key: Type.String({ description: 'The API key itself. It cannot be shown again.' }),
  },
  { title: 'CreatedKey' },
)
