import { AppError } from '@offshoot/contract/errors'
import { IDEMPOTENCY_KEY_LENGTH_MAX } from '@offshoot/contract/records'
import type { FastifyRequest } from 'fastify'

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
