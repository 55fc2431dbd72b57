import diagnostics from 'node:diagnostics_channel'
import type { FastifyInstance } from 'fastify'

export interface Route {
  readonly method: string
  /** The route pattern, with `:name` for parameters. */
  readonly url: string
}

/** Records all routes of the apps that are built until `stop`, documented or not. */
export function watchRoutes(): { readonly routes: readonly Route[]; stop(): void } {
  const routes: Route[] = []
  const onApp = (message: unknown) => {
    const { fastify } = message as { fastify: FastifyInstance }
    fastify.addHook('onRoute', ({ method, url }) => {
      for (const name of [method].flat()) routes.push({ method: name, url })
    })
  }
  diagnostics.subscribe('fastify.initialization', onApp)
  return { routes, stop: () => diagnostics.unsubscribe('fastify.initialization', onApp) }
}

interface Operation {
  readonly parameters?: readonly {
    readonly in: string
    readonly name: string
    readonly required?: boolean
    readonly example?: unknown
  }[]
  readonly requestBody?: {
    readonly content: Record<
      string,
      { readonly example?: unknown; readonly examples?: Record<string, { value: unknown }> }
    >
  }
}

/** The document of `/openapi.json`. */
export interface Description {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>
}

export function findOperation(description: Description, route: Route): Operation | undefined {
  const path = route.url.replace(/:(\w+)/g, '{$1}')
  return description.paths[path]?.[route.method.toLowerCase()]
}

/** Makes a valid request for a route from the examples of its documentation. */
export function exampleRequest(
  description: Description,
  route: Route,
  values: Readonly<Record<string, string>>,
): { readonly path: string; readonly body: unknown } {
  // HEAD is described by its GET.
  const method = route.method === 'HEAD' ? 'GET' : route.method
  const operation = findOperation(description, { ...route, method })
  const parameters = operation?.parameters ?? []
  const pathValue = (name: string) => {
    const parameter = parameters.find((candidate) => candidate.name === name)
    const value = values[name] ?? parameter?.example
    if (value === undefined) {
      throw new Error(`${route.method} ${route.url}: parameter [${name}] has no example`)
    }
    return encodeURIComponent(String(value)).replaceAll('%3A', ':')
  }
  const query = parameters
    .filter((parameter) => parameter.in === 'query' && parameter.required)
    .map((parameter) => `${parameter.name}=${pathValue(parameter.name)}`)
    .join('&')
  const path = route.url.replace(/:(\w+)/g, (_match, name: string) => pathValue(name))
  const media = operation?.requestBody?.content['application/json']
  const [first] = Object.values(media?.examples ?? {})
  const body = media?.example ?? first?.value
  return { path: query === '' ? path : `${path}?${query}`, body }
}
