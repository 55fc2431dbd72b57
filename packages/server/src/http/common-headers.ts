import { randomUUID } from 'node:crypto'
import type { IncomingMessage } from 'node:http'

/** Returns a new request id, which answers and log lines carry. */
export function newRequestId(): string {
  return `req_${randomUUID().replaceAll('-', '')}`
}

/** Request ids of proxies are accepted in this form. It is safe in logs and headers. */
const SANE_ID = /^[A-Za-z0-9._:-]{8,128}$/

/** Returns a function that takes the request id from the given header, or makes a new one. */
export function requestIdFrom(header: string | null): (request: IncomingMessage) => string {
  if (header === null) return newRequestId
  const name = header.toLowerCase()
  return (request) => {
    const given = request.headers[name]
    return typeof given === 'string' && SANE_ID.test(given) ? given : newRequestId()
  }
}

/**
 * Returns the headers of every answer. If a browser opens an answer, it must not run scripts or be
 * framed. HTML pages replace the policy with their own.
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
