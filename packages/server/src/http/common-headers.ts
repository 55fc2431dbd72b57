import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

/** Names a request in its answer and in the log. */
export function newRequestId(): string {
  return `req_${randomUUID().replaceAll('-', '')}`
}

/** Short enough for a log, and nothing in it that a log or a header could take for something else. */
const SANE_ID = /^[A-Za-z0-9._:-]{8,128}$/

/** Takes over the id that a proxy has given, if there is a header that is trusted for that. */
export function requestIdFrom(header: string | null): (request: IncomingMessage) => string {
  if (header === null) return newRequestId
  const name = header.toLowerCase()
  return (request) => {
    const given = request.headers[name]
    return typeof given === 'string' && SANE_ID.test(given) ? given : newRequestId()
  }
}

/**
 * What every answer carries. An answer is data: nothing in it may run or be framed, should a browser
 * show it. Pages set a policy of their own.
 */
export function commonHeaders(requestId: string): Record<string, string> {
  return {
    'x-request-id': requestId,
    'x-content-type-options': 'nosniff',
    'x-frame-options': 'DENY',
    'content-security-policy': "default-src 'none'; frame-ancestors 'none'",
    'referrer-policy': 'no-referrer',
    'cache-control': 'no-store',
  }
}
