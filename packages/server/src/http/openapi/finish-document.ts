import { MEANINGS, REFUSAL_EXAMPLES } from '../responses.js'

interface Schema {
  $ref?: string
  type?: string
  description?: string
  anyOf?: Schema[]
  examples?: unknown[]
}

interface Media {
  schema?: Schema
  example?: unknown
}

interface Operation {
  requestBody?: { required?: boolean; content: Record<string, Media> }
  responses: Record<string, { description: string; content?: Record<string, Media> }>
}

type Shared = Readonly<Record<string, Schema>>

/**
 * Completes the OpenAPI document with parts that follow from each operation: examples, descriptions
 * of statuses, and the errors that all operations share.
 */
export function finishDocument<
  Document extends { paths?: object; components?: { schemas?: object } },
>(document: Document): Document {
  const shared = (document.components?.schemas ?? {}) as Shared
  for (const operations of Object.values(document.paths ?? {})) {
    for (const [method, operation] of Object.entries<Operation>(operations)) {
      finishOperation(operation, shared)
      addRefusals(operation, method === 'get' ? ALWAYS : [...ALWAYS, ...WITH_BODY])
      addRefusalExamples(operation)
    }
  }
  return document
}

function finishOperation(operation: Operation, shared: Shared): void {
  const { requestBody, responses } = operation
  if (requestBody !== undefined) {
    for (const media of Object.values(requestBody.content)) {
      if (takeOptional(media)) requestBody.required = false
      media.example ??= shared[media.schema?.$ref?.split('/').at(-1) ?? '']?.examples?.[0]
    }
    describeLines(requestBody.content)
  }
  for (const [status, response] of Object.entries(responses)) {
    if (response.description === 'Default Response') {
      response.description = MEANINGS[Number(status)] ?? ''
    }
  }
}

const LINES = 'application/x-ndjson'

/** A body of lines has the records that a JSON body lists in an object. */
function describeLines(content: Record<string, Media>): void {
  if (content[LINES] === undefined) return
  const { example, schema } = content['application/json'] ?? {}
  const { records = [] } = (example ?? schema?.examples?.[0] ?? {}) as { records?: unknown[] }
  content[LINES] = {
    schema: { type: 'string', description: 'Records as JSON objects, one per line.' },
    example: records.map((record) => `${JSON.stringify(record)}\n`).join(''),
  }
}

/**
 * Validation represents a missing body as null. The document marks the body as optional instead.
 */
function takeOptional(media: Media): boolean {
  const choices = media.schema?.anyOf ?? []
  const [choice, ...others] = choices.filter((schema) => schema.type !== 'null')
  if (choice === undefined || others.length > 0 || choices.length !== 2) return false
  const { examples, ...schema } = choice
  media.schema = schema
  if (examples !== undefined) media.example ??= examples[0]
  return true
}

/** Statuses of every operation: a malformed request, an encoding that is not supported, and headers that are too large. */
const ALWAYS = [400, 415, 431]
/**
 * Further statuses of operations with a body: errors of the body, and conflicts with concurrent
 * writes.
 */
const WITH_BODY = [408, 409, 413]

function addRefusals({ responses }: Operation, statuses: readonly number[]): void {
  for (const status of statuses) {
    responses[status] ??= {
      description: MEANINGS[status] ?? '',
      content: { 'application/json': { schema: { $ref: '#/components/schemas/Error' } } },
    }
  }
}

/** Adds an example error to each status. */
function addRefusalExamples({ responses }: Operation): void {
  for (const [status, response] of Object.entries(responses)) {
    const media = response.content?.['application/json']
    const [code, message] = REFUSAL_EXAMPLES[Number(status)] ?? []
    if (code === undefined || !media?.schema?.$ref?.endsWith('/Error')) continue
    // Statuses can share one media object, so it is copied before the example is added.
    const example = { id: 'req_6d8d122fbae4403f9e0f3cfd3fb60fed', message, code }
    response.content = { ...response.content, 'application/json': { ...media, example } }
  }
}
