import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'
import path from 'node:path'

const STRONG = 'begin isolation level serializable'
/** As long as the other, so that the messages around it stay valid. */
const WEAK = 'begin'.padEnd(STRONG.length)

export interface WeakeningProxy {
  /** The database, through the proxy. */
  readonly url: string
  /** How often a transaction was weakened, or a statement that begins one prepared. */
  readonly rewrites: number
  close(): Promise<void>
}

/**
 * Stands between the service and PostgreSQL and makes every serializable transaction one of the default
 * isolation level of the database. Nothing in the service has to know.
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
      // A statement may come in pieces, a message goes on as a whole.
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

/** Where the first message ends, 0 while it is not all there. The very first has no type. */
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
