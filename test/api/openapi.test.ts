import { validate } from '@readme/openapi-parser'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { DocumentSchemas } from '../support/document-schemas.js'
import { createTestService, type TestService } from '../support/service.js'

interface Media {
  readonly schema: object
  readonly example?: unknown
  readonly examples?: Record<string, { readonly value: unknown }>
}

interface Operation {
  readonly summary?: string
  readonly operationId?: string
  readonly tags?: readonly string[]
  readonly security?: readonly unknown[]
  readonly parameters?: readonly {
    readonly name: string
    readonly in: string
    readonly schema: object
    readonly example?: unknown
  }[]
  readonly requestBody?: {
    readonly required?: boolean
    readonly content: Record<string, Media>
  }
  readonly responses: Record<
    string,
    { readonly description: string; content?: Record<string, Media> }
  >
}

interface Document {
  readonly openapi: string
  readonly info: object
  readonly tags: readonly { readonly name: string }[]
  readonly paths: Record<string, Record<string, Operation>>
  readonly components: { readonly schemas: Record<string, object> }
}

let service: TestService
let document: Document
let operations: (Operation & { readonly name: string; readonly method: string })[]

beforeAll(async () => {
  service = await createTestService()
  document = (await service.call('GET', '/openapi.json', { key: null })).body
  operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      ...operation,
      method,
      name: `${method.toUpperCase()} ${path}`,
    })),
  )
})
afterAll(() => service.close())

const examplesOf = (media: Media): unknown[] => [
  ...(media.example === undefined ? [] : [media.example]),
  ...Object.values(media.examples ?? {}).map(({ value }) => value),
]

/** Verbs that operation names begin with. Adding one needs a reason. */
const VERBS = [
  'accept',
  'aggregate',
  'apply',
  'cancel',
  'close',
  'compare',
  'connect',
  'create',
  'delete',
  'diff',
  'disconnect',
  'download',
  'get',
  'insert',
  'list',
  'map',
  'merge',
  'open',
  'preview',
  'pull',
  'push',
  'query',
  'remove',
  'rename',
  'renew',
  'reopen',
  'replace',
  'reset',
  'resolve',
  'restore',
  'revert',
  'review',
  'rotate',
  'run',
  'search',
  'summarize',
  'unmap',
  'update',
  'upload',
  'upsert',
  'withdraw',
]

interface Body {
  readonly schema: { readonly properties?: object }
  readonly example?: unknown
}

/** Returns the names of the operations for which the predicate is false. */
const failing = (holds: (operation: (typeof operations)[number]) => boolean) =>
  operations.filter((operation) => !holds(operation)).map(({ name }) => name)

describe('/openapi.json', () => {
  it('is valid OpenAPI 3.1', async () => {
    expect(document.openapi).toBe('3.1.0')
    const result = await validate(structuredClone(document) as never)
    expect(result).toMatchObject({ valid: true })
  })

  it('describes bodies of lines as records, one per line', () => {
    for (const name of ['bulk', 'upsert']) {
      const { post } = document.paths[`/db/{databaseBranch}/tables/{tableName}/${name}`] as never
      const { content } = (post as { requestBody: { content: Record<string, Body> } }).requestBody
      expect(content['application/json']?.schema.properties).toHaveProperty('records')
      const lines = content['application/x-ndjson']
      expect(lines?.schema).toEqual({
        type: 'string',
        description: 'Records as JSON objects, one per line.',
      })
      expect(lines?.example).toMatch(/^(\{"email":"[^"]+"[^\n]*\}\n)+$/)
    }
  })

  it('is the same at /docs/json', async () => {
    expect((await service.call('GET', '/docs/json', { key: null })).body).toEqual(document)
  })

  it('gives every operation a summary, an id of its own and a tag that is described', () => {
    const tags = document.tags.map((tag) => tag.name)
    expect(failing(({ summary }) => /^[A-Z][^.]+$/.test(summary ?? ''))).toEqual([])
    expect(failing((operation) => operation.tags?.length === 1)).toEqual([])
    expect(failing((operation) => tags.includes(operation.tags?.[0] ?? ''))).toEqual([])
  })

  it('names operations as a client would call them: a verb, a noun, at most 32 characters', () => {
    const ids = operations.map(({ operationId }) => operationId)
    expect(ids.filter((id, position) => ids.indexOf(id) !== position)).toEqual([])
    const verbs = [...new Set(ids.map((id) => /^[a-z]+/.exec(id ?? '')?.[0]))].sort()
    expect(failing(({ operationId: id = '' }) => /^[a-z]+([A-Z][a-z]+)+$/.test(id))).toEqual([])
    expect(failing(({ operationId: id = '' }) => id.length <= 32)).toEqual([])
    expect(verbs).toEqual(VERBS)
    expect(ids).toContain('updateBranch')
  })

  it('lists the refusals that come before any route is asked', () => {
    expect(failing(({ responses }) => responses[400] !== undefined)).toEqual([])
    expect(failing(({ responses }) => responses[431] !== undefined)).toEqual([])
  })

  it('has no example of an expiry in the past', () => {
    const moments: string[] = []
    const walk = (value: unknown, name: string): void => {
      if (typeof value === 'string' && name === 'expiresAt') moments.push(value)
      if (typeof value !== 'object' || value === null) return
      for (const [key, inner] of Object.entries(value)) {
        walk(inner, ['examples', 'anyOf'].includes(name) || /^\d+$/.test(key) ? name : key)
        const { examples } = (inner ?? {}) as { examples?: unknown[] }
        if (key === 'expiresAt' && Array.isArray(examples)) moments.push(...examples.map(String))
      }
    }
    for (const { requestBody } of operations) walk(requestBody, '')
    expect(moments.length).toBeGreaterThan(0)
    expect(moments.filter((moment) => Date.parse(moment) < Date.now())).toEqual([])
  })

  it('describes files by the media type that they have', () => {
    const files = operations.filter(({ operationId = '' }) =>
      /^(download|upload|open)File/.test(operationId),
    )
    expect(files).toHaveLength(6)
    for (const { requestBody, responses, method } of files) {
      const content = method === 'get' ? responses[200]?.content : requestBody?.content
      expect(Object.keys(content ?? {})).toEqual(['*/*'])
    }
  })

  it('names a success and the refusals of every operation', () => {
    const has = (operation: Operation, ...statuses: number[]) =>
      statuses.every((status) => operation.responses[status] !== undefined)
    expect(
      failing((operation) => Object.keys(operation.responses).some((status) => /^2/.test(status))),
    ).toEqual([])
    const isPublic = (operation: Operation) => operation.security?.length === 0
    expect(
      failing((operation) => isPublic(operation) || has(operation, 400, 401, 403, 503)),
    ).toEqual([])
    expect(
      failing((operation) => operation.method === 'get' || has(operation, 409, 413, 415)),
    ).toEqual([])
    const hasTarget = (operation: { name: string }) =>
      /\{(workspaceId|databaseName|databaseBranch)\}/.test(operation.name)
    expect(failing((operation) => !hasTarget(operation) || has(operation, 404))).toEqual([])
  })

  it('describes every answer, and every refusal as an error', () => {
    expect(
      failing(({ responses }) =>
        Object.values(responses).every(
          ({ description }) => description !== '' && description !== 'Default Response',
        ),
      ),
    ).toEqual([])
    expect(
      failing(({ name, responses }) =>
        Object.entries(responses).every(([status, response]) => {
          if (/^[23]/.test(status) || name === 'GET /health') return true
          const schema = response.content?.['application/json']?.schema
          return JSON.stringify(schema) === '{"$ref":"#/components/schemas/Error"}'
        }),
      ),
    ).toEqual([])
  })

  it('shows an example of every request body and of every part of a path', () => {
    expect(
      failing(({ requestBody }) =>
        Object.entries(requestBody?.content ?? {}).every(
          ([type, media]) => type !== 'application/json' || examplesOf(media).length > 0,
        ),
      ),
    ).toEqual([])
    expect(
      failing(({ parameters = [] }) =>
        parameters.every((parameter) => parameter.in !== 'path' || parameter.example !== undefined),
      ),
    ).toEqual([])
  })

  it('says which bodies may be left out', () => {
    const optional = operations
      .filter(({ requestBody }) => requestBody?.required === false)
      .map(({ name }) => name)
    expect(optional).toContain('PUT /db/{databaseBranch}')
    expect(optional).toContain('POST /user/keys/{keyName}')
    expect(optional).not.toContain('PUT /workspaces/{workspaceId}/dbs/{databaseName}')
    expect(optional).not.toContain('POST /dbs/{databaseName}/gitBranches')
  })

  it('has no example that its own schema refuses', () => {
    const checks: {
      readonly schema: object
      readonly example: unknown
      readonly where: string
    }[] = []
    const check = (schema: object, example: unknown, where: string) => {
      checks.push({ schema, example, where })
    }
    const visited = new Set<string>()
    const walk = (schema: unknown, where: string): void => {
      if (typeof schema !== 'object' || schema === null) return
      const text = JSON.stringify(schema)
      if (!Array.isArray(schema) && 'examples' in schema && !visited.has(text)) {
        visited.add(text)
        for (const example of schema.examples as unknown[]) check(schema, example, where)
      }
      for (const [key, value] of Object.entries(schema)) {
        if (key !== 'examples') walk(value, `${where}.${key}`)
      }
    }
    for (const operation of operations) {
      const medias = [
        ...Object.values(operation.requestBody?.content ?? {}),
        ...Object.values(operation.responses).flatMap(({ content = {} }) => Object.values(content)),
      ]
      for (const media of medias) {
        for (const example of examplesOf(media)) check(media.schema, example, operation.name)
        walk(media.schema, operation.name)
      }
      for (const { schema, example, name } of operation.parameters ?? []) {
        if (example !== undefined) check(schema, example, `${operation.name} [${name}]`)
      }
    }
    walk(document.components.schemas, 'components')
    const schemas = new DocumentSchemas(
      document.components,
      checks.map(({ schema }) => schema),
    )
    const faults = checks.flatMap(({ schema, example, where }) => {
      const fault = schemas.faultOf(schema, example)
      return fault === undefined ? [] : [`${where}: ${fault}`]
    })
    expect(faults).toEqual([])
    expect(checks.length).toBeGreaterThan(50)
  })
})

describe('/docs', () => {
  const text = async (path: string) => service.app.inject({ method: 'GET', url: path })

  it('is a page that loads everything from its own origin', async () => {
    const page = await text('/docs')
    expect(page.statusCode).toBe(200)
    expect(page.headers['content-type']).toBe('text/html; charset=utf-8')
    expect(page.body).toContain('<title>Offshoot API</title>')
    const links = [...page.body.matchAll(/(?:src|href)="([^"]*)"/g)].map((match) => match[1] ?? '')
    expect(links.length).toBeGreaterThan(4)
    for (const link of links) {
      expect(link).toMatch(/^\/docs\/static\//)
      expect((await text(link)).statusCode).toBe(200)
    }
  })

  it('forbids the browser to load anything else, and works over plain http', async () => {
    for (const path of ['/docs', '/docs/', '/docs/static/swagger-ui-bundle.js']) {
      const policy = String((await text(path)).headers['content-security-policy'])
      expect(policy).toContain("default-src 'self'")
      expect(policy).toContain("frame-ancestors 'none'")
      expect(policy).not.toMatch(/https?:|\*|\w\.\w|unsafe-(inline|eval)|upgrade-insecure-requests/)
    }
  })

  it('has styles and scripts that load nothing from outside', async () => {
    const initializer = (await text('/docs/static/swagger-initializer.js')).body
    expect(initializer).toContain('validatorUrl: null')
    expect(initializer).toContain("url: resolveUrl('./json')")
    for (const file of ['swagger-ui.css', 'index.css']) {
      const styles = (await text(`/docs/static/${file}`)).body
      expect(styles).not.toMatch(/@import|url\(\s*["']?(https?:)?\/\//)
    }
    for (const file of ['swagger-ui-bundle.js', 'swagger-ui-standalone-preset.js']) {
      const script = (await text(`/docs/static/${file}`)).body
      expect(script).not.toMatch(/importScripts\(|import\(["'`]https?:|sourceMappingURL=https?:/)
      expect(script).not.toMatch(/\.src\s*=\s*["'`](https?:)?\/\//)
    }
  })

  it.each(['/docs/static/../../package.json', '/docs/static/%2e%2e/%2e%2e/package.json'])(
    'does not lead out of its folder: %s',
    async (path) => {
      expect((await text(path)).statusCode).toBeGreaterThanOrEqual(400)
    },
  )

  it('answers an unknown file with 404 in the form of every error', async () => {
    const answer = await service.call('GET', '/docs/static/nowhere.js', { key: null })
    expect(answer).toMatchObject({ status: 404, body: { code: 'route_not_found' } })
  })
})
