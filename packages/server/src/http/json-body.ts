import type { Limits } from '@offshoot/contract/limits'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import type { ExactNumbers } from '../common/exact-json.js'
import { requireFiniteNumbers } from '../common/finite-numbers.js'
import { inTurns } from '../common/in-turns.js'
import {
  buildJson,
  parseShortJson,
  requireLongUtf8,
  SLICE_BYTES,
  scanJson,
} from '../common/json-text.js'
import { overloaded } from './admission/ticket.js'
import { readBody } from './read-body.js'

declare module 'fastify' {
  interface FastifyContextConfig {
    /** The numbers of a body whose digits are remembered if a double does not keep them. By default, members of objects. */
    exactNumbers?: ExactNumbers
  }
}

/** Estimated memory of a parsed value, beside that of its text. */
const VALUE_BYTES = 32

/**
 * Parses JSON bodies strictly: an empty body is no body, and invalid UTF-8 and numbers that are too large
 * are refused. Of several members with the same name in one object, the last one counts.
 */
export function readJsonBodies(app: FastifyInstance, limits: Limits): void {
  app.decorateRequest('bodyBytes', 0)
  app.removeAllContentTypeParsers()
  app.addContentTypeParser('application/json', (request, payload, done) => {
    readBody(request, payload, (error, body) => {
      if (error !== null || body === undefined) done(error as Error)
      else if (body.length === 0) done(null, undefined)
      else if (body.length > SLICE_BYTES) {
        parseLong(request, body, limits).then((value) => done(null, value), done)
      } else {
        let value: unknown
        try {
          value = parseShortJson(body, limits, request.routeOptions.config.exactNumbers)
          for (const _pause of requireFiniteNumbers(body, value));
        } catch (error) {
          done(error as Error)
          return
        }
        done(null, value)
      }
    })
  })
}

/** Parses a large body in slices, so that the event loop serves other requests in between. */
async function parseLong(request: FastifyRequest, body: Buffer, limits: Limits): Promise<unknown> {
  await inTurns(requireLongUtf8(body))
  const scanned = await inTurns(scanJson(body, limits))
  // Many small values take more memory than their text.
  if (request.ticket?.takeBytes(scanned.values * VALUE_BYTES) === false) throw overloaded()
  const value = await inTurns(buildJson(body, scanned, request.routeOptions.config.exactNumbers))
  await inTurns(requireFiniteNumbers(body, value))
  return value
}
