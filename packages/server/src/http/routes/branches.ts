import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  BranchListSchema,
  BranchMetadataSchema,
  BranchParamsSchema,
  BranchRulesSchema,
  CreateBranchQuerySchema,
  CreateBranchSchema,
  CreatedBranchSchema,
  GitBranchQuerySchema,
  GitMappingEntrySchema,
  GitMappingSchema,
  GitMappingWarningSchema,
  ResolveBranchQuerySchema,
  ResolvedBranchSchema,
  UpdateBranchSchema,
} from '@offshoot/contract/branches'
import {
  AtQuerySchema,
  CheckpointListQuerySchema,
  CheckpointListSchema,
  CheckpointParamsSchema,
  CheckpointSchema,
  CreateCheckpointSchema,
  UpdateCheckpointSchema,
} from '@offshoot/contract/checkpoints'
import { DatabaseSettingsSchema, UpdateDatabaseSettingsSchema } from '@offshoot/contract/databases'
import { AppError } from '@offshoot/contract/errors'
import { DatabaseNameSchema } from '@offshoot/contract/names'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { readBranchRules, writeBranchRules } from '../../domain/branches/branch-rules.js'
import { createBranch } from '../../domain/branches/create-branch.js'
import { resolveOrCreate } from '../../domain/branches/create-git-branch.js'
import {
  deleteGitBranch,
  readGitMapping,
  resolveGitBranch,
  writeGitBranch,
} from '../../domain/branches/git-mapping.js'
import {
  readBranch,
  readBranches,
  readMetadata,
  updateBranch,
  writeMetadata,
} from '../../domain/branches/operations.js'
import { readSettings, updateSettings } from '../../domain/databases/operations.js'
import {
  changeCheckpoint,
  createCheckpoint,
  deleteCheckpoint,
  readCheckpoint,
  readCheckpoints,
} from '../../domain/merges/checkpoints.js'
import { addressed, splitDatabaseBranch } from '../addressed.js'
import { atCheckpoint } from '../at-checkpoint.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { Empty, refusals } from '../responses.js'
import { sendLarge } from '../send-json.js'
import type { Services } from '../services.js'

/**
 * GET    /db/:databaseBranch                  PUT, PATCH
 * GET    /db/:databaseBranch/metadata         PUT
 * GET    /db/:databaseBranch/checkpoints      POST
 * GET    /db/:databaseBranch/checkpoints/:checkpoint      PATCH, DELETE
 * GET    /dbs/:databaseName
 * GET    /dbs/:databaseName/settings          PATCH
 * GET    /dbs/:databaseName/branchRules       PUT
 * GET    /dbs/:databaseName/gitBranches       POST, DELETE
 * GET    /dbs/:databaseName/resolveBranch
 */
export function branchRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, storage, sessions, limits } = services
  const { branchOf, databaseOf } = addressed(database)

  return async (app) => {
    const tags = ['Branch']
    const params = BranchParamsSchema

    app.get(
      '/db/:databaseBranch',
      {
        schema: {
          tags,
          operationId: 'getBranch',
          summary: 'Read a branch with its schema',
          params,
          querystring: AtQuerySchema,
          response: { 200: Type.Ref('Branch#'), ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await branchOf(request, 'read')
        const past = await atCheckpoint(database, access, { ...request.query, reply })
        return sendLarge(reply, await readBranch(database, access, past))
      },
    )

    app.put(
      '/db/:databaseBranch',
      {
        schema: {
          tags,
          operationId: 'createBranch',
          summary: 'Create a branch from another one',
          description:
            'The fork has the schema and the rows that its source has at this moment. No rows are copied, so the time does not depend on the size of the source. Without `from`, the default branch is forked. With `data: false`, the fork gets the schema without rows.',
          params,
          querystring: CreateBranchQuerySchema,
          body: Type.Union([CreateBranchSchema, Type.Null()]),
          response: { 201: CreatedBranchSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        const { databaseName, branchName } = splitDatabaseBranch(request.params.databaseBranch)
        const { from } = request.query
        const access = await databaseOf(request, databaseName, 'write')
        const address = sessionRequest(request, 'read')
        const { answer, opened } = await createBranch(storage, access, {
          name: branchName,
          wishes: from === undefined ? { ...request.body } : { ...request.body, from },
          dataDefault: inheritsRows(request),
          opens: sessions.opensNew(access.databaseId),
        })
        // The branch exists, whatever becomes of its session.
        if (opened !== undefined) await sessions.adopt(address, opened).catch(() => undefined)
        return reply.code(201).header('location', `/db/${databaseName}:${branchName}`).send(answer)
      },
    )

    app.patch(
      '/db/:databaseBranch',
      {
        schema: {
          tags,
          operationId: 'updateBranch',
          summary: 'Change the expiry and protection of a branch',
          description:
            '`expiresAt` is a time; `ttl` is the number of seconds after the last use at which the branch expires. `null` removes either.',
          params,
          body: UpdateBranchSchema,
          response: { 200: Type.Ref('Branch#'), ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await branchOf(request, 'write')
        return sendLarge(reply, await updateBranch(storage, access, request.body))
      },
    )

    app.get(
      '/db/:databaseBranch/metadata',
      {
        schema: {
          tags,
          operationId: 'getBranchMetadata',
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
          operationId: 'replaceBranchMetadata',
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

    app.get(
      '/db/:databaseBranch/checkpoints',
      {
        schema: {
          tags,
          operationId: 'listCheckpoints',
          summary: 'List the checkpoints of a branch',
          params,
          querystring: CheckpointListQuerySchema,
          response: { 200: CheckpointListSchema, ...refusals(404) },
        },
      },
      async (request) => readCheckpoints(database, await branchOf(request, 'read'), request.query),
    )

    app.post(
      '/db/:databaseBranch/checkpoints',
      {
        schema: {
          tags,
          operationId: 'createCheckpoint',
          summary: 'Make a checkpoint of a branch',
          description:
            'A checkpoint is the whole branch, schema and rows, at this moment. It takes as long as a fork, and stays until it is deleted. Reads take it as `at`, and a branch can be reset to it.',
          params,
          body: Type.Union([CreateCheckpointSchema, Type.Null()]),
          response: { 201: CheckpointSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        const access = await branchOf(request, 'write')
        const fields = { ...request.body, limits }
        return reply.code(201).send(await createCheckpoint(storage, access, fields))
      },
    )

    app.get(
      '/db/:databaseBranch/checkpoints/:checkpoint',
      {
        schema: {
          tags,
          operationId: 'getCheckpoint',
          summary: 'Read a checkpoint',
          description: 'A time stands for the newest checkpoint at or before it.',
          params: CheckpointParamsSchema,
          response: { 200: CheckpointSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const access = await branchOf(request, 'read')
        return readCheckpoint(database, access, request.params.checkpoint)
      },
    )

    app.patch(
      '/db/:databaseBranch/checkpoints/:checkpoint',
      {
        schema: {
          tags,
          operationId: 'updateCheckpoint',
          summary: 'Change the name and the note of a checkpoint',
          params: CheckpointParamsSchema,
          body: UpdateCheckpointSchema,
          response: { 200: CheckpointSchema, ...refusals(404, 422) },
        },
      },
      async (request) => {
        const access = await branchOf(request, 'write')
        const { checkpoint: at } = request.params
        return changeCheckpoint(database, access, { at, fields: request.body })
      },
    )

    app.delete(
      '/db/:databaseBranch/checkpoints/:checkpoint',
      {
        schema: {
          tags,
          operationId: 'deleteCheckpoint',
          summary: 'Delete a checkpoint',
          description: 'The background removes the row versions that only this checkpoint needed.',
          params: CheckpointParamsSchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await branchOf(request, 'write')
        await deleteCheckpoint(database, access, request.params.checkpoint)
        return reply.code(204).send(null)
      },
    )

    const databaseParams = Type.Object({ databaseName: DatabaseNameSchema })

    app.get(
      '/dbs/:databaseName',
      {
        schema: {
          tags,
          operationId: 'listBranches',
          summary: 'List the branches of a database',
          params: databaseParams,
          response: { 200: BranchListSchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await databaseOf(request, request.params.databaseName, 'read')
        return sendLarge(reply, await readBranches(database, access))
      },
    )

    app.get(
      '/dbs/:databaseName/settings',
      {
        schema: {
          tags: ['Database'],
          operationId: 'getDatabaseSettings',
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
          operationId: 'updateDatabaseSettings',
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

    app.get(
      '/dbs/:databaseName/branchRules',
      {
        schema: {
          tags,
          operationId: 'getBranchRules',
          summary: 'Read the rules for new branches of a database',
          params: databaseParams,
          response: { 200: BranchRulesSchema, ...refusals(404) },
        },
      },
      async (request) =>
        readBranchRules(database, await databaseOf(request, request.params.databaseName, 'read')),
    )

    app.put(
      '/dbs/:databaseName/branchRules',
      {
        schema: {
          tags,
          operationId: 'replaceBranchRules',
          summary: 'Replace the rules for new branches of a database',
          description:
            'The first rule whose pattern matches the name of a new branch supplies the settings that the request does not contain.',
          params: databaseParams,
          body: BranchRulesSchema,
          response: { 200: BranchRulesSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const access = await databaseOf(request, request.params.databaseName, 'write')
        return writeBranchRules(database, access, request.body.rules)
      },
    )

    const gitTags = ['Git mapping']

    app.get(
      '/dbs/:databaseName/gitBranches',
      {
        schema: {
          tags: gitTags,
          operationId: 'listGitBranches',
          summary: 'List the git mapping of a database',
          params: databaseParams,
          response: { 200: GitMappingSchema, ...refusals(404) },
        },
      },
      async (request) => {
        const access = await databaseOf(request, request.params.databaseName, 'read')
        const field = request.isXataClient ? 'xataBranch' : 'serviceBranch'
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
          operationId: 'mapGitBranch',
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
          operationId: 'unmapGitBranch',
          summary: 'Remove a git branch from the mapping',
          params: databaseParams,
          querystring: GitBranchQuerySchema,
          response: { 204: Empty, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await databaseOf(request, request.params.databaseName, 'write')
        await deleteGitBranch(database, access, request.query)
        return reply.code(204).send(null)
      },
    )

    app.get(
      '/dbs/:databaseName/resolveBranch',
      {
        schema: {
          tags: gitTags,
          operationId: 'resolveBranch',
          summary: 'Find the branch that belongs to a git branch',
          description:
            'Returns the mapped branch, else the branch of the same name, else `fallbackBranch`, else the default branch. With `create=true`, a git branch without a branch gets a new fork, which is mapped to it.',
          params: databaseParams,
          querystring: ResolveBranchQuerySchema,
          response: { 200: ResolvedBranchSchema, ...refusals(404, 422) },
        },
      },
      async (request) => {
        const { gitBranch, fallbackBranch, create = false } = request.query
        const { databaseName } = request.params
        const access = await databaseOf(request, databaseName, create ? 'write' : 'read')
        if (!create) return resolveGitBranch(database, access, { gitBranch, fallbackBranch })
        if (gitBranch === undefined) {
          throw new AppError(
            'invalid_request',
            'query: parameter [create]: needs the parameter [gitBranch]',
          )
        }
        const dataDefault = inheritsRows(request)
        return resolveOrCreate(storage, access, { gitBranch, fallbackBranch, dataDefault })
      },
    )
  }
}

/** Xata clients expect that a new branch has no rows unless they ask for them. */
function inheritsRows(request: FastifyRequest): boolean {
  return !request.isXataClient
}
