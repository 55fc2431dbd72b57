import { createHash, type Hash } from 'node:crypto'
import type pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import type { BlobStore } from '../blobs/blob-store.js'
import type { Database, Queryable } from '../postgres/database.js'
import { codeOf } from '../postgres/failures.js'
import { listAppliedMigrations } from '../postgres/migrate.js'
import { runTransaction, type Transaction } from '../postgres/run-transaction.js'
import { ident, join, literal, type Sql, sql } from '../postgres/sql.js'
import { enterInstance, holdStorage } from '../rows/branches.js'
import { findMentioned } from '../rows/files.js'
import { version } from '../version.js'
import {
  FORMAT,
  HEADER_NAME,
  type Header,
  MANIFEST_NAME,
  type Manifest,
  PART_BYTES,
  type Progress,
  type TableDefinition,
  tableName,
} from './archive.js'
import { findUnknownRelation, listSequences, listTables } from './describe-tables.js'
import { BackupError } from './errors.js'
import { type Sink, TarWriter } from './tar.js'

/** How long to wait for another backup, or for a deletion in progress. */
const HOLD_TIMEOUT_MS = 30_000

const LOCK_NOT_AVAILABLE = '55P03'
const SNAPSHOT = { isolation: 'repeatable read', readOnly: true } as const

interface Work {
  readonly database: Database
  readonly blobs: BlobStore
  readonly tar: TarWriter
  readonly snapshotId: string
  readonly manifest: { tables: Manifest['tables']; files: { count: number; bytes: number } }
  onProgress(progress: Progress): void
}

/**
 * Writes a consistent snapshot of the instance to the sink while the service runs. One transaction
 * exports the snapshot; each table is read in a transaction of its own that imports it, so that a
 * table is locked only while it is read.
 */
export async function createBackup(options: {
  database: Database
  blobs: BlobStore
  sink: Sink
  onProgress(progress: Progress): void
  holdTimeoutMs?: number
}): Promise<Progress> {
  const { database, blobs, sink, onProgress } = options
  const holder = await database.pool.connect()
  try {
    await hold(holder, options.holdTimeoutMs ?? HOLD_TIMEOUT_MS)
    return await runTransaction(
      database,
      async (moment) => {
        const plan = await planBehindGates(database, moment)
        const tar = new TarWriter(sink)
        const manifest = { tables: [], files: { count: 0, bytes: 0 } }
        const { snapshotId } = plan
        const work: Work = { database, blobs, tar, snapshotId, manifest, onProgress }
        const header = Buffer.from(JSON.stringify(plan.header, null, 2))
        await tar.add(HEADER_NAME, header)
        for (const table of plan.tables) await writeTable(work, table)
        await writeFiles(work, moment)
        // Data deleted during the backup would be missing, so the hold must have lasted until now.
        await holder.query('select 1')
        const hash = createHash('sha256').update(header).digest('hex')
        await tar.add(MANIFEST_NAME, Buffer.from(JSON.stringify({ header: hash, ...manifest })))
        await tar.end()
        return progressOf(work)
      },
      SNAPSHOT,
    )
  } finally {
    // Closing the connection releases the hold.
    holder.release(true)
  }
}

function progressOf({ manifest: { tables, files } }: Work): Progress {
  const rows = tables.reduce((sum, table) => sum + table.rows, 0)
  return { tables: tables.length, rows, files: files.count, bytes: files.bytes }
}

function queryable(client: pg.ClientBase): Queryable {
  return {
    async query<Row extends pg.QueryResultRow>({ text, values }: Sql): Promise<Row[]> {
      return (await client.query<Row>({ text, values })).rows
    },
  }
}

async function hold(client: pg.PoolClient, timeoutMs: number): Promise<void> {
  const connection = queryable(client)
  await connection.query(sql`
    select set_config('lock_timeout', ${String(timeoutMs)}, false)`)
  try {
    await holdStorage(connection)
  } catch (error) {
    if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error
    throw new BackupError('another backup of this instance is running: wait until it has finished')
  }
}

interface Plan {
  readonly snapshotId: string
  readonly header: Header
  readonly tables: readonly TableDefinition[]
}

/**
 * Takes the snapshot and lists all tables. PostgreSQL describes tables in their latest state, not
 * as of the snapshot, so no table may change until all are listed. Writers continue.
 */
async function planBehindGates(database: Database, moment: Transaction): Promise<Plan> {
  return runTransaction(
    database,
    async (transaction) => {
      await enterInstance(transaction)
      return plan(moment)
    },
    { isolation: 'read committed' },
  )
}

async function plan(moment: Transaction): Promise<Plan> {
  const [row] = await moment.query<{ snapshotId: string; postgres: string; createdAt: string }>(sql`
    select pg_export_snapshot() as "snapshotId", current_setting('server_version') as postgres,
      to_char(now(), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt"`)
  if (row === undefined) throw new Error('exporting a snapshot must return a row')
  const unknown = await findUnknownRelation(moment)
  if (unknown !== undefined) {
    throw new BackupError(
      `[${unknown}] is not a table of this version of offshoot, and the backup would not contain it: use the version that created it`,
    )
  }
  return {
    snapshotId: row.snapshotId,
    header: {
      format: FORMAT,
      offshoot: version,
      postgres: row.postgres,
      createdAt: row.createdAt,
      catalogue: await listAppliedMigrations(moment),
      sequences: await listSequences(moment),
    },
    tables: await listTables(moment),
  }
}

async function writeTable(work: Work, table: TableDefinition): Promise<void> {
  const name = tableName(table)
  const definition = Buffer.from(JSON.stringify(table))
  const hash = createHash('sha256').update(definition)
  await work.tar.add(`tables/${name}/definition.json`, definition)
  const rows = await runTransaction(
    work.database,
    async ({ client, query }) => {
      await query(sql`set transaction snapshot ${literal(work.snapshotId)}`)
      return writeRows(work, { client, table, hash })
    },
    SNAPSHOT,
  )
  work.manifest.tables.push({ name, rows, sha256: hash.digest('hex') })
  work.onProgress(progressOf(work))
}

async function writeRows(
  work: Work,
  { client, table, hash }: { client: pg.PoolClient; table: TableDefinition; hash: Hash },
): Promise<number> {
  const stream = client.query(copyTo(copyStatement(table, sql`to stdout`).text))
  let parts: Buffer[] = []
  let bytes = 0
  let count = 0
  const flush = async () => {
    if (bytes === 0) return
    const name = `tables/${tableName(table)}/${String(++count).padStart(8, '0')}`
    await work.tar.addStream(name, bytes, parts)
    parts = []
    bytes = 0
  }
  for await (const chunk of stream as AsyncIterable<Buffer>) {
    hash.update(chunk)
    parts.push(chunk)
    bytes += chunk.length
    if (bytes >= PART_BYTES) await flush()
  }
  await flush()
  return stream.rowCount
}

export function copyStatement(table: TableDefinition, direction: Sql): Sql {
  const columns = table.columns.map((column) => ident(column.name))
  const names = columns.length === 0 ? sql`` : sql` (${join(columns, ', ')})`
  return sql`copy ${ident(table.schema)}.${ident(table.name)}${names} ${direction}`
}

/** Writes the content of all files. Content that no row refers to may already be deleted. */
async function writeFiles(work: Work, moment: Transaction): Promise<void> {
  if (!(await hasFiles(moment))) return
  await moment.query(sql`
    declare contents no scroll cursor for
    select encode(sha256, 'hex') as sha256, size from offshoot.blobs order by sha256`)
  for (;;) {
    const blobs = await moment.query<{ sha256: string; size: string }>(sql`
      fetch forward 1000 from contents`)
    if (blobs.length === 0) return
    for (const { sha256, size } of blobs) {
      await writeFile(work, moment, { sha256, size: Number(size) })
    }
  }
}

async function writeFile(
  work: Work,
  moment: Transaction,
  { sha256, size }: { sha256: string; size: number },
): Promise<void> {
  const content = await work.blobs.get(sha256)
  if (content === undefined) {
    const mentioned = await findMentioned(moment, [sha256])
    if (mentioned.size === 0) return
    throw new BackupError(`the content [${sha256}] of a file is missing from the store`)
  }
  const hash = createHash('sha256')
  await work.tar.addStream(`files/${sha256}`, size, hashing(content, hash))
  if (hash.digest('hex') !== sha256) {
    throw new BackupError(
      `the content [${sha256}] of a file is damaged: it does not match its hash`,
    )
  }
  work.manifest.files.count++
  work.manifest.files.bytes += size
  work.onProgress(progressOf(work))
}

async function* hashing(source: AsyncIterable<Buffer>, hash: Hash): AsyncGenerator<Buffer> {
  for await (const chunk of source) {
    hash.update(chunk)
    yield chunk
  }
}

/** Catalogues of versions without files do not have this table. */
async function hasFiles(moment: Transaction): Promise<boolean> {
  const [row] = await moment.query<{ isThere: boolean }>(sql`
    select to_regclass('offshoot.blobs') is not null as "isThere"`)
  return row?.isThere === true
}
