import type { IncomingMessage } from 'node:http'
import type { Region } from '@offshoot/contract/workspaces'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import type { WorkspaceAddress } from '../../domain/access/resolve.js'
import { parseHost } from '../host.js'

declare module 'fastify' {
  interface FastifyRequest {
    /** The workspace in the host or path of the address; undefined if there is none. */
    workspaceAddress: WorkspaceAddress | undefined
    /** The request carries a header of a Xata client; some names and statuses in the answer differ. */
    isXataClient: boolean
  }
}

const pathAddresses = new WeakMap<IncomingMessage, WorkspaceAddress>()

/**
 * `/{workspace}.{region}.anything/db/...`, for clients without wildcard DNS. Only the data plane
 * has this form. Every other path has a single spelling, so that a proxy can block it.
 */
const PATH_FORM = /^\/([^/?#]*\.[^/?#]*)(\/dbs?\/.*)$/s
/**
 * The absolute form of a request target, `GET http://host/path`. Proxies use it, and RFC 9112
 * requires every server to accept it.
 */
const ABSOLUTE_FORM = /^https?:\/\/([^/?#]*)(\/.*)?$/is

/**
 * Removes the workspace from the path before routing, so that routes are the same for all forms of
 * address.
 */
export function rewriteUrl(request: IncomingMessage): string {
  const url = takeHost(request)
  const match = PATH_FORM.exec(url)
  if (match === null) return url
  const [, segment = '', rest = '/'] = match
  pathAddresses.set(request, toAddress(decode(segment).split('.')))
  return rest
}

/** Moves the host of an absolute target to the Host header, which it overrides (RFC 9112). */
function takeHost(request: IncomingMessage): string {
  const url = request.url ?? '/'
  const match = ABSOLUTE_FORM.exec(url)
  if (match === null) return url
  const [, host, path = '/'] = match
  request.headers.host = host
  return path
}

/** Sets `workspaceAddress` and `isXataClient` on each request. */
export const addressPlugin = fastifyPlugin(
  async (
    app: FastifyInstance,
    options: { regions: readonly Region[]; publicHost: string | undefined },
  ) => {
    const regionIds = new Set(options.regions.map((region) => region.id))
    app.decorateRequest('workspaceAddress', undefined)
    app.decorateRequest('isXataClient', false)
    app.addHook('onRequest', (request, _reply, done) => {
      request.isXataClient = isXataClient(request)
      request.workspaceAddress =
        pathAddresses.get(request.raw) ??
        hostAddress(request.headers.host, { regionIds, publicHost: options.publicHost })
      done()
    })
  },
)

function isXataClient(request: FastifyRequest): boolean {
  const { headers } = request
  return headers['x-xata-agent'] !== undefined || headers['x-xata-client-id'] !== undefined
}

const WORKSPACE_LABEL = /^[a-z0-9][a-z0-9_~-]+-[a-z0-9]{6}$/

/**
 * Reads `{workspace}.{region}.anything`. A service with a host name of three labels has the same
 * form, so the host counts only if it ends with `localhost`, or has a known region or the form of a
 * workspace id.
 */
export function hostAddress(
  host: string | undefined,
  options: { regionIds: ReadonlySet<string>; publicHost: string | undefined },
): WorkspaceAddress | undefined {
  const { name } = parseHost(host ?? '') ?? { name: '' }
  if (name === options.publicHost || name.startsWith('[') || /^[\d.]+$/.test(name)) return undefined
  const labels = name.split('.')
  const [workspace = '', region = ''] = labels
  const isNamed =
    labels.at(-1) === 'localhost' ||
    WORKSPACE_LABEL.test(workspace) ||
    options.regionIds.has(region)
  return labels.length >= 3 && isNamed ? toAddress(labels) : undefined
}

function toAddress([workspaceId = '', region = '']: readonly string[]): WorkspaceAddress {
  return { workspaceId, region }
}

/** A malformed escape is kept. No workspace has such an id, so the request ends with 404. */
function decode(segment: string): string {
  try {
    return decodeURIComponent(segment)
  } catch {
    return segment
  }
}
