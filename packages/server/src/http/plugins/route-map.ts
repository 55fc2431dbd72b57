import type { FastifyInstance } from 'fastify'

export interface RouteMap {
  /** Returns the methods of all routes that match the path. */
  methodsAt(pathname: string): readonly string[]
}

/** Records all routes, to tell a wrong method (405) from a wrong path (404). */
export function routeMap(app: FastifyInstance): RouteMap {
  const methodsByPattern = new Map<string, Set<string>>()
  app.addHook('onRoute', ({ url, method }) => {
    const methods = methodsByPattern.get(url) ?? new Set()
    for (const name of [method].flat()) methods.add(name)
    methodsByPattern.set(url, methods)
  })
  return {
    methodsAt(pathname) {
      const segments = pathname.split('/')
      const found = new Set<string>()
      for (const [pattern, methods] of methodsByPattern) {
        if (matches(pattern.split('/'), segments)) for (const method of methods) found.add(method)
      }
      return [...found].sort()
    },
  }
}

function matches(pattern: readonly string[], segments: readonly string[]): boolean {
  return (
    pattern.length === segments.length &&
    pattern.every((part, position) =>
      part.startsWith(':') ? segments[position] !== '' : part === segments[position],
    )
  )
}
