import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  BranchListSchema,
  BranchMetadataSchema,
  BranchParamsSchema,
  CreateBranchQuerySchema,
  CreateBranchSchema,
  CreatedBranchSchema,
  GitBranchQuerySchema,
  GitMappingEntrySchema,
  GitMappingSchema,
  GitMappingWarningSchema,
  ResolveBranchQuerySchema,
  ResolvedBranchSchema,
} from '@offshoot/contract/branches'
import {
  DatabaseSettingsSchema,
  StatusSchema,
  UpdateDatabaseSettingsSchema,
} from '@offshoot/contract/databases'
import { DatabaseNameSchema } from '@offshoot/contract/names'
import { Type } from 'typebox'
import { createBranch } from '../../domain/branches/create-branch.js'
import {
  readGitMapping,
  removeGitBranch,
  resolveGitBranch,
  writeGitBranch,
} from '../../domain/branches/git-mapping.js'
import {
  readBranch,
  readBranches,
  readMetadata,
  removeBranch,
  writeMetadata,
} from '../../domain/branches/operations.js'
import { readSettings, updateSettings } from '../../domain/databases/operations.js'
import { addressed, splitDatabaseBranch } from '../addressed.js'
import { Empty, refusals } from '../responses.js'
import type { Services } from '../services.js'

/**
 * GET    /db/:databaseBranch                  PUT, DELETE
 * GET    /db/:databaseBranch/metadata         PUT
 * GET    /dbs/:databaseName
 * GET    /dbs/:databaseName/settings          PATCH
 * GET    /dbs/:databaseName/gitBranches       POST, DELETE
 * GET    /dbs/:databaseName/resolveBranch
 */
export function branchRoutes({ database }: Services): FastifyPluginAsyncTypebox {
  const { branchOf, databaseOf } = addressed(database)

  return async (app) => {
    const tags = ['Branch']
    const params = BranchParamsSchema

    app.get(
      '/db/:databaseBranch',
      {
        schema: {
          tags,
          summary: 'Read a branch with its schema',
          params,
          response: { 200: Type.Ref('Branch#'), ...refusals(404) },
        },
      },
      async (request) => readBranch(database, await branchOf(request, 'read')),
    )

    app.put(
      '/db/:databaseBranch',
      {
        schema: {
          tags,
          summary: 'Create a branch from another one',
          params,
          querystring: CreateBranchQuerySchema,
          body: Type.Union([CreateBranchSchema, Type.Null()]),
          response: { 201: CreatedBranchSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        const { databaseName, branchName } = splitDatabaseBranch(request.params.databaseBranch)
        const { from, metadata, data } = request.body ?? {}
        const access = await databaseOf(request, databaseName, 'write')
        const created = await createBranch(database, access, {
          name: branchName,
          from: request.query.from ?? from,
          metadata: metadata ?? {},
          // The service that the dialect comes from started branches without rows.
          data: data ?? !request.isDialect,
        })
        return reply.code(201).header('location', `/db/${databaseName}:${branchName}`).send(created)
      },
    )

    app.delete(
      '/db/:databaseBranch',
      {
        schema: {
          tags,
          summary: 'Delete a branch',
          params,
          response: { 200: StatusSchema, ...refusals(404, 409) },
        },
      },
      async (request) => removeBranch(database, await branchOf(request, 'write')),
    )

    app.get(
      '/db/:databaseBranch/metadata',
      {
        schema: {
          tags,
          summary: 'Read the metadata of a branch',
          params,
          response: { 200: BranchMetadataSchema, ...refusals(404) },
        },
      },
      async (request) => readMetadata(database, await branchOf(request, 'read')),
    )

    app.put(
      '/db/:databaseBranch/metadata',
      {
        schema: {
          tags,
          summary: 'Replace the metadata of a branch',
          params,
          body: BranchMetadataSchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        await writeMetadata(database, await branchOf(request, 'write'), request.body)
        return reply.code(204).send(null)
      },
    )

    const databaseParams = Type.Object({ databaseName: DatabaseNameSchema })

    app.get(
      '/dbs/:databaseName',
      {
        schema: {
          tags,
          summary: 'List the branches of a database',
          params: databaseParams,
          response: { 200: BranchListSchema, ...refusals(404) },
        },
      },
      async (request) =>
        readBranches(database, await databaseOf(request, request.params.databaseName, 'read')),
    )

    app.get(
      '/dbs/:databaseName/settings',
      {
        schema: {
          tags: ['Database'],
          summary: 'Read the settings of a database',
          params: databaseParams,
          response: { 200: DatabaseSettingsSchema, ...refusals(404) },
        },
      },
      async (request) =>
        readSettings(database, await databaseOf(request, request.params.databaseName, 'read')),
    )

    app.patch(
      '/dbs/:databaseName/settings',
      {
        schema: {
          tags: ['Database'],
          summary: 'Update the settings of a database',
          params: databaseParams,
          body: UpdateDatabaseSettingsSchema,
          response: { 200: DatabaseSettingsSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const access = await databaseOf(request, request.params.databaseName, 'write')
        return updateSettings(database, access, request.body)
      },
    )

    const gitTags = ['Git mapping']

    app.get(
      '/dbs/:databaseName/gitBranches',
      {
        schema: {
          tags: gitTags,
          summary: 'List the git branches that are mapped',
          params: databaseParams,
          response: { 200: GitMappingSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const access = await databaseOf(request, request.params.databaseName, 'read')
        const field = request.isDialect ? 'xataBranch' : 'serviceBranch'
        const rows = await readGitMapping(database, access)
        return {
          mapping: rows.map(({ gitBranch, branchName }) => ({ gitBranch, [field]: branchName })),
        }
      },
    )

    app.post(
      '/dbs/:databaseName/gitBranches',
      {
        schema: {
          tags: gitTags,
          summary: 'Map a git branch to a branch',
          params: databaseParams,
          body: GitMappingEntrySchema,
          response: { 201: GitMappingWarningSchema, 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await databaseOf(request, request.params.databaseName, 'write')
        const { warning } = await writeGitBranch(database, access, request.body)
        return warning === undefined
          ? reply.code(204).send(null)
          : reply.code(201).send({ warning })
      },
    )

    app.delete(
      '/dbs/:databaseName/gitBranches',
      {
        schema: {
          tags: gitTags,
          summary: 'Remove a git branch from the mapping',
          params: databaseParams,
          querystring: GitBranchQuerySchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await databaseOf(request, request.params.databaseName, 'write')
        await removeGitBranch(database, access, request.query)
        return reply.code(204).send(null)
      },
    )

    app.get(
      '/dbs/:databaseName/resolveBranch',
      {
        schema: {
          tags: gitTags,
          summary: 'Find the branch that belongs to a git branch',
          params: databaseParams,
          querystring: ResolveBranchQuerySchema,
          response: { 200: ResolvedBranchSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const access = await databaseOf(request, request.params.databaseName, 'read')
        return resolveGitBranch(database, access, {
          gitBranch: request.query.gitBranch,
          fallbackBranch: request.query.fallbackBranch,
        })
      },
    )
  }
}
