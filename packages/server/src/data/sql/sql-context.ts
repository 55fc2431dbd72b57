import type { Bounds } from '../../postgres/bounds.js'
import type { ReaderRoles } from '../../postgres/reader-role.js'
import type { UserConnections } from '../../postgres/user-connections.js'
import type { Storage } from '../../rows/storage.js'
import type { TransactionContext } from '../records/transaction.js'
import type { StatementPlanner } from './statement-planner.js'

/** The services, the session and the limits that statements run with. */
export interface SqlContext extends TransactionContext {
  readonly storage: Storage
  readonly readers: ReaderRoles
  readonly bounds: Bounds
  readonly connections: UserConnections
  readonly planner: StatementPlanner
  /** The zone of times in the results; undefined for UTC. */
  readonly timeZone?: string | undefined
  /** Called with the entry of the log, if the statements have changed the schema. */
  readonly onEntry?: ((id: string) => void) | undefined
}
