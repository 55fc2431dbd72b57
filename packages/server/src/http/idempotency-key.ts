import { AppError } from '@offshoot/contract/errors'
import type { FastifyRequest } from 'fastify'

const LENGTH_MAX = 255

/** Returns the header `Idempotency-Key`, or undefined if the client sent none. */
export function idempotencyKey(request: FastifyRequest): string | undefined {
  const value = request.headers['idempotency-key']
  if (value === undefined) return undefined
  if (typeof value !== 'string' || value === '' || value.length > LENGTH_MAX) {
    throw new AppError(
      'invalid_request',
      `header [Idempotency-Key]: must have 1 to ${LENGTH_MAX} characters`,
    )
  }
  return value
}
