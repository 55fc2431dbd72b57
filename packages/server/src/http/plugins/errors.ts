import { AppError, ERROR_CODES, type ErrorBody, type ErrorCode } from '@offshoot/contract/errors'
import type { FastifyError, FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { toAppError } from '../../postgres/failures.js'
import { commonHeaders } from '../common-headers.js'
import { describeAddresses } from '../origin.js'
import { describeValidation } from '../validation.js'
import { type RouteMap, routeMap } from './route-map.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Returns the error for a request that matches no route (404 or 405), and sets `Allow`. */
    notFoundError(request: FastifyRequest, reply: FastifyReply): AppError
  }
}

/** Errors of Fastify that the client caused. */
const FASTIFY_CODES: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  FST_ERR_CTP_INVALID_MEDIA_TYPE: [
    'unsupported_media_type',
    'the content type is not supported here: send application/json',
  ],
  FST_ERR_CTP_EMPTY_TYPE: [
    'unsupported_media_type',
    'the content type is empty: send application/json',
  ],
  FST_ERR_CTP_EMPTY_JSON_BODY: ['invalid_request', 'body: is required'],
  FST_ERR_CTP_INVALID_CONTENT_LENGTH: [
    'invalid_request',
    'header [content-length]: is not the length of the body',
  ],
  FST_ERR_BAD_URL: ['invalid_request', 'the path contains an invalid percent-encoding'],
  FST_ERR_MAX_PARAM_LENGTH: ['invalid_request', 'a part of the path is too long'],
}

/** Path at which users of other services expect a list of records. */
const READ_MANY = /^\/db\/[^/]+\/tables\/[^/]+\/data$/

/** Writes all error bodies. */
export const errorsPlugin = fastifyPlugin(async (app: FastifyInstance) => {
  const routes = routeMap(app)

  app.setErrorHandler((error: FastifyError, request, reply) =>
    sendError(request, reply, reportError(error, request)),
  )

  app.decorate('notFoundError', (request, reply) => notFoundError(request, reply, routes))
  app.setNotFoundHandler((request, reply) =>
    sendError(request, reply, notFoundError(request, reply, routes)),
  )
})

/** Returns the error that the client is told, and logs what it is not told. */
export function reportError(error: unknown, request: FastifyRequest): AppError {
  const known = toKnownError(error as FastifyError, request)
  if (known === undefined) {
    request.log.error({ err: error, ...placeOf(request) }, 'request failed')
    return new AppError(
      'internal',
      'internal error; the id of this answer is also in the log of the service',
    )
  }
  // Overload is not logged for each request; the admission plugin logs a summary.
  if (known.status >= 500 && known.code !== 'overloaded') {
    request.log.warn(
      { err: known.cause ?? known, code: known.code, ...placeOf(request) },
      known.message,
    )
  }
  return known
}

function placeOf(request: FastifyRequest): { method: string; route: string | null } {
  return { method: request.method, route: request.routeOptions.url ?? null }
}

/** Answers paths that the router cannot decode. Fastify runs no hooks for them. */
export function answerBadPath(
  error: FastifyError,
  request: FastifyRequest,
  reply: FastifyReply,
): void {
  const [code, message] = FASTIFY_CODES[error.code] ?? ['invalid_request', 'the path is malformed']
  void sendError(request, reply.headers(commonHeaders(request.id)), new AppError(code, message))
}

function toKnownError(error: FastifyError, request: FastifyRequest): AppError | undefined {
  if (error instanceof AppError) return error
  if (error.validation !== undefined) {
    return new AppError(
      'invalid_request',
      describeValidation(error.validation, error.validationContext),
    )
  }
  // Only a deeply nested request can overflow the stack.
  if (error instanceof RangeError && error.message.startsWith('Maximum call stack')) {
    return new AppError('invalid_request', 'body: is nested too deeply')
  }
  if (error.code === 'FST_ERR_CTP_BODY_TOO_LARGE') {
    const { bodyLimit } = request.routeOptions
    const message = `the request body is larger than the limit of ${bodyLimit} bytes`
    return new AppError('payload_too_large', message)
  }
  const fastify = FASTIFY_CODES[error.code]
  if (fastify !== undefined) return new AppError(...fastify)
  // Other client errors, for example a connection that closes during the body.
  if (error.statusCode !== undefined && error.statusCode < 500) {
    return new AppError('invalid_request', 'the request was not received completely')
  }
  const mapped = toAppError(error)
  return mapped instanceof AppError ? mapped : undefined
}

export function routeNotFound(pathname: string): AppError {
  return new AppError('route_not_found', `there is nothing at [${pathname}]; see /docs`)
}

function notFoundError(request: FastifyRequest, reply: FastifyReply, routes: RouteMap): AppError {
  const pathname = request.url.split('?', 1)[0] ?? '/'
  const allowed = routes.methodsAt(pathname).join(', ')
  if (allowed === '') {
    return routeNotFound(pathname)
  }
  const hint =
    READ_MANY.test(pathname) && request.method === 'GET' ? '; POST .../query finds records' : ''
  reply.header('allow', allowed)
  return new AppError(
    'method_not_allowed',
    `method [${request.method}] is not allowed at [${pathname}]; allowed: ${allowed}${hint}`,
  )
}

/** Returns the body of the answer for an error. */
export function errorBody(error: AppError, request: FastifyRequest): ErrorBody {
  const body: ErrorBody = { id: request.id, message: messageOf(error, request), code: error.code }
  Object.assign(body, error.details)
  if (error.errors !== undefined) Object.assign(body, { errors: error.errors })
  if (error.code === 'version_conflict') body.status = error.status
  return body
}

function sendError(request: FastifyRequest, reply: FastifyReply, error: AppError): FastifyReply {
  request.errorCode = error.code
  // The rest of a late body is not read.
  if (error.code === 'request_timeout') reply.header('connection', 'close')
  const status = statusOf(error, request)
  if (status === 401) reply.header('www-authenticate', challenge(request))
  return reply.code(status).type('application/json').send(errorBody(error, request))
}

/** Returns the `WWW-Authenticate` header: the scheme, and an error if a key was sent (RFC 6750). */
function challenge({ headers }: FastifyRequest): string {
  const scheme = 'Bearer realm="offshoot"'
  return headers.authorization === undefined ? scheme : `${scheme}, error="invalid_token"`
}

/** Adds the possible addresses to the message; they depend on the address that the client used. */
function messageOf({ code, message }: AppError, request: FastifyRequest): string {
  return code === 'ambiguous_workspace' ? `${message}; ${describeAddresses(request)}` : message
}

/**
 * Xata clients expect 401 instead of 404 for a workspace that does not exist, and retry by
 * themselves only after 429, not after 503.
 */
function statusOf(error: AppError, request: FastifyRequest): number {
  if (error.code === 'overloaded' && request.isXataClient) return ERROR_CODES.rate_limited[0]
  if (error.code === 'workspace_not_found' && request.isXataClient) {
    return ERROR_CODES.invalid_api_key[0]
  }
  return error.status
}
