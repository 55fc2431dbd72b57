import type { Limits } from '@offshoot/contract/limits'
import { DatabaseNameSchema } from '@offshoot/contract/names'
import type { Region } from '@offshoot/contract/workspaces'
import type pg from 'pg'
import { Value } from 'typebox/value'
import type { BlobStore } from '../blobs/blob-store.js'
import { newBranchId, newCheckpointId, newEntryId } from '../common/ids.js'
import { claimContent } from '../data/files/files.js'
import { countDatabases } from '../domain/databases/queries.js'
import { updateMemberKeyStamps } from '../domain/keys/queries.js'
import { insertCompactionSql } from '../domain/merges/history/queries.js'
import { updateDueAt } from '../domain/quotas/queries.js'
import { lockWorkspace } from '../domain/workspaces/queries.js'
import { UnknownOutcomeError } from '../postgres/commit.js'
import type { Database, Queryable } from '../postgres/database.js'
import { codeOf, UNIQUE_VIOLATION } from '../postgres/failures.js'
import { listAppliedMigrations, requireVersion } from '../postgres/migrate.js'
import { runTransaction, type Transaction } from '../postgres/run-transaction.js'
import { ident, join, raw, type Sql, sql } from '../postgres/sql.js'
import { toQuery } from '../postgres/statement.js'
import { completeRestored } from '../rows/heaps/schema-changes.js'
import { DatabaseSchema } from '../rows/layout/database-schema.js'
import {
  type Header,
  OBJECT_IDS,
  type Progress,
  type TableDefinition,
  tableName,
} from './archive.js'
import {
  CATALOGUE_OF_DATABASE,
  type CatalogueTable,
  REPLACED_IDS,
  type ReplacedId,
  type Restored,
  TEXT_IDS,
  tableOfDatabase,
} from './catalogue-of-database.js'
import { checkDatabase, checkSchemas, OBJECT_ID_MAX, type SchemaLimits } from './check-restored.js'
import { endHold, hold, LOCK_NOT_AVAILABLE } from './create-backup.js'
import { requireCurrentCatalogue } from './current-catalogue.js'
import { BackupError } from './errors.js'
import { copyRows, createFilledTable, putFile, qualified, runStep } from './fill-table.js'
import { explainArchiveError, readArchive, type Target } from './read-archive.js'
import { readTableShape, type TableShape } from './table-shape.js'
import { DamagedArchiveError } from './tar.js'

/*
 * Restores one database into an instance that may be running. Its tables are filled in a schema that no row of the
 * catalogue refers to, so nobody sees them. There are stages, too: the rows of the catalogue, and tables with the new
 * ids. They are beside the catalogue, because the schema can be on another node. The last transaction fills the
 * catalogue from the stages. A restore holds the storage, so the collector does not drop the schema. If the restore is
 * killed, the hold ends with its connection, and the collector drops the schema with the stages, as it does with the
 * schemas of deleted databases.
 */

interface Options {
  readonly database: Database
  readonly blobs: BlobStore
  /** The name of the database in the archive. */
  readonly name: string
  /** The name that it gets; the same by default. */
  readonly as?: string | undefined
  /** The workspace that it gets into: by default that of the archive, or the only one of the instance. */
  readonly workspaceId?: string | undefined
  readonly regions: readonly Region[]
  readonly limits: Pick<Limits, 'databasesPerWorkspaceMax'> & SchemaLimits
  onProgress(progress: Progress): void
}

/** The database that is being restored. It gets these names in the last transaction. */
interface Place {
  readonly databaseId: string
  readonly schema: string
  readonly name: string
  readonly workspaceId: string
}

export async function restoreDatabase(
  options: Options & { source: AsyncIterable<Buffer>; holdTimeoutMs?: number },
): Promise<Progress> {
  const { database, source } = options
  await requireVersion(database)
  const load = new Load(options)
  try {
    const holder = await database.pool.connect()
    try {
      await hold(holder, options.holdTimeoutMs)
      await requireCurrentCatalogue(database)
      const { header, done } = await readArchive(source, load)
      await load.publish(header, holder)
      return done
    } finally {
      await endHold(holder)
    }
  } catch (error) {
    // If the commit was not confirmed, the database may be there; the collector finds out.
    if (error instanceof UnknownOutcomeError) throw error
    await load.discard().catch(() => undefined)
    throw explainArchiveError(error)
  }
}

/** Loads an archive into a schema of its own. */
class Load implements Target {
  readonly #options: Options
  #place: Place | undefined
  /** The hashes of the contents in the archive. */
  readonly #files = new Set<string>()
  /** The new ids of heaps, once the stages are complete. */
  #heapIds: ReadonlyMap<string, string> | undefined

  constructor(options: Options) {
    this.#options = options
  }

  onProgress(progress: Progress): void {
    this.#options.onProgress(progress)
  }

  get #begun(): Place {
    if (this.#place === undefined) throw new Error('the header of an archive comes first')
    return this.#place
  }

  async begin(header: Header): Promise<void> {
    const { database, name, as = name } = this.#options
    requireDatabase(header, name)
    await requireSameCatalogue(database, header)
    if (!Value.Check(DatabaseNameSchema, as)) {
      throw new BackupError(`[${as}] is not a valid name of a database`)
    }
    const workspaceId = await findWorkspace(database, {
      wanted: this.#options.workspaceId,
      earlier: header.database?.workspaceId,
    })
    await requireFree(database, { ...this.#options, name: as, workspaceId })
    this.#place = await createPlace(database, { name: as, workspaceId })
  }

  async addTable(table: TableDefinition, rows: AsyncIterable<Buffer>): Promise<number> {
    if (table.schema === 'offshoot') return this.#stage(table, rows)
    const { database } = this.#options
    this.#heapIds ??= await replaceIds(database, this.#begun)
    const heap = this.#rename(table)
    const count = await runStep(database, (transaction) =>
      createFilledTable(transaction, heap, rows),
    )
    if (count > 0) await database.query(sql`analyze ${qualified(heap)}`)
    return count
  }

  /** Fills the stage of a table of the catalogue. */
  #stage(table: TableDefinition, rows: AsyncIterable<Buffer>): Promise<number> {
    if (tableOfDatabase(table.name) === undefined || this.#heapIds !== undefined) {
      throw new DamagedArchiveError(`unexpected table [${tableName(table)}]`)
    }
    const stage = stageOf(this.#begun, table.name)
    return runStep(this.#options.database, async (transaction) => {
      await transaction.query(sql`
        create table ${qualified(stage)} (like offshoot.${ident(table.name)})`)
      return copyRows(transaction.client, { ...table, ...stage }, rows)
    })
  }

  #rename(table: TableDefinition): TableShape {
    const [, kind, oldId = ''] = /^(heap|past|versions)_([0-9]{1,18})$/.exec(table.name) ?? []
    const id = this.#heapIds?.get(oldId)
    if (kind === undefined || id === undefined) {
      throw new DamagedArchiveError(`unexpected table [${tableName(table)}]`)
    }
    return { ...readTableShape(table), schema: this.#begun.schema, name: `${kind}_${id}` }
  }

  addFile(sha256: string, entry: Parameters<Target['addFile']>[1]): Promise<void> {
    const { database, blobs } = this.#options
    const { workspaceId } = this.#begun
    this.#files.add(sha256)
    return putFile(blobs, { sha256, entry }, (blob) => claimContent(database, blob, workspaceId))
  }

  /** Makes the database visible. */
  async publish(header: Header, holder: pg.PoolClient): Promise<void> {
    const { database } = this.#options
    const place = this.#begun
    this.#heapIds ??= await replaceIds(database, place)
    const schemas = qualified(stageOf(place, 'schemas'))
    const largestId = await checkSchemas(database, schemas, this.#options.limits)
    await raiseObjectIds(database, header, largestId)
    await runTransaction(
      database,
      async (transaction) => {
        await new DatabaseSchema(place.databaseId).lock(transaction)
        await this.#insert(transaction)
        // Without the hold, the collector may have deleted a content.
        await holder.query('select 1')
      },
      { isolation: 'read committed' },
    )
  }

  async #insert(transaction: Transaction): Promise<void> {
    const { regions } = this.#options
    const place = this.#begun
    const { databaseId, workspaceId } = place
    // Check again what may have changed since the beginning.
    if (!(await lockWorkspace(transaction, workspaceId))) {
      throw new BackupError(`workspace [${workspaceId}] was deleted during the restore`)
    }
    await requireFree(transaction, { ...this.#options, ...place })
    const ids = regions.map(({ id }) => id)
    const restored: Restored = {
      databaseId: sql`${databaseId}::bigint`,
      workspaceId: sql`${workspaceId}::text`,
      name: sql`${place.name}::text`,
      // Another instance may have other regions.
      region: sql`case when s.region = any(${ids}::text[]) then s.region else ${ids[0]}::text end`,
      replaced: (kind, id) =>
        sql`(select n.new_id from ${qualified(newIdsOf(place, kind))} n where n.old_id = ${id})`,
    }
    for (const table of CATALOGUE_OF_DATABASE) {
      const query = toQuery(insertStatement(place, table, restored))
      const inserting = transaction.client.query(query)
      if (table.name === 'databases') await requireInserted(inserting, place)
      else await inserting
    }
    await checkDatabase(transaction, databaseId, this.#files)
    await completeRestored(transaction, { databaseId })
    await transaction.query(insertCompactionSql(databaseId))
    await updateMemberKeyStamps(transaction, workspaceId)
    await updateDueAt(transaction, { workspaceIds: [workspaceId], withinSeconds: 0 })
    const stages = [
      ...CATALOGUE_OF_DATABASE.map(({ name }) => stageOf(place, name)),
      ...REPLACED_IDS.map((kind) => newIdsOf(place, kind)),
    ]
    await transaction.query(sql`drop table ${join(stages.map(qualified), ', ')}`)
  }

  /** Removes the tables of a restore that has failed. The collector removes contents that no row refers to. */
  async discard(): Promise<void> {
    if (this.#place === undefined) return
    await new DatabaseSchema(this.#place.databaseId).dropAbandoned(this.#options.database)
  }
}

function requireDatabase(header: Header, name: string): void {
  if (header.database === undefined) {
    throw new BackupError(
      'the archive has a whole instance: restore it into an empty instance, without --database',
    )
  }
  if (header.database.name !== name) {
    throw new BackupError(
      `the archive has the database [${header.database.name}], and not [${name}]`,
    )
  }
}

/** The rows of another catalogue have other columns, and only a whole instance can be migrated. */
async function requireSameCatalogue(database: Database, header: Header): Promise<void> {
  const applied = await listAppliedMigrations(database)
  if (JSON.stringify(applied) === JSON.stringify(header.catalogue)) return
  const [theirs, ours] = [header.catalogue, applied].map((list) => list.at(-1)?.number ?? 0)
  throw new BackupError(
    `the archive has version ${theirs} of the catalogue, and the instance has version ${ours}: use an archive that the version of the instance has written`,
  )
}

async function findWorkspace(
  database: Queryable,
  { wanted, earlier }: { wanted: string | undefined; earlier: string | undefined },
): Promise<string> {
  const rows = await database.query<{ id: string }>(sql`
    select id from offshoot.workspaces order by id`)
  const ids = rows.map(({ id }) => id)
  if (wanted !== undefined) {
    if (ids.includes(wanted)) return wanted
    throw new BackupError(`there is no workspace [${wanted}] in this instance`)
  }
  if (earlier !== undefined && ids.includes(earlier)) return earlier
  const [only, ...others] = ids
  if (only !== undefined && others.length === 0) return only
  throw new BackupError(
    `the instance does not have the workspace [${earlier}] of the archive: choose one with --workspace`,
  )
}

const nameTaken = ({ name, workspaceId }: Pick<Place, 'name' | 'workspaceId'>): BackupError =>
  new BackupError(
    `workspace [${workspaceId}] has a database [${name}] already: choose another name with --as`,
  )

async function requireFree(
  database: Queryable,
  options: { name: string; workspaceId: string; limits: Options['limits'] },
): Promise<void> {
  const { name, workspaceId, limits } = options
  const [taken] = await database.query(sql`
    select from offshoot.databases where workspace_id = ${workspaceId} and name = ${name}`)
  if (taken !== undefined) throw nameTaken(options)
  if ((await countDatabases(database, workspaceId)) >= limits.databasesPerWorkspaceMax) {
    throw new BackupError(
      `workspace [${workspaceId}] has ${limits.databasesPerWorkspaceMax} databases, and can have no more`,
    )
  }
}

async function createPlace(
  database: Database,
  names: Pick<Place, 'name' | 'workspaceId'>,
): Promise<Place> {
  return runStep(database, async (transaction) => {
    const [row] = await transaction.query<{ id: string }>(sql`
      select nextval(pg_get_serial_sequence('offshoot.databases', 'id')) as id`)
    if (row === undefined) throw new Error('a sequence must return a number')
    const schema = new DatabaseSchema(row.id)
    await schema.create(transaction)
    return { ...names, databaseId: row.id, schema: schema.name }
  })
}

const stageOf = ({ databaseId }: Place, table: string) =>
  new DatabaseSchema(databaseId).restoreStage(table)
const newIdsOf = ({ databaseId }: Place, kind: ReplacedId) =>
  new DatabaseSchema(databaseId).restoreStage(`new_${kind}`)

/** Gives new ids to everything in the stages, in the order of the old ids. Returns those of heaps. */
async function replaceIds(database: Database, place: Place): Promise<ReadonlyMap<string, string>> {
  return runStep(database, async (transaction) => {
    for (const table of CATALOGUE_OF_DATABASE) {
      // The archive may lack a table, which is found when it is compared with its manifest.
      await transaction.query(sql`
        create table if not exists ${qualified(stageOf(place, table.name))}
        (like offshoot.${ident(table.name)})`)
    }
    await replaceTexts(transaction, place, { kind: 'branches', newId: newBranchId })
    await replaceTexts(transaction, place, { kind: 'checkpoints', newId: newCheckpointId })
    await replaceTexts(transaction, place, { kind: 'log', newId: newEntryId })
    await replaceNumbers(transaction, place, 'schemas')
    await replaceNumbers(transaction, place, 'heaps')
    for (const kind of REPLACED_IDS) {
      await transaction.query(sql`analyze ${qualified(newIdsOf(place, kind))}`)
    }
    const rows = await transaction.query<{ oldId: string; newId: string }>(sql`
      select old_id as "oldId", new_id as "newId" from ${qualified(newIdsOf(place, 'heaps'))}`)
    return new Map(rows.map(({ oldId, newId }) => [oldId, newId]))
  })
}

async function replaceTexts(
  transaction: Transaction,
  place: Place,
  { kind, newId }: { kind: keyof typeof TEXT_IDS; newId: () => string },
): Promise<void> {
  const mentioned = TEXT_IDS[kind]((table) => qualified(stageOf(place, table)))
  const rows = await transaction.query<{ id: string }>(sql`${mentioned} order by id`)
  const ids = rows.map(({ id }) => id)
  const table = qualified(newIdsOf(place, kind))
  await transaction.query(sql`
    create table ${table} (old_id text primary key, new_id text not null)`)
  await transaction.query(sql`
    insert into ${table} (old_id, new_id)
    select * from unnest(${ids}::text[], ${ids.map(newId)}::text[])`)
}

async function replaceNumbers(
  transaction: Transaction,
  place: Place,
  kind: 'schemas' | 'heaps',
): Promise<void> {
  const table = qualified(newIdsOf(place, kind))
  await transaction.query(sql`
    create table ${table} (old_id bigint primary key, new_id bigint not null)`)
  await transaction.query(sql`
    insert into ${table} (old_id, new_id)
    select s.id, nextval(pg_get_serial_sequence(${`offshoot.${kind}`}, 'id'))
    from (select id from ${qualified(stageOf(place, kind))} order by id) s`)
}

/** Returns the statement that fills a table of the catalogue from its stage. */
function insertStatement(place: Place, table: CatalogueTable, restored: Restored): Sql {
  const columns = Object.entries(table.columns).flatMap(([name, rule]) =>
    rule === undefined ? [] : [{ name: ident(name), rule }],
  )
  const names = join(
    columns.map(({ name }) => name),
    ', ',
  )
  const values = join(
    columns.map(({ name, rule }) => rule(sql`s.${name}`, restored)),
    ', ',
  )
  const order = table.order === undefined ? sql`` : sql` order by s.${table.order}`
  return sql`
    insert into offshoot.${ident(table.name)} (${names})
    overriding system value
    select ${values}
    from ${qualified(stageOf(place, table.name))} s${order}`
}

/** Waits for the row of the database. Others may have taken its name a moment ago. */
async function requireInserted(inserting: Promise<pg.QueryResult>, place: Place): Promise<void> {
  const { rowCount } = await inserting.catch((error: unknown) => {
    throw codeOf(error) === UNIQUE_VIOLATION ? nameTaken(place) : error
  })
  if (rowCount !== 1) throw new DamagedArchiveError('it must have one database')
}

/** How long a schema edit waits behind the restore, which waits for another one. */
const SEQUENCE_WAIT_MS = 1000

/**
 * Raises the sequence of the ids of tables and columns above those in the archive, so that the database never gets
 * one twice.
 */
async function raiseObjectIds(
  database: Database,
  { sequences }: Header,
  largestId: number,
): Promise<void> {
  const value = sequences.find(({ name }) => name === OBJECT_IDS)?.value
  if (value === undefined) throw new DamagedArchiveError(`sequence [${OBJECT_IDS}] is missing`)
  // The whole instance takes its ids from here, and a sequence can end.
  if (Number(value) > OBJECT_ID_MAX || Number(value) < largestId) {
    throw new DamagedArchiveError(`sequence [${OBJECT_IDS}] does not fit the ids in its schemas`)
  }
  const isBehind = sql`last_value < ${value}::bigint`
  await runTransaction(
    database,
    async (transaction) => {
      const [behind] = await transaction.query(sql`
        select from offshoot.object_ids where ${isBehind}`)
      if (behind === undefined) return
      await transaction.query(sql`set local lock_timeout = ${raw(String(SEQUENCE_WAIT_MS))}`)
      // Changes nothing, but locks the sequence: a number taken between comparing and setting would be given out again.
      await transaction.query(sql`alter sequence offshoot.object_ids no cycle`)
      await transaction.query(sql`
        select setval('offshoot.object_ids', ${value}::bigint) from offshoot.object_ids where ${isBehind}`)
    },
    { isolation: 'read committed', retried: new Set([LOCK_NOT_AVAILABLE]) },
  )
}
