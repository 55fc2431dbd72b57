import { inject } from 'vitest'
import type { PostgresServer } from './global-setup.js'

/** Returns the server that the files of this process use; none in a project without one. */
export function serverOfWorker(): PostgresServer | undefined {
  const servers = inject('postgresServers') ?? []
  return servers[(Number(process.env.VITEST_POOL_ID) - 1) % servers.length]
}
