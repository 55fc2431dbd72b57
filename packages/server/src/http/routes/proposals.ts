import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { MergeResultSchema } from '@offshoot/contract/branch-changes'
import { OperationStartedSchema } from '@offshoot/contract/operations'
import {
  CommentListQuerySchema,
  CommentListSchema,
  CommentSchema,
  CreateCommentSchema,
  CreateProposalSchema,
  CreateReviewSchema,
  MergeProposalSchema,
  ProposalDifferenceQuerySchema,
  ProposalDifferenceSchema,
  ProposalListQuerySchema,
  ProposalListSchema,
  ProposalParamsSchema,
  ProposalSchema,
  ProposalsParamsSchema,
  UpdateProposalSchema,
} from '@offshoot/contract/proposals'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { DatabaseAccess } from '../../domain/access/resolve.js'
import type { Need } from '../../domain/access/scope.js'
import { readProposalDifference } from '../../domain/proposals/difference.js'
import { mergeProposal } from '../../domain/proposals/merge-proposal.js'
import {
  addComment,
  closeProposal,
  createProposal,
  readComments,
  readProposal,
  readProposals,
  reopenProposal,
  updateProposal,
} from '../../domain/proposals/operations.js'
import { addReview, withdrawReview } from '../../domain/proposals/reviews.js'
import { addressed } from '../addressed.js'
import type { LongAnswers } from '../long-answers.js'
import { refusals } from '../responses.js'
import { sendJson, sendLarge } from '../send-json.js'
import type { Services } from '../services.js'

/**
 * GET    /dbs/:databaseName/proposals                    POST
 * GET    /dbs/:databaseName/proposals/:number           PATCH
 * GET    /dbs/:databaseName/proposals/:number/diff
 * GET    /dbs/:databaseName/proposals/:number/comments   POST
 * POST   /dbs/:databaseName/proposals/:number/approvals  DELETE
 * POST   /dbs/:databaseName/proposals/:number/merge
 * POST   /dbs/:databaseName/proposals/:number/close
 * POST   /dbs/:databaseName/proposals/:number/reopen
 */
export function proposalRoutes(
  services: Services,
  longAnswers: LongAnswers,
): FastifyPluginAsyncTypebox {
  const { database, storage, limits, sessions } = services
  const { databaseOf } = addressed(database)
  const context = { storage, limits, quotas: sessions.quotas }
  const accessOf = (
    request: FastifyRequest<{ Params: { databaseName: string } }>,
    need: Need,
  ): Promise<DatabaseAccess> => databaseOf(request, request.params.databaseName, need)

  return async (app) => {
    const tags = ['Proposals']
    const params = ProposalParamsSchema
    const all = '/dbs/:databaseName/proposals'
    const one = `${all}/:number`

    app.get(
      all,
      {
        schema: {
          tags,
          operationId: 'listProposals',
          summary: 'List the proposals of a database',
          params: ProposalsParamsSchema,
          querystring: ProposalListQuerySchema,
          response: { 200: ProposalListSchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const access = await accessOf(request, 'read')
        return sendLarge(reply, await readProposals(database, access, request.query))
      },
    )

    app.post(
      all,
      {
        schema: {
          tags,
          operationId: 'createProposal',
          summary: 'Propose to merge a branch',
          description:
            'A proposal shows what a branch would change in its target, collects comments and reviews, and is merged or closed. It can be made with a key that cannot write to the target.',
          params: ProposalsParamsSchema,
          body: CreateProposalSchema,
          response: { 201: ProposalSchema, ...refusals(404, 409, 422) },
        },
      },
      async (request, reply) => {
        const access = await accessOf(request, 'write')
        return reply.code(201).send(await createProposal(context, access, request.body))
      },
    )

    app.get(
      one,
      {
        schema: {
          tags,
          operationId: 'getProposal',
          summary: 'Read a proposal with its reviews',
          params,
          response: { 200: ProposalSchema, ...refusals(404) },
        },
      },
      async (request) =>
        readProposal(context, await accessOf(request, 'read'), request.params.number),
    )

    app.patch(
      one,
      {
        schema: {
          tags,
          operationId: 'updateProposal',
          summary: 'Change the title or the text of a proposal',
          params,
          body: UpdateProposalSchema,
          response: { 200: ProposalSchema, ...refusals(404) },
        },
      },
      async (request) =>
        updateProposal(context, await accessOf(request, 'write'), {
          number: request.params.number,
          texts: request.body,
        }),
    )

    app.get(
      `${one}/diff`,
      {
        schema: {
          tags,
          operationId: 'diffProposal',
          summary: 'Show what a proposal would change',
          description:
            'Compares the branch with the last state that it has in common with the target. Stays readable after the merge, and after the branch was deleted.',
          params,
          querystring: ProposalDifferenceQuerySchema,
          response: { 200: ProposalDifferenceSchema, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        const { number } = request.params
        const access = await accessOf(request, 'read')
        const { query } = request
        return sendJson(reply, await readProposalDifference(context, access, { number, query }))
      },
    )

    app.get(
      `${one}/comments`,
      {
        schema: {
          tags,
          operationId: 'listComments',
          summary: 'List the comments of a proposal',
          params,
          querystring: CommentListQuerySchema,
          response: { 200: CommentListSchema, ...refusals(404) },
        },
      },
      async (request, reply) => {
        const { number } = request.params
        const access = await accessOf(request, 'read')
        const { query } = request
        return sendLarge(reply, await readComments(database, access, { number, query }))
      },
    )

    app.post(
      `${one}/comments`,
      {
        schema: {
          tags,
          operationId: 'createComment',
          summary: 'Comment on a proposal, a table, a record or a cell',
          params,
          body: CreateCommentSchema,
          response: { 201: CommentSchema, ...refusals(404, 422) },
        },
      },
      async (request, reply) => {
        const { number } = request.params
        const access = await accessOf(request, 'write')
        const comment = await addComment(context, access, { number, comment: request.body })
        return reply.code(201).send(comment)
      },
    )

    app.post(
      `${one}/approvals`,
      {
        schema: {
          tags,
          operationId: 'reviewProposal',
          summary: 'Approve a proposal, or request changes',
          description:
            'Replaces an earlier review of the user. The author of a proposal cannot review it. A review is stale once one of the branches changes.',
          params,
          body: Type.Union([CreateReviewSchema, Type.Null()]),
          response: { 200: ProposalSchema, ...refusals(404, 409) },
        },
      },
      async (request) => {
        const { number } = request.params
        const access = await accessOf(request, 'write')
        return addReview(context, access, { number, review: request.body ?? {} })
      },
    )

    app.delete(
      `${one}/approvals`,
      {
        schema: {
          tags,
          operationId: 'withdrawReview',
          summary: 'Withdraw the own review of a proposal',
          params,
          response: { 200: ProposalSchema, ...refusals(404, 409) },
        },
      },
      async (request) =>
        withdrawReview(context, await accessOf(request, 'write'), request.params.number),
    )

    app.post(
      `${one}/merge`,
      {
        bodyLimit: Math.min(limits.mergeBytesMax, limits.requestBytesMax),
        schema: {
          tags,
          operationId: 'mergeProposal',
          summary: 'Merge a proposal',
          description:
            'Merges the branch into the target, with the options of a merge. If the target requires approvals, the proposal needs enough of them that are not stale, and nobody may have requested changes.',
          params,
          body: Type.Union([MergeProposalSchema, Type.Null()]),
          response: {
            200: MergeResultSchema,
            202: OperationStartedSchema,
            ...refusals(404, 409, 422),
          },
        },
      },
      async (request, reply) => {
        const { number } = request.params
        const access = await accessOf(request, 'write')
        return longAnswers.answer(request, reply, 'merge', (work) =>
          mergeProposal(context, access, { number, rules: request.body ?? {}, long: work }),
        )
      },
    )

    app.post(
      `${one}/close`,
      {
        schema: {
          tags,
          operationId: 'closeProposal',
          summary: 'Close a proposal without a merge',
          params,
          response: { 200: ProposalSchema, ...refusals(404, 409) },
        },
      },
      async (request) =>
        closeProposal(context, await accessOf(request, 'write'), request.params.number),
    )

    app.post(
      `${one}/reopen`,
      {
        schema: {
          tags,
          operationId: 'reopenProposal',
          summary: 'Open a closed proposal again',
          params,
          response: { 200: ProposalSchema, ...refusals(404, 409, 422) },
        },
      },
      async (request) =>
        reopenProposal(context, await accessOf(request, 'write'), request.params.number),
    )
  }
}
