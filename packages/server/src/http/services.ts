import type { Limits } from '@offshoot/contract/limits'
import type { Region } from '@offshoot/contract/workspaces'
import type { Files } from '../data/files/files.js'
import type { Sessions } from '../data/session/sessions.js'
import type { Database } from '../postgres/database.js'
import type { IndexBuilder } from '../rows/indexes.js'
import type { KeyLimits } from './admission/caller.js'
import type { Lifecycle } from './lifecycle.js'

/** What routes are built on. `main.ts` makes the real ones, tests make their own. */
export interface Services {
  readonly database: Database
  readonly sessions: Sessions
  readonly files: Files
  readonly indexes: IndexBuilder
  readonly lifecycle: Lifecycle
  readonly limits: Limits
  readonly regions: readonly Region[]
  /** Host name of `OFFSHOOT_PUBLIC_URL`; it is never read as the name of a workspace. */
  readonly publicHost: string | undefined
  /** `OFFSHOOT_PUBLIC_URL`; links to files start with it. */
  readonly publicUrl?: string | undefined
  /** Proxies whose `X-Forwarded-For` is believed: addresses and networks. */
  readonly trustedProxies?: readonly string[]
  /** What one API key may ask of this process; undefined: as much as there is. */
  readonly keyLimits?: KeyLimits
}
