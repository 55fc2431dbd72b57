import { createHash, type Hash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import type pg from 'pg'
import { to as copyTo } from 'pg-copy-streams'
import type { BlobStore } from '../blobs/blob-store.js'
import { type Database, type Queryable, runQuery } from '../postgres/database.js'
import { codeOf, isLockTimeout } from '../postgres/failures.js'
import { listAppliedMigrations, requireVersion } from '../postgres/migrate.js'
import { NodeSnapshots, SnapshotError, UnsettledError } from '../postgres/node-snapshots.js'
import { runTransaction, setLockWait, type Transaction } from '../postgres/run-transaction.js'
import { serverOf } from '../postgres/server.js'
import { ident, join, literal, raw, type Sql, sql } from '../postgres/sql.js'
import { MentionedContents } from '../rows/files.js'
import { DatabaseSchema } from '../rows/layout/database-schema.js'
import { StorageHold } from '../rows/layout/storage-hold.js'
import { version } from '../version.js'
import {
  FORMAT,
  HEADER_NAME,
  type Header,
  MANIFEST_NAME,
  type Manifest,
  OBJECT_IDS,
  PART_BYTES,
  type Progress,
  type TableDefinition,
  tableName,
} from './archive.js'
import { isHeapOfDatabase, tableOfDatabase } from './catalogue-of-database.js'
import { requireCurrentCatalogue } from './current-catalogue.js'
import {
  findUnknownRelation,
  listSequences,
  listTables,
  type SchemaFilter,
  selectBackedUp,
} from './describe-tables.js'
import { BackupError } from './errors.js'
import { readTableShape } from './table-shape.js'
import { DamagedArchiveError, type Sink, TarWriter } from './tar.js'

/** How long to wait for another backup, or for a deletion in progress. */
const HOLD_TIMEOUT_MS = 30_000

export const LOCK_NOT_AVAILABLE = '55P03'
const SNAPSHOT = { isolation: 'repeatable read', readOnly: true } as const

interface Work {
  readonly database: Database
  readonly blobs: BlobStore
  readonly tar: TarWriter
  readonly snapshotId: string
  /** Reads the databases that are on the nodes of a cluster. */
  readonly nodes: NodeSnapshots | undefined
  /** The database to write. undefined: all of the instance. */
  readonly databaseId: string | undefined
  readonly manifest: { tables: Manifest['tables']; files: { count: number; bytes: number } }
  onProgress(progress: Progress): void
}

/** Names a database. The workspace is needed if several have a database of this name. */
export interface DatabaseName {
  readonly name: string
  readonly workspaceId?: string | undefined
}

/**
 * Writes a consistent snapshot of the instance, or of one database, to the sink while the service runs. One transaction
 * exports the snapshot; each table is read in a transaction of its own that imports it, so that a
 * table is locked only while it is read.
 */
export async function createBackup(options: {
  database: Database
  blobs: BlobStore
  sink: Sink
  onProgress(progress: Progress): void
  only?: DatabaseName | undefined
  holdTimeoutMs?: number
}): Promise<Progress> {
  const { database } = options
  await requireVersion(database)
  const holder = await database.pool.connect()
  try {
    await hold(holder, options.holdTimeoutMs)
    const write = writing(options, holder)
    if (!database.server.hasRowsApart) {
      return await runTransaction(database, (moment) => write({ moment }), SNAPSHOT)
    }
    return await runTransaction(
      database,
      (reading) => runTransaction(database, (moment) => write({ moment, reading }), SNAPSHOT),
      SNAPSHOT,
    )
  } catch (error) {
    throw error instanceof SnapshotError ? new BackupError(error.message) : error
  } finally {
    await endHold(holder)
  }
}

/** The transactions that have the snapshots of a backup. */
interface Reading {
  /** Reads the catalogue. */
  readonly moment: Transaction
  /** Reads the nodes of a cluster. */
  readonly reading?: Transaction
}

/** Returns a function that writes the archive in these transactions. */
function writing(
  options: Parameters<typeof createBackup>[0],
  holder: pg.PoolClient,
): (transactions: Reading) => Promise<Progress> {
  const { database, blobs, sink, onProgress, only } = options
  let isBegun = false
  return async (transactions) => {
    // A transaction that is retried must not write a second archive behind a part of the first one.
    if (isBegun) throw new BackupError('others have interrupted the backup: try again')
    const plan = await takePlan(database, transactions, only)
    isBegun = true
    const tar = new TarWriter(sink)
    const manifest = { tables: [], files: { count: 0, bytes: 0 } }
    const { snapshotId, databaseId, nodes } = plan
    const work: Work = { database, blobs, tar, snapshotId, nodes, databaseId, manifest, onProgress }
    const header = Buffer.from(JSON.stringify(plan.header, null, 2))
    await tar.add(HEADER_NAME, header)
    try {
      for (const table of plan.tables) await writeTable(work, table)
      await writeFiles(work, transactions.moment)
    } catch (error) {
      // A database that was moved is the cause of any error.
      await nodes?.requireUnmoved(database)
      throw error
    }
    await nodes?.verify(database)
    // Data deleted during the backup would be missing, so the hold must have lasted until now.
    await holder.query('select 1')
    const hash = createHash('sha256').update(header).digest('hex')
    await tar.add(MANIFEST_NAME, Buffer.from(JSON.stringify({ header: hash, ...manifest })))
    await tar.end()
    return progressOf(work)
  }
}

function progressOf({ manifest: { tables, files } }: Work): Progress {
  const rows = tables.reduce((sum, table) => sum + table.rows, 0)
  return { tables: tables.length, rows, files: files.count, bytes: files.bytes }
}

function queryable(client: pg.ClientBase): Queryable {
  return {
    server: serverOf(client),
    query: (statement) => runQuery(client, statement),
  }
}

/** Holds the storage of the instance until the connection is closed. */
export async function hold(client: pg.PoolClient, timeoutMs = HOLD_TIMEOUT_MS): Promise<void> {
  const connection = queryable(client)
  await connection.query(sql`
    select set_config('lock_timeout', ${String(timeoutMs)}, false)`)
  try {
    await new StorageHold(connection).take()
  } catch (error) {
    if (codeOf(error) !== LOCK_NOT_AVAILABLE) throw error
    throw new BackupError(
      'another backup of this instance is running, or a restore into it: wait until it has finished',
    )
  }
}

/** Ends a hold and closes its connection, which ends the hold if that fails. */
export async function endHold(client: pg.PoolClient): Promise<void> {
  await new StorageHold(queryable(client)).release().catch(() => undefined)
  client.release(true)
}

interface Plan {
  readonly snapshotId: string
  readonly nodes: NodeSnapshots | undefined
  readonly databaseId: string | undefined
  readonly header: Header
  readonly tables: readonly TableDefinition[]
}

/** The snapshots of a backup, and what is known of their moment. */
interface Snapshots {
  readonly snapshotId: string
  readonly postgres: string
  readonly createdAt: string
  readonly nodes: NodeSnapshots | undefined
}

/** Takes the snapshots, and then lists all tables as of them. */
async function takePlan(
  database: Database,
  { moment, reading }: Reading,
  only: DatabaseName | undefined,
): Promise<Plan> {
  const snapshots =
    reading === undefined
      ? { ...(await exportSnapshot(moment)), nodes: undefined }
      : await takeAllSnapshots(database, { moment, reading }, only)
  return plan(snapshots, moment, only)
}

/** The first statement of a transaction takes its snapshot. Nobody waits for it. */
async function exportSnapshot(moment: Transaction): Promise<Omit<Snapshots, 'nodes'>> {
  const [row] = await moment.query<Omit<Snapshots, 'nodes'>>(sql`
    select pg_export_snapshot() as "snapshotId", current_setting('server_version') as postgres,
      to_char(now(), 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') as "createdAt"`)
  if (row === undefined) throw new Error('exporting a snapshot must return a row')
  return row
}

/**
 * How long a backup of a cluster waits for the transactions that run alone. Forks, merges, schema edits and first writes
 * of the whole instance wait behind it, so it gives up soon, lets them pass, and tries again.
 */
const ENTER_WAIT_MS = 100
/** The pause between two attempts. Whoever has waited runs meanwhile. */
const ENTER_PAUSE_MS = 100
/** How long a backup of a cluster tries to take its snapshots. */
const ENTER_TRY_MS = 30_000

/** Takes the snapshots of nodes and of the catalogue, in short attempts. */
async function takeAllSnapshots(
  database: Database,
  transactions: Required<Reading>,
  only: DatabaseName | undefined,
): Promise<Snapshots> {
  const endsAt = performance.now() + ENTER_TRY_MS
  const progress = { isTaken: false }
  for (;;) {
    try {
      return await takeBehindGates(database, transactions, { only, progress })
    } catch (error) {
      const isBusy = isLockTimeout(error)
      // Snapshots that were taken stay, and those of another attempt would not fit.
      if (progress.isTaken || (!isBusy && !(error instanceof UnsettledError))) throw error
      if (performance.now() > endsAt) {
        throw isBusy
          ? new BackupError(
              'forks, merges or schema edits kept the instance busy, so that no snapshot could be taken: try again later',
            )
          : error
      }
    }
    await delay(ENTER_PAUSE_MS)
  }
}

/**
 * Takes the snapshots while no transaction runs alone, so that none commits in between. Writers continue. The tables are
 * listed afterwards, because the whole instance waits.
 */
function takeBehindGates(
  database: Database,
  { moment, reading }: Required<Reading>,
  { only, progress }: { only: DatabaseName | undefined; progress: { isTaken: boolean } },
): Promise<Snapshots> {
  return runTransaction(
    database,
    async (behind) => {
      if (progress.isTaken) throw new BackupError('others have interrupted the backup: try again')
      await setLockWait(behind, ENTER_WAIT_MS)
      await new StorageHold(behind).keepOut()
      const isIncluded = schemasOf(only && (await findDatabase(behind, only)))
      const places = await NodeSnapshots.prepare(behind, isIncluded)
      progress.isTaken = true
      // Before the catalogue: what rows refer to, such as contents, is in the catalogue first.
      const nodes = await NodeSnapshots.take(reading, { places, isIncluded })
      return { ...(await exportSnapshot(moment)), nodes }
    },
    { isolation: 'read committed' },
  )
}

/** Returns the schemas of a backup of one database, or of the instance. */
const schemasOf = (found: FoundDatabase | undefined): SchemaFilter =>
  found === undefined
    ? selectBackedUp
    : (schema) => sql`${schema} in ('offshoot', ${new DatabaseSchema(found.id).name})`

async function plan(
  { snapshotId, nodes, postgres, createdAt }: Snapshots,
  moment: Transaction,
  only: DatabaseName | undefined,
): Promise<Plan> {
  const found = only && (await findDatabase(moment, only))
  const isIncluded = schemasOf(found)
  const unknown = await findUnknownRelation(moment, isIncluded)
  if (unknown !== undefined) throw unknownTable(unknown)
  const [tables, sequences] = [await listTables(moment, isIncluded), await listSequences(moment)]
  requireReadable(tables)
  return {
    snapshotId,
    nodes,
    databaseId: found?.id,
    header: {
      format: FORMAT,
      offshoot: version,
      postgres,
      createdAt,
      ...(found && { database: { name: found.name, workspaceId: found.workspaceId } }),
      catalogue: await listAppliedMigrations(moment),
      sequences: found ? sequences.filter(({ name }) => name === OBJECT_IDS) : sequences,
    },
    tables: found ? await tablesOfDatabase(moment, found.id, tables) : tables,
  }
}

const unknownTable = (name: string): BackupError =>
  new BackupError(
    `[${name}] is not a table of this version of offshoot, and the backup would not contain it: use the version that created it`,
  )

/** Refuses to write what a restore would refuse to read. */
function requireReadable(tables: readonly TableDefinition[]): void {
  for (const table of tables) {
    if (table.schema === 'offshoot') continue
    try {
      readTableShape(table)
    } catch (error) {
      if (!(error instanceof DamagedArchiveError)) throw error
      throw unknownTable(tableName(table))
    }
  }
}

interface FoundDatabase {
  readonly id: string
  readonly name: string
  readonly workspaceId: string
}

async function findDatabase(
  moment: Transaction,
  { name, workspaceId }: DatabaseName,
): Promise<FoundDatabase> {
  await requireCurrentCatalogue(moment)
  const found = await moment.query<FoundDatabase>(sql`
    select id, name, workspace_id as "workspaceId"
    from offshoot.databases
    where name = ${name} and workspace_id = coalesce(${workspaceId ?? null}, workspace_id)
    order by workspace_id`)
  const [first, ...others] = found
  if (first === undefined) {
    throw new BackupError(
      workspaceId === undefined
        ? `there is no database [${name}] in this instance`
        : `there is no database [${name}] in workspace [${workspaceId}]`,
    )
  }
  if (others.length > 0) {
    const ids = found.map((row) => row.workspaceId).join(', ')
    throw new BackupError(
      `several workspaces have a database [${name}]: choose one with --workspace: ${ids}`,
    )
  }
  return first
}

/** Leaves out tables of the catalogue without rows of the database, and tables that no branch reads. */
async function tablesOfDatabase(
  moment: Transaction,
  databaseId: string,
  tables: readonly TableDefinition[],
): Promise<TableDefinition[]> {
  const heaps = await moment.query<{ id: string }>(sql`
    select id from offshoot.heaps where ${isHeapOfDatabase(sql`${databaseId}::bigint`)}`)
  const names = new Set(heaps.flatMap(({ id }) => [`heap_${id}`, `past_${id}`, `versions_${id}`]))
  return tables.filter(({ schema, name }) =>
    schema === 'offshoot' ? tableOfDatabase(name) !== undefined : names.has(name),
  )
}

async function writeTable(work: Work, table: TableDefinition): Promise<void> {
  const name = tableName(table)
  const definition = Buffer.from(JSON.stringify(table))
  const hash = createHash('sha256').update(definition)
  await work.tar.add(`tables/${name}/definition.json`, definition)
  const rows = work.nodes?.has(table.schema)
    ? await writeRowsOfNode(work, work.nodes, { table, hash })
    : await runTransaction(
        work.database,
        async ({ client, query }) => {
          await query(sql`set transaction snapshot ${literal(work.snapshotId)}`)
          return writeRows(work, { client, hash, table, statement: copyOut(work, table) })
        },
        SNAPSHOT,
      )
  work.manifest.tables.push({ name, rows, sha256: hash.digest('hex') })
  work.onProgress(progressOf(work))
}

/** A query is read in the transaction, and a table outside of it. */
function writeRowsOfNode(
  work: Work,
  nodes: NodeSnapshots,
  { table, hash }: { table: TableDefinition; hash: Hash },
): Promise<number> {
  const { client } = nodes.transaction
  const columns = table.columns.map((column) => ident(column.name))
  const rows = sql`select ${join(columns, ', ')} from ${ident(table.schema)}.${ident(table.name)}`
  const statement = sql`copy (${rows}) to stdout`
  return nodes.read(() => writeRows(work, { client, table, hash, statement }))
}

async function writeRows(
  work: Work,
  options: { client: pg.PoolClient; table: TableDefinition; hash: Hash; statement: Sql },
): Promise<number> {
  const { client, table, hash } = options
  const stream = client.query(copyTo(options.statement.text))
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

function copyOut({ databaseId }: Work, table: TableDefinition): Sql {
  const part = table.schema === 'offshoot' ? tableOfDatabase(table.name) : undefined
  if (databaseId === undefined || part === undefined) return copyStatement(table, sql`to stdout`)
  const columns = table.columns.map((column) => ident(column.name))
  // COPY takes no parameters.
  const where = part.where(sql`${literal(databaseId)}::bigint`)
  return sql`copy (
      select ${join(columns, ', ')} from offshoot.${ident(table.name)} where ${where}
    ) to stdout`
}

/** A table whose rows are copied. */
export interface CopiedTable {
  readonly schema: string
  readonly name: string
  readonly columns: readonly { readonly name: string }[]
}

export function copyStatement(table: CopiedTable, direction: Sql): Sql {
  const columns = table.columns.map((column) => ident(column.name))
  const names = columns.length === 0 ? sql`` : sql` (${join(columns, ', ')})`
  return sql`copy ${ident(table.schema)}.${ident(table.name)}${names} ${direction}`
}

/** Writes the content of all files. Content that no row refers to may already be deleted. */
async function writeFiles(work: Work, moment: Transaction): Promise<void> {
  if (work.databaseId !== undefined) {
    await writeMentionedFiles(work, moment, work.databaseId)
    return
  }
  if (!(await hasFiles(moment))) return
  await moment.query(sql`
    declare contents no scroll cursor for
    select encode(sha256, 'hex') as sha256, size from offshoot.blobs order by sha256`)
  for (;;) {
    const blobs = await moment.query<{ sha256: string; size: string }>(sql`
      fetch forward ${raw(String(FILES_AT_ONCE))} from contents`)
    if (blobs.length === 0) return
    for (const { sha256, size } of blobs) {
      await writeFile(work, moment, { sha256, size: Number(size) })
    }
  }
}

/** Files whose sizes are read together. */
const FILES_AT_ONCE = 1000

async function writeMentionedFiles(
  work: Work,
  moment: Transaction,
  databaseId: string,
): Promise<void> {
  const found = await new MentionedContents(readerOfRows(work, moment)).list(
    isHeapOfDatabase(sql`${databaseId}::bigint`),
  )
  const hashes = [...found].sort()
  for (let start = 0; start < hashes.length; start += FILES_AT_ONCE) {
    const some = hashes.slice(start, start + FILES_AT_ONCE)
    const blobs = await moment.query<{ sha256: string; size: string }>(sql`
      select encode(sha256, 'hex') as sha256, size
      from offshoot.blobs
      where sha256 in (select decode(hash, 'hex') from unnest(${some}::text[]) hash)`)
    const sizes = new Map(blobs.map(({ sha256, size }) => [sha256, Number(size)]))
    for (const sha256 of some) {
      const size = sizes.get(sha256)
      if (size === undefined) throw missingContent(sha256)
      await writeFile(work, moment, { sha256, size })
    }
  }
}

/** Returns the transaction that reads the rows of databases. */
const readerOfRows = ({ nodes }: Work, moment: Transaction): Transaction =>
  nodes?.transaction ?? moment

const missingContent = (sha256: string): BackupError =>
  new BackupError(`the content [${sha256}] of a file is missing from the store`)

async function writeFile(
  work: Work,
  moment: Transaction,
  { sha256, size }: { sha256: string; size: number },
): Promise<void> {
  const content = await work.blobs.get(sha256)
  if (content === undefined) {
    const mentioned = await new MentionedContents(readerOfRows(work, moment)).find([sha256])
    if (mentioned.size === 0) return
    throw missingContent(sha256)
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
