import { STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { ERROR_CODES, type ErrorBody, type ErrorCode } from '@offshoot/contract/errors'
import { commonHeaders, newRequestId } from './common-headers.js'

const FAULTS: Readonly<Record<string, readonly [ErrorCode, string]>> = {
  ERR_HTTP_REQUEST_TIMEOUT: ['request_timeout', 'the request did not arrive in time'],
  HPE_HEADER_OVERFLOW: ['headers_too_large', 'the request headers are larger than the limit'],
  HPE_CHUNK_EXTENSIONS_OVERFLOW: ['payload_too_large', 'the chunk extensions are too long'],
}
const MALFORMED = ['invalid_request', 'the request is not valid HTTP'] as const

/** Answers what is not HTTP in the form of every other error; there is no request object yet. */
export function answerClientError(error: Error & { code?: string }, socket: Socket): void {
  if (error.code === 'ECONNRESET' || !socket.writable) {
    socket.destroy()
    return
  }
  const [code, message] = FAULTS[error.code ?? ''] ?? MALFORMED
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
