import type { Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Closes connections that are idle for too long after an answer. Node closes idle connections, too, but starts
 * over with every byte that arrives. Line breaks may precede a request, so a client could keep connections open
 * for ever that never send one. Nothing is counted per request: a timer looks at the latest answer of each
 * connection.
 */
export function closeIdleConnections(
  server: Server,
  options: {
    idleMsMax: number
    checkMs: number
    /** Milliseconds of any clock that never goes back. */
    now?: () => number
    answerOf(socket: Socket): ServerResponse | undefined
  },
): void {
  const { idleMsMax, checkMs, answerOf, now: clock = () => performance.now() } = options
  const idle = new Map<Socket, { answer: ServerResponse; since: number } | undefined>()
  server.on('connection', (socket: Socket) => {
    idle.set(socket, undefined)
    socket.once('close', () => idle.delete(socket))
  })
  const check = () => {
    const now = clock()
    for (const [socket, known] of idle) {
      const answer = answerOf(socket)
      if (answer === undefined || !answer.writableFinished) idle.set(socket, undefined)
      else if (known?.answer !== answer) idle.set(socket, { answer, since: now })
      else if (now - known.since > idleMsMax) socket.destroy()
    }
  }
  const timer = setInterval(check, checkMs).unref()
  server.once('close', () => clearInterval(timer))
}

/**
 * Keeps silent connections open while the service works on their request, and closes all others after the timeout of
 * the server. A large merge or a long stream sends nothing until it is done; whatever it runs has limits of its own.
 */
export function keepWorkingConnections(
  server: Server,
  answerOf: (socket: Socket) => ServerResponse | undefined,
): void {
  server.on('timeout', (socket: Socket) => {
    if (answerOf(socket)?.headersSent === false) socket.setTimeout(server.timeout)
    else socket.destroy()
  })
}
