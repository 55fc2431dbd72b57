import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import {
  BranchStatsSchema,
  DIFFERENCE_PAGE_SIZE,
  DifferenceQuerySchema,
  DifferenceSchema,
  type MergeRequest,
  MergeRequestSchema,
  MergeResultSchema,
  PullRequestSchema,
  ResetRequestSchema,
  ResetResultSchema,
  RevertRequestSchema,
} from '@offshoot/contract/branch-changes'
import { BranchParamsSchema } from '@offshoot/contract/branches'
import { StatusSchema } from '@offshoot/contract/databases'
import { AppError } from '@offshoot/contract/errors'
import { LogQuerySchema, LogSchema } from '@offshoot/contract/log'
import { CONFLICTS_PAGE_SIZE } from '@offshoot/contract/merge-conflicts'
import { OperationStartedSchema } from '@offshoot/contract/operations'
import type { FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { type IdempotencyContext, resultOnce } from '../../data/records/idempotency.js'
import type { Session } from '../../data/session/session.js'
import type { BranchAccess } from '../../domain/access/resolve.js'
import type { Need } from '../../domain/access/scope.js'
import { readBranchStats } from '../../domain/branches/branch-stats.js'
import { deleteBranch } from '../../domain/branches/operations.js'
import { withOther } from '../../domain/branches/other-branch.js'
import { readLog } from '../../domain/log/operations.js'
import type { ConflictPage } from '../../domain/merges/conflict-list.js'
import { readDifference } from '../../domain/merges/diff-branch.js'
import { mergeBranches } from '../../domain/merges/merge-branch.js'
import { resetBranch } from '../../domain/merges/reset-branch.js'
import { revertBranch } from '../../domain/merges/revert-branch.js'
import { idempotent } from '../idempotency-key.js'
import type { LongAnswers } from '../long-answers.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

type BranchRequest = FastifyRequest<{ Params: { databaseBranch: string } }>

/** Defaults of a merge. */
const RULES = {
  dryRun: false,
  strategy: 'fail',
  tables: {},
  resolutions: [],
  allowDataLoss: false,
} as const

/** Merges check their target, and a branch that requires approvals can be merged into others. */
const CHECKS_APPROVALS = { checksApprovals: true } as const

/**
 * DELETE /db/:databaseBranch
 * GET    /db/:databaseBranch/diff
 * POST   /db/:databaseBranch/merge
 * POST   /db/:databaseBranch/pull
 * POST   /db/:databaseBranch/revert
 * POST   /db/:databaseBranch/reset
 * GET    /db/:databaseBranch/log
 * GET    /db/:databaseBranch/stats
 *
 * Access to the branch of the path comes from its session. The transaction of each operation checks that the key still
 * has it. The other branch of an operation is looked up in the same database.
 */
export function branchChangeRoutes(
  services: Services,
  longAnswers: LongAnswers,
): FastifyPluginAsyncTypebox {
  const { database, storage, limits, sessions } = services
  const { quotas } = sessions

  const run = <Result>(
    request: BranchRequest,
    need: Need,
    operation: (access: BranchAccess, session: Session) => Promise<Result>,
    { checksApprovals = false } = {},
  ): Promise<Result> =>
    sessions.run({ ...sessionRequest(request, need), checksApprovals }, (session) => {
      const principal = { ...session.principal, requestId: session.requestId }
      return operation({ ...session.access, principal }, session)
    })

  /** Returns the context of a request for `resultOnce`. A dry run changes nothing, so that it can be repeated in any case. */
  const onceOf = (
    request: BranchRequest,
    session: Session,
    { dryRun, isReset = false }: { dryRun: boolean; isReset?: boolean },
  ): IdempotencyContext => {
    const known = idempotent(request)
    return { database, session, idempotent: dryRun || !known ? undefined : { ...known, isReset } }
  }

  return async (app) => {
    const tags = ['Branch']
    const params = BranchParamsSchema

    app.delete(
      '/db/:databaseBranch',
      {
        schema: {
          tags,
          operationId: 'deleteBranch',
          summary: 'Delete a branch',
          description:
            'Forks of the branch keep their rows. The default branch and protected branches cannot be deleted.',
          params,
          response: { 200: StatusSchema, ...refusals(404, 409) },
        },
      },
      // A branch that requires approvals is protected against deletion.
      async (request) =>
        run(request, 'write', (access) => deleteBranch(database, access), CHECKS_APPROVALS),
    )

    app.get(
      '/db/:databaseBranch/diff',
      {
        schema: {
          tags,
          operationId: 'diffBranch',
          summary: 'Show what a branch has changed',
          description:
            'Compares schema and records with the last state that the branch has in common with its source, with the state that it was forked from, with the source now, or with a related branch. The cost depends on the number of changes, not on the size of the branch.',
          params,
          querystring: DifferenceQuerySchema,
          response: { 200: DifferenceSchema, ...refusals(404, 409) },
        },
      },
      async (request, reply) => {
        const { at, againstAt, table, size = DIFFERENCE_PAGE_SIZE, after } = request.query
        const isPast = at !== undefined || againstAt !== undefined
        const { against = isPast ? undefined : 'base' } = request.query
        if (isPast && (against === 'base' || against === 'fork')) {
          throw new AppError(
            'invalid_request',
            `query: parameter [against]: [${against}] is a state of the present branch, and cannot be combined with [at] or [againstAt]`,
          )
        }
        const shown = { limits, tableName: table, size, after, at, againstAt }
        const difference = await run(request, 'read', (access) => {
          if (against === undefined)
            return readDifference(database, access, { ...shown, against: access })
          return isMoment(against)
            ? readDifference(database, access, { ...shown, against })
            : withOther(database, access, { name: against, need: 'read' }, (other) =>
                readDifference(database, access, { ...shown, against: other }),
              )
        })
        return sendJson(reply, difference)
      },
    )

    app.post(
      '/db/:databaseBranch/merge',
      {
        bodyLimit: Math.min(limits.mergeBytesMax, limits.requestBytesMax),
        schema: {
          tags,
          operationId: 'mergeBranch',
          summary: 'Merge a branch into its source or another branch',
          description:
            'Merges schema and rows in one transaction. Changes of different columns of a record are combined. A column that both sides changed is a conflict: nothing is merged, unless `strategy` resolves it. `dryRun` reports the result without merging. If the target would lose columns or tables that contain values, the merge is refused with `data_loss`, unless `allowDataLoss` is true. Requests with the same `Idempotency-Key` are executed once.',
          params,
          body: Type.Union([MergeRequestSchema, Type.Null()]),
          response: {
            200: MergeResultSchema,
            202: OperationStartedSchema,
            ...refusals(404, 409, 422),
          },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const { into: name, page, ...rules } = request.body ?? {}
        const options = { ...RULES, ...rules, page: pageOf(page), limits, kind: 'merge' } as const
        return longAnswers.answer(request, reply, 'merge', (work) =>
          run(
            request,
            options.dryRun ? 'read' : 'write',
            (from, session) =>
              withOther(database, from, { name, need: 'write' }, (into) => {
                work.belongTo(from)
                return resultOnce(onceOf(request, session, options), (keep) =>
                  mergeBranches({ storage, quotas }, { ...options, from, into, keep, work }),
                )
              }),
            CHECKS_APPROVALS,
          ),
        )
      },
    )

    app.post(
      '/db/:databaseBranch/pull',
      {
        bodyLimit: Math.min(limits.mergeBytesMax, limits.requestBytesMax),
        schema: {
          tags,
          operationId: 'pullBranch',
          summary: 'Merge the source or another branch into a branch',
          description:
            'The opposite direction of `merge`, with the same options. Requests with the same `Idempotency-Key` are executed once.',
          params,
          body: Type.Union([PullRequestSchema, Type.Null()]),
          response: {
            200: MergeResultSchema,
            202: OperationStartedSchema,
            ...refusals(404, 409, 422),
          },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const { from: name, page, ...rules } = request.body ?? {}
        const options = { ...RULES, ...rules, page: pageOf(page), limits, kind: 'pull' } as const
        return longAnswers.answer(request, reply, 'pull', (work) =>
          run(
            request,
            'write',
            (into, session) =>
              withOther(database, into, { name, need: 'read' }, (from) => {
                work.belongTo(into)
                return resultOnce(onceOf(request, session, options), (keep) =>
                  mergeBranches({ storage, quotas }, { ...options, from, into, keep, work }),
                )
              }),
            CHECKS_APPROVALS,
          ),
        )
      },
    )

    app.post(
      '/db/:databaseBranch/revert',
      {
        bodyLimit: Math.min(limits.mergeBytesMax, limits.requestBytesMax),
        schema: {
          tags,
          operationId: 'revertBranch',
          summary: 'Take back a change of a branch',
          description:
            'Takes back what an entry of the log did: a merge, a pull, a reset, a revert, or a migration that lost values; or everything between two checkpoints. What came later stays. It is a merge of the state before the change, with the state after it as the base, and has the same options, conflicts and answer. Requests with the same `Idempotency-Key` are executed once.',
          params,
          body: RevertRequestSchema,
          response: {
            200: MergeResultSchema,
            202: OperationStartedSchema,
            ...refusals(404, 409, 422),
          },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request, reply) => {
        const { entry, from, to, page, ...rules } = request.body
        const named = { entry, from, to }
        const options = { ...RULES, ...rules, page: pageOf(page), limits, named }
        return longAnswers.answer(request, reply, 'revert', (work) =>
          run(request, 'write', (access, session) => {
            work.belongTo(access)
            return resultOnce(onceOf(request, session, options), (keep) =>
              revertBranch({ storage, quotas }, access, { ...options, keep, work }),
            )
          }),
        )
      },
    )

    app.post(
      '/db/:databaseBranch/reset',
      {
        schema: {
          tags,
          operationId: 'resetBranch',
          summary: 'Reset a branch to its source or another branch',
          description:
            'All changes of the branch are discarded, and it gets the current schema and rows of its source, or of the branch `to`. It keeps its name, its id and its source. Forks of the branch keep what they had. Takes about as long as a fork. `dryRun` returns the difference that would be discarded. Requests with the same `Idempotency-Key` are executed once.',
          params,
          body: Type.Union([ResetRequestSchema, Type.Null()]),
          response: { 200: ResetResultSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true },
      },
      async (request) => {
        const { to: name, at, dryRun = false } = request.body ?? {}
        // Without another branch, a checkpoint is one of the branch itself.
        const toOther = <Result>(
          access: BranchAccess,
          operation: (to: BranchAccess) => Promise<Result>,
        ): Promise<Result> =>
          name === undefined && at !== undefined
            ? operation(access)
            : withOther(database, access, { name, need: 'read' }, operation)
        return run(request, 'write', (access, session) =>
          toOther(access, (to) =>
            resultOnce(onceOf(request, session, { dryRun, isReset: true }), (keep) =>
              resetBranch(storage, access, { to, at, dryRun, limits, keep }),
            ),
          ),
        )
      },
    )

    app.get(
      '/db/:databaseBranch/log',
      {
        schema: {
          tags,
          operationId: 'getBranchLog',
          summary: 'List what happened to a branch',
          description:
            'Forks, merges, pulls, resets, reverts, migrations, bulk loads and changes of settings, newest first, with the user, the name of the API key, the id of the request and counts. Changes of single records are not listed.',
          params,
          querystring: LogQuerySchema,
          response: { 200: LogSchema, ...refusals(404) },
        },
      },
      async (request) =>
        run(request, 'read', async (access, { branch }) => {
          // Sessions are kept. The guard tells whether key and branch are still those of the session.
          await branch.runReads([])
          return readLog(database, access, request.query)
        }),
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
      async (request) =>
        run(request, 'read', (access) => readBranchStats(database, access, { limits })),
    )
  }
}

/** Returns the page of conflicts to list. */
function pageOf(page: MergeRequest['page']): ConflictPage {
  return { size: CONFLICTS_PAGE_SIZE, ...page }
}

/** Returns whether a word names a state of the branch or its source. Other words are branch names. */
function isMoment(word: string): word is 'base' | 'fork' | 'source' {
  return word === 'base' || word === 'fork' || word === 'source'
}
