import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import path from 'node:path'
import staticFiles from '@fastify/static'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import fastifyPlugin from 'fastify-plugin'
import { routeNotFound } from './errors.js'

/** Names of assets contain a hash of their content, so browsers may keep them. */
const ASSET_MAX_AGE = '365d'
/** Placeholder in `index.html` for the nonce of the content security policy. */
const NONCE = '%NONCE%'

/**
 * Serves the built console: assets below `/console/assets/`, and its page for every other address below
 * `/console/`, because the page reads the address itself.
 */
export const consolePlugin = fastifyPlugin(
  async (app: FastifyInstance, { folder }: { folder: string }) => {
    const page = await readFile(path.join(folder, 'index.html'), 'utf8')
    await app.register(staticFiles, {
      root: path.join(folder, 'assets'),
      prefix: '/console/assets/',
      decorateReply: false,
      preCompressed: true,
      index: false,
      immutable: true,
      maxAge: ASSET_MAX_AGE,
    })

    const sendPage = (_request: FastifyRequest, reply: FastifyReply) => {
      const nonce = randomBytes(16).toString('base64')
      return reply
        .headers({
          'content-security-policy': pagePolicy(nonce),
          'cross-origin-opener-policy': 'same-origin',
          'content-type': 'text/html; charset=utf-8',
        })
        .send(page.replaceAll(NONCE, nonce))
    }
    app.get('/', { schema: { hide: true } }, (_request, reply) => reply.redirect('/console/'))
    app.get('/console', { schema: { hide: true } }, (_request, reply) =>
      reply.redirect('/console/'),
    )
    app.get('/console/', { schema: { hide: true } }, sendPage)
    app.get('/console/*', { schema: { hide: true } }, (request, reply) => {
      // Only a browser that opens an address gets the page. A program gets an error that it can read.
      if (!request.headers.accept?.includes('text/html')) {
        throw routeNotFound(request.url.split('?', 1)[0] ?? '/')
      }
      return sendPage(request, reply)
    })
  },
)

/**
 * The page loads and calls only this server. Styles that libraries add at run time carry the nonce.
 * Files are shown from memory, as `blob:`.
 */
function pagePolicy(nonce: string): string {
  return [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self' data: blob:",
    "media-src 'self' blob:",
    "font-src 'self'",
    "connect-src 'self'",
    "form-action 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
  ].join('; ')
}
