import type { Readable } from 'node:stream'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { BulkInsertedSchema, BulkInsertSchema, StreamQuerySchema } from '@offshoot/contract/records'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import type { FastifyRequest } from 'fastify'
import { bulkInsert } from '../../data/records/bulk.js'
import { hashContent } from '../../data/records/idempotency.js'
import { streamInsert, streamPartially } from '../../data/records/stream.js'
import { StreamSource } from '../../data/records/stream-source.js'
import { overloaded } from '../admission/ticket.js'
import { readColumns } from '../columns.js'
import { idempotencyKey } from '../idempotency-key.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { readBody } from '../read-body.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

type BulkRequest = FastifyRequest<{
  Params: { databaseBranch: string; tableName: string }
  Querystring: { columns?: string | string[]; mode?: 'atomic' | 'partial' }
}>

/**
 * POST   /db/:databaseBranch/tables/:tableName/bulk        a JSON body, or application/x-ndjson
 */
export function bulkRoutes({
  database,
  sessions,
  files,
  limits,
}: Services): FastifyPluginAsyncTypebox {
  const insertBody = (request: BulkRequest, body: Buffer): Promise<string> =>
    sessions.run(sessionRequest(request, 'write'), (session) => {
      const { tableName } = request.params
      const columns = readColumns(request.query.columns)
      const idempotent = {
        key: idempotencyKey(request),
        contentHash: hashContent(() => [request.url, '\0', body, '\0']),
      }
      return bulkInsert(
        { database, sessions, files, session, tableName, columns, limits },
        { body, idempotent },
      )
    })

  const insertStream = async (request: BulkRequest, body: Readable): Promise<string> => {
    const source = new StreamSource(body)
    const { tableName } = request.params
    const { url } = request
    const onHold = (bytes: number) => {
      if (request.ticket?.takeBytes(bytes) === false) throw overloaded()
    }
    const session = sessionRequest(request, 'write')
    try {
      const key = await sessions.run(session, async () => idempotencyKey(request))
      return request.query.mode === 'partial'
        ? await streamPartially(
            { database, sessions, files, session, tableName, limits },
            { source, idempotencyKey: key, url, onHold },
          )
        : await sessions.run(session, (session) =>
            streamInsert(
              { database, sessions, files, session, tableName, columns: undefined, limits },
              { source, idempotencyKey: key, url, onHold },
            ),
          )
    } finally {
      await source.discard()
    }
  }

  return async (app) => {
    // Bodies are read as bytes: they are parsed in slices while the first rows are already sent to
    // PostgreSQL.
    app.removeAllContentTypeParsers()
    app.addContentTypeParser('application/json', (request, payload, done) =>
      readBody(request, payload, done),
    )
    app.addContentTypeParser('application/x-ndjson', (_request, payload, done) => {
      done(null, payload)
    })

    app.post(
      '/db/:databaseBranch/tables/:tableName/bulk',
      {
        schema: {
          tags: ['Records'],
          operationId: 'insertRecords',
          summary: 'Insert many records',
          consumes: ['application/json', 'application/x-ndjson'],
          description:
            'Inserts all records or none. A body of type `application/x-ndjson` is a stream of any ' +
            'number of records, one per line, and is answered with counts; with `mode=partial`, ' +
            'valid lines are inserted even if others fail. Requests with the same ' +
            '`Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          querystring: StreamQuerySchema,
          response: { 200: BulkInsertedSchema, ...refusals(404, 409, 413, 415, 422) },
        },
        config: {
          documentedBody: BulkInsertSchema,
          lane: ({ headers }) =>
            /^application\/x-ndjson/i.test(headers['content-type'] ?? '') ? 'imports' : 'work',
        },
      },
      async (request, reply) => {
        const { body } = request as { body: Buffer | Readable | undefined }
        const answer =
          body === undefined || Buffer.isBuffer(body)
            ? await insertBody(request, body ?? Buffer.alloc(0))
            : await insertStream(request, body)
        return sendJson(reply, answer)
      },
    )
  }
}
