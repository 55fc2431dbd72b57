import http from 'node:http'
import https from 'node:https'
import { Readable } from 'node:stream'
import type { ReadableStream } from 'node:stream/web'

/** Answers with these statuses have no body. */
const WITHOUT_BODY: ReadonlySet<number> = new Set([204, 205, 304])

/**
 * A `fetch` on the HTTP client of Node.js. The global one compiles a parser at the first request, which takes
 * longer than most commands. It follows no redirects, and takes the bodies that the client of the service sends.
 */
export const httpFetch: typeof fetch = (input, init = {}) =>
  new Promise((resolve, reject) => {
    const { method = 'GET', headers, body, signal } = init
    const url = new URL(String(input))
    const { request: start } = url.protocol === 'https:' ? https : http
    const request = start(url, {
      method,
      headers: {
        ...(body instanceof Blob ? { 'content-length': body.size } : {}),
        ...(headers as Record<string, string>),
      },
      ...(signal ? { signal } : {}),
    })
    request.once('response', (message) => {
      // A server that refuses a request does not need the rest of its body.
      message.once('close', () => {
        if (!request.writableFinished) request.destroy()
      })
      resolve(responseOf(message))
    })
    // Failures after the answer has begun are those of its body.
    request.on('error', (cause) => {
      reject(signal?.aborted ? signal.reason : new TypeError('fetch failed', { cause }))
    })
    if (body === undefined || body === null) request.end()
    else if (typeof body === 'string' || body instanceof Uint8Array) request.end(body)
    else {
      const stream = body instanceof Blob ? body.stream() : body
      const source = Readable.fromWeb(stream as ReadableStream)
      source.once('error', (error) => request.destroy(error)).pipe(request)
      request.once('close', () => source.destroy())
    }
  })

function responseOf(message: http.IncomingMessage): Response {
  const { statusCode: status = 0, statusMessage: statusText = '', rawHeaders } = message
  const headers = new Headers()
  for (let at = 0; at < rawHeaders.length; at += 2) {
    headers.append(rawHeaders[at] ?? '', rawHeaders[at + 1] ?? '')
  }
  const isEmpty = WITHOUT_BODY.has(status)
  if (isEmpty) message.resume()
  const body = isEmpty
    ? null
    : (Readable.toWeb(message) as ConstructorParameters<typeof Response>[0])
  return new Response(body, { status, statusText, headers })
}
