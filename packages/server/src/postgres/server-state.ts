import { isCluster, standbyBytesBehind } from '../telemetry/events.js'
import type { Queryable } from './database.js'
import { sql } from './sql.js'

/** A standby that is connected to the server in use. */
interface Standby {
  readonly name: string
  /** Whether a commit waits for it: `sync`, `quorum`, `potential` or `async`. */
  readonly sync: string
  /** Log that it has not applied yet; null if the role may not see it. */
  readonly bytesBehind: number | null
}

export interface ServerState {
  /** Whether the server distributes tables over others (Citus). */
  readonly isCluster: boolean
  readonly standbys: readonly Standby[]
}

/** A list of standbys is short. This only bounds an answer. */
const STANDBYS_MAX = 100

const STATE = sql`
  select exists (select from pg_extension where extname = 'citus') as "isCluster",
    coalesce((
      select json_agg(json_build_object(
        'name', s.application_name,
        'sync', s.sync_state,
        'bytesBehind', pg_wal_lsn_diff(pg_current_wal_lsn(), s.replay_lsn)
      ) order by s.application_name, s.pid)
      from (select * from pg_stat_replication limit ${STANDBYS_MAX}) s
    ), '[]') as standbys`

/** Reads what the server in use knows about its cluster and its standbys. */
export async function readServerState(queryable: Pick<Queryable, 'query'>): Promise<ServerState> {
  const [state] = await queryable.query<ServerState & Record<string, unknown>>(STATE)
  if (state === undefined) throw new Error('a server must tell its state')
  return state
}

/** Publishes the state of the server. */
export async function measureServer(queryable: Queryable): Promise<void> {
  const state = await readServerState(queryable)
  isCluster.set(state.isCluster ? 1 : 0)
  standbyBytesBehind.set(
    state.standbys.flatMap(({ name, sync, bytesBehind }) => {
      return bytesBehind === null ? [] : [{ labels: { standby: name, sync }, value: bytesBehind }]
    }),
  )
}
