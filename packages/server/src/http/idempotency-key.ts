import { AppError } from '@offshoot/contract/errors'
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '@offshoot/contract/records'
import type { FastifyRequest } from 'fastify'
import { roundedIn } from '../common/exact-json.js'
import { writeJson } from '../common/write-json.js'
import { hashContent, type IdempotentRequest } from '../data/records/idempotency.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whether the route executes requests with the same `Idempotency-Key` once. */
    acceptsIdempotencyKey?: boolean
  }
}

/** Returns the header `Idempotency-Key`, or undefined if the client sent none. */
export function idempotencyKey(request: FastifyRequest): string | undefined {
  const value = request.headers['idempotency-key']
  if (value === undefined) return undefined
  if (typeof value !== 'string' || value === '' || value.length > IDEMPOTENCY_KEY_LENGTH_MAX) {
    throw new AppError(
      'invalid_request',
      `header [Idempotency-Key]: must have 1 to ${IDEMPOTENCY_KEY_LENGTH_MAX} characters`,
    )
  }
  return value
}

/** Returns the key of a request and the hash of its content, or undefined if the client sent no key. */
export function idempotent(
  request: FastifyRequest,
  content: unknown = request.body ?? {},
): IdempotentRequest | undefined {
  const key = idempotencyKey(request)
  if (key === undefined) return undefined
  return { key, contentHash: hashContent(() => contentOf(request, content)) }
}

/** Yields what distinguishes a request from others: its method, its address, and its body as JSON, in parts. */
function* contentOf({ method, url }: FastifyRequest, content: unknown): Generator<string | Buffer> {
  // Earlier versions accepted keys for POST only, and hashed no method. Their answers stay valid after an upgrade.
  yield `${method === 'POST' ? '' : `${method} `}${url}\0`
  yield* partsOf(content)
  yield '\0'
}

/** Yields a body, or its JSON: lists by item, because they can be long. */
function* partsOf(content: unknown): Generator<string | Buffer> {
  if (Buffer.isBuffer(content)) {
    yield content
  } else if (Array.isArray(content)) {
    yield '['
    const rounded = roundedIn(content)
    for (const [index, item] of content.entries()) {
      yield `${index === 0 ? '' : ','}${rounded?.get(String(index)) ?? jsonOf(item)}`
    }
    yield ']'
  } else if (typeof content === 'object' && content !== null) {
    yield '{'
    for (const [index, [name, value]] of Object.entries(content).entries()) {
      yield `${index === 0 ? '' : ','}${JSON.stringify(name)}:`
      if (Array.isArray(value)) yield* partsOf(value)
      else yield jsonOf(value)
    }
    yield '}'
  } else yield jsonOf(content)
}

/** Returns a part as JSON, in which numbers have their digits: requests that differ in them have different contents. */
function jsonOf(value: unknown): string {
  const steps = writeJson(value)
  let step = steps.next()
  while (!step.done) step = steps.next()
  return step.value
}

const READING_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS'])

/** Operations with the method POST that change nothing, so that they can be repeated in any case. */
const READS: ReadonlySet<unknown> = new Set([
  'queryRecords',
  'summarizeRecords',
  'aggregateRecords',
  'searchBranch',
  'searchTable',
  'searchVectors',
  'compareSchema',
  'compareBranches',
  'previewSchema',
])

/** Refuses the header `Idempotency-Key` where it would be ignored and a repetition would take effect again. */
export function faultOfIdempotencyKey(request: FastifyRequest): AppError | undefined {
  if (request.headers['idempotency-key'] === undefined) return undefined
  const { config, schema } = request.routeOptions
  const { operationId } = (schema ?? {}) as { operationId?: string }
  if (config.acceptsIdempotencyKey || READS.has(operationId)) return undefined
  if (READING_METHODS.has(request.method)) return undefined
  return new AppError(
    'invalid_request',
    'header [Idempotency-Key]: is not supported by this operation; nothing was executed',
  )
}
