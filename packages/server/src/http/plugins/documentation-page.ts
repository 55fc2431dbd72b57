import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import path from 'node:path'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { routeNotFound } from './errors.js'

const PAGE = '/docs'
const ASSETS = `${PAGE}/static`

/** The page loads from and calls only this server. */
const PAGE_POLICY =
  "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'self'; " +
  "frame-ancestors 'none'"

const SCRIPT = 'application/javascript; charset=utf-8'
const STYLES = 'text/css; charset=utf-8'

/** The files of Swagger UI that the page loads, with their content types. */
const FILES: ReadonlyMap<string, string> = new Map([
  ['swagger-ui.css', STYLES],
  ['index.css', STYLES],
  ['swagger-ui-bundle.js', SCRIPT],
  ['swagger-ui-standalone-preset.js', SCRIPT],
])

const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16" fill="none" stroke="#2a8a4a" ' +
  'stroke-width="2" stroke-linecap="round"><path d="M5 14V2M5 9c4 0 6-2 6-6"/></svg>'

/** Hides the bar for choosing an API, and shows the list of operations collapsed. */
const INITIALIZER = `window.onload = () => {
  const resolveUrl = (path) => new URL(path, location.origin + '${PAGE}/').href
  SwaggerUIBundle({
    dom_id: '#swagger-ui',
    url: resolveUrl('./json'),
    validatorUrl: null,
    deepLinking: true,
    presets: [SwaggerUIBundle.presets.apis, SwaggerUIStandalonePreset],
    plugins: [SwaggerUIBundle.plugins.DownloadUrl],
    layout: 'BaseLayout',
    docExpansion: 'none',
    defaultModelsExpandDepth: -1,
    tryItOutEnabled: true,
    displayRequestDuration: true,
  })
}
`

const HTML = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="UTF-8">
<title>Offshoot API</title>
<link rel="stylesheet" type="text/css" href="${ASSETS}/swagger-ui.css" />
<link rel="stylesheet" type="text/css" href="${ASSETS}/index.css" />
<link rel="icon" type="image/svg+xml" href="${ASSETS}/theme/icon.svg" sizes="any" />
</head>
<body>
<div id="swagger-ui"></div>
<script src="${ASSETS}/swagger-ui-bundle.js" charset="UTF-8"></script>
<script src="${ASSETS}/swagger-ui-standalone-preset.js" charset="UTF-8"></script>
<script src="${ASSETS}/swagger-initializer.js" charset="UTF-8"></script>
</body>
</html>
`

/**
 * Serves the documentation page of the OpenAPI document, which is Swagger UI. The plugin of Fastify for it loads
 * a writer of YAML and a file server at the start; this page needs a few files, and only when it is opened.
 */
export async function documentationPage(
  app: FastifyInstance,
  options: {
    sendDocument(request: FastifyRequest, reply: FastifyReply): Promise<unknown>
    documentUrl: string
  },
): Promise<void> {
  app.addHook('onSend', async (_request, reply) => {
    reply.header('content-security-policy', PAGE_POLICY)
  })
  const hidden = { schema: { hide: true } }
  const sendText =
    (type: string, text: string) => (_request: FastifyRequest, reply: FastifyReply) =>
      reply.header('content-type', type).send(text)
  app.get(PAGE, hidden, sendText('text/html; charset=utf-8', HTML))
  app.get(`${PAGE}/`, hidden, sendText('text/html; charset=utf-8', HTML))
  app.get(`${PAGE}/json`, hidden, options.sendDocument)
  // Writing the document as YAML takes hundreds of milliseconds, in which no other request is served.
  app.get(`${PAGE}/yaml`, hidden, (_request, reply) => reply.redirect(options.documentUrl))
  app.get(`${ASSETS}/swagger-initializer.js`, hidden, sendText(SCRIPT, INITIALIZER))
  app.get(`${ASSETS}/theme/icon.svg`, hidden, sendText('image/svg+xml', ICON))
  app.get(`${ASSETS}/*`, hidden, async (request, reply) => {
    const { '*': name } = request.params as { '*': string }
    const type = FILES.get(name)
    if (type === undefined) throw routeNotFound(request.url.split('?', 1)[0] ?? '/')
    return reply.header('content-type', type).send(await readFile(path.join(filesFolder(), name)))
  })
}

/** The folder of the files of Swagger UI. */
function filesFolder(): string {
  const plugin = createRequire(import.meta.url).resolve('@fastify/swagger-ui')
  return path.join(path.dirname(plugin), 'static')
}
