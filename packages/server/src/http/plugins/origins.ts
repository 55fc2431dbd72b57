import cors from '@fastify/cors'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { Origins } from '../../config.js'

const METHODS = ['GET', 'HEAD', 'POST', 'PUT', 'PATCH', 'DELETE']
/** Response headers that pages may read. */
const EXPOSED = [
  'content-disposition',
  'content-range',
  'etag',
  'offshoot-checkpoint',
  'offshoot-entry',
  'retry-after',
  'x-ratelimit-reset',
  'x-request-id',
]
/** Lifetime of a preflight result. Browsers keep it for at most a day. */
const PERMISSION_SECONDS = 86_400

/**
 * Enables CORS for the configured origins. Requests still need an API key or a link, and no cookies
 * are used, so CORS itself grants no access.
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
