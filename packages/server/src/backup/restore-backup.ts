import type pg from 'pg'
import type { BlobStore } from '../blobs/blob-store.js'
import { RESTORE_KEY } from '../postgres/advisory-keys.js'
import type { Database, Queryable } from '../postgres/database.js'
import { createCatalogue, MigrateError, migrate, UNFINISHED_RESTORE } from '../postgres/migrate.js'
import { runTransaction } from '../postgres/run-transaction.js'
import { ident, join, sql } from '../postgres/sql.js'
import { completeRestored } from '../rows/heaps/schema-changes.js'
import { type Header, type Progress, tableName } from './archive.js'
import { checkDatabase, checkSchemas } from './check-restored.js'
import { selectBackedUp } from './describe-tables.js'
import { BackupError } from './errors.js'
import { copyRows, createFilledTable, putFile, qualified, runStep } from './fill-table.js'
import { explainArchiveError, readArchive, type Target } from './read-archive.js'
import { readTableShape } from './table-shape.js'
import { DamagedArchiveError } from './tar.js'

/** Tables dropped per transaction, because each takes several locks. */
const DROP_STEP = 200

interface Work {
  readonly database: Database
  readonly blobs: BlobStore
  onProgress(progress: Progress): void
}

/**
 * Fills an empty instance from an archive in one pass. The catalogue is marked as unfinished until
 * all hashes have been verified, and no service starts on it. On failure everything is removed
 * again.
 */
export async function restoreBackup(
  options: Work & { source: AsyncIterable<Buffer> },
): Promise<Progress> {
  const { database, source, ...rest } = options
  const lock = await database.pool.connect()
  try {
    await requireAlone(lock)
    await requireEmpty(database)
    return await fill({ database, ...rest }, source)
  } finally {
    // Closing the connection releases the lock.
    lock.release(true)
  }
}

async function fill(work: Work, source: AsyncIterable<Buffer>): Promise<Progress> {
  const { database, blobs } = work
  const hadFiles = await hasAny(blobs.list())
  try {
    const files = new Set<string>()
    const { header, done } = await readArchive(source, targetOf(work, files))
    await setSequences(database, header)
    // Migrations read the schemas.
    await checkSchemas(database, sql`offshoot.schemas`)
    await migrate(database, { isRestoring: true })
    await checkDatabases(database, files)
    await completeRestored(database)
    // Now it is a complete instance.
    await database.query(sql`drop table offshoot.${ident(UNFINISHED_RESTORE)}`)
    return done
  } catch (error) {
    if (await isUnfinished(database)) await removeEverything(database)
    if (!hadFiles) for await (const sha256 of blobs.list()) await blobs.delete(sha256)
    throw explainArchiveError(error)
  }
}

async function checkDatabases(database: Database, files: ReadonlySet<string>): Promise<void> {
  const databases = await database.query<{ id: string }>(sql`
    select id from offshoot.databases order by id`)
  for (const { id } of databases) {
    await runTransaction(database, (transaction) => checkDatabase(transaction, id, files), {
      isolation: 'repeatable read',
      readOnly: true,
    })
  }
}

async function requireAlone(client: pg.PoolClient): Promise<void> {
  const { text, values } = sql`select pg_try_advisory_lock(${RESTORE_KEY}) as "isAlone"`
  const { rows } = await client.query<{ isAlone: boolean }>({ text, values })
  if (rows[0]?.isAlone === true) return
  throw new BackupError('another restore into this instance is running: wait until it has finished')
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

/** Fills an empty catalogue, and creates the tables of databases. */
function targetOf({ database, blobs, onProgress }: Work, files: Set<string>): Target {
  let catalogue: ReadonlySet<string> = new Set()
  return {
    onProgress,
    async begin(header) {
      if (header.database !== undefined) {
        const { name } = header.database
        throw new BackupError(
          `the archive has only the database [${name}]: restore it into an instance with --database ${name}`,
        )
      }
      catalogue = await prepareCatalogue(database, header)
    },
    async addTable(table, rows) {
      const count = await runStep(database, async (transaction) => {
        if (table.schema === 'offshoot') {
          if (!catalogue.has(table.name)) {
            throw new DamagedArchiveError(`unexpected table [${tableName(table)}]`)
          }
          return copyRows(transaction.client, table, rows)
        }
        const shape = readTableShape(table)
        await transaction.server.createSchema(transaction, table.schema)
        return createFilledTable(transaction, shape, rows)
      })
      if (count > 0) await database.query(sql`analyze ${qualified(table)}`)
      return count
    },
    addFile(sha256, entry) {
      files.add(sha256)
      return putFile(blobs, { sha256, entry })
    },
  }
}

/** Creates an empty catalogue, and returns the names of its tables. */
async function prepareCatalogue(database: Database, header: Header): Promise<ReadonlySet<string>> {
  try {
    return await createCatalogue(database, header.catalogue)
  } catch (error) {
    if (!(error instanceof MigrateError)) throw error
    throw new BackupError(`the archive cannot be used: ${error.message}`)
  }
}

async function setSequences(database: Database, { sequences }: Header): Promise<void> {
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
