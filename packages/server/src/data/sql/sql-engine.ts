import type { Limits } from '@offshoot/contract/limits'
import { BlockingWatch } from '../../postgres/blocking-watch.js'
import type { Database } from '../../postgres/database.js'
import { ReaderRoles } from '../../postgres/reader-role.js'
import { UserConnections } from '../../postgres/user-connections.js'
import { StatementPlanner } from './statement-planner.js'

/** What all statements of users share, however they arrive. */
export interface SqlEngine {
  readonly connections: UserConnections
  readonly planner: StatementPlanner
  readonly readers: ReaderRoles
  readonly blockingWatch: BlockingWatch
}

export function createSqlEngine(database: Database, limits: Limits): SqlEngine {
  return {
    connections: new UserConnections(database, limits),
    planner: new StatementPlanner(limits),
    readers: new ReaderRoles(database),
    blockingWatch: new BlockingWatch(database),
  }
}
