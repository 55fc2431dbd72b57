import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type Host, isLoopback, parseHost, toHostName } from './host.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** The setting `OFFSHOOT_PUBLIC_URL`; undefined if it is not set. */
    publicUrl: string | undefined
    hasHintedAtPublicUrl: boolean
  }
}

export function decorateOrigin(app: FastifyInstance, publicUrl: string | undefined): void {
  app.decorate('publicUrl', publicUrl)
  app.decorate('hasHintedAtPublicUrl', false)
}

/**
 * Returns the base address of links: `OFFSHOOT_PUBLIC_URL`, or else the address that the connection
 * was made to. Clients can send any Host header, so its name is used only if it is a loopback name
 * or the IP address of the connection.
 */
export function originOf(request: FastifyRequest): string {
  const { publicUrl } = request.server
  if (publicUrl !== undefined) return publicUrl
  const host = parseHost(request.headers.host ?? '')
  const { localAddress, localPort } = request.socket
  if (host !== undefined && isLoopback(host))
    return toOrigin({ ...host, name: withoutLabels(host) })
  const name = localAddress === undefined ? 'localhost' : toHostName(localAddress)
  if (host?.name === name) return toOrigin(host)
  if (host !== undefined && host.name !== '') hintAtPublicUrl(request)
  return toOrigin({ name, port: String(localPort ?? '') })
}

/** Names below `localhost` do not resolve on every system, and links do not need a workspace. */
function withoutLabels({ name }: Host): string {
  return /localhost\.?$/.test(name) ? 'localhost' : name
}

function toOrigin({ name, port }: Host): string {
  return port === '' ? `http://${name}` : `http://${name}:${port}`
}

/** Logs the hint once per process, because the cause is the configuration. */
function hintAtPublicUrl({ server, log }: FastifyRequest): void {
  if (server.hasHintedAtPublicUrl) return
  server.hasHintedAtPublicUrl = true
  log.warn(
    'a request used a host name, but OFFSHOOT_PUBLIC_URL is not set: links to files start with ' +
      'the IP address of the connection; set OFFSHOOT_PUBLIC_URL to the address that clients use',
  )
}

/**
 * Describes the forms of address that name a workspace, with the base address that the client used.
 * It is part of the error `ambiguous_workspace`.
 */
export function describeAddresses(request: FastifyRequest): string {
  const origin = originOf(request)
  const { protocol, hostname, host } = new URL(origin)
  const byPath = `the first part of the path (${origin}/{workspace}.{region}/db/...)`
  const isAddress = /^[\d.]+$|^\[/.test(hostname)
  if (isAddress) return `name the workspace and region as ${byPath}`
  const byHost = `in the host (${protocol}//{workspace}.{region}.${host}/db/...)`
  return `name the workspace and region ${byHost} or as ${byPath}`
}
