import type { Readable } from 'node:stream'
import type { FastifyPluginAsyncTypebox } from '@fastify/type-provider-typebox'
import { AtQuerySchema } from '@offshoot/contract/checkpoints'
import { AppError } from '@offshoot/contract/errors'
import {
  FileItemParamsSchema,
  FileLinkParamsSchema,
  FileLinkQuerySchema,
  FileParamsSchema,
  FileSchema,
  RotatedLinkKeySchema,
  RotateLinkKeySchema,
} from '@offshoot/contract/files'
import type { Limits } from '@offshoot/contract/limits'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import type { ReceivedBlob } from '../../blobs/blob-store.js'
import {
  attachFile,
  checkUpload,
  deleteFile,
  type FileTarget,
  openLink,
  orUndo,
  readFile,
  uploadByLink,
  uploadMediaType,
} from '../../data/files/operations.js'
import { rotateLinkKey } from '../../data/files/rotate-link-key.js'
import type { Growth } from '../../domain/quotas/quotas.js'
import { originOf } from '../origin.js'
import { sessionRequest, stateRequest } from '../plugins/branch-session.js'
import { Empty, refusals } from '../responses.js'
import { sendFile } from '../send-file.js'
import type { Services } from '../services.js'

const tags = ['Files']
/** Uploads and downloads can have any media type. */
const ANY_TYPE = '*/*'
const BytesSchema = Type.Unknown({ description: 'The content as raw bytes.' })
const Bytes = {
  description: 'The content, with the media type of the file.',
  content: { [ANY_TYPE]: { schema: BytesSchema } },
}
const upload = {
  consumes: [ANY_TYPE],
  description: 'The body is the content of the file. `Content-Type` is its media type.',
}

type FileRequest = FastifyRequest<{
  Params: {
    databaseBranch: string
    tableName: string
    recordId: string
    columnName: string
    fileId?: string
  }
}>

/**
 * GET    /db/:databaseBranch/tables/:tableName/data/:recordId/column/:columnName/file   PUT, DELETE
 * GET    .../file/:fileId                                                              PUT, DELETE
 */
export function fileRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, sessions, files, limits } = services
  const context = { database, sessions, files, limits }

  const read = async (request: FileRequest, reply: FastifyReply) => {
    const file = await sessions.run(stateRequest(request, 'read'), (session) =>
      readFile(context, session, targetOf(request)),
    )
    return sendFile(request, reply, { file, isPublic: false })
  }

  const write = async (request: FileRequest, reply: FastifyReply) => {
    const target = targetOf(request)
    const mediaType = uploadMediaType(request.headers['content-type'], limits)
    const by = sessionRequest(request, 'write')
    // A stream can be read only once, so all checks run before it is read.
    const bytes = announcedBytes(request)
    const growth = await sessions.run(by, (session) =>
      checkUpload(context, session, { target, bytes }),
    )
    const { file, created } = await orUndo(growth, async () => {
      const blob = await receive(services, request, growth)
      return sessions.run(by, (session) =>
        attachFile(context, session, { target, blob, mediaType }),
      )
    })
    return reply.code(created ? 201 : 200).send(file)
  }

  const remove = (request: FileRequest) =>
    sessions.run(sessionRequest(request, 'write'), (session) =>
      deleteFile(session, targetOf(request)),
    )

  return async (app) => {
    const url = '/db/:databaseBranch/tables/:tableName/data/:recordId/column/:columnName/file'
    for (const { path, params, name, noun } of [
      { path: url, params: FileParamsSchema, name: 'a file', noun: 'File' },
      {
        path: `${url}/:fileId`,
        params: FileItemParamsSchema,
        name: 'a file of a `file[]` column',
        noun: 'FileItem',
      },
    ]) {
      await app.register(async (bytes) => {
        readAnyBody(bytes, limits)
        bytes.get(
          path,
          {
            schema: {
              tags,
              operationId: `download${noun}`,
              summary: `Download ${name}`,
              params,
              querystring: AtQuerySchema,
              response: { 200: Bytes, 204: Empty, 206: Bytes, 304: Empty, ...refusals(404, 416) },
            },
            config: { lane: 'files' },
          },
          async (request, reply) => read(request as unknown as FileRequest, reply),
        )
        bytes.put(
          path,
          {
            bodyLimit: Number.MAX_SAFE_INTEGER,
            schema: {
              ...upload,
              tags,
              operationId: `upload${noun}`,
              summary: `Upload ${name}`,
              params,
              response: { 200: FileSchema, 201: FileSchema, ...refusals(404, 413) },
            },
            config: { documentedBody: BytesSchema, lane: 'files' },
          },
          async (request, reply) => write(request as unknown as FileRequest, reply) as never,
        )
      })
      app.delete(
        path,
        {
          schema: {
            tags,
            operationId: `delete${noun}`,
            summary: `Delete ${name}`,
            params,
            response: { 200: FileSchema, ...refusals(404) },
          },
        },
        async (request) => remove(request as unknown as FileRequest),
      )
    }
  }
}

/**
 * GET    /file/:accessId?verify=      PUT
 */
export function fileLinkRoutes(services: Services): FastifyPluginAsyncTypebox {
  const { database, sessions, files, limits } = services
  const context = { database, sessions, files, limits }
  return async (app) => {
    readAnyBody(app, limits)
    const url = '/file/:accessId'
    const params = FileLinkParamsSchema
    const querystring = FileLinkQuerySchema

    app.get(
      url,
      {
        schema: {
          tags,
          operationId: 'openFileLink',
          summary: 'Download a file by a link',
          description: 'Does not need an API key: the file is public, or the link is signed.',
          security: [],
          params,
          querystring,
          response: { 200: Bytes, 204: Empty, 206: Bytes, 304: Empty, ...refusals(404, 416) },
        },
        config: { lane: 'files' },
      },
      async (request, reply) => {
        const { accessId } = request.params
        const { verify } = request.query
        const origin = originOf(request)
        const file = await openLink(context, { accessId, verify, origin })
        return sendFile(request, reply, { file, isPublic: verify === undefined }) as never
      },
    )

    app.put(
      url,
      {
        bodyLimit: Number.MAX_SAFE_INTEGER,
        schema: {
          ...upload,
          tags,
          operationId: 'uploadFileLink',
          summary: 'Upload a file by a link',
          security: [],
          params,
          querystring,
          response: { 201: FileSchema, ...refusals(404, 409, 413) },
        },
        config: { documentedBody: BytesSchema, lane: 'files' },
      },
      async (request, reply) => {
        const { accessId } = request.params
        const { verify } = request.query
        const file = await uploadByLink(context, {
          accessId,
          verify,
          origin: originOf(request),
          mediaType: uploadMediaType(request.headers['content-type'], limits),
          bytes: announcedBytes(request),
          receive: (growth) => receive(services, request, growth),
        })
        return reply.code(201).send(file)
      },
    )
  }
}

/**
 * POST   /linkKeys
 */
export function linkKeyRoutes({ database, files }: Services): FastifyPluginAsyncTypebox {
  const context = { database, links: files.links }
  return async (app) => {
    app.post(
      '/linkKeys',
      {
        schema: {
          tags,
          operationId: 'rotateLinkKey',
          summary: 'Rotate the key that signs file links',
          description: 'Only for the administrator of the instance.',
          body: Type.Union([RotateLinkKeySchema, Type.Null()]),
          response: { 201: RotatedLinkKeySchema, ...refusals() },
        },
      },
      async (request, reply) =>
        reply.code(201).send(await rotateLinkKey(context, request.principal, request.body ?? {})),
    )
  }
}

/** Passes bodies on as streams, whatever their content type. */
function readAnyBody(app: FastifyInstance, limits: Limits): void {
  // Some clients send an empty Content-Type, for which Fastify has no parser.
  app.addHook('onRequest', async ({ method, headers }) => {
    if (method !== 'PUT') return
    if (uploadMediaType(headers['content-type'], limits) === undefined) {
      delete headers['content-type']
    }
  })
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('*', (_request, payload, done) => {
    done(null, payload)
  })
}

function targetOf({ params }: FileRequest): FileTarget {
  const { tableName, recordId, columnName, fileId = '' } = params
  return { tableName, recordId, columnName, fileId }
}

/** Returns the `Content-Length` of a request; 0 if it has none. */
function announcedBytes({ headers }: FastifyRequest): number {
  return Number(headers['content-length'] ?? 0)
}

async function receive(
  { files }: Services,
  request: FastifyRequest,
  growth: Growth,
): Promise<ReceivedBlob> {
  const announced = announcedBytes(request)
  files.requireSize(announced)
  const bytes = announced === 0 ? countBytes(bytesOf(request), growth) : bytesOf(request)
  try {
    return await files.receive(bytes, growth.workspaceId)
  } catch (error) {
    if (!request.raw.complete && request.raw.destroyed) {
      throw new AppError('invalid_request', 'the upload was not received completely', {
        cause: error,
      })
    }
    throw error
  }
}

/** Checks the quota while bytes arrive, for uploads without a `Content-Length`. */
async function* countBytes(source: AsyncIterable<Buffer>, growth: Growth): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    await growth.admit(chunk.length)
    yield chunk
  }
}

/** How long the rest of a refused upload is discarded, so that the client can read the answer. */
const LINGER_MS = 10_000

/** Yields the body. A request without a body uploads an empty file. */
async function* bytesOf(request: FastifyRequest): AsyncGenerator<Buffer> {
  const body = request.body as Readable | undefined
  if (body === undefined) return
  try {
    // A reader that stops early still has to answer, so the connection stays open.
    yield* body.iterator({ destroyOnReturn: false })
  } finally {
    if (!body.readableEnded && !body.destroyed) {
      body.resume()
      setTimeout(() => body.destroy(), LINGER_MS).unref()
    }
  }
}
