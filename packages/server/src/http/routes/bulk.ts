import type { Readable } from 'node:stream'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { BulkInsertedSchema, BulkInsertSchema, StreamQuerySchema } from '@offshoot/contract/records'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import { bulkInsert } from '../../domain/records/bulk.js'
import { streamInsert } from '../../domain/records/stream.js'
import { readColumns } from '../columns.js'
import { idempotencyKey } from '../idempotency-key.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { refusals } from '../responses.js'
import type { Services } from '../services.js'
import { sendJson } from './records.js'

/**
 * POST   /db/:databaseBranch/tables/:tableName/bulk        a JSON body, or application/x-ndjson
 */
export function bulkRoutes({ database, sessions, limits }: Services): FastifyPluginAsyncTypebox {
  return async (app) => {
    // Bodies are taken as bytes: they are parsed in slices, while rows are on their way already.
    app.removeAllContentTypeParsers()
    app.addContentTypeParser('application/json', { parseAs: 'buffer' }, (_request, body, done) =>
      done(null, body),
    )
    app.addContentTypeParser('application/x-ndjson', (_request, payload, done) => {
      done(null, payload)
    })

    app.post(
      '/db/:databaseBranch/tables/:tableName/bulk',
      {
        schema: {
          tags: ['Records'],
          summary: 'Insert many records',
          description:
            'All or none. `application/x-ndjson` takes any number of records, one a line, and ' +
            'answers with counts; `mode=partial` keeps the valid lines. `Idempotency-Key` makes ' +
            'a repetition safe.',
          params: TableParamsSchema,
          querystring: StreamQuerySchema,
          response: { 200: BulkInsertedSchema, ...refusals(404, 413, 415, 422) },
        },
        config: { documentedBody: BulkInsertSchema },
      },
      async (request, reply) => {
        const { tableName } = request.params
        const { mode = 'atomic' } = request.query
        const columns = readColumns(request.query.columns)
        const key = idempotencyKey(request)
        const { body } = request as { body: Buffer | Readable | undefined }
        const answer = await sessions.run(sessionRequest(request, 'write'), (session) => {
          const context = { database, sessions, session, tableName, columns, limits }
          return body === undefined || Buffer.isBuffer(body)
            ? bulkInsert(context, {
                body: body ?? Buffer.alloc(0),
                idempotent: { key, content: [request.url, body ?? ''] },
              })
            : streamInsert(context, {
                source: body,
                mode,
                idempotencyKey: key,
                url: request.url,
              })
        })
        return sendJson(reply, answer)
      },
    )
  }
}
