import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { ERROR_CODES, type ErrorBody, type ErrorCode } from '@offshoot/contract/errors'
import { commonHeaders, newRequestId } from './common-headers.js'

const FAILURES: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  ERR_HTTP_REQUEST_TIMEOUT: ['request_timeout', 'the request did not arrive in time'],
  HPE_HEADER_OVERFLOW: ['headers_too_large', 'the request headers are larger than the limit'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: [
    'payload_too_large',
    'the extensions of a chunk are longer than the limit',
  ],
  OFFSHOOT_CHUNKS_TOO_SMALL: [
    'invalid_request',
    'the body is divided into too many small chunks; send larger ones',
  ],
}
const MALFORMED = ['invalid_request', 'the request is not valid HTTP'] as const

/**
 * Answers a connection whose bytes Node cannot parse as a request. There is no request object yet,
 * so the error body is written to the socket.
 */
export function answerClientError(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const [code, message] = FAILURES[error.code ?? ''] ?? MALFORMED
  const [status] = ERROR_CODES[code]
  const id = newRequestId()
  const body = JSON.stringify({ id, message, code } satisfies ErrorBody)
  const headers = {
    ...commonHeaders(id),
    'content-type': 'application/json; charset=utf-8',
    'content-length': Buffer.byteLength(body),
    connection: 'close',
  }
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`)
  const head = [`HTTP/1.1 ${status} ${STATUS_CODES[status]}`, ...lines].join('\r\n')
  socket.end(`${head}\r\n\r\n${body}`)
}
