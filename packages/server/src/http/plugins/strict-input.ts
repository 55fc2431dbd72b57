import { Readable } from 'node:stream'
import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { faultOfIdempotencyKey } from '../idempotency-key.js'
import { describeUnknown } from '../validation.js'

interface RouteSchema {
  readonly hide?: boolean
  readonly body?: unknown
  readonly querystring?: { readonly properties?: object }
}

/**
 * Refuses query parameters, bodies and idempotency keys that a route does not know, and encodings of bodies.
 * Otherwise they would be ignored silently.
 */
export const strictInputPlugin = fastifyPlugin(async (app: FastifyInstance) => {
  app.addHook('preParsing', (request, _reply, _payload, done) => {
    done(faultOfEncoding(request))
  })
  app.addHook('preValidation', (request, _reply, done) => {
    done(request.is404 ? undefined : (faultOfIdempotencyKey(request) ?? faultOf(request)))
  })
})

/** Media types whose content is text in UTF-8. Files have any type. */
const TEXT_TYPES = /^application\/(?:json|x-ndjson)\b/i
const CHARSET = /;\s*charset\s*=\s*"?([^\s";]+)/i
const UTF8_CHARSET = /^(?:utf-?8|us-ascii)$/i

function faultOfEncoding({ headers }: FastifyRequest): AppError | undefined {
  const encoding = headers['content-encoding']
  if (encoding !== undefined && encoding.toLowerCase() !== 'identity') {
    return new AppError(
      'unsupported_media_type',
      `header [content-encoding]: [${encoding.slice(0, 255)}] is not supported; send the body as it is`,
    )
  }
  const type = headers['content-type']
  if (type === undefined || !TEXT_TYPES.test(type)) return undefined
  const charset = CHARSET.exec(type)?.[1]
  if (charset === undefined || UTF8_CHARSET.test(charset)) return undefined
  return new AppError(
    'unsupported_media_type',
    `header [content-type]: charset [${charset.slice(0, 255)}] is not supported; send UTF-8`,
  )
}

/** Requests that write have no parameter `at`. */
const PAST_IS_READ_ONLY =
  'is only for requests that read a branch; a state of the past cannot be changed'

function faultOf(request: FastifyRequest): AppError | undefined {
  const { body, query } = request
  // Validation treats a missing body as null, and makes null of these values, so they must be refused here.
  if (body === null || body === 0 || body === false || body === '') {
    const value = JSON.stringify(body)
    return new AppError('invalid_request', `body: must be of type object, not ${value}`)
  }
  const names = Object.keys(query as object)
  if (names.length === 0 && body === undefined) return undefined
  const { schema, config } = request.routeOptions
  const { hide, querystring, body: expected } = (schema ?? {}) as RouteSchema
  if (hide) return undefined
  const known = Object.keys(querystring?.properties ?? {})
  const unknown = names.find((name) => !known.includes(name))
  if (unknown !== undefined) {
    const fault = unknown === 'at' ? PAST_IS_READ_ONLY : describeUnknown(unknown, known)
    return new AppError('invalid_request', `query: parameter [${unknown.slice(0, 255)}]: ${fault}`)
  }
  const takesBody = expected !== undefined || config.documentedBody !== undefined
  // A stream that was not read is discarded with the answer.
  const isUnread = body === undefined || body instanceof Readable
  if (isUnread || takesBody || request.isXataClient) return undefined
  return faultOfUnwanted(body)
}

/** Accepts an empty object, because many clients send one instead of no body. */
function faultOfUnwanted(body: unknown): AppError | undefined {
  const isObject = typeof body === 'object' && !Array.isArray(body)
  const [field] = isObject ? Object.keys(body ?? {}) : []
  if (isObject && field === undefined) return undefined
  const place = field === undefined ? 'body' : `body: field [${field.slice(0, 255)}]`
  return new AppError('invalid_request', `${place}: is not known; this route takes no body`)
}
