import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { isLoopback, parseHost } from '../host.js'

/**
 * Refuses requests without an API key whose Host header names another machine, if the service listens on loopback only.
 * A page in a browser on this machine can let its own name resolve to 127.0.0.1 (DNS rebinding), and would then read what
 * the service shows without a key, as if it were of the same origin. Such a page has no key. So requests with one pass: a
 * proxy on the same machine may keep the host of its clients.
 */
export const knownHostsPlugin = fastifyPlugin(
  async (app: FastifyInstance, { publicHost }: { publicHost: string | undefined }) => {
    app.addHook('onRequest', (request, _reply, done) => {
      const { authorization, host } = request.headers
      // Browsers always send the header.
      const isKnown = authorization !== undefined || host === undefined || isOurs(host, publicHost)
      done(isKnown ? undefined : unknownHost(host))
    })
  },
)

/** Loopback names, the public host, and the names below it, which can have a workspace and a region. */
function isOurs(text: string, publicHost: string | undefined): boolean {
  const host = parseHost(text)
  // Malformed hosts are refused elsewhere.
  if (host === undefined || isLoopback(host)) return true
  if (publicHost === undefined) return false
  return host.name === publicHost || host.name.endsWith(`.${publicHost}`)
}

function unknownHost(host: string): AppError {
  return new AppError(
    'unknown_host',
    `header [host]: [${host}] is not a name of this service, which listens on loopback; set OFFSHOOT_PUBLIC_URL to the address that clients use`,
  )
}
