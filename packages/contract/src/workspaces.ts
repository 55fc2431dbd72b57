import { type Static, Type } from 'typebox'
import { LIMITS } from './limits.js'
import {
  DateTimeSchema,
  EmailSchema,
  LabelSchema,
  RecordIdSchema,
  WorkspaceIdSchema,
} from './names.js'

const closed = { additionalProperties: false } as const

export const WorkspaceParamsSchema = Type.Object({ workspaceId: WorkspaceIdSchema })

const RoleSchema = Type.Enum(['owner', 'maintainer'], { title: 'Role' })
export type Role = Static<typeof RoleSchema>

export const WorkspaceSchema = Type.Object(
  {
    id: WorkspaceIdSchema,
    name: Type.String(),
    slug: Type.String(),
    memberCount: Type.Integer(),
    plan: Type.String({ description: 'Always `free`. The field exists for compatibility.' }),
  },
  { $id: 'Workspace', title: 'Workspace' },
)
export type Workspace = Static<typeof WorkspaceSchema>

export const WriteWorkspaceSchema = Type.Object(
  {
    name: LabelSchema,
    slug: Type.Optional(
      Type.String({ minLength: 2, maxLength: 50, pattern: '^[a-zA-Z0-9][a-zA-Z0-9_\\-~]+$' }),
    ),
  },
  { ...closed, title: 'WriteWorkspace', examples: [{ name: 'Acme' }] },
)
export type WriteWorkspace = Static<typeof WriteWorkspaceSchema>

export const WorkspaceListSchema = Type.Object(
  {
    workspaces: Type.Array(
      Type.Object({
        id: WorkspaceIdSchema,
        unique_id: Type.String(),
        name: Type.String(),
        slug: Type.String(),
        role: RoleSchema,
        plan: Type.String(),
      }),
    ),
  },
  { title: 'WorkspaceList' },
)

export const WorkspaceSettingsSchema = Type.Object(
  { dedicatedClusters: Type.Boolean() },
  { title: 'WorkspaceSettings' },
)
export const UpdateWorkspaceSettingsSchema = Type.Object(
  {
    postgresEnabled: Type.Optional(Type.Boolean({ description: 'Accepted and ignored.' })),
    dedicatedClusters: Type.Optional(Type.Boolean({ description: 'Accepted and ignored.' })),
  },
  { ...closed, examples: [{ postgresEnabled: true }] },
)

const inviteFields = {
  inviteId: Type.String(),
  email: EmailSchema,
  expires: DateTimeSchema,
  role: RoleSchema,
}
export const InviteSchema = Type.Object(inviteFields, { $id: 'Invite', title: 'Invite' })

export const CreatedInviteSchema = Type.Object(
  {
    ...inviteFields,
    key: Type.String({
      description: 'The key with which the user accepts the invite. It cannot be shown again.',
      examples: ['ik_9aZ'],
    }),
  },
  { title: 'CreatedInvite' },
)

export const CreateInviteSchema = Type.Object(
  { email: EmailSchema, role: RoleSchema },
  { ...closed, examples: [{ email: 'grace@example.com', role: 'maintainer' }] },
)
export const WriteRoleSchema = Type.Object(
  { role: RoleSchema },
  { ...closed, examples: [{ role: 'owner' }] },
)

export const MemberListSchema = Type.Object(
  {
    members: Type.Array(
      Type.Object({
        userId: RecordIdSchema,
        fullname: Type.String(),
        email: EmailSchema,
        role: RoleSchema,
      }),
    ),
    invites: Type.Array(Type.Ref('Invite')),
  },
  { title: 'MemberList' },
)

export const MemberParamsSchema = Type.Object({
  workspaceId: WorkspaceIdSchema,
  userId: RecordIdSchema,
})
export const InviteParamsSchema = Type.Object({
  workspaceId: WorkspaceIdSchema,
  invite: Type.String({
    minLength: 1,
    maxLength: LIMITS.nameLengthMax,
    pattern: '^[a-zA-Z0-9_]+$',
    description: 'Id of the invite. To accept an invite: its key.',
    examples: ['inv_d2m4o9k8v3q1t7h5n6c0'],
  }),
})

const RegionSchema = Type.Object({ id: Type.String(), name: Type.String() })
export type Region = Readonly<Static<typeof RegionSchema>>

export const RegionListSchema = Type.Object(
  { regions: Type.Array(RegionSchema) },
  { title: 'RegionList', examples: [{ regions: [{ id: 'local', name: 'local' }] }] },
)
