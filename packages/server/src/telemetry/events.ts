import { Counter, KindCounter, Level, Levels } from './metrics.js'

/*
 * Counters of internal events. They are global to the process; several services in one process, as
 * in tests, share them.
 */

export const retries = new Counter(
  'offshoot_transaction_retries_total',
  'Transactions retried because of a conflict with a concurrent one.',
)

export const forks = new Counter('offshoot_forks_total', 'Branches created or reset.')

export const merges = new Counter('offshoot_merges_total', 'Merges, without dry runs.')

export const collected = new KindCounter(
  'offshoot_collected_total',
  'Unreachable items removed by the collector, by kind.',
  ['heap', 'branch', 'version', 'blob', 'answer', 'migration'],
)

export const sweepsPending = new Level(
  'offshoot_sweeps_pending',
  'Branches that the collector has not processed yet, as of its last round.',
)

export const sweepAge = new Level(
  'offshoot_sweeps_oldest_seconds',
  'Age of the oldest request to the collector that is not done yet, as of its last round.',
)

export const foldsPending = new Level(
  'offshoot_folds_pending',
  'Tables of branches in long chains that are not folded yet, as of the last round.',
)

export const sweepFailures = new Counter(
  'offshoot_sweep_failures_total',
  'Sweeps of branches that failed. They are repeated later.',
)

export const compactionFailures = new Counter(
  'offshoot_compaction_failures_total',
  'Compactions of the history of databases that failed. They are repeated later.',
)

export const quotaRefusals = new Counter(
  'offshoot_quota_refusals_total',
  'Writes that were refused because a workspace has used up its quota.',
)

export const storedRowBytes = new Level(
  'offshoot_stored_row_bytes',
  'Disk space of the rows of all workspaces, when they were last measured.',
)

export const storedFileBytes = new Level(
  'offshoot_stored_file_bytes',
  'Bytes of the files of all workspaces, when they were last measured.',
)

export const isCluster = new Level(
  'offshoot_postgres_cluster',
  'Whether PostgreSQL is a Citus cluster.',
)

export const standbyBytesBehind = new Levels(
  'offshoot_postgres_standby_bytes_behind',
  'Bytes of the log that a connected standby has not applied yet, as of the last background round.',
)

export const EVENTS = [
  isCluster,
  standbyBytesBehind,
  retries,
  forks,
  merges,
  collected,
  sweepsPending,
  sweepAge,
  foldsPending,
  sweepFailures,
  compactionFailures,
  quotaRefusals,
  storedRowBytes,
  storedFileBytes,
] as const
