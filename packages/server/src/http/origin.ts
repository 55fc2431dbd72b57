import type { FastifyInstance, FastifyRequest } from 'fastify'

declare module 'fastify' {
  interface FastifyInstance {
    /** `OFFSHOOT_PUBLIC_URL`, when it is set. */
    publicUrl: string | undefined
  }
}

export function decorateOrigin(app: FastifyInstance, publicUrl: string | undefined): void {
  app.decorate('publicUrl', publicUrl)
}

/** Where the client reaches the service: as the settings say, or as the client has just done. */
export function originOf(request: FastifyRequest): string {
  return request.server.publicUrl ?? `${request.protocol}://${request.host}`
}
