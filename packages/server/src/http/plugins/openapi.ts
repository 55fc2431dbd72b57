import type { FastifyInstance, FastifyReply, FastifyRequest, RouteOptions } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { generateDocument } from '../openapi/generate-document.js'
import { SHARED_SCHEMAS } from '../openapi/shared-schemas.js'
import { documentationPage } from './documentation-page.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Schema of a body that the handler validates itself; used only for the documentation. */
    documentedBody?: unknown
  }
}

const DOCUMENT = '/openapi.json'

/**
 * Serves the OpenAPI document at `/openapi.json` and its documentation page at `/docs`. Both come from the
 * schemas that validate requests. The document is generated once, when somebody first asks for it. A thread does
 * it, because it blocks for 200 ms, and its memory is free again when the thread has ended.
 */
export const openapiPlugin = fastifyPlugin(
  async (app: FastifyInstance, { version }: { version: string }) => {
    for (const schema of SHARED_SCHEMAS) app.addSchema(schema)
    const routes: RouteOptions[] = []
    app.addHook('onRoute', (route) => {
      routes.push(route)
    })
    let json: Promise<Buffer> | undefined
    const findDocument = () => {
      json ??= generateDocument(routes, version).catch((error: unknown) => {
        json = undefined
        throw error
      })
      return json
    }
    const sendDocument = async (_request: FastifyRequest, reply: FastifyReply) =>
      reply.type('application/json; charset=utf-8').send(await findDocument())
    await app.register(documentationPage, { sendDocument, documentUrl: DOCUMENT })
    app.get(DOCUMENT, { schema: { hide: true } }, sendDocument)
  },
)
