import type { FastifyReply } from 'fastify'

/** Returns a signal that aborts if the client disconnects before the answer is sent. */
export function disconnectSignal(reply: FastifyReply): AbortSignal {
  const controller = new AbortController()
  reply.raw.once('close', () => {
    if (!reply.raw.writableEnded) controller.abort()
  })
  return controller.signal
}
