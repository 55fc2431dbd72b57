import type { Database, Queryable } from '../../postgres/database.js'
import { findExtension } from '../../postgres/extension.js'
import { codeOf, isUndefinedTable, isUnreachable, QUERY_CANCELED } from '../../postgres/failures.js'
import { ident, sql } from '../../postgres/sql.js'
import { listAllColumns, type StoredSchema } from '../layout/stored-schema.js'
import {
  type HeapColumn,
  type HeapIndex,
  type IndexKind,
  type IndexTarget,
  indexNames,
  listHeapIndexes,
  TOO_LONG,
  TOO_LONG_REASON,
  UnindexableError,
  wantsSearchIndex,
} from './heap-indexes.js'
import { tryBuilding } from './index-lock.js'

/** Failures that another attempt would end with as well, and what to say about them. */
const LASTING: ReadonlyMap<string, string> = new Map([
  [TOO_LONG, TOO_LONG_REASON],
  ['53100', 'the disk is full'],
])

interface Work extends HeapColumn {
  readonly stamp: string
}

/**
 * Makes and drops indexes of heaps that hold rows, one at a time, while everyone reads and writes.
 * Any number of processes may; what one leaves unfinished another one does again from the start.
 */
export class IndexBuilder {
  readonly #database: Database
  readonly #onError: (error: unknown) => void
  #running: Promise<void> | undefined
  #isAskedAgain = false

  constructor(database: Database, onError: (error: unknown) => void) {
    this.#database = database
    this.#onError = onError
  }

  /** Starts to work, if there is something to do. Does not wait for it. */
  wake(): void {
    this.run().catch(this.#onError)
  }

  /** Works until there is nothing left that no other process has in hand. */
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
      await workThrough(this.#database)
    } while (this.#isAskedAgain)
  }
}

async function workThrough(database: Database): Promise<void> {
  const [some] = await database.query(sql`
    select from offshoot.index_work where failure is null limit 1`)
  if (some === undefined) return
  const connection = await database.openLong()
  try {
    for (let work = await takeWork(connection); work; work = await takeWork(connection)) {
      await finishWork({ database, connection }, work).catch((error) => {
        return postponeWork(connection, work, error)
      })
      await connection.query(sql`select pg_advisory_unlock_all()`)
    }
  } catch (error) {
    // Somebody has to change the table itself. The next round does it again.
    if (codeOf(error) !== QUERY_CANCELED) throw error
  } finally {
    await connection.end()
  }
}

/** Work on a heap that no other process is at. The lock goes with the connection at the latest. */
async function takeWork(connection: Queryable): Promise<Work | undefined> {
  const [row] = await connection.query<{ heapId: string; columnId: string; stamp: string }>(sql`
    select heap_id as "heapId", column_id as "columnId", stamp
    from (select * from offshoot.index_work where failure is null order by stamp) waiting
    where ${tryBuilding(sql`heap_id`)}
    limit 1`)
  if (row === undefined) return undefined
  return { heapId: row.heapId, column: { id: Number(row.columnId) }, stamp: row.stamp }
}

/** What cannot be done now must not keep the rest from being done before it is tried again. */
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

/** The column as the branch of the heap has it now, if it does. */
async function findTarget(
  connection: Queryable,
  { heapId, column: { id: columnId } }: HeapColumn,
): Promise<IndexTarget | undefined> {
  const [row] = await connection.query<{ schema: StoredSchema; tableId: string }>(sql`
    select s.document as schema, h.table_id as "tableId"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    where h.id = ${heapId} and ${columnId} = any(h.column_ids)`)
  const table = row?.schema.tables.find(({ id }) => id === Number(row.tableId))
  const column = listAllColumns(table?.columns ?? []).find(({ id }) => id === columnId)
  return table && column && { heapId, table, column }
}

interface Builder {
  readonly database: Database
  readonly connection: Queryable
}

async function finishWork(builder: Builder, work: Work): Promise<void> {
  const { connection } = builder
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
}

/**
 * Makes the indexes that are missing, and drops those that nobody wants any more. Returns why one
 * cannot be made.
 */
async function bringInLine(
  { database, connection }: Builder,
  work: Work,
): Promise<string | undefined> {
  const target = await findTarget(connection, work)
  // A restored instance has what its extensions are for before it has them.
  if (target && wantsSearchIndex(target.table, target.column)) {
    await findExtension(database, 'pg_trgm')
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
  for (const name of indexNames(work)) {
    if (!wanted.has(name)) await dropIndex(connection, name)
  }
  const failed = new Set<IndexKind>()
  for (const index of indexes) {
    if (failed.has(index.kind)) continue
    const reason = await makeIndex(connection, { work, index })
    if (reason !== undefined) failed.add(index.kind)
    failure ??= reason
  }
  return failure
}

async function makeIndex(
  connection: Queryable,
  { work, index }: { work: Work; index: HeapIndex },
): Promise<string | undefined> {
  const { kind, name, definition } = index
  if (await isValid(connection, name)) return undefined
  try {
    // One that was interrupted is of no use, and `create index` would find its name taken.
    await dropIndex(connection, name)
    await connection.query(sql`create index concurrently ${definition}`)
    return undefined
  } catch (error) {
    // A heap that is gone takes its work along.
    if (isUndefinedTable(error)) return undefined
    const failure = LASTING.get(codeOf(error) ?? '')
    if (failure === undefined) throw error
    for (const other of indexNames(work, [kind])) await dropIndex(connection, other)
    return failure
  }
}

async function dropIndex(connection: Queryable, name: string): Promise<void> {
  await connection.query(sql`drop index concurrently if exists offshoot_rows.${ident(name)}`)
}

async function isValid(connection: Queryable, name: string): Promise<boolean> {
  const rows = await connection.query(sql`
    select from pg_index
    where indexrelid = to_regclass(${`offshoot_rows.${name}`}) and indisvalid`)
  return rows.length > 0
}
