import cors from '@fastify/cors'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Origins } from '../../config.js'

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']
/** What pages may read of an answer beside its body. */
const EXPOSED = [
  'content-disposition',
  'content-range',
  'etag',
  'retry-after',
  'x-ratelimit-reset',
  'x-request-id',
]
/** Browsers keep the permission no longer than a day. */
const PERMISSION_SECONDS = 86_400

/**
 * Lets pages of other origins call the service. They need a key or a link like everyone else: nothing is
 * sent by a browser on its own, so the permission gives no rights.
 */
export const originsPlugin = fastifyPlugin(
  async (app: FastifyInstance, { origins }: { origins: Origins }) => {
    await app.register(cors, {
      origin: origins === '*' ? '*' : [...origins],
      methods: METHODS,
      exposedHeaders: EXPOSED,
      maxAge: PERMISSION_SECONDS,
    })
  },
)
