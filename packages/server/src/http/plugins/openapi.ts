import swagger from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import { BranchSchema } from '@offshoot/contract/branches'
import { DatabaseSchema } from '@offshoot/contract/databases'
import { ErrorBodySchema } from '@offshoot/contract/errors'
import { ColumnSchema, SchemaSchema, TableSchema } from '@offshoot/contract/schema'
import { SchemaOperationSchema } from '@offshoot/contract/schema-edits'
import { UserSchema } from '@offshoot/contract/users'
import { InviteSchema, WorkspaceSchema } from '@offshoot/contract/workspaces'
import type { FastifyInstance } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { finishDocument } from '../openapi-document.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The body of a route that checks it itself, because it knows more than a schema. */
    documentedBody?: unknown
  }
}

/** Shapes that others refer to by name. */
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

/** The page loads and calls nothing but this server, over http as over https. */
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

/** Describes every route from the schemas that also check them: `/openapi.json` and `/docs`. */
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
            'Every request carries an API key. The first one is in the file `api-key` of the data ' +
            'folder, `.offshoot` unless it was moved; *Authorize* takes it for this page.\n\n' +
            'Control-plane paths (`/user`, `/workspaces`) are on the base address. Data-plane ' +
            'paths (`/db`, `/dbs`) are on the address of a workspace: ' +
            '`http://{workspace}.{region}.{host}/db/...`, ' +
            '`http://{host}/{workspace}.{region}/db/...`, or the base address when the ' +
            'API key leaves no doubt which workspace is meant.',
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
          { name: 'Workspace', description: 'Who works together, and in which regions.' },
          { name: 'Database', description: 'Databases of a workspace.' },
          { name: 'Branch', description: 'Fork, compare, merge, reset; when branches expire.' },
          { name: 'Git mapping', description: 'Which branch belongs to which git branch.' },
          { name: 'Schema', description: 'Tables, columns, migrations and indexes of a branch.' },
          { name: 'Records', description: 'Read, write, query, bulk inserts and transactions.' },
          { name: 'Search', description: 'By words, and by vectors.' },
          { name: 'SQL', description: 'SELECT, INSERT, UPDATE and DELETE on a branch.' },
          { name: 'Files', description: 'Content of `file` columns, and links to it.' },
          { name: 'User', description: 'Who a key belongs to, and the keys themselves.' },
          { name: 'Health', description: 'Whether the service is well.' },
        ],
      },
      transformObject: (description) =>
        finishDocument('openapiObject' in description ? description.openapiObject : {}),
      // Some bodies are checked by the operation, which knows more; they are documented all the same.
      transform: ({ schema, url, route }) => {
        const { documentedBody } = route.config ?? {}
        return { schema: documentedBody ? { ...schema, body: documentedBody } : schema, url }
      },
      refResolver: {
        buildLocalReference: (json, _baseUri, _fragment, i) => String(json.$id ?? `def-${i}`),
      },
    })
    await app.register(swaggerUi, {
      routePrefix: '/docs',
      theme: { title: 'Offshoot API', favicon: [ICON] },
      // Without the bar that asks which API to show; and first of all, what there is.
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
