import type { Limits } from '@offshoot/contract/limits'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { inTurns } from '../common/in-turns.js'
import {
  buildJson,
  parseShortJson,
  requireUtf8,
  SLICE_BYTES,
  scanJson,
} from '../common/json-text.js'
import { overloaded } from './admission/ticket.js'
import { readBody } from './read-body.js'

/** Memory that a parsed value takes beside its text, about. */
const VALUE_BYTES = 32

/** Reads JSON bodies exactly: no body is none, and text that is not UTF-8 is not guessed at. */
export function readJsonBodies(app: FastifyInstance, limits: Limits): void {
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
          value = parseShortJson(body, limits)
        } catch (error) {
          done(error as Error)
          return
        }
        done(null, value)
      }
    })
  })
}

/** Parses a body in slices, so that others are served meanwhile. */
async function parseLong(request: FastifyRequest, body: Buffer, limits: Limits): Promise<unknown> {
  requireUtf8(body)
  const scanned = await inTurns(scanJson(body, limits))
  // A short text can stand for many values, which take more room than it does.
  if (request.ticket?.takeBytes(scanned.values * VALUE_BYTES) === false) throw overloaded()
  return inTurns(buildJson(body, scanned))
}
