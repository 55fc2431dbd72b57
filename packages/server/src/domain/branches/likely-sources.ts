import { BRANCH_UNUSED_MS_MAX, LruMap } from '../../common/lru-map.js'
import type { Place } from '../access/principal.js'
import type { DatabaseAccess } from '../access/resolve.js'

/*
 * The key of a request is checked before its body is read, so the source of a fork is not known then. Most forks are
 * those of a branch that was forked or created a moment ago. Such branches are looked up together with the key, which
 * saves a round trip.
 */

/** Names for each database. Each takes an index lookup with every fork. */
const NAMES_MAX = 4
const DATABASES_MAX = 10_000

const namesByDatabase = new LruMap<string, readonly string[]>(DATABASES_MAX, {
  unusedMsMax: BRANCH_UNUSED_MS_MAX,
})

type Address = Pick<Place, 'workspaceId' | 'databaseName'>

const keyOf = ({ workspaceId = '', databaseName }: Address): string =>
  `${workspaceId}/${databaseName}`

/** Returns names of branches that may be the source of a fork. There may be no such branches. */
export function likelySources(address: Address): readonly string[] {
  return namesByDatabase.get(keyOf(address)) ?? []
}

/** Notes the branches of a fork: one of them is likely to be forked next. */
export function noteFork(
  { workspaceId, databaseName, principal }: DatabaseAccess,
  names: readonly string[],
): void {
  // Later requests name the workspace if this one does.
  const address = {
    workspaceId: principal.found?.isOnly === true ? undefined : workspaceId,
    databaseName,
  }
  const latest = new Set([...names, ...likelySources(address)])
  namesByDatabase.set(keyOf(address), [...latest].slice(0, NAMES_MAX))
}
