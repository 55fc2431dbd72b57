import { parentPort } from 'node:worker_threads'
import swagger from '@fastify/swagger'
import { IdempotencyHeadersSchema } from '@offshoot/contract/records'
import fastify from 'fastify'
import { READY } from '../../common/worker-thread.js'
import { finishDocument } from './finish-document.js'
import type { Documented, DocumentRequest } from './generate-document.js'
import { SHARED_SCHEMAS } from './shared-schemas.js'

/* The thread that generates the OpenAPI document. It answers a `DocumentRequest` with the bytes of the JSON. */

const port = parentPort
if (port === null) throw new Error('this module is a thread')
port.on('message', async (request: DocumentRequest) => port.postMessage(await generate(request)))
port.postMessage(READY)

/** Generates the document with the routes of an app that has no handlers. */
async function generate({ routes, version }: DocumentRequest): Promise<Uint8Array> {
  const app = fastify({ exposeHeadRoutes: false })
  app.setValidatorCompiler(() => () => true)
  app.setSerializerCompiler(() => () => '')
  for (const schema of SHARED_SCHEMAS) app.addSchema(schema)
  await app.register(swagger, {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Offshoot',
        version,
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
          name: 'Proposals',
          description: 'Review what a branch would change before it is merged.',
        },
        {
          name: 'Operations',
          description: 'Merges, pulls and reverts that go on after their requests were answered.',
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
      const { documentedBody, acceptsIdempotencyKey } = route.config as Documented
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
  for (const { method, url, schema, ...config } of routes) {
    app.route({ method, url, config, handler: noHandler, ...(schema && { schema }) })
  }
  await app.ready()
  return new TextEncoder().encode(JSON.stringify(app.swagger()))
}

const noHandler = async () => undefined
