import type { Limits } from '@offshoot/contract/limits'
import type { Region } from '@offshoot/contract/workspaces'
import type { Files } from '../data/files/files.js'
import type { Sessions } from '../data/session/sessions.js'
import type { Refusals } from '../domain/log/refusals.js'
import type { Database } from '../postgres/database.js'
import type { IndexBuilder } from '../rows/indexes/index-builder.js'
import type { Storage } from '../rows/storage.js'
import type { KeyLimits } from './admission/caller.js'
import type { Lifecycle } from './lifecycle.js'

/** Dependencies of the routes. `main.ts` creates them for the process, tests create their own. */
export interface Services {
  readonly database: Database
  /** The rows of all branches, in `database`. */
  readonly storage: Storage
  readonly sessions: Sessions
  readonly files: Files
  readonly indexes: IndexBuilder
  /** Refused requests, for the audit log. */
  readonly refusals: Refusals
  readonly lifecycle: Lifecycle
  readonly limits: Limits
  readonly regions: readonly Region[]
  /** Host name of `OFFSHOOT_PUBLIC_URL`; it is never read as the name of a workspace. */
  readonly publicHost: string | undefined
  /** `OFFSHOOT_PUBLIC_URL`; links to files start with it. */
  readonly publicUrl?: string | undefined
  /** Whether the service listens on loopback only. */
  readonly isOnLoopback?: boolean
  /** Addresses and networks of proxies whose `X-Forwarded-For` is trusted. */
  readonly trustedProxies?: readonly string[]
  /** The folder with the built console; undefined if the console is off. */
  readonly consoleFolder?: string | undefined
  /** The port for clients of PostgreSQL, once the service listens for them. */
  readonly postgresPort?: () => number | undefined
  /** Rate limits of one API key in this process; undefined means unlimited. */
  readonly keyLimits?: KeyLimits
}
