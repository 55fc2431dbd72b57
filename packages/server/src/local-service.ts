import { findListener } from '@offshoot/embedded-postgres/data-lock'
import { readKeyFile } from './key-file.js'

/** A service of this machine that is running, and the key that it has written. */
export interface LocalService {
  readonly address: string
  /** Undefined if the key file was removed. */
  readonly key: string | undefined
}

/**
 * Finds the service that runs on a data folder. Its key must be sent to this address only: another program may listen
 * on the port while the service is not running.
 */
export async function findLocalService(dataDir: string): Promise<LocalService | undefined> {
  const address = await findListener(dataDir).catch(() => undefined)
  if (address === undefined) return undefined
  return { address, key: await readKeyFile(dataDir) }
}

/** Returns the address of a service for programs of the same machine. `host` is what it listens on. */
export function localAddress(host: string, port: number): string {
  const name = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${name.includes(':') ? `[${name}]` : name}:${port}`
}
