import type { RouteOptions } from 'fastify'
import { WorkerThread } from '../../common/worker-thread.js'

/** Properties of a route that the document shows and its schema does not have. */
export interface Documented {
  /** The schema of a body that the handler validates itself. */
  readonly documentedBody: unknown
  readonly acceptsIdempotencyKey: boolean
}

/** A route as the thread gets it. Messages cannot contain functions. */
interface DocumentedRoute extends Documented, Pick<RouteOptions, 'method' | 'url'> {
  readonly schema: RouteOptions['schema'] | undefined
}

export interface DocumentRequest {
  readonly routes: readonly DocumentedRoute[]
  readonly version: string
}

/** Time for loading the thread and generating the document, which takes half a second on an idle machine. */
const GENERATE_MS_MAX = 60_000
const GENERATE_MEMORY = { maxOldGenerationSizeMb: 256 }

/** Generates the OpenAPI document of routes, as JSON, in a thread of its own. */
export async function generateDocument(
  routes: readonly RouteOptions[],
  version: string,
): Promise<Buffer> {
  const thread = new WorkerThread(new URL('./openapi-worker.js', import.meta.url), {
    budgetMs: GENERATE_MS_MAX,
    resourceLimits: GENERATE_MEMORY,
  })
  const request: DocumentRequest = { routes: routes.map(toDocumented), version }
  try {
    const json = await thread.run(({ ask }) => ask<Uint8Array>(request))
    return Buffer.from(json)
  } finally {
    await thread.close()
  }
}

function toDocumented({ method, url, schema, config }: RouteOptions): DocumentedRoute {
  return {
    method,
    url,
    schema,
    documentedBody: config?.documentedBody,
    acceptsIdempotencyKey: config?.acceptsIdempotencyKey === true,
  }
}
