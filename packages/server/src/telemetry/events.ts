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
  [
    'heap',
    'branch',
    'version',
    'blob',
    'answer',
    'migration',
    'operation',
    'log entry',
    'load',
    'checkpoint',
    'proposal',
  ],
)

export const workPending = new Levels(
  'offshoot_work_pending',
  'Background work that is not done yet, as of the last round, by kind.',
)

export const workAge = new Levels(
  'offshoot_work_oldest_seconds',
  'Age of the oldest background work that is not done yet, as of the last round, by kind.',
)

export const workFailures = new KindCounter<string>(
  'offshoot_work_failures_total',
  'Background work that failed, by kind. It is repeated later.',
  [],
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
  workPending,
  workAge,
  workFailures,
  quotaRefusals,
  storedRowBytes,
  storedFileBytes,
] as const
