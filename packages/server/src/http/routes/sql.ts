import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { BranchParamsSchema } from '@offshoot/contract/branches'
import { AtQuerySchema } from '@offshoot/contract/checkpoints'
import {
  SqlBatchRequestSchema,
  SqlBatchResultSchema,
  SqlRequestSchema,
  SqlResultSchema,
  type SqlStatement,
} from '@offshoot/contract/sql'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { type JsonText, listJson } from '../../common/write-json.js'
import { requireStatementCount } from '../../data/sql/prepare-sql.js'
import { jsonForm, type ResultForm } from '../../data/sql/result-forms.js'
import { runSqlOrScript } from '../../data/sql/run-script.js'
import type { SqlEngine } from '../../data/sql/sql-engine.js'
import { boundedRun } from '../bounded-run.js'
import { idempotent } from '../idempotency-key.js'
import { noteEntry } from '../note-entry.js'
import { limitBodies } from '../read-body.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

/**
 * POST   /db/:databaseBranch/sql
 * POST   /db/:databaseBranch/sql/batch
 */
export function sqlRoutes(services: Services, engine: SqlEngine): FastifyPluginAsyncTypebox {
  const bounded = boundedRun(services)
  const { database, limits, sessions } = services
  const run = (
    request: FastifyRequest,
    reply: FastifyReply,
    asked: {
      statements: readonly SqlStatement[]
      form: ResultForm
      change: { allowDataLoss: boolean }
      toAnswer(results: readonly string[]): JsonText
    },
  ) =>
    // The statement is parsed later, so write access is checked when it is known that it writes.
    bounded(request, reply, (context) =>
      runSqlOrScript(
        {
          ...context,
          database,
          ...engine,
          idempotent: idempotent(request),
          onEntry: noteEntry(reply),
          reopen: (session, reads) => sessions.reopen(session, reads),
        },
        asked,
      ),
    )

  return async (app) => {
    limitBodies(app, services.limits.transactionBytesMax)
    const tags = ['SQL']

    app.post(
      '/db/:databaseBranch/sql',
      {
        schema: {
          tags,
          operationId: 'runSql',
          summary: 'Run a SQL statement on a branch',
          description:
            'Runs one SELECT, VALUES, INSERT, UPDATE, DELETE or TRUNCATE with parameters `$1`, `$2` and so on, or any number of statements that change the schema, which become one migration; the header `Offshoot-Entry` of the answer has its entry of the log. Only the tables of the branch are visible. Statements that write are executed once for all requests with the same `Idempotency-Key`.',
          params: BranchParamsSchema,
          querystring: AtQuerySchema,
          body: SqlRequestSchema,
          response: { 200: SqlResultSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true, exactNumbers: 'elements' },
      },
      async (request, reply) => {
        const { statement, params, responseType, rowsMax, allowDataLoss = false } = request.body
        const statements = [{ statement, params: params ?? null }]
        const toAnswer = ([result = '']: readonly string[]) => result
        const form = jsonForm({ responseType, rowsMax })
        const asked = { statements, form, change: { allowDataLoss }, toAnswer }
        return sendJson(reply, await run(request, reply, asked))
      },
    )

    app.post(
      '/db/:databaseBranch/sql/batch',
      {
        // Validating each statement of a huge batch would block other requests.
        preValidation: async (request) => {
          const { statements } = (request.body ?? {}) as { statements?: unknown }
          if (Array.isArray(statements)) requireStatementCount(limits, statements.length)
        },
        schema: {
          tags,
          operationId: 'runSqlBatch',
          summary: 'Run SQL statements on a branch in one transaction',
          description:
            'The statements run in order; each sees the writes of those before it. If one fails, none takes effect. Batches that write are executed once for all requests with the same `Idempotency-Key`.',
          params: BranchParamsSchema,
          querystring: AtQuerySchema,
          body: SqlBatchRequestSchema,
          response: { 200: SqlBatchResultSchema, ...refusals(404, 409, 422) },
        },
        config: { acceptsIdempotencyKey: true, exactNumbers: 'elements' },
      },
      async (request, reply) => {
        const { statements, responseType, rowsMax, allowDataLoss = false } = request.body
        const toAnswer = (results: readonly string[]) => listJson('{"results":[', results, ']}')
        const form = jsonForm({ responseType, rowsMax })
        const asked = { statements, form, change: { allowDataLoss }, toAnswer }
        return sendJson(reply, await run(request, reply, asked))
      },
    )
  }
}
