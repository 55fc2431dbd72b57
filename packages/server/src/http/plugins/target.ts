import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { parseHost } from '../host.js'
import { routeNotFound } from './errors.js'

/** Dot segments. Clients and proxies resolve them in different ways. */
const DOT_SEGMENT = /\/(?:\.|%2e){1,2}(?:\/|$)/i

/**
 * Refuses request targets and hosts that a proxy could interpret differently. For example, the
 * router decodes a path before matching, so `/%6detrics` would reach `/metrics` even if a proxy
 * blocks `/metrics`.
 */
export const targetPlugin = fastifyPlugin(async (app: FastifyInstance) => {
  app.addHook('onRequest', (request, _reply, done) => {
    done(faultOf(request))
  })
})

function faultOf(request: FastifyRequest): AppError | undefined {
  const { host } = request.headers
  // Several hosts are joined by commas, which no host has.
  if (host !== undefined && parseHost(host) === undefined) {
    return new AppError(
      'invalid_request',
      'header [host]: must be one host name or IP address, with or without a port',
    )
  }
  if (request.url.includes('#')) {
    return new AppError('invalid_request', 'the path must not contain a fragment [#]')
  }
  const pattern = request.routeOptions.url
  const [path = '/'] = request.url.split('?', 1)
  if (DOT_SEGMENT.test(path)) return routeNotFound(path)
  if (pattern === undefined || !path.includes('%') || isSpelledAs(pattern, path)) return undefined
  return routeNotFound(path)
}

/**
 * Returns whether only parameters of the route are percent-encoded in the path, not its fixed
 * parts.
 */
function isSpelledAs(pattern: string, path: string): boolean {
  const parts = path.split('/')
  return pattern
    .split('/')
    .every((part, i) => part.startsWith(':') || part === '*' || part === parts[i])
}
