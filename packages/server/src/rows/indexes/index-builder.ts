import type { Database, Queryable } from '../../postgres/database.js'
import type { Extensions } from '../../postgres/extension.js'
import { codeOf, isUndefinedTable, isUnreachable, QUERY_CANCELED } from '../../postgres/failures.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { toQuery } from '../../postgres/statement.js'
import { listAllColumns, type StoredSchema } from '../columns/stored-schema.js'
import { type HeapAddress, qualified, uniqueIndexName } from '../layout/layout.js'
import {
  type HeapColumn,
  type HeapIndex,
  type IndexKind,
  type IndexTarget,
  indexNames,
  KEPT_FOR_FORKS,
  listHeapIndexes,
  TOO_LONG,
  TOO_LONG_REASON,
  UnindexableError,
  wantsSearchIndex,
} from './heap-indexes.js'
import { tryBuilding } from './index-lock.js'

/** Failures that are not retried, by SQLSTATE, with the reason shown to users. */
const LASTING: ReadonlyMap<string, string> = new Map([
  [TOO_LONG, TOO_LONG_REASON],
  ['53100', 'the disk is full'],
])

interface Work extends HeapColumn {
  readonly stamp: string
}

/** A build that someone watches. */
interface WatchedBuild {
  /** Whether it was cancelled. The index counts as failed then. */
  readonly isCancelled: boolean
  /** Tells how it has ended: with a valid index, with a reason why there is none, or not yet (`again`). */
  end(outcome: BuildOutcome): Promise<void>
}

type BuildOutcome = 'ready' | 'again' | { readonly failure: string }

/** Watches the build of the indexes of a column by the backend with the given id. */
type WatchBuild = (
  build: HeapColumn & { readonly backendId: number; readonly name: string },
) => Promise<WatchedBuild>

const CANCELLED = 'its build was cancelled'

/** The storage whose indexes are built. */
interface IndexedStorage {
  readonly database: Database
  readonly extensions: Extensions
}

/**
 * Creates and drops the queued indexes concurrently with reads and writes, one at a time. Several processes
 * may run a builder. Unfinished work is repeated from the start, by any of them.
 */
export class IndexBuilder {
  readonly #storage: IndexedStorage
  readonly #watch: WatchBuild
  readonly #onError: (error: unknown) => void
  #running: Promise<void> | undefined
  #isAskedAgain = false

  constructor(storage: IndexedStorage, watch: WatchBuild, onError: (error: unknown) => void) {
    this.#storage = storage
    this.#watch = watch
    this.#onError = onError
  }

  /** Starts working on the queue in the background. */
  wake(): void {
    this.run().catch(this.#onError)
  }

  /** Works until the queue is empty, except for work that other processes have locked. */
  run(): Promise<void> {
    if (this.#running !== undefined) {
      this.#isAskedAgain = true
      return this.#running
    }
    this.#running = this.#runRounds().finally(() => {
      this.#running = undefined
    })
    return this.#running
  }

  async #runRounds(): Promise<void> {
    do {
      this.#isAskedAgain = false
      await workThrough(this.#storage, this.#watch)
    } while (this.#isAskedAgain)
  }
}

async function workThrough(
  { database, extensions }: IndexedStorage,
  watch: WatchBuild,
): Promise<void> {
  const [some] = await database.query(sql`
    select from offshoot.index_work where failure is null limit 1`)
  if (some === undefined) return
  const connection = await database.openLong()
  try {
    for (let work = await takeWork(connection); work; work = await takeWork(connection)) {
      const build = new Build(work, { connection, watch })
      await finishWork({ extensions, connection, build }, work).catch(async (error) => {
        await build.end('again')
        return postponeWork(connection, work, error)
      })
      await connection.query(sql`select pg_advisory_unlock_all()`)
    }
  } catch (error) {
    // A schema edit cancelled the build to change the table. The next round repeats it.
    if (codeOf(error) !== QUERY_CANCELED) throw error
  } finally {
    await connection.end()
  }
}

/** The indexes of a column that are being built. It is watched from the first statement that creates one. */
class Build {
  readonly #work: Work
  readonly #connection: Queryable
  readonly #watch: WatchBuild
  #watched: WatchedBuild | undefined

  constructor(work: Work, { connection, watch }: { connection: Queryable; watch: WatchBuild }) {
    this.#work = work
    this.#connection = connection
    this.#watch = watch
  }

  get isCancelled(): boolean {
    return this.#watched?.isCancelled === true
  }

  async begin(name: string): Promise<void> {
    if (this.#watched !== undefined) return
    const [backend] = await this.#connection.query<{ id: number }>(sql`
      select pg_backend_pid() as id`)
    this.#watched = await this.#watch({ ...this.#work, backendId: backend?.id ?? 0, name })
  }

  async end(outcome: BuildOutcome): Promise<void> {
    await this.#watched?.end(outcome)
  }
}

/** Takes work on a heap that no other process has locked. The lock ends with the connection at the latest. */
async function takeWork(connection: Queryable): Promise<Work | undefined> {
  const [row] = await connection.query<HeapAddress & { columnId: string; stamp: string }>(sql`
    select (select h.database_id from offshoot.heaps h where h.id = heap_id) as "databaseId",
      heap_id as "heapId", column_id as "columnId", stamp
    from (select * from offshoot.index_work where failure is null order by stamp) waiting
    where ${tryBuilding(sql`heap_id`)}
    limit 1`)
  if (row === undefined) return undefined
  const { databaseId, heapId, columnId, stamp } = row
  return { databaseId, heapId, column: { id: Number(columnId) }, stamp }
}

/** Moves failed work to the end of the queue, so that it does not block the rest. Rethrows the error. */
async function postponeWork(connection: Queryable, work: Work, error: unknown): Promise<never> {
  const { heapId, column, stamp } = work
  if (!isUnreachable(error) && codeOf(error) !== QUERY_CANCELED) {
    await connection.query(sql`
      update offshoot.index_work
      set stamp = nextval('offshoot.stamps')
      where heap_id = ${heapId} and column_id = ${column.id} and stamp = ${stamp}`)
  }
  throw error
}

/** Finds the column in the current schema of the heap's branch. Returns undefined if it was removed. */
async function findTarget(
  connection: Queryable,
  work: HeapColumn,
): Promise<IndexTarget | undefined> {
  const { heapId, column } = work
  const [row] = await connection.query<{ schema: StoredSchema; tableId: string }>(sql`
    select s.document as schema, h.table_id as "tableId"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    where h.id = ${heapId} and ${column.id} = any(h.column_ids)`)
  return row && findColumn(row.schema, work, Number(row.tableId))
}

interface Builder {
  readonly extensions: Extensions
  readonly connection: Queryable
  readonly build: Build
}

async function finishWork(builder: Builder, work: Work): Promise<void> {
  const { connection, build } = builder
  const { heapId, column, stamp } = work
  const failure = await bringInLine(builder, work)
  if (failure === undefined) {
    await connection.query(sql`
      delete from offshoot.index_work
      where heap_id = ${heapId} and column_id = ${column.id} and stamp = ${stamp}`)
  } else {
    await connection.query(sql`
      update offshoot.index_work
      set failure = ${failure}
      where heap_id = ${heapId} and column_id = ${column.id} and stamp = ${stamp}`)
  }
  await build.end(failure === undefined ? 'ready' : { failure })
}

/**
 * Creates missing indexes of a column and drops those that the schema no longer defines. If an index cannot
 * be created, returns the reason.
 */
async function bringInLine(
  { extensions, connection, build }: Builder,
  work: Work,
): Promise<string | undefined> {
  const target = await findTarget(connection, work)
  // A restored instance has the tables with a search index, but not yet the extension.
  if (target && wantsSearchIndex(target.table, target.column)) {
    await extensions.find('pg_trgm')
  }
  let indexes: readonly HeapIndex[] = []
  let failure: string | undefined
  try {
    if (target !== undefined) indexes = await listHeapIndexes(connection, target)
  } catch (error) {
    if (!(error instanceof UnindexableError)) throw error
    failure = error.message
  }
  const wanted = new Set(indexes.map(({ name }) => name))
  const uniqueName = uniqueIndexName(work.heapId, work.column.id)
  if (target?.column.unique) wanted.add(uniqueName)
  const others = [...indexNames(work), uniqueName].filter((name) => !wanted.has(name))
  // The branch writes no values of a removed column, so its indexes cost little.
  const kept = target === undefined ? await namesForForks(connection, work) : new Set()
  for (const name of others) {
    const index = qualified(work.databaseId, name)
    if (!kept.has(name)) await dropIndex(connection, index)
    else if (await isValid(connection, index)) failure ??= KEPT_FOR_FORKS
  }
  const failed = new Set<IndexKind>()
  for (const index of indexes) {
    if (failed.has(index.kind)) continue
    const columnName = target?.column.name ?? ''
    const reason = await makeIndex(connection, { work, index, build, columnName })
    if (reason !== undefined) failed.add(index.kind)
    failure ??= reason
  }
  return failure
}

/** Returns the names of the indexes by which forks of the branch of a heap read the column. */
async function namesForForks(connection: Queryable, work: Work): Promise<ReadonlySet<string>> {
  const { heapId, column } = work
  const rows = await connection.query<{ schema: StoredSchema; tableId: string }>(sql`
    with recursive forks as (
      select b.id, b.schema_id, b.deleted_at
      from offshoot.heaps h
      join offshoot.branches b on b.parent_id = h.branch_id
      where h.id = ${heapId}
      union all
      select b.id, b.schema_id, b.deleted_at
      from forks f
      join offshoot.branches b on b.parent_id = f.id
    )
    select s.document as schema, h.table_id as "tableId"
    from offshoot.heaps h, offshoot.schemas s
    where h.id = ${heapId}
      and s.id in (select schema_id from forks where deleted_at is null)
      and jsonb_path_exists(s.document, '$.**.columns[*] ? (@.id == $id)',
        jsonb_build_object('id', ${column.id}::bigint))`)
  const names = new Set<string>()
  for (const { schema, tableId } of rows) {
    const target = findColumn(schema, work, Number(tableId))
    if (target === undefined) continue
    if (target.column.unique) names.add(uniqueIndexName(heapId, column.id))
    const indexes = await listHeapIndexes(connection, target).catch((error: unknown) => {
      if (error instanceof UnindexableError) return []
      throw error
    })
    for (const { name } of indexes) names.add(name)
  }
  return names
}

function findColumn(
  { tables }: StoredSchema,
  { databaseId, heapId, column: { id: columnId } }: HeapColumn,
  tableId: number,
): IndexTarget | undefined {
  const table = tables.find(({ id }) => id === tableId)
  const column = listAllColumns(table?.columns ?? []).find(({ id }) => id === columnId)
  return table && column && { databaseId, heapId, table, column }
}

async function makeIndex(
  connection: Queryable,
  {
    work,
    index,
    build,
    columnName,
  }: { work: Work; index: HeapIndex; build: Build; columnName: string },
): Promise<string | undefined> {
  const { kind, definition } = index
  const name = qualified(work.databaseId, index.name)
  if (await isValid(connection, name)) return undefined
  await build.begin(columnName)
  if (build.isCancelled) return CANCELLED
  try {
    // An interrupted build leaves an invalid index, whose name would be taken.
    await dropIndex(connection, name)
    await connection.query(sql`create index concurrently ${definition}`)
    return undefined
  } catch (error) {
    // The heap was dropped; its queued work was deleted with it.
    if (isUndefinedTable(error)) return undefined
    const failure = build.isCancelled ? CANCELLED : LASTING.get(codeOf(error) ?? '')
    if (failure === undefined) throw error
    for (const other of indexNames(work, [kind])) {
      await dropIndex(connection, qualified(work.databaseId, other))
    }
    return failure
  }
}

async function dropIndex(connection: Queryable, name: Sql): Promise<void> {
  await connection.query(sql`drop index concurrently if exists ${name}`)
}

async function isValid(connection: Queryable, name: Sql): Promise<boolean> {
  const rows = await connection.query(sql`
    select from pg_index
    where indexrelid = to_regclass(${toQuery(name).text}) and indisvalid`)
  return rows.length > 0
}
