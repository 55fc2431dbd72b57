import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import { connect, type Socket } from 'node:net'

/** A raw connection for tests. */
export interface Wire {
  readonly socket: Socket
  /** All that was received so far. */
  readonly text: string
  /** Resolves with the duration of the connection when the server closes it. */
  readonly closed: Promise<number>
}

export async function openWire(address: string, text = ''): Promise<Wire> {
  const { hostname, port } = new URL(address)
  const startedAt = performance.now()
  const socket = connect(Number(port), hostname)
  socket.on('error', () => undefined)
  const closed = new Promise<number>((resolve) => {
    socket.once('close', () => resolve(performance.now() - startedAt))
  })
  await once(socket, 'connect')
  let received = ''
  socket.on('data', (chunk) => {
    received += String(chunk)
  })
  socket.write(text)
  return {
    socket,
    closed,
    get text() {
      return received
    },
  }
}

/** The beginning of a request. */
export function requestHead(
  method: string,
  url: string,
  headers: Readonly<Record<string, string | number>> = {},
): string {
  const lines = Object.entries({ host: 'localhost', ...headers }).map(
    ([name, value]) => `${name}: ${value}`,
  )
  return [`${method} ${url} HTTP/1.1`, ...lines, '', ''].join('\r\n')
}

/**
 * Returns whether the server, on this machine, still has the connection. A client that does not
 * read cannot tell.
 */
export async function isHeld({ socket }: Wire): Promise<boolean> {
  const hex = (port = 0) => port.toString(16).toUpperCase().padStart(4, '0')
  const table = await readFile('/proc/net/tcp', 'utf8')
  const entry = new RegExp(`:${hex(socket.remotePort)} \\w+:${hex(socket.localPort)} (\\w+)`)
  const [, state] = entry.exec(table) ?? []
  return state === '01'
}

/** Returns the bytes that the server, on this machine, has received but not read yet. */
export async function bytesUnread({ socket }: Wire): Promise<number> {
  const hex = (port = 0) => port.toString(16).toUpperCase().padStart(4, '0')
  const table = await readFile('/proc/net/tcp', 'utf8')
  const entry = new RegExp(
    `:${hex(socket.remotePort)} \\w+:${hex(socket.localPort)} \\w+ \\w+:(\\w+)`,
  )
  return Number.parseInt(entry.exec(table)?.[1] ?? '0', 16)
}
