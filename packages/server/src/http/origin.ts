import type { FastifyInstance, FastifyRequest } from 'fastify'
import { type Host, isLoopback, parseHost, toHostName } from './host.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** `OFFSHOOT_PUBLIC_URL`, when it is set. */
    publicUrl: string | undefined
    hasHintedAtPublicUrl: boolean
  }
}

export function decorateOrigin(app: FastifyInstance, publicUrl: string | undefined): void {
  app.decorate('publicUrl', publicUrl)
  app.decorate('hasHintedAtPublicUrl', false)
}

/**
 * The base address that links start with: `OFFSHOOT_PUBLIC_URL`, or else the address that the connection
 * was made to. Anyone can send any Host header, so its name is taken over only when it is a loopback name
 * or the very IP address of the connection; another name never gets into a link.
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

/** Names below `localhost` do not resolve everywhere, and links need no workspace. */
function withoutLabels({ name }: Host): string {
  return /localhost\.?$/.test(name) ? 'localhost' : name
}

function toOrigin({ name, port }: Host): string {
  return port === '' ? `http://${name}` : `http://${name}:${port}`
}

/** Once for each process: the fault is in the settings, not in the request. */
function hintAtPublicUrl({ server, log }: FastifyRequest): void {
  if (server.hasHintedAtPublicUrl) return
  server.hasHintedAtPublicUrl = true
  log.warn(
    'a request came by a host name, and OFFSHOOT_PUBLIC_URL is not set: links to files start with ' +
      'the IP address of the connection; set OFFSHOOT_PUBLIC_URL to the address that clients use',
  )
}

/** How an address can name its workspace, with the base address that the client has used. */
export function describeAddresses(request: FastifyRequest): string {
  const origin = originOf(request)
  const { protocol, hostname, host } = new URL(origin)
  const byPath = `the first part of the path (${origin}/{workspace}.{region}/db/...)`
  const isAddress = /^[\d.]+$|^\[/.test(hostname)
  if (isAddress) return `name the workspace and region as ${byPath}`
  const byHost = `in the host (${protocol}//{workspace}.{region}.${host}/db/...)`
  return `name the workspace and region ${byHost} or as ${byPath}`
}
