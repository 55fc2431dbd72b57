import { statfs } from 'node:fs/promises'
import { totalmem } from 'node:os'

const mebibyte = 1024 * 1024

/** Settings that do not depend on the machine. */
export const fixedSettings = {
  // The server listens on the private socket only.
  listen_addresses: '',
  port: '5432',
  unix_socket_permissions: '0700',
  ssl: 'off',
  password_encryption: 'scram-sha-256',
  max_connections: '200',
  max_locks_per_transaction: '256',
  max_pred_locks_per_transaction: '256',
  // Bounds the log on disk while rows are written. When the server rests, the service makes the log smaller. A small
  // bound costs checkpoints: with 192MB, writes take 1.4 times as long.
  max_wal_size: '1GB',
  checkpoint_timeout: '15min',
  // Checkpoints by size are expected here, so they are not reported.
  checkpoint_warning: '0',
  // The defaults grow with shared_buffers, and are written to at the start: 16 MB of log and 9 MB
  // of descriptors of I/O. A commit waits for the log anyway, and few workers do I/O.
  wal_buffers: '4MB',
  io_max_concurrency: '16',
  // This server never subscribes to another one, so it needs no process that looks for subscriptions.
  max_logical_replication_workers: '0',
  wal_compression: 'on',
  random_page_cost: '1.1',
  jit: 'off',
  TimeZone: 'UTC',
  log_timezone: 'UTC',
  log_destination: 'stderr',
  logging_collector: 'off',
  log_line_prefix: '%m [%p] ',
  log_statement: 'none',
  // User data must not get into a log. The last two settings leave out statements and details, but
  // the message of an error can quote a value as well ("invalid input syntax for type integer"). So
  // errors of queries are sent to the client only. The level `log` keeps messages about the server
  // itself.
  log_min_messages: 'log',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
}

/** All settings of the server, scaled to the machine. */
export async function serverSettings(options: {
  readonly socketFolder: string
  /** Shown in the titles of all processes of the server. */
  readonly serverName: string
}): Promise<Record<string, string>> {
  const memory = availableMemory()
  return {
    ...fixedSettings,
    // The value is a list, so a path with spaces or commas needs quotes.
    unix_socket_directories: `"${options.socketFolder.replaceAll('"', '""')}"`,
    cluster_name: options.serverName,
    // The administration of buffers takes about 2 % of their size from the start, used or not. Pages
    // beyond them are read from the cache of the operating system.
    shared_buffers: inMebibytes(Math.min(Math.max(memory / 8, 128 * mebibyte), 512 * mebibyte)),
    effective_cache_size: inMebibytes(Math.max(memory / 2, 128 * mebibyte)),
    ...(await sharedMemorySettings()),
  }
}

/** The memory of the machine, or the limit of the container if that is lower. */
function availableMemory(): number {
  const limit = process.constrainedMemory()
  return limit > 0 ? Math.min(limit, totalmem()) : totalmem()
}

function inMebibytes(bytes: number): string {
  return `${Math.floor(bytes / mebibyte)}MB`
}

/**
 * Containers have only 64 MB of /dev/shm by default. A parallel query that needs more would fail;
 * with shared memory in files of the cluster it is only slower.
 */
async function sharedMemorySettings(): Promise<Record<string, string>> {
  if (process.platform !== 'linux') return {}
  const { blocks, bsize } = await statfs('/dev/shm').catch(() => ({ blocks: 0, bsize: 0 }))
  return blocks * bsize < 512 * mebibyte ? { dynamic_shared_memory_type: 'mmap' } : {}
}
