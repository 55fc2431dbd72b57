import type { RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Handles one request per connection at a time. Node starts pipelined requests all at once and keeps
 * their answers in memory until the client reads them; when the client leaves, those answers are never
 * reported as closed, so nothing they hold is released. The next request waits for the answer in
 * progress, because a client may send it as soon as it has the last byte. No common client pipelines:
 * requests behind that one are ignored, and the connection is closed. Returns a function that returns the
 * latest answer of a connection.
 */
export function handleOneAtATime(server: Server): (socket: Socket) => ServerResponse | undefined {
  const handlers = server.listeners('request') as RequestListener[]
  server.removeAllListeners('request')
  const answering = new WeakMap<Socket, ServerResponse>()
  const waiting = new WeakSet<Socket>()
  const crowded = new WeakSet<Socket>()
  const start: RequestListener = (request, response) => {
    const { socket } = request
    answering.set(socket, response)
    if (crowded.has(socket)) response.once('close', () => socket.destroy())
    for (const handler of handlers) handler.call(server, request, response)
  }
  server.on('request', (request, response) => {
    const { socket } = request
    const current = answering.get(socket)
    if (current === undefined || current.writableEnded) {
      start(request, response)
    } else if (waiting.has(socket)) {
      crowded.add(socket)
      socket.pause()
    } else {
      waiting.add(socket)
      current.once('close', () => {
        waiting.delete(socket)
        if (!socket.destroyed) start(request, response)
      })
    }
  })
  return (socket) => answering.get(socket)
}
