import { isUtf8 } from 'node:buffer'
import { AppError } from '@offshoot/contract/errors'
import type { FastifyInstance } from 'fastify'

/** Reads JSON bodies exactly: no body is none, and text that is not UTF-8 is not guessed at. */
export function readJsonBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers()
  app.addContentTypeParser(
    'application/json',
    { parseAs: 'buffer' },
    (_request, body: Buffer, done) => {
      if (body.length === 0) {
        done(null, undefined)
        return
      }
      try {
        done(null, parseJson(body))
      } catch (error) {
        done(error as Error, undefined)
      }
    },
  )
}

export function parseJson(body: Buffer): unknown {
  if (!isUtf8(body)) throw new AppError('invalid_json', 'body: is not valid UTF-8')
  try {
    return JSON.parse(body.toString())
  } catch (error) {
    throw new AppError('invalid_json', `body: is not valid JSON: ${(error as Error).message}`)
  }
}
