import { type Agent, request as httpRequest } from 'node:http'
import type { ExpensiveRequest } from './expensive.js'

/** Bytes that are sent of a body that is never completed. */
const SENT_OF_UNSENT = 1000
const CHUNK_BYTES = 60_000

export interface Reply {
  /** 0 if the service closed the connection without an answer, or the client gave up. */
  readonly status: number
  readonly code: string | undefined
  readonly headers: Readonly<Record<string, unknown>>
  readonly body: Buffer
}

const ignore = () => undefined

const NO_ANSWER: Reply = { status: 0, code: undefined, headers: {}, body: Buffer.alloc(0) }

/** Sends a request. A request whose body is never completed is aborted. */
export function exchange(
  address: string,
  agent: Agent,
  request: Omit<ExpensiveRequest, 'kind'>,
): Promise<Reply> {
  const { method, url, body, sending } = request
  const isUnsent = sending === 'unsent'
  return new Promise((resolve) => {
    const length =
      body === undefined || sending === 'chunked' ? {} : { 'content-length': body.length }
    const outgoing = httpRequest(address, {
      method,
      path: url,
      // A connection with an incomplete body cannot be used again.
      agent: isUnsent ? undefined : agent,
      headers: { ...request.headers, ...length },
    } as object)
    let isAnswered = false
    const giveUp = () => {
      outgoing.destroy()
      resolve(NO_ANSWER)
    }
    outgoing.on('error', (error: NodeJS.ErrnoException) => {
      // The service may close an idle connection at the moment in which it is used again.
      if (outgoing.reusedSocket && error.code === 'ECONNRESET' && !isAnswered) {
        resolve(exchange(address, agent, request))
      } else resolve(NO_ANSWER)
    })
    // The service may answer and close the connection before the body was sent. Then the socket fails
    // when the request has already ended and listens no more.
    outgoing.on('socket', (socket) => {
      if (socket.listenerCount('error', ignore) === 0) socket.on('error', ignore)
    })
    outgoing.on('response', (response) => {
      isAnswered = true
      const parts: Buffer[] = []
      response.on('data', (part: Buffer) => parts.push(part))
      response.on('error', () => undefined)
      response.on('close', () => {
        const body = Buffer.concat(parts)
        const code = /"code":"(\w+)"/.exec(body.toString('latin1', 0, 100_000))?.[1]
        resolve({ status: response.statusCode ?? 0, code, headers: response.headers, body })
        if (isUnsent) outgoing.destroy()
      })
    })
    if (body === undefined) outgoing.end()
    else if (isUnsent) {
      outgoing.write(body.subarray(0, Math.min(SENT_OF_UNSENT, body.length - 1)), () => {
        setTimeout(giveUp, 50)
      })
    } else if (sending === 'chunked') {
      for (let at = 0; at < body.length; at += CHUNK_BYTES) {
        outgoing.write(body.subarray(at, at + CHUNK_BYTES))
      }
      outgoing.end()
    } else outgoing.end(body)
  })
}
