import { MIGRATION_KEY } from './advisory-keys.js'
import { prepareCluster } from './cluster-functions.js'
import type { Database, Queryable } from './database.js'
import { catalogue } from './migrations/001-catalogue.js'
import { branching } from './migrations/002-branching.js'
import { files } from './migrations/003-files.js'
import { indexes } from './migrations/004-indexes.js'
import { searchIndexes } from './migrations/005-search-indexes.js'
import { secrets } from './migrations/006-secrets.js'
import { privacy } from './migrations/007-privacy.js'
import { sqlWalls } from './migrations/008-sql-walls.js'
import { history } from './migrations/009-history.js'
import { quotas } from './migrations/010-quotas.js'
import { gates } from './migrations/011-gates.js'
import { versions } from './migrations/012-versions.js'
import { folds } from './migrations/013-folds.js'
import { sweeps } from './migrations/014-sweeps.js'
import { consoleSessions } from './migrations/015-console.js'
import { overlays } from './migrations/016-overlays.js'
import { bounds } from './migrations/017-bounds.js'
import { answers } from './migrations/018-answers.js'
import { moveToSchemas, schemas } from './migrations/019-schemas.js'
import { spares } from './migrations/020-spares.js'
import { deletedRecords, moveDeletedRecords } from './migrations/021-deleted-records.js'
import { gateFunctions } from './migrations/022-gate-functions.js'
import { dropDeletedRecords, firstVersions } from './migrations/023-first-versions.js'
import { sessions } from './migrations/024-sessions.js'
import { guard } from './migrations/025-guard.js'
import { parents } from './migrations/026-parents.js'
import { keptAnswers, moveAnswers } from './migrations/027-kept-answers.js'
import { work } from './migrations/028-work.js'
import { layers } from './migrations/029-layers.js'
import { log } from './migrations/030-log.js'
import { sequences } from './migrations/031-sequences.js'
import { checkpoints } from './migrations/032-checkpoints.js'
import { proposals } from './migrations/033-proposals.js'
import { recordVersions } from './migrations/034-record-versions.js'
import { operations } from './migrations/035-operations.js'
import { loads } from './migrations/036-loads.js'
import { joinedSequences } from './migrations/037-joined-sequences.js'
import { columnEpochs } from './migrations/038-column-epochs.js'
import { runTransaction, type Transaction } from './run-transaction.js'
import { ident, join, sql } from './sql.js'

/** A migration that was applied to a catalogue. */
interface AppliedMigration {
  readonly number: number
  readonly name: string
}

interface Migration extends AppliedMigration {
  readonly statements: string
  /**
   * Work before the statements that is too much for one transaction. Does a part of it, and returns whether there may
   * be more. Each part is committed; an interrupted migration continues with the next part.
   */
  readonly prepare?: (transaction: Transaction) => Promise<boolean>
}

/** All migrations in order: forward only, never edited after a release. */
const MIGRATIONS: readonly Migration[] = [
  { number: 1, name: 'catalogue', statements: catalogue },
  { number: 2, name: 'branching', statements: branching },
  { number: 3, name: 'files', statements: files },
  { number: 4, name: 'indexes', statements: indexes },
  { number: 5, name: 'search indexes', statements: searchIndexes },
  { number: 6, name: 'secrets', statements: secrets },
  { number: 7, name: 'privacy', statements: privacy },
  { number: 8, name: 'sql walls', statements: sqlWalls },
  { number: 9, name: 'history', statements: history },
  { number: 10, name: 'quotas', statements: quotas },
  { number: 11, name: 'gates', statements: gates },
  { number: 12, name: 'versions', statements: versions },
  { number: 13, name: 'folds', statements: folds },
  { number: 14, name: 'sweeps', statements: sweeps },
  { number: 15, name: 'console', statements: consoleSessions },
  { number: 16, name: 'overlays', statements: overlays },
  { number: 17, name: 'bounds', statements: bounds },
  { number: 18, name: 'answers', statements: answers },
  { number: 19, name: 'schemas', statements: schemas, prepare: moveToSchemas },
  { number: 20, name: 'spares', statements: spares },
  {
    number: 21,
    name: 'deleted records',
    statements: deletedRecords,
    prepare: moveDeletedRecords,
  },
  { number: 22, name: 'gate functions', statements: gateFunctions },
  { number: 23, name: 'first versions', statements: firstVersions, prepare: dropDeletedRecords },
  { number: 24, name: 'sessions', statements: sessions },
  { number: 25, name: 'guard', statements: guard },
  { number: 26, name: 'parents', statements: parents },
  { number: 27, name: 'kept answers', statements: keptAnswers, prepare: moveAnswers },
  { number: 28, name: 'work', statements: work },
  { number: 29, name: 'layers', statements: layers },
  { number: 30, name: 'log', statements: log },
  { number: 31, name: 'sequences', statements: sequences },
  { number: 32, name: 'checkpoints', statements: checkpoints },
  { number: 33, name: 'proposals', statements: proposals },
  { number: 34, name: 'record versions', statements: recordVersions },
  { number: 35, name: 'operations', statements: operations },
  { number: 36, name: 'loads', statements: loads },
  { number: 37, name: 'joined sequences', statements: joinedSequences },
  { number: 38, name: 'column epochs', statements: columnEpochs },
]

const POSTGRES_VERSION_MIN = 150_000

const CREATE_MIGRATIONS = sql`
  create table if not exists offshoot.catalogue_migrations (
    number integer primary key,
    name text not null,
    applied_at timestamptz not null default now()
  )`

export class MigrateError extends Error {}

/**
 * Migrates the catalogue to this version. Several processes may call it at once. Refuses one whose restore is not
 * complete, except for the restore itself.
 */
export async function migrate(
  database: Database,
  { isRestoring = false }: { isRestoring?: boolean } = {},
): Promise<void> {
  await requireVersion(database)
  await database.server.recover()
  for (let isDone = false; !isDone; ) {
    isDone = await runTransaction(
      database,
      async (transaction) => {
        await transaction.query(sql`select pg_advisory_xact_lock(${MIGRATION_KEY})`)
        if (!isRestoring) await requireWhole(transaction)
        await transaction.query(sql`create schema if not exists offshoot`)
        await transaction.query(CREATE_MIGRATIONS)
        const isDone = await apply(transaction, pending(await listAppliedMigrations(transaction)))
        if (isDone && database.server.isCluster) await prepareCluster(transaction)
        return isDone
      },
      // Read committed takes a new snapshot after waiting for the lock, so a second process sees the
      // migrations of the first one.
      { isolation: 'read committed' },
    )
  }
}

/** Applies migrations, up to one whose preparation needs another transaction. Returns whether all are applied. */
async function apply(transaction: Transaction, migrations: readonly Migration[]): Promise<boolean> {
  for (const migration of migrations) {
    if (await migration.prepare?.(transaction)) return false
    await transaction.client.query(migration.statements)
    await transaction.query(sql`
      insert into offshoot.catalogue_migrations (number, name)
      values (${migration.number}, ${migration.name})`)
  }
  return true
}

export async function listAppliedMigrations(database: Queryable): Promise<AppliedMigration[]> {
  return database.query<AppliedMigration>(sql`
    select number, name
    from offshoot.catalogue_migrations
    order by number`)
}

/** Returns whether the catalogue is that of this version. Throws if it is newer, or not complete. */
export async function isCurrent(database: Queryable): Promise<boolean> {
  await requireWhole(database)
  return pending(await listAppliedMigrations(database)).length === 0
}

function pending(applied: readonly AppliedMigration[]): readonly Migration[] {
  for (const [position, row] of applied.entries()) {
    const known = MIGRATIONS[position]
    if (known === undefined) {
      throw new MigrateError(
        `the catalogue has migration ${row.number} [${row.name}], which this version does not know: start a newer offshoot`,
      )
    }
    if (known.number !== row.number || known.name !== row.name) {
      throw new MigrateError(
        `the catalogue has migration ${row.number} [${row.name}] where ${known.number} [${known.name}] is expected`,
      )
    }
  }
  return MIGRATIONS.slice(applied.length)
}

/** Table that marks a catalogue whose restore is not complete. */
export const UNFINISHED_RESTORE = 'unfinished_restore'

async function requireWhole(database: Queryable): Promise<void> {
  const [row] = await database.query<{ isUnfinished: boolean }>(sql`
    select to_regclass(${`offshoot.${UNFINISHED_RESTORE}`}) is not null as "isUnfinished"`)
  if (row?.isUnfinished !== true) return
  throw new MigrateError(
    'a restore into this database has not finished: wait for it, or run offshoot restore again',
  )
}

/**
 * Creates an empty catalogue as it was after these migrations, and marks it as unfinished. Rows
 * that the migrations insert are left out. Returns the names of the tables that a backup fills.
 */
export async function createCatalogue(
  database: Database,
  migrations: readonly AppliedMigration[],
): Promise<ReadonlySet<string>> {
  await requireVersion(database)
  const later = pending(migrations)
  return runTransaction(
    database,
    async (transaction) => {
      await transaction.query(sql`select pg_advisory_xact_lock(${MIGRATION_KEY})`)
      await transaction.query(sql`create schema offshoot`)
      await transaction.query(sql`create table offshoot.${ident(UNFINISHED_RESTORE)} ()`)
      await transaction.query(CREATE_MIGRATIONS)
      await apply(
        transaction,
        MIGRATIONS.filter((migration) => !later.includes(migration)),
      )
      const tables = await transaction.query<{ name: string }>(sql`
        select tablename as name
        from pg_tables
        where schemaname = 'offshoot'
          and tablename !~ '^(gate_[0-9]+|catalogue_migrations|unfinished_restore)$'`)
      if (tables.length > 0) {
        const names = tables.map(({ name }) => sql`offshoot.${ident(name)}`)
        await transaction.query(sql`truncate ${join(names, ', ')}`)
      }
      return new Set(tables.map(({ name }) => name))
    },
    { isolation: 'read committed' },
  )
}

/** Refuses servers that are too old, and finds out whether the server is a cluster. */
export async function requireVersion(database: Database): Promise<void> {
  const [row] = await database.query<{ number: number; text: string }>(sql`
    select current_setting('server_version_num')::integer as number,
      current_setting('server_version') as text`)
  if (row === undefined || row.number < POSTGRES_VERSION_MIN) {
    throw new MigrateError(`PostgreSQL 15 or later is needed; this one is ${row?.text}`)
  }
  await database.recogniseServer()
}
