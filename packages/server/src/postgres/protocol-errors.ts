import type { Socket } from 'node:net'
import type pg from 'pg'

/** `pg` could not read what PostgreSQL sent, so the state of the connection is unknown. */
export class ProtocolError extends Error {}

/**
 * Makes an exception of the driver while it reads a message break the connection. Otherwise it would be
 * thrown in an event of the socket, where nothing catches it, and end the process.
 */
export function surviveProtocolErrors(client: pg.ClientBase): void {
  const stream = socketOf(client)
  const listeners = stream.listeners('data') as ((chunk: Buffer) => void)[]
  stream.removeAllListeners('data')
  stream.on('data', (chunk: Buffer) => {
    if (stream.destroyed) return
    try {
      for (const listener of listeners) listener(chunk)
    } catch (error) {
      stream.destroy(
        new ProtocolError('a message of PostgreSQL could not be read', { cause: error }),
      )
    }
  })
}

/** Closes the socket of a connection. A statement that runs fails at once. */
export function breakConnection(client: pg.ClientBase): void {
  socketOf(client).destroy()
}

/** Returns how much was ever received on a connection. */
export function bytesReadBy(client: pg.ClientBase): number {
  return socketOf(client).bytesRead
}

function socketOf(client: pg.ClientBase): Socket {
  return (client as unknown as { connection: { stream: Socket } }).connection.stream
}
