import type { FastifyRequest } from 'fastify'
import { type Bearer, sessionKey } from '../domain/access/bearer.js'
import { parseHost } from './host.js'

/**
 * Header that the console sends with every request. Pages of other origins cannot send it without the
 * permission of CORS, so a request with it and the cookie comes from the console.
 */
const CONSOLE_HEADER = 'x-offshoot-console'

const SECRET = /^[A-Za-z0-9]{1,255}$/

/** Reads the session of a request without an `Authorization` header; undefined if it has none. */
export function readSessionCookie(request: FastifyRequest): Bearer | undefined {
  const secret = findCookie(request.headers.cookie, cookieName(request))
  if (secret === undefined || !SECRET.test(secret)) return undefined
  const fault = faultOfOrigin(request)
  if (fault !== undefined) return { key: '', fault }
  return { key: sessionKey(secret), fault: undefined }
}

/** Describes why a request is not one of the console itself; undefined if it is. */
export function faultOfOrigin(request: FastifyRequest): string | undefined {
  const { headers } = request
  if (headers[CONSOLE_HEADER] === undefined) {
    return `header [${CONSOLE_HEADER}]: is required for requests with a session of the console`
  }
  const site = headers['sec-fetch-site']
  const isOther = site !== undefined && site !== 'same-origin'
  if (isOther || (headers.origin !== undefined && !isOwnOrigin(headers.origin, request))) {
    return 'header [origin]: a session of the console works only on pages of this service'
  }
  return undefined
}

function isOwnOrigin(origin: string, request: FastifyRequest): boolean {
  const { publicUrl } = request.server
  if (publicUrl !== undefined && origin === new URL(publicUrl).origin) return true
  return origin === `http://${request.headers.host}` || origin === `https://${request.headers.host}`
}

/**
 * Returns the `Set-Cookie` header of a session, or the one that deletes it. Browsers send cookies to all
 * ports of a host, so the name has the port: otherwise two services on one host would replace each
 * other's sessions.
 */
export function sessionCookie(
  request: FastifyRequest,
  session: { secret: string; expiresAt: Date } | null,
): string {
  const isSecure = request.server.publicUrl?.startsWith('https:') === true
  return [
    `${cookieName(request)}=${session?.secret ?? ''}`,
    'Path=/',
    `Expires=${(session?.expiresAt ?? new Date(0)).toUTCString()}`,
    'HttpOnly',
    'SameSite=Strict',
    ...(isSecure ? ['Secure'] : []),
  ].join('; ')
}

function cookieName(request: FastifyRequest): string {
  if (request.server.publicUrl?.startsWith('https:')) return '__Host-offshoot_session'
  const { port = '' } = parseHost(request.headers.host ?? '') ?? {}
  return port === '' ? 'offshoot_session' : `offshoot_session_${port}`
}

function findCookie(header: string | undefined, name: string): string | undefined {
  for (const part of header?.split(';') ?? []) {
    const [key, value] = part.trim().split('=', 2)
    if (key === name) return value
  }
  return undefined
}
