import type { Readable } from 'node:stream'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { AppError } from '@offshoot/contract/errors'
import { BulkInsertedSchema, BulkInsertSchema, StreamQuerySchema } from '@offshoot/contract/records'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import type { FastifyRequest } from 'fastify'
import type { JsonText } from '../../common/write-json.js'
import { bulkInsert } from '../../data/records/bulk.js'
import { AtomicStream } from '../../data/records/stream-atomic.js'
import type { ExistingRecords } from '../../data/records/stream-lines.js'
import { streamPartially } from '../../data/records/stream-partial.js'
import { StreamSource } from '../../data/records/stream-source.js'
import { overloaded } from '../admission/ticket.js'
import { readColumns } from '../columns.js'
import { idempotencyKey, idempotent } from '../idempotency-key.js'
import { sessionRequest } from '../plugins/branch-session.js'
import { readBody } from '../read-body.js'
import { refusals } from '../responses.js'
import { sendJson } from '../send-json.js'
import type { Services } from '../services.js'

type BulkRequest = FastifyRequest<{
  Params: { databaseBranch: string; tableName: string }
  Querystring: {
    columns?: string | string[]
    mode?: 'atomic' | 'partial'
    existing?: ExistingRecords
  }
}>

/**
 * POST   /db/:databaseBranch/tables/:tableName/bulk        a JSON body, or application/x-ndjson
 */
export function bulkRoutes({
  database,
  storage,
  sessions,
  files,
  limits,
}: Services): FastifyPluginAsyncTypebox {
  const insertBody = (request: BulkRequest, body: Buffer): Promise<JsonText> =>
    sessions.run(sessionRequest(request, 'write'), (session) => {
      const { tableName } = request.params
      const columns = readColumns(request.query.columns)
      return bulkInsert(
        {
          ...{ database, files, session, tableName, columns, limits },
          idempotent: idempotent(request, body),
        },
        body,
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
    let stream: AtomicStream | undefined
    try {
      const key = await sessions.run(session, async () => idempotencyKey(request))
      const { mode, existing = 'refuse' } = request.query
      const asked = { source, idempotencyKey: key, url, onHold, existing }
      const services = { database, storage, sessions, files, tableName, limits }
      if (mode === 'partial') {
        requireNoExisting(existing, 'needs mode=atomic')
        return await streamPartially({ ...services, session }, asked)
      }
      const atomic = new AtomicStream(asked)
      stream = atomic
      return await sessions.run(session, (session) =>
        atomic.insert({ ...services, session, columns: undefined }),
      )
    } finally {
      await stream?.close()
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
            'valid lines are inserted even if others fail, and with `existing`, records whose id exists ' +
            'are skipped or replaced. Requests with the same ' +
            '`Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          querystring: StreamQuerySchema,
          response: { 200: BulkInsertedSchema, ...refusals(404, 409, 413, 415, 422) },
        },
        config: {
          acceptsIdempotencyKey: true,
          documentedBody: BulkInsertSchema,
          lane: ({ headers }) =>
            /^application\/x-ndjson/i.test(headers['content-type'] ?? '') ? 'imports' : 'work',
        },
      },
      async (request, reply) => {
        const { body } = request as { body: Buffer | Readable | undefined }
        if (body !== undefined && !Buffer.isBuffer(body)) {
          return sendJson(reply, await insertStream(request, body))
        }
        requireNoExisting(request.query.existing, 'needs a body of type application/x-ndjson')
        return sendJson(reply, await insertBody(request, body ?? Buffer.alloc(0)))
      },
    )
  }
}

function requireNoExisting(existing: ExistingRecords | undefined, reason: string): void {
  if (existing === undefined || existing === 'refuse') return
  throw new AppError('invalid_request', `query parameter [existing]: [${existing}] ${reason}`)
}
