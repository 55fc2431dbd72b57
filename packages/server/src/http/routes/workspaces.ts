import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { DatabaseListSchema } from '@offshoot/contract/databases'
import { AppError } from '@offshoot/contract/errors'
import { AuditQuerySchema, LogSchema } from '@offshoot/contract/log'
import { UsageSchema, WriteQuotaSchema } from '@offshoot/contract/quotas'
import {
  CreatedInviteSchema,
  CreateInviteSchema,
  InviteParamsSchema,
  MemberListSchema,
  MemberParamsSchema,
  RegionListSchema,
  UpdateWorkspaceSettingsSchema,
  WorkspaceListSchema,
  WorkspaceParamsSchema,
  WorkspaceSettingsSchema,
  WriteRoleSchema,
  WriteWorkspaceSchema,
} from '@offshoot/contract/workspaces'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { resolveWorkspace } from '../../domain/access/resolve.js'
import { type Need, requireWholeWorkspace } from '../../domain/access/scope.js'
import { readDatabases } from '../../domain/databases/operations.js'
import { exportAuditLog, readAuditLog } from '../../domain/log/operations.js'
import { changeQuota, readUsage } from '../../domain/quotas/operations.js'
import {
  acceptInvite,
  cancelInvite,
  changeInvite,
  changeRole,
  createInvite,
  readMembers,
  removeMember,
  renewInvite,
} from '../../domain/workspaces/members.js'
import {
  createWorkspace,
  deleteWorkspace,
  readWorkspace,
  readWorkspaces,
  renameWorkspace,
} from '../../domain/workspaces/operations.js'
import { Empty, refusals } from '../responses.js'
import { sendLines } from '../send-json.js'
import type { Services } from '../services.js'

/**
 * GET    /workspaces                            POST   /workspaces
 * GET    /workspaces/:workspaceId               PUT, DELETE
 * GET    /workspaces/:workspaceId/settings      PATCH
 * GET    /workspaces/:workspaceId/regions
 * GET    /workspaces/:workspaceId/dbs
 * GET    /workspaces/:workspaceId/usage
 * GET    /workspaces/:workspaceId/audit
 * PUT    /workspaces/:workspaceId/quota
 * GET    /workspaces/:workspaceId/members
 * PUT    /workspaces/:workspaceId/members/:userId             DELETE
 * POST   /workspaces/:workspaceId/invites
 * PATCH  /workspaces/:workspaceId/invites/:invite             DELETE
 * POST   /workspaces/:workspaceId/invites/:invite/accept
 * POST   /workspaces/:workspaceId/invites/:invite/resend
 */
export function workspaceRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, limits, regions } = services
  const { quotas } = services.sessions
  const resolve = (request: FastifyRequest<{ Params: { workspaceId: string } }>, need: Need) =>
    resolveWorkspace(database, request.principal, {
      workspaceId: request.params.workspaceId,
      need,
    })

  return async (app) => {
    const tags = ['Workspace']

    app.get(
      '/workspaces',
      {
        schema: {
          tags,
          operationId: 'listWorkspaces',
          summary: 'List the workspaces of the current user',
          response: { 200: WorkspaceListSchema, ...refusals() },
        },
      },
      async (request) => readWorkspaces(database, request.principal),
    )

    app.post(
      '/workspaces',
      {
        schema: {
          tags,
          operationId: 'createWorkspace',
          summary: 'Create a workspace',
          body: WriteWorkspaceSchema,
          response: { 201: Type.Ref('Workspace#'), ...refusals(422) },
        },
      },
      async (request, reply) => {
        const fields = request.body
        return reply
          .code(201)
          .send(await createWorkspace(database, request.principal, { fields, limits }))
      },
    )

    app.get(
      '/workspaces/:workspaceId',
      {
        schema: {
          tags,
          operationId: 'getWorkspace',
          summary: 'Read a workspace',
          params: WorkspaceParamsSchema,
          response: { 200: Type.Ref('Workspace#'), ...refusals(404) },
        },
      },
      async (request) => readWorkspace(database, await resolve(request, 'read')),
    )

    app.put(
      '/workspaces/:workspaceId',
      {
        schema: {
          tags,
          operationId: 'renameWorkspace',
          summary: 'Rename a workspace',
          params: WorkspaceParamsSchema,
          body: WriteWorkspaceSchema,
          response: { 200: Type.Ref('Workspace#'), ...refusals(404) },
        },
      },
      async (request) => renameWorkspace(database, await resolve(request, 'write'), request.body),
    )

    app.delete(
      '/workspaces/:workspaceId',
      {
        schema: {
          tags,
          operationId: 'deleteWorkspace',
          summary: 'Delete a workspace with all its databases',
          params: WorkspaceParamsSchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        await deleteWorkspace(database, await resolve(request, 'write'))
        return reply.code(204).send(null)
      },
    )

    app.get(
      '/workspaces/:workspaceId/settings',
      {
        schema: {
          tags,
          operationId: 'getWorkspaceSettings',
          summary: 'Read the settings of a workspace',
          params: WorkspaceParamsSchema,
          response: { 200: WorkspaceSettingsSchema, ...refusals(404) },
        },
      },
      async (request) => {
        await resolve(request, 'read')
        return { dedicatedClusters: false }
      },
    )

    app.patch(
      '/workspaces/:workspaceId/settings',
      {
        schema: {
          tags,
          operationId: 'updateWorkspaceSettings',
          summary: 'Update the settings of a workspace',
          description:
            'There are no settings. The route exists for compatibility with Xata clients.',
          params: WorkspaceParamsSchema,
          body: UpdateWorkspaceSettingsSchema,
          response: { 200: WorkspaceSettingsSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const { principal } = await resolve(request, 'write')
        requireWholeWorkspace(principal.scope)
        return { dedicatedClusters: false }
      },
    )

    app.get(
      '/workspaces/:workspaceId/regions',
      {
        schema: {
          tags,
          operationId: 'listRegions',
          summary: 'List the regions in which databases can be created',
          params: WorkspaceParamsSchema,
          response: { 200: RegionListSchema, ...refusals(404) },
        },
      },
      async (request) => {
        await resolve(request, 'read')
        return { regions: [...regions] }
      },
    )

    app.get(
      '/workspaces/:workspaceId/dbs',
      {
        schema: {
          tags: ['Database'],
          operationId: 'listDatabases',
          summary: 'List the databases of a workspace',
          params: WorkspaceParamsSchema,
          response: { 200: DatabaseListSchema, ...refusals(404) },
        },
      },
      async (request) => readDatabases(database, await resolve(request, 'read')),
    )

    app.get(
      '/workspaces/:workspaceId/usage',
      {
        schema: {
          tags,
          operationId: 'getUsage',
          summary: 'Read the storage usage of a workspace',
          description:
            'Usage is measured in the background: every minute if the workspace has a quota, otherwise every hour. Needs an API key with access to all databases and branches.',
          params: WorkspaceParamsSchema,
          response: { 200: UsageSchema, ...refusals(404) },
        },
      },
      async (request) => readUsage({ database, quotas }, await resolve(request, 'read')),
    )

    app.get(
      '/workspaces/:workspaceId/audit',
      {
        schema: {
          tags,
          operationId: 'getAuditLog',
          summary: 'List what happened in a workspace',
          description:
            'Changes of keys, members, invites, databases, branches, protection, rules and settings, sign-ins, refused requests, and everything in the logs of branches, newest first. Owners can read it. A key that is limited by its scope needs `audit`. The format `ndjson` exports all entries, one per line.',
          params: WorkspaceParamsSchema,
          querystring: AuditQuerySchema,
          response: {
            200: {
              description: 'A page of the log, or all entries as lines.',
              content: {
                'application/json': { schema: LogSchema },
                'application/x-ndjson': { schema: Type.String() },
              },
            },
            ...refusals(404),
          },
        },
      },
      async (request, reply) => {
        const { format = 'json', ...query } = request.query
        const access = await resolve(request, 'read')
        if (format === 'json') return readAuditLog(database, access, query)
        const { size, after, kind } = query
        if (size !== undefined || after !== undefined) {
          throw new AppError(
            'invalid_request',
            'query: parameter [format]: [ndjson] exports all entries, and takes no [size] and no [after]',
          )
        }
        const lines = exportAuditLog(database, access, kind === undefined ? {} : { kind })
        return sendLines(reply, lines)
      },
    )

    app.put(
      '/workspaces/:workspaceId/quota',
      {
        schema: {
          tags,
          operationId: 'updateQuota',
          summary: 'Set the storage quota of a workspace',
          description:
            'Only for the administrator of the instance. With null, the default quota applies. A workspace that has reached its quota can still read and delete.',
          params: WorkspaceParamsSchema,
          body: WriteQuotaSchema,
          response: { 200: UsageSchema, ...refusals(404) },
        },
      },
      async (request) =>
        changeQuota({ database, quotas }, request.principal, {
          workspaceId: request.params.workspaceId,
          bytesMax: request.body.bytesMax,
        }),
    )

    app.get(
      '/workspaces/:workspaceId/members',
      {
        schema: {
          tags,
          operationId: 'listMembers',
          summary: 'List members and open invites',
          params: WorkspaceParamsSchema,
          response: { 200: MemberListSchema, ...refusals(404) },
        },
      },
      async (request) => readMembers(database, await resolve(request, 'read')),
    )

    app.put(
      '/workspaces/:workspaceId/members/:userId',
      {
        schema: {
          tags,
          operationId: 'updateMember',
          summary: 'Change the role of a member',
          params: MemberParamsSchema,
          body: WriteRoleSchema,
          response: { 204: Empty, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        await changeRole(database, await resolve(request, 'write'), {
          userId: request.params.userId,
          role: request.body.role,
        })
        return reply.code(204).send(null)
      },
    )

    app.delete(
      '/workspaces/:workspaceId/members/:userId',
      {
        schema: {
          tags,
          operationId: 'removeMember',
          summary: 'Remove a member',
          params: MemberParamsSchema,
          response: { 204: Empty, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        await removeMember(database, await resolve(request, 'write'), {
          userId: request.params.userId,
        })
        return reply.code(204).send(null)
      },
    )

    app.post(
      '/workspaces/:workspaceId/invites',
      {
        schema: {
          tags,
          operationId: 'createInvite',
          summary: 'Invite a user',
          params: WorkspaceParamsSchema,
          body: CreateInviteSchema,
          response: { 201: CreatedInviteSchema, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        const access = await resolve(request, 'write')
        return reply
          .code(201)
          .send(await createInvite(database, access, { ...request.body, limits }))
      },
    )

    app.patch(
      '/workspaces/:workspaceId/invites/:invite',
      {
        schema: {
          tags,
          operationId: 'updateInvite',
          summary: 'Change the role of an invite',
          params: InviteParamsSchema,
          body: WriteRoleSchema,
          response: { 200: Type.Ref('Invite#'), ...refusals(404, 422) },
        },
      },
      async (request) =>
        changeInvite(database, await resolve(request, 'write'), {
          inviteId: request.params.invite,
          role: request.body.role,
        }),
    )

    app.delete(
      '/workspaces/:workspaceId/invites/:invite',
      {
        schema: {
          tags,
          operationId: 'cancelInvite',
          summary: 'Cancel an invite',
          params: InviteParamsSchema,
          response: { 204: Empty, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        await cancelInvite(database, await resolve(request, 'write'), {
          inviteId: request.params.invite,
        })
        return reply.code(204).send(null)
      },
    )

    app.post(
      '/workspaces/:workspaceId/invites/:invite/accept',
      {
        schema: {
          tags,
          operationId: 'acceptInvite',
          summary: 'Accept an invite with its key',
          params: InviteParamsSchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        await acceptInvite(database, request.principal, {
          workspaceId: request.params.workspaceId,
          key: request.params.invite,
        })
        return reply.code(204).send(null)
      },
    )

    app.post(
      '/workspaces/:workspaceId/invites/:invite/resend',
      {
        schema: {
          tags,
          operationId: 'renewInvite',
          summary: 'Renew an invite',
          params: InviteParamsSchema,
          response: { 204: Empty, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        await renewInvite(database, await resolve(request, 'write'), {
          inviteId: request.params.invite,
          limits,
        })
        return reply.code(204).send(null)
      },
    )
  }
}
