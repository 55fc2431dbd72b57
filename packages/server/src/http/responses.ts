import type { ErrorCode } from '@offshoot/contract/errors'
import { Type } from 'typebox'

/** Default descriptions of statuses in the OpenAPI document. */
export const MEANINGS: Readonly<Record<number, string>> = {
  200: 'Done.',
  201: 'Created.',
  204: 'Done. The answer has no body.',
  304: 'Not modified: the version that the client has is current.',
  400: 'The request is invalid; the message names the part at fault.',
  401: 'The API key is missing, malformed, unknown, expired or revoked.',
  403: 'The role of the user or the scope of the API key does not allow this.',
  404: 'The resource does not exist.',
  408: 'The request did not arrive in time.',
  409: 'The request conflicts with the current state, or with concurrent changes.',
  413: 'The request is larger than the limit.',
  415: 'The content type is not supported here.',
  416: 'The requested range is beyond the end of the file.',
  422: 'The name is taken, or a limit is reached.',
  431: 'The request line and headers are larger than the limit.',
  429: 'A rate limit is exceeded; nothing was executed. `Retry-After` says when to try again.',
  503: 'The service is temporarily unavailable or overloaded; try again.',
}

/** Example errors of the OpenAPI document, by status. */
export const REFUSAL_EXAMPLES: Readonly<Record<number, readonly [ErrorCode, string]>> = {
  400: ['invalid_request', 'body: field [name]: is required'],
  401: ['invalid_api_key', 'Invalid API key'],
  403: ['key_scope', 'this API key can only read'],
  404: ['branch_not_found', 'branch [dev] not found'],
  408: ['request_timeout', 'the request did not arrive in time'],
  409: [
    'retry_limit',
    'other requests kept changing the same data; nothing was applied, please try again',
  ],
  413: ['payload_too_large', 'the request body is larger than the limit of 67108864 bytes'],
  415: ['unsupported_media_type', 'the content type is not supported here: send application/json'],
  416: ['range_not_satisfiable', 'header [range]: the file has only 1024 bytes'],
  422: ['already_exists', 'branch [dev] already exists'],
  431: ['headers_too_large', 'the request headers are larger than the limit'],
  429: [
    'rate_limited',
    'this API key can make at most 100 requests per second; nothing was executed',
  ],
  503: ['unavailable', 'the service is temporarily unavailable; try again'],
}

/** Errors that every route with an API key can answer with. */
const ALWAYS = [400, 401, 403, 429, 503] as const

/** Returns the documented errors of a route: those of every route, and the given ones. */
export function refusals(...statuses: readonly (404 | 409 | 413 | 415 | 416 | 422)[]) {
  return Object.fromEntries(
    [...ALWAYS, ...statuses].map((status) => [status, refusal(MEANINGS[status] ?? '')]),
  )
}

/** One schema for all routes, so that its serializer is compiled once. */
const ErrorRef = Type.Ref('Error#')

function refusal(description: string) {
  return {
    description,
    content: { 'application/json': { schema: ErrorRef } },
  }
}

export const Empty = Type.Null({ description: 'No content.' })
