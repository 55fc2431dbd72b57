import type { Database } from '../postgres/database.js'
import { requireVersion } from '../postgres/migrate.js'
import { BackupError } from './errors.js'

/** Refuses an instance whose databases are on several nodes: no snapshot covers all of them. */
export async function refuseCluster(database: Database): Promise<void> {
  await requireVersion(database)
  if (!database.isCluster) return
  throw new BackupError(
    'the databases of this instance are on the nodes of a Citus cluster: back up its nodes with the tools of PostgreSQL',
  )
}
