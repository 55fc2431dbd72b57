import { BranchSchema } from '@offshoot/contract/branches'
import { DatabaseSchema } from '@offshoot/contract/databases'
import { ErrorBodySchema } from '@offshoot/contract/errors'
import { IdempotencyHeadersSchema } from '@offshoot/contract/records'
import { ColumnSchema, SchemaSchema, TableSchema } from '@offshoot/contract/schema'
import { SchemaOperationSchema } from '@offshoot/contract/schema-edits'
import { UserSchema } from '@offshoot/contract/users'
import { InviteSchema, WorkspaceSchema } from '@offshoot/contract/workspaces'
import fastify, {
  type FastifyInstance,
  type FastifyReply,
  type FastifyRequest,
  type RouteOptions,
} from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { finishDocument } from '../openapi-document.js'
import { documentationPage } from './documentation-page.js'

declare module 'fastify' {
  interface FastifyInstance {
    /** Returns the OpenAPI document as JSON. Generating it takes a moment, so it is done once. */
    openapiJson(): Promise<Buffer>
  }
  interface FastifyContextConfig {
    /** Schema of a body that the handler validates itself; used only for the documentation. */
    documentedBody?: unknown
  }
}

/** Schemas that others refer to by name. */
const SHARED = [
  ErrorBodySchema,
  ColumnSchema,
  TableSchema,
  SchemaSchema,
  SchemaOperationSchema,
  BranchSchema,
  DatabaseSchema,
  UserSchema,
  WorkspaceSchema,
  InviteSchema,
]

const DOCUMENT = '/openapi.json'

/**
 * Serves the OpenAPI document at `/openapi.json` and its documentation page at `/docs`. Both come from the
 * schemas that validate requests. The document is generated once, when it is first needed: generating it, and
 * loading the code for it, takes a tenth of the start of the process, so the service does it after the start.
 */
export const openapiPlugin = fastifyPlugin(
  async (app: FastifyInstance, { version }: { version: string }) => {
    for (const schema of SHARED) app.addSchema(schema)
    const routes: RouteOptions[] = []
    app.addHook('onRoute', (route) => {
      routes.push(route)
    })
    let json: Promise<Buffer> | undefined
    app.decorate('openapiJson', () => {
      json ??= generateDocument(routes, version)
      return json
    })
    const sendDocument = async (_request: FastifyRequest, reply: FastifyReply) =>
      reply.type('application/json; charset=utf-8').send(await app.openapiJson())
    await app.register(documentationPage, { sendDocument, documentUrl: DOCUMENT })
    app.get(DOCUMENT, { schema: { hide: true } }, sendDocument)
  },
)

/** Generates the document with the routes of another app. Their handlers are not used. */
async function generateDocument(routes: readonly RouteOptions[], version: string): Promise<Buffer> {
  const { default: swagger } = await import('@fastify/swagger')
  const app = fastify({ exposeHeadRoutes: false })
  app.setValidatorCompiler(() => () => true)
  app.setSerializerCompiler(() => () => '')
  for (const schema of SHARED) app.addSchema(schema)
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Offshoot',
        version: version,
        description:
          'A database service that branches like git.\n\n' +
          'Requests need an API key. The first key is in the file `api-key` in the data folder ' +
          '(`.offshoot` by default). To try requests on this page, enter it under ' +
          '*Authorize*.\n\n' +
          'Control-plane paths (`/user`, `/workspaces`) use the base address. Data-plane ' +
          'paths (`/db`, `/dbs`) use the address of a workspace: ' +
          '`http://{workspace}.{region}.{host}/db/...` or ' +
          '`http://{host}/{workspace}.{region}/db/...`. They also work at the base address ' +
          'if only one workspace of the API key has a database of that name.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: '/', description: 'This server.' }],
      components: {
        securitySchemes: {
          apiKey: {
            type: 'http',
            scheme: 'bearer',
            description: 'An API key, as in `Authorization: Bearer off_...`.',
          },
        },
      },
      security: [{ apiKey: [] }],
      tags: [
        { name: 'Workspace', description: 'Workspaces, their members and invites, and regions.' },
        { name: 'Database', description: 'Databases of a workspace.' },
        {
          name: 'Branch',
          description: 'Fork, compare, merge and reset branches; expiry and rules.',
        },
        {
          name: 'Git mapping',
          description: 'Connects git branches with branches of a database.',
        },
        { name: 'Schema', description: 'Tables, columns, migrations and indexes of a branch.' },
        {
          name: 'Records',
          description: 'Read, write and query records; bulk inserts and transactions.',
        },
        { name: 'Search', description: 'Full-text search and vector search.' },
        { name: 'SQL', description: 'SELECT, INSERT, UPDATE and DELETE on a branch.' },
        {
          name: 'Files',
          description: 'Upload, download and link to the content of `file` columns.',
        },
        { name: 'User', description: 'The user of the API key, users, and API keys.' },
        { name: 'Health', description: 'Health checks and metrics.' },
      ],
    },
    transformObject: (description) =>
      finishDocument('openapiObject' in description ? description.openapiObject : {}),
    // Bodies and headers that an operation validates itself are documented, too.
    transform: ({ schema, url, route }) => {
      const { documentedBody, acceptsIdempotencyKey } = route.config ?? {}
      return {
        schema: {
          ...schema,
          ...(documentedBody ? { body: documentedBody } : {}),
          ...(acceptsIdempotencyKey ? { headers: IdempotencyHeadersSchema } : {}),
        },
        url,
      }
    },
    refResolver: {
      buildLocalReference: (json, _baseUri, _fragment, i) => String(json.$id ?? `def-${i}`),
    },
  })
  for (const { method, url, schema, config } of routes) {
    app.route({
      method,
      url,
      handler: noHandler,
      ...(schema && { schema }),
      ...(config && { config }),
    })
  }
  await app.ready()
  const json = Buffer.from(JSON.stringify(app.swagger()))
  await app.close()
  return json
}

const noHandler = async () => undefined
