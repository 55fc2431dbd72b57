import type { Readable } from 'node:stream'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { AppError } from '@offshoot/contract/errors'
import { OperationStartedSchema } from '@offshoot/contract/operations'
import { BulkInsertedSchema, BulkInsertSchema, StreamQuerySchema } from '@offshoot/contract/records'
import { TableParamsSchema } from '@offshoot/contract/schema-edits'
import { UpsertedSchema, UpsertQuerySchema, UpsertSchema } from '@offshoot/contract/upsert'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { inTurns } from '../../common/in-turns.js'
import { parseJsonSteps } from '../../common/json-text.js'
import type { JsonText } from '../../common/write-json.js'
import { bulkInsert } from '../../data/records/bulk.js'
import { AtomicStream } from '../../data/records/stream-atomic.js'
import type { ExistingRecords } from '../../data/records/stream-lines.js'
import { streamPartially } from '../../data/records/stream-partial.js'
import { StreamSource } from '../../data/records/stream-source.js'
import { streamUpserts, upsertRecords } from '../../data/records/upsert.js'
import { overloaded } from '../admission/ticket.js'
import { readColumns } from '../columns.js'
import { idempotencyKey, idempotent } from '../idempotency-key.js'
import type { LongAnswers } from '../long-answers.js'
import { noteEntry } from '../note-entry.js'
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

type UpsertRequest = FastifyRequest<{
  Params: { databaseBranch: string; tableName: string }
  Querystring: { by?: string }
}>

/**
 * POST   /db/:databaseBranch/tables/:tableName/bulk        a JSON body, or application/x-ndjson
 * POST   /db/:databaseBranch/tables/:tableName/upsert      a JSON body, or application/x-ndjson
 */
export function bulkRoutes(
  { database, storage, sessions, files, limits }: Services,
  longAnswers: LongAnswers,
): FastifyPluginAsyncTypebox {
  const insertBody = (request: BulkRequest, reply: FastifyReply, body: Buffer): Promise<JsonText> =>
    sessions.run(sessionRequest(request, 'write'), (session) => {
      const { tableName } = request.params
      const columns = readColumns(request.query.columns)
      return bulkInsert(
        {
          ...{ database, files, session, tableName, columns, limits },
          idempotent: idempotent(request, body),
          onEntry: noteEntry(reply),
        },
        body,
      )
    })

  /** Reads a body of lines, and discards what is left of it in the end. */
  const withStream = async <Result>(
    request: FastifyRequest,
    body: Readable,
    run: (asked: {
      source: StreamSource
      idempotencyKey: string | undefined
      url: string
      onHold(bytes: number): void
    }) => Promise<Result>,
  ): Promise<Result> => {
    const source = new StreamSource(body)
    const onHold = (bytes: number) => {
      if (request.ticket?.takeBytes(bytes) === false) throw overloaded()
    }
    try {
      const key = await sessions.run(sessionRequest(request, 'write'), async () =>
        idempotencyKey(request),
      )
      return await run({ source, idempotencyKey: key, url: request.url, onHold })
    } finally {
      await source.discard()
    }
  }

  const insertLines = (
    request: BulkRequest,
    reply: FastifyReply,
    body: Readable,
  ): Promise<string> =>
    withStream(request, body, async (asked) => {
      const read = { ...asked, onEntry: noteEntry(reply) }
      const { tableName } = request.params
      requireNoExisting(request.query.existing, 'needs mode=atomic')
      const session = sessionRequest(request, 'write')
      return streamPartially({ database, sessions, files, tableName, limits, session }, read)
    })

  const insertStream = (request: BulkRequest, reply: FastifyReply, body: Readable) =>
    longAnswers.answer<object>(request, reply, 'import', (work) =>
      withStream(request, body, async (read) => {
        const { tableName } = request.params
        const { existing = 'refuse' } = request.query
        const services = { database, storage, sessions, files, tableName, limits }
        const stream = new AtomicStream({ ...read, existing, work, onEntry: noteEntry(reply) })
        try {
          const answer = await sessions.run(sessionRequest(request, 'write'), (session) =>
            stream.insert({ ...services, session, columns: undefined }),
          )
          return JSON.parse(answer)
        } finally {
          await stream.close(storage)
        }
      }),
    )

  const upsertStream = (
    request: UpsertRequest,
    reply: FastifyReply,
    body: Readable,
  ): Promise<string> =>
    withStream(request, body, (asked) => {
      const read = { ...asked, onEntry: noteEntry(reply) }
      const { tableName } = request.params
      const session = sessionRequest(request, 'write')
      const services = { database, sessions, files, tableName, limits, session }
      return streamUpserts(services, { ...read, by: request.query.by ?? 'id' })
    })

  const upsertBody = (request: UpsertRequest, reply: FastifyReply, body: Buffer): Promise<string> =>
    sessions.run(sessionRequest(request, 'write'), async (session) => {
      const { tableName } = request.params
      const asked = readUpsert(await inTurns(parseJsonSteps(body, limits)), request.query.by)
      return upsertRecords(
        {
          ...{ database, session, tableName, limits },
          idempotent: idempotent(request, body),
          onEntry: noteEntry(reply),
        },
        asked,
      )
    })

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
            'are skipped or replaced. If inserting an atomic stream takes long after its last line, the ' +
            'request is answered with 202 and goes on as an operation. The header `Offshoot-Entry` of the ' +
            'answer has the entry of the log, by which the records can be taken back. Requests with the same ' +
            '`Idempotency-Key` are executed once.',
          params: TableParamsSchema,
          querystring: StreamQuerySchema,
          response: {
            200: BulkInsertedSchema,
            202: OperationStartedSchema,
            ...refusals(404, 409, 413, 415, 422),
          },
        },
        config: {
          acceptsIdempotencyKey: true,
          documentedBody: BulkInsertSchema,
          lane: laneOfBody,
        },
      },
      async (request, reply) => {
        const { body } = request as { body: Buffer | Readable | undefined }
        if (body !== undefined && !Buffer.isBuffer(body)) {
          if (request.query.mode !== 'partial') return insertStream(request, reply, body)
          return sendJson(reply, await insertLines(request, reply, body))
        }
        requireNoExisting(request.query.existing, 'needs a body of type application/x-ndjson')
        return sendJson(reply, await insertBody(request, reply, body ?? Buffer.alloc(0)))
      },
    )

    app.post(
      '/db/:databaseBranch/tables/:tableName/upsert',
      {
        schema: {
          tags: ['Records'],
          operationId: 'upsertRecords',
          summary: 'Insert many records, or update those that exist',
          consumes: ['application/json', 'application/x-ndjson'],
          description:
            'Finds each record by its id, or by a unique column, and changes the given fields or creates it. ' +
            'The answer has an outcome for each record: one that is refused does not affect the others. A body of ' +
            'type `application/x-ndjson` is a stream of any number of records, one per line, and is answered with ' +
            'counts, too; one of more records than a body may have, with counts alone. The header `Offshoot-Entry` of the answer has the entry of the log, by which records that were ' +
            'inserted can be taken back, unless others were updated. Other requests with the same `Idempotency-Key` ' +
            'are executed once.',
          params: TableParamsSchema,
          querystring: UpsertQuerySchema,
          response: { 200: UpsertedSchema, ...refusals(404, 409, 413, 415, 422) },
        },
        config: {
          acceptsIdempotencyKey: true,
          documentedBody: UpsertSchema,
          lane: laneOfBody,
        },
      },
      async (request, reply) => {
        const { body } = request as { body: Buffer | Readable | undefined }
        const answer =
          body !== undefined && !Buffer.isBuffer(body)
            ? await upsertStream(request, reply, body)
            : await upsertBody(request, reply, body ?? Buffer.alloc(0))
        return sendJson(reply, answer)
      },
    )
  }
}

function laneOfBody({ headers }: FastifyRequest): 'imports' | 'work' {
  return /^application\/x-ndjson/i.test(headers['content-type'] ?? '') ? 'imports' : 'work'
}

/** Checks the body of an upsert. Its records are checked one by one. */
function readUpsert(
  body: unknown,
  byQuery: string | undefined,
): { records: readonly unknown[]; by: string } {
  if (typeof body !== 'object' || body === null || Array.isArray(body)) {
    throw new AppError('invalid_request', 'body: must be of type object')
  }
  const { records, by = byQuery ?? 'id', ...rest } = body as Readonly<Record<string, unknown>>
  const [unknown] = Object.keys(rest)
  if (unknown !== undefined) {
    throw new AppError('invalid_request', `body: field [${unknown.slice(0, 100)}]: is not known`)
  }
  if (!Array.isArray(records)) {
    throw new AppError('invalid_request', 'body: field [records]: expected a list of records')
  }
  if (typeof by !== 'string' || by === '') {
    throw new AppError('invalid_request', 'body: field [by]: expected [id] or a unique column')
  }
  return { records, by }
}

function requireNoExisting(existing: ExistingRecords | undefined, reason: string): void {
  if (existing === undefined || existing === 'refuse') return
  throw new AppError('invalid_request', `query parameter [existing]: [${existing}] ${reason}`)
}
