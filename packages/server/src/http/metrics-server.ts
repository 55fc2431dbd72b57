import { createServer } from 'node:http'
import { METRICS_TYPE, type Metrics } from '../telemetry/metrics.js'
import { handleOneAtATime } from './one-at-a-time.js'
import { type MetricsAccess, mayRead } from './routes/metrics.js'

/** Closes connections that do not send a request in time. A scrape takes much less. */
const REQUEST_TIMEOUT_MS = 10_000

/** Serves only `/metrics`, on a port that can be kept private. */
export async function listenForMetrics(
  metrics: Metrics,
  options: MetricsAccess & { host: string; port: number },
): Promise<{ close(): Promise<void> }> {
  const server = createServer({ requestTimeout: REQUEST_TIMEOUT_MS }, (request, response) => {
    request.resume()
    const [path] = (request.url ?? '').split('?')
    if (request.method !== 'GET' || path !== '/metrics') {
      response.writeHead(404).end()
    } else if (!mayRead(request.headers.authorization, options)) {
      response.writeHead(401).end()
    } else {
      response.writeHead(200, { 'content-type': METRICS_TYPE }).end(metrics.render())
    }
  })
  handleOneAtATime(server)
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject)
    server.listen({ host: options.host, port: options.port }, resolve)
  })
  return {
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
