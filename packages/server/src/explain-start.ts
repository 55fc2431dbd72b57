import type { Config } from './config.js'
import { isNodeUnreachable, isUnreachable } from './postgres/failures.js'

/** Describes an error of the start for a person, with what to do about it. */
export function explainStart(error: unknown, config: Config): string {
  const { code, port, syscall, hostname } = error as NodeJS.ErrnoException & {
    port?: number
    hostname?: string
  }
  // An AggregateError of several connection attempts has no message of its own.
  const message = (error as Error).message || code || String(error)
  if (code === 'EADDRINUSE') {
    return `port ${port} is in use: stop the process that listens on it, or set OFFSHOOT_PORT`
  }
  if (code === 'EACCES' && port !== undefined) {
    return `no permission to listen on port ${port}: set OFFSHOOT_PORT to a number above 1023`
  }
  if (code === 'EADDRNOTAVAIL' || (syscall === 'getaddrinfo' && hostname === config.host)) {
    return `[${config.host}] is not an address of this machine: set OFFSHOOT_HOST to 127.0.0.1, or to 0.0.0.0 for all interfaces`
  }
  if (isNodeUnreachable(error)) {
    const { message: reason } = ((error as Error).cause ?? error) as Error
    return `the PostgreSQL of OFFSHOOT_DATABASE_URL is the coordinator of a Citus cluster, which could not use a node (docs/guides/scaling.md says what nodes need): ${reason}`
  }
  if (config.databaseHosts !== null && isUnreachable(error)) {
    return `the PostgreSQL of OFFSHOOT_DATABASE_URL cannot be reached: ${message}`
  }
  return message
}
