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
            'A database service that branches like git. Control-plane paths (`/user`, ' +
            '`/workspaces`) are on the base address. Data-plane paths (`/db`, `/dbs`) are on the ' +
            'address of a workspace: `http://{workspace}.{region}.localhost:6001/db/...`, ' +
            '`http://localhost:6001/{workspace}.{region}/db/...`, or the base address when the ' +
            'API key leaves no doubt which workspace is meant.',
          license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
        },
        servers: [{ url: '/', description: 'This server.' }],
        components: {
          securitySchemes: { apiKey: { type: 'http', scheme: 'bearer' } },
        },
        security: [{ apiKey: [] }],
        tags: [
          { name: 'Database' },
          { name: 'Branch' },
          { name: 'Git mapping' },
          { name: 'Schema' },
          { name: 'Records' },
          { name: 'Search' },
          { name: 'SQL' },
          { name: 'Files' },
          { name: 'User' },
          { name: 'Workspace' },
          { name: 'Health' },
        ],
      },
      transformObject: (description) =>
        finishDocument('openapiObject' in description ? description.openapiObject : {}),
      // Some bodies are checked by the operation, which knows more; they are documented all the same.
      transform: ({ schema, url, route }) => {
        const { documentedBody } = (route.config ?? {}) as { documentedBody?: unknown }
        return { schema: documentedBody ? { ...schema, body: documentedBody } : schema, url }
      },
      refResolver: {
        buildLocalReference: (json, _baseUri, _fragment, i) => String(json.$id ?? `def-${i}`),
      },
    })
    await app.register(swaggerUi, {
      routePrefix: '/docs',
      theme: { title: 'Offshoot API' },
      staticCSP: PAGE_POLICY,
    })
    app.get('/openapi.json', { schema: { hide: true } }, async () => app.swagger())
  },
)
