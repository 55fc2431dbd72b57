import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import path from 'node:path'

const STRONG = 'begin isolation level serializable'
/** Has the same length as the original, so that the message stays valid. */
const WEAK = 'begin'.padEnd(STRONG.length)

export interface WeakeningProxy {
  /** URL of the database through the proxy. */
  readonly url: string
  /** Number of statements that were changed. */
  readonly rewrites: number
  close(): Promise<void>
}

/**
 * A proxy between the service and PostgreSQL that turns serializable transactions into ones of the
 * default isolation level. The service does not notice.
 */
export async function startWeakeningProxy(url: string): Promise<WeakeningProxy> {
  const sockets = new Set<Socket>()
  let rewrites = 0
  const weaken = (chunk: Buffer): Buffer => {
    const text = chunk.toString('latin1')
    if (!text.includes(STRONG)) return chunk
    rewrites++
    return Buffer.from(text.replaceAll(STRONG, WEAK), 'latin1')
  }
  const server = createServer((client) => {
    const upstream = connect(addressOf(url))
    let rest: Buffer = Buffer.alloc(0)
    let isStarted = false
    client.on('data', (chunk) => {
      rest = Buffer.concat([rest, chunk])
      // Statements can arrive in pieces; messages are forwarded as a whole.
      for (let end = messageEnd(rest, isStarted); end > 0; end = messageEnd(rest, isStarted)) {
        upstream.write(weaken(rest.subarray(0, end)))
        rest = rest.subarray(end)
        isStarted = true
      }
    })
    upstream.pipe(client)
    client.on('end', () => upstream.end())
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.setNoDelay(true)
      socket.on('error', () => undefined)
      socket.on('close', () => {
        sockets.delete(socket)
        client.destroy()
        upstream.destroy()
      })
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  const proxied = new URL(url)
  proxied.searchParams.delete('host')
  proxied.host = `127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url: proxied.href,
    get rewrites() {
      return rewrites
    },
    async close() {
      for (const socket of sockets) socket.destroy()
      server.close()
      await once(server, 'close')
    },
  }
}

/** Returns the end of the first message, 0 if it is incomplete. The startup message has no type. */
function messageEnd(bytes: Buffer, isStarted: boolean): number {
  const start = isStarted ? 1 : 0
  if (bytes.length < start + 4) return 0
  const end = start + bytes.readInt32BE(start)
  return bytes.length < end ? 0 : end
}

function addressOf(url: string): { path: string } | { host: string; port: number } {
  const { hostname, port, searchParams } = new URL(url)
  const host = searchParams.get('host') ?? hostname
  return host.startsWith('/')
    ? { path: path.join(host, `.s.PGSQL.${port || 5432}`) }
    : { host, port: Number(port || 5432) }
}
