import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import { BranchSchema } from '@offshoot/contract/branches'
import { DatabaseSchema } from '@offshoot/contract/databases'
import { ErrorBodySchema } from '@offshoot/contract/errors'
import { IdempotencyHeadersSchema } from '@offshoot/contract/records'
import { ColumnSchema, SchemaSchema, TableSchema } from '@offshoot/contract/schema'
import { SchemaOperationSchema } from '@offshoot/contract/schema-edits'
import { UserSchema } from '@offshoot/contract/users'
import { InviteSchema, WorkspaceSchema } from '@offshoot/contract/workspaces'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { finishDocument } from '../openapi-document.js'

declare module 'fastify' {
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

/** Content security policy of the documentation page: it loads from and calls only this server. */
const PAGE_POLICY =
  "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'self'; " +
  "frame-ancestors 'none'"

const ICON = {
  filename: 'icon.svg',
  rel: 'icon',
  type: 'image/svg+xml',
  sizes: 'any',
  content:
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke="#2a8a4a" ' +
    'stroke-width="2" stroke-linecap="round"><path d="M5 14V2M5 9c4 0 6-2 6-6"/></svg>',
}

/**
 * Serves the OpenAPI document at `/openapi.json` and its documentation page at `/docs`. Both are
 * generated from the schemas that validate requests.
 */
export const openapiPlugin = fastifyPlugin(
  async (app: FastifyInstance, options: { version: string }) => {
    for (const schema of SHARED) app.addSchema(schema)
    await app.register(swagger, {
      openapi: {
        openapi: '3.1.0',
        info: {
          title: 'Offshoot',
          version: options.version,
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
    await app.register(swaggerUi, {
      routePrefix: '/docs',
      theme: { title: 'Offshoot API', favicon: [ICON] },
      // Hides the bar for choosing an API, and shows the list of operations collapsed.
      uiConfig: {
        layout: 'BaseLayout',
        docExpansion: 'none',
        defaultModelsExpandDepth: -1,
        tryItOutEnabled: true,
        displayRequestDuration: true,
      },
      staticCSP: PAGE_POLICY,
    })
    app.get('/', { schema: { hide: true } }, (_request, reply) => reply.redirect('/docs'))
    app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())
  },
)
