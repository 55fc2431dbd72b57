import type { ErrorCode } from '@offshoot/contract/errors'
import { Type } from 'typebox'

/** What a status says, where a route has nothing more to say about it. */
export const MEANINGS: Readonly<Record<number, string>> = {
  200: 'Done.',
  201: 'Created.',
  204: 'Done; there is nothing to say about it.',
  304: 'The client has it already.',
  400: 'Something in the request is wrong; the message names it.',
  401: 'The API key is missing, malformed, unknown, expired or revoked.',
  403: 'The caller, or the scope of the API key, does not allow this.',
  404: 'What the address names does not exist.',
  408: 'The request did not arrive in time.',
  409: 'The request contradicts the present state, or others keep changing it.',
  413: 'The request is larger than the limit.',
  415: 'The content type is not one this address reads.',
  416: 'The file has no bytes in the range that was asked for.',
  422: 'The name is taken, or a limit is reached.',
  431: 'The request line and headers are larger than the limit.',
  429: 'The API key makes more requests than it may; nothing was executed.',
  503: 'The service cannot answer now; try again.',
}

/** How a refusal of each status may read. */
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
  415: [
    'unsupported_media_type',
    'the content type is not one this address reads: send application/json',
  ],
  416: ['range_not_satisfiable', 'the file has only 1024 bytes'],
  422: ['already_exists', 'branch [dev] already exists'],
  431: ['headers_too_large', 'the request headers are larger than the limit'],
  429: ['rate_limited', 'this API key makes more requests than it may; nothing was executed'],
  503: ['unavailable', 'the service cannot answer now; try again'],
}

/** Refusals every protected route can answer with. */
const ALWAYS = [400, 401, 403, 429, 503] as const

/** The documented refusals of a route. */
export function refusals(...statuses: readonly (404 | 409 | 413 | 415 | 416 | 422)[]) {
  return Object.fromEntries(
    [...ALWAYS, ...statuses].map((status) => [status, refusal(MEANINGS[status] ?? '')]),
  )
}

function refusal(description: string) {
  return {
    description,
    content: { 'application/json': { schema: Type.Ref('Error#') } },
  }
}

export const Empty = Type.Null({ description: 'Nothing.' })
