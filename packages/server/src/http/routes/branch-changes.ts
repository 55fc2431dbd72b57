import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  BranchStatsSchema,
  DIFFERENCE_PAGE_SIZE,
  DifferenceQuerySchema,
  DifferenceSchema,
  MergeRequestSchema,
  MergeResultSchema,
  PullRequestSchema,
} from '@offshoot/contract/branch-changes'
import { BranchParamsSchema, CreatedBranchSchema } from '@offshoot/contract/branches'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { BranchAccess } from '../../domain/access/resolve.js'
import type { Need } from '../../domain/access/scope.js'
import { getSource } from '../../domain/branches/branch-state.js'
import { readBranchStats } from '../../domain/branches/branch-stats.js'
import { readDifference } from '../../domain/branches/diff-branch.js'
import { mergeBranches } from '../../domain/branches/merge-branch.js'
import { resetBranch } from '../../domain/branches/reset-branch.js'
import { addressed, splitDatabaseBranch } from '../addressed.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'
import { sendJson } from './records.js'

type BranchRequest = FastifyRequest<{ Params: { databaseBranch: string } }>

/** How a merge goes when the request does not say. */
const RULES = { dryRun: false, strategy: 'fail', tables: {}, allowDataLoss: false } as const

/**
 * GET    /db/:databaseBranch/diff
 * POST   /db/:databaseBranch/merge
 * POST   /db/:databaseBranch/pull
 * POST   /db/:databaseBranch/reset
 * GET    /db/:databaseBranch/stats
 */
export function branchChangeRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, limits } = services
  const { quotas } = services.sessions
  const { branchOf } = addressed(database)

  /** Another branch of the same database, or the one this was made from. */
  const otherBranch = (
    request: BranchRequest,
    access: BranchAccess,
    options: { name: string | undefined; need: Need },
  ): Promise<BranchAccess> => {
    if (options.name === undefined) return getSource(database, access)
    const { databaseName } = splitDatabaseBranch(request.params.databaseBranch)
    return branchOf(request, options.need, `${databaseName}:${options.name}`)
  }

  return async (app) => {
    const tags = ['Branch']
    const params = BranchParamsSchema

    app.get(
      '/db/:databaseBranch/diff',
      {
        schema: {
          tags,
          operationId: 'diffBranch',
          summary: 'Show what a branch has changed',
          description:
            'Schema and records, compared with its source as of the fork, with its source now, or with a related branch. Costs what changed, not what is there.',
          params,
          querystring: DifferenceQuerySchema,
          response: { 200: DifferenceSchema, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        const { against = 'fork', table, size = DIFFERENCE_PAGE_SIZE, after } = request.query
        const access = await branchOf(request, 'read')
        const isMoment = against === 'fork' || against === 'source'
        const difference = await readDifference(database, access, {
          against: isMoment
            ? against
            : await otherBranch(request, access, { name: against, need: 'read' }),
          limits,
          tableName: table,
          size,
          after,
        })
        return sendJson(reply, difference)
      },
    )

    app.post(
      '/db/:databaseBranch/merge',
      {
        schema: {
          tags,
          operationId: 'mergeBranch',
          summary: 'Merge a branch into its source or another branch',
          description:
            'Schema and rows, in one transaction. Columns that only one side changed go together; what both changed is a conflict, and then nothing is merged unless a strategy decides it. `dryRun` only looks. When the target would lose columns or tables with values in them, the merge is refused with `data_loss` unless `allowDataLoss` is true.',
          params,
          body: Type.Union([MergeRequestSchema, Type.Null()]),
          response: { 200: MergeResultSchema, ...refusals(404, 409) },
        },
      },
      async (request) => {
        const { into: name, ...rules } = request.body ?? {}
        const { dryRun = false } = rules
        const from = await branchOf(request, dryRun ? 'read' : 'write')
        const into = await otherBranch(request, from, { name, need: 'write' })
        return mergeBranches({ database, quotas }, { ...RULES, ...rules, from, into, limits })
      },
    )

    app.post(
      '/db/:databaseBranch/pull',
      {
        schema: {
          tags,
          operationId: 'pullBranch',
          summary: 'Take what the source, or another branch, has changed',
          description: 'A merge the other way round, with the same options.',
          params,
          body: Type.Union([PullRequestSchema, Type.Null()]),
          response: { 200: MergeResultSchema, ...refusals(404, 409) },
        },
      },
      async (request) => {
        const { from: name, ...rules } = request.body ?? {}
        const into = await branchOf(request, 'write')
        const from = await otherBranch(request, into, { name, need: 'read' })
        return mergeBranches({ database, quotas }, { ...RULES, ...rules, from, into, limits })
      },
    )

    app.post(
      '/db/:databaseBranch/reset',
      {
        schema: {
          tags,
          operationId: 'resetBranch',
          summary: 'Return a branch to the present state of its source',
          description: 'What the branch has changed is gone. As quick as a fork.',
          params,
          response: { 200: CreatedBranchSchema, ...refusals(404, 409) },
        },
      },
      async (request) => resetBranch(database, await branchOf(request, 'write')),
    )

    app.get(
      '/db/:databaseBranch/stats',
      {
        schema: {
          tags,
          operationId: 'getBranchStats',
          summary: 'Count the rows and bytes of a branch',
          params,
          response: { 200: BranchStatsSchema, ...refusals(404) },
        },
      },
      async (request) => readBranchStats(database, await branchOf(request, 'read'), { limits }),
    )
  }
}
