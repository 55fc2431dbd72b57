import { randomUUID } from 'node:crypto'

/** Names a request in its answer and in the log. A caller's own id is not taken over. */
export function newRequestId(): string {
  return `req_${randomUUID().replaceAll('-', '')}`
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
