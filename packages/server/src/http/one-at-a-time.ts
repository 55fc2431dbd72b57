import type { RequestListener, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'

/**
 * Handles one request per connection at a time. Node starts pipelined requests all at once and keeps
 * their answers in memory until the client reads them; when the client leaves, those answers are never
 * reported as closed, so nothing they hold is released. No common client pipelines: the request in
 * progress is answered, those sent behind it are ignored, and the connection is closed.
 */
export function handleOneAtATime(server: Server): void {
  const handlers = server.listeners('request') as RequestListener[]
  server.removeAllListeners('request')
  const answering = new WeakMap<Socket, ServerResponse>()
  const closing = new WeakSet<Socket>()
  server.on('request', (request, response) => {
    const { socket } = request
    if (closing.has(socket)) return
    const current = answering.get(socket)
    // A client that has read a whole answer may send again before Node reports the answer as sent.
    if (current !== undefined && !current.writableEnded) {
      closing.add(socket)
      socket.pause()
      current.once('close', () => socket.destroy())
      return
    }
    answering.set(socket, response)
    for (const handler of handlers) handler.call(server, request, response)
  })
}
