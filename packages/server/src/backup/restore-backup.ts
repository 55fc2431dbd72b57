import { createHash, type Hash } from 'node:crypto'
import { once } from 'node:events'
import { finished } from 'node:stream/promises'
import { AppError } from '@offshoot/contract/errors'
import type pg from 'pg'
import { from as copyFrom } from 'pg-copy-streams'
import type { Static, TSchema } from 'typebox'
import { Value } from 'typebox/value'
import type { BlobStore } from '../blobs/blob-store.js'
import { RESTORE_KEY } from '../postgres/advisory-keys.js'
import type { Database, Queryable } from '../postgres/database.js'
import { codeOf } from '../postgres/failures.js'
import { createCatalogue, MigrateError, migrate, UNFINISHED_RESTORE } from '../postgres/migrate.js'
import { runTransaction, type Transaction } from '../postgres/run-transaction.js'
import { ident, join, raw, type Sql, sql } from '../postgres/sql.js'
import { requestExtensionIndexes } from '../rows/indexes.js'
import {
  DOCUMENT_BYTES_MAX,
  FORMAT,
  HEADER_NAME,
  type Header,
  HeaderSchema,
  MANIFEST_NAME,
  type Manifest,
  ManifestSchema,
  type Progress,
  type TableDefinition,
  TableDefinitionSchema,
  tableName,
} from './archive.js'
import { copyStatement } from './create-backup.js'
import { isBackedUp, selectBackedUp } from './describe-tables.js'
import { BackupError } from './errors.js'
import { DamagedArchiveError, readTar, type TarEntry } from './tar.js'

/** Tables dropped per transaction, because each takes several locks. */
const DROP_STEP = 200
interface Work {
  readonly database: Database
  readonly blobs: BlobStore
  readonly onProgress: (progress: Progress) => void
  readonly tables: Manifest['tables']
  readonly files: { count: number; bytes: number }
  headerHash: string
}

/**
 * Fills an empty instance from an archive in one pass. The catalogue is marked as unfinished until
 * all hashes have been verified, and no service starts on it. On failure everything is removed
 * again.
 */
export async function restoreBackup(options: {
  database: Database
  blobs: BlobStore
  source: AsyncIterable<Buffer>
  onProgress(progress: Progress): void
}): Promise<Progress> {
  const { database, blobs, source, onProgress } = options
  const work: Work = {
    database,
    blobs,
    onProgress,
    tables: [],
    files: { count: 0, bytes: 0 },
    headerHash: '',
  }
  const lock = await database.pool.connect()
  try {
    await requireAlone(lock)
    await requireEmpty(database)
    await fill(work, source)
    await migrate(database)
  } finally {
    // Closing the connection releases the lock.
    lock.release(true)
  }
  return progressOf(work)
}

async function fill(work: Work, source: AsyncIterable<Buffer>): Promise<void> {
  const { database, blobs } = work
  const hadFiles = await hasAny(blobs.list())
  try {
    await readArchive(work, source)
    await requestExtensionIndexes(database)
    // Now it is a complete instance of the version that was backed up.
    await database.query(sql`drop table offshoot.${ident(UNFINISHED_RESTORE)}`)
  } catch (error) {
    if (await isUnfinished(database)) await removeEverything(database)
    if (!hadFiles) for await (const sha256 of blobs.list()) await blobs.delete(sha256)
    throw toBackupError(error)
  }
}

async function requireAlone(client: pg.PoolClient): Promise<void> {
  const { text, values } = sql`select pg_try_advisory_lock(${RESTORE_KEY}) as "isAlone"`
  const { rows } = await client.query<{ isAlone: boolean }>({ text, values })
  if (rows[0]?.isAlone === true) return
  throw new BackupError('another restore into this instance is running: wait until it has finished')
}

function toBackupError(error: unknown): unknown {
  if (error instanceof DamagedArchiveError) {
    return new BackupError(`the archive cannot be used: ${error.message}`)
  }
  const code = codeOf(error instanceof AppError ? error.cause : error)
  if (code?.startsWith('Z_') || code === 'ERR_STREAM_PREMATURE_CLOSE') {
    return new BackupError('the archive cannot be used: it is damaged or truncated')
  }
  // The messages of PostgreSQL may quote rows.
  if (code !== undefined && /^(22|23|42)/.test(code)) {
    return new BackupError(`the archive cannot be used: PostgreSQL rejects its content (${code})`)
  }
  return error
}

async function requireEmpty(database: Database): Promise<void> {
  const found = await database.query(sql`
    select from pg_namespace where ${selectBackedUp(sql`nspname`)} limit 1`)
  if (found.length === 0) return
  if (!(await isUnfinished(database))) {
    throw new BackupError(
      'the instance is not empty: restore into one that has never been started, or into a database without schemas whose names begin with offshoot',
    )
  }
  await removeEverything(database)
}

async function isUnfinished(database: Database): Promise<boolean> {
  const [row] = await database.query<{ isThere: boolean }>(sql`
    select to_regclass(${`offshoot.${UNFINISHED_RESTORE}`}) is not null as "isThere"`)
  return row?.isThere === true
}

async function removeEverything(database: Database): Promise<void> {
  for (;;) {
    const tables = await database.query<{ schema: string; name: string }>(sql`
      select schemaname as schema, tablename as name
      from pg_tables
      where ${selectBackedUp(sql`schemaname`)} and schemaname <> 'offshoot'
      limit ${DROP_STEP}`)
    if (tables.length === 0) break
    const names = tables.map(({ schema, name }) => sql`${ident(schema)}.${ident(name)}`)
    await database.query(sql`drop table ${join(names, ', ')}`)
  }
  // The catalogue goes last: without it, nothing says that the restore is unfinished.
  const schemas = await database.query<{ name: string }>(sql`
    select nspname as name
    from pg_namespace
    where ${selectBackedUp(sql`nspname`)} and nspname <> 'offshoot'`)
  for (const { name } of schemas) await database.query(sql`drop schema ${ident(name)} cascade`)
  await database.query(sql`drop schema if exists offshoot_sql, offshoot_work, offshoot cascade`)
}

async function hasAny(names: AsyncIterable<string>): Promise<boolean> {
  for await (const _name of names) return true
  return false
}

function progressOf({ tables, files }: Work): Progress {
  const rows = tables.reduce((sum, table) => sum + table.rows, 0)
  return { tables: tables.length, rows, files: files.count, bytes: files.bytes }
}

async function readArchive(work: Work, source: AsyncIterable<Buffer>): Promise<void> {
  const entries = new Entries(readTar(source))
  const header = await readHeader(work, await entries.next())
  await prepareCatalogue(work, header)
  for (;;) {
    const entry = await entries.next()
    if (entry === undefined) throw new DamagedArchiveError('it is truncated')
    const [, table] = /^tables\/([^/]+)\/definition\.json$/.exec(entry.name) ?? []
    const [, sha256] = /^files\/([0-9a-f]{64})$/.exec(entry.name) ?? []
    if (table !== undefined) await restoreTable(work, entries, { name: table, entry })
    else if (sha256 !== undefined) await restoreFile(work, { sha256, entry })
    else if (entry.name === MANIFEST_NAME) {
      requireSame(work, await readDocument(entry, ManifestSchema))
      break
    } else throw new DamagedArchiveError(`unexpected entry [${entry.name}]`)
    work.onProgress(progressOf(work))
  }
  await setSequences(work, header)
  if ((await entries.next()) !== undefined) {
    throw new DamagedArchiveError('there is data after its end')
  }
}

/** Iterates over the entries, with one entry of lookahead. */
class Entries {
  readonly #entries: AsyncGenerator<TarEntry>
  #peeked: TarEntry | undefined

  constructor(entries: AsyncGenerator<TarEntry>) {
    this.#entries = entries
  }

  async next(): Promise<TarEntry | undefined> {
    const peeked = this.#peeked
    this.#peeked = undefined
    if (peeked !== undefined) return peeked
    const next = await this.#entries.next()
    return next.done === true ? undefined : next.value
  }

  async nextIf(isWanted: (entry: TarEntry) => boolean): Promise<TarEntry | undefined> {
    const entry = await this.next()
    if (entry === undefined || isWanted(entry)) return entry
    this.#peeked = entry
    return undefined
  }
}

async function readBytes(entry: TarEntry): Promise<Buffer> {
  if (entry.size > DOCUMENT_BYTES_MAX) throw new DamagedArchiveError(`[${entry.name}] is too large`)
  const parts: Buffer[] = []
  for await (const part of entry.content) parts.push(part)
  return Buffer.concat(parts)
}

function parse<Schema extends TSchema>(
  name: string,
  bytes: Buffer,
  schema: Schema,
): Static<Schema> {
  try {
    const document: unknown = JSON.parse(bytes.toString())
    if (Value.Check(schema, document)) return document as Static<Schema>
  } catch {
    // Invalid JSON is reported like a document of the wrong shape.
  }
  throw new DamagedArchiveError(`[${name}] is damaged`)
}

async function readDocument<Schema extends TSchema>(
  entry: TarEntry,
  schema: Schema,
): Promise<Static<Schema>> {
  return parse(entry.name, await readBytes(entry), schema)
}

async function readHeader(work: Work, entry: TarEntry | undefined): Promise<Header> {
  if (entry?.name !== HEADER_NAME) throw new DamagedArchiveError('it is not a backup of offshoot')
  const bytes = await readBytes(entry)
  work.headerHash = createHash('sha256').update(bytes).digest('hex')
  const header = parse(entry.name, bytes, HeaderSchema)
  if (header.format !== FORMAT) {
    throw new BackupError(
      `the archive has format ${header.format}, and this version reads format ${FORMAT}: use a newer offshoot`,
    )
  }
  return header
}

async function prepareCatalogue({ database }: Work, header: Header): Promise<void> {
  try {
    await createCatalogue(database, header.catalogue)
  } catch (error) {
    if (!(error instanceof MigrateError)) throw error
    throw new BackupError(`the archive cannot be used: ${error.message}`)
  }
}

async function restoreTable(
  work: Work,
  entries: Entries,
  { name, entry }: { name: string; entry: TarEntry },
): Promise<void> {
  const bytes = await readBytes(entry)
  const table = parse(entry.name, bytes, TableDefinitionSchema)
  if (tableName(table) !== name || !isBackedUp(table.schema)) {
    throw new DamagedArchiveError(`[${entry.name}] describes another table`)
  }
  const hash = createHash('sha256').update(bytes)
  const isHeap = table.schema !== 'offshoot'
  const rows = await runTransaction(
    work.database,
    async (transaction) => {
      // The last commit, which removes the mark, is synchronous and flushes all earlier ones.
      await transaction.query(sql`set local synchronous_commit = off`)
      if (isHeap) {
        await transaction.query(sql`create schema if not exists ${ident(table.schema)}`)
        await createTable(transaction, table)
      }
      const count = await copyRows(transaction.client, { table, entries, hash })
      // Building indexes after the rows are loaded is faster.
      if (isHeap) await createRules(transaction, table)
      return count
    },
    { isolation: 'read committed' },
  )
  if (rows > 0) await work.database.query(sql`analyze ${qualified(table)}`)
  work.tables.push({ name, rows, sha256: hash.digest('hex') })
}

function qualified({ schema, name }: TableDefinition): Sql {
  return sql`${ident(schema)}.${ident(name)}`
}

/** Types, defaults, constraints and indexes are in the archive as PostgreSQL printed them. */
async function createTable(transaction: Transaction, table: TableDefinition): Promise<void> {
  const columns = table.columns.map(({ name, type, collation, notNull, fallback }) =>
    join(
      [
        sql`${ident(name)} ${raw(type)}`,
        ...(collation === null ? [] : [sql`collate ${ident(collation)}`]),
        ...(fallback === null ? [] : [sql`default (${raw(fallback)})`]),
        ...(notNull ? [sql`not null`] : []),
      ],
      ' ',
    ),
  )
  const options =
    table.options.length === 0 ? sql`` : sql` with (${join(table.options.map(raw), ', ')})`
  await runOne(
    transaction,
    sql`
    create table ${qualified(table)} (${columns.length === 0 ? sql`` : join(columns, ', ')})${options}`,
  )
}

async function createRules(transaction: Transaction, table: TableDefinition): Promise<void> {
  for (const { name, definition } of table.constraints) {
    await runOne(
      transaction,
      sql`
      alter table ${qualified(table)} add constraint ${ident(name)} ${raw(definition)}`,
    )
  }
  for (const definition of table.indexes) {
    if (!/^CREATE (UNIQUE )?INDEX /.test(definition)) {
      throw new DamagedArchiveError(
        `table [${tableName(table)}]: an index definition is not a create index statement`,
      )
    }
    await runOne(transaction, raw(definition))
  }
}

/** Runs exactly one statement: the extended protocol refuses several. */
async function runOne({ client }: Transaction, { text }: Sql): Promise<void> {
  await client.query({ text, queryMode: 'extended' } as pg.QueryConfig)
}

async function copyRows(
  client: pg.PoolClient,
  { table, entries, hash }: { table: TableDefinition; entries: Entries; hash: Hash },
): Promise<number> {
  const prefix = `tables/${tableName(table)}/`
  const stream = client.query(copyFrom(copyStatement(table, sql`from stdin`).text))
  const done = finished(stream)
  let failure: unknown
  done.catch((error: unknown) => {
    failure = error
  })
  try {
    for (let number = 1; ; number++) {
      const part = await entries.nextIf(({ name }) => name.startsWith(prefix))
      if (part === undefined) break
      if (part.name !== `${prefix}${String(number).padStart(8, '0')}`) {
        throw new DamagedArchiveError(`table [${tableName(table)}]: a part of its rows is missing`)
      }
      for await (const chunk of part.content) {
        hash.update(chunk)
        if (failure !== undefined) throw failure
        if (!stream.write(chunk)) await Promise.race([once(stream, 'drain'), done])
      }
    }
  } catch (error) {
    stream.destroy(new Error('the restore was given up'))
    await done.catch(() => undefined)
    throw error
  }
  stream.end()
  await done
  return stream.rowCount
}

async function restoreFile(
  work: Work,
  { sha256, entry }: { sha256: string; entry: TarEntry },
): Promise<void> {
  await work.blobs.put(entry.content, {
    bytesMax: entry.size,
    // Reject it before it is stored: the same content may already belong to others, so it could not
    // be deleted afterwards.
    async claim(content) {
      if (content.sha256 === sha256) return
      throw new DamagedArchiveError(`file [${sha256}] does not match its hash`)
    },
  })
  work.files.count++
  work.files.bytes += entry.size
}

function requireSame(work: Work, manifest: Manifest): void {
  if (manifest.header !== work.headerHash) {
    throw new DamagedArchiveError(`[${HEADER_NAME}] does not match its hash`)
  }
  for (const [position, expected] of manifest.tables.entries()) {
    const { name, rows, sha256 } = work.tables[position] ?? {}
    if (name !== expected.name) {
      throw new DamagedArchiveError(`table [${expected.name}] is missing`)
    }
    if (rows !== expected.rows || sha256 !== expected.sha256) {
      throw new DamagedArchiveError(`table [${expected.name}] does not match its hash`)
    }
  }
  const { count, bytes } = manifest.files
  if (manifest.tables.length !== work.tables.length) {
    throw new DamagedArchiveError('it has tables that its manifest does not list')
  }
  if (count !== work.files.count || bytes !== work.files.bytes) {
    throw new DamagedArchiveError('the number or size of its files is not that of its manifest')
  }
}

async function setSequences({ database }: Work, { sequences }: Header): Promise<void> {
  for (const { schema, name, value, isCalled } of sequences) {
    await setSequence(database, { schema, name, value, isCalled })
  }
}

async function setSequence(
  database: Queryable,
  { schema, name, value, isCalled }: Header['sequences'][number],
): Promise<void> {
  await database.query(sql`
    select setval(format('%I.%I', ${schema}::text, ${name}::text)::regclass, ${value}::bigint, ${isCalled})`)
}
