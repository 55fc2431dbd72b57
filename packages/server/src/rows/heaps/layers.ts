import { eachApart } from '../../common/each-apart.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction, setLockWait, type Transaction } from '../../postgres/run-transaction.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import type { StoredTable } from '../columns/stored-schema.js'
import { type HeapAddress, heapName } from '../layout/layout.js'
import { createLayerIndexes } from './heap-ddl.js'
import { renewReaders } from './renew-readers.js'
import { dropSpare } from './spare-heaps.js'

/*
 * A layer is a table with rows that hide others: the outcome of a large merge or stream, or the condensed rows of several
 * levels of a chain. All have one life. A layer is built beside what others read, without a gate. Until it is published,
 * it is in the list of spare heaps under a definition that nobody takes, so backups leave it out, and the collector drops
 * it after a crash. It is published by a change of the catalogue, which says as of which epochs of which branch it is
 * read, and what is read after it. If that is the heap of the branch, the rows are absorbed (`absorb.ts`). The layer is
 * collected when nobody reads it (`collect-layers.ts`).
 */

/** The definition of spare heaps that no branch takes. */
const LAYER = 'layer'

/** A layer that nobody reads yet is dropped after this time: the process that builds it must have ended. */
const BUILD_MINUTES_MAX = 60

/** A layer that is not yet published. */
export interface NewLayer extends HeapAddress {
  readonly tableId: number
  /** The definition of the table, which says what indexes the layer has. */
  readonly table: StoredTable | undefined
  readonly columnIds: readonly number[]
  readonly fileColumnIds: readonly number[]
}

/** Lists a heap that is being filled. Returns its id. */
export async function listNewHeap(transaction: Queryable, databaseId: string): Promise<string> {
  const [row] = await transaction.query<{ heapId: string }>(sql`
    insert into offshoot_work.spares (heap_id, database_id, definition, kept_until)
    values (nextval(pg_get_serial_sequence('offshoot.heaps', 'id')), ${databaseId}, ${LAYER},
      now() + make_interval(mins => ${BUILD_MINUTES_MAX}))
    returning heap_id as "heapId"`)
  if (row === undefined) throw new Error('an insert must return a row')
  return row.heapId
}

/** Says that a listed heap is still being filled. */
export async function keepNewHeap(database: Queryable, { heapId }: HeapAddress): Promise<void> {
  await database.query(sql`
    update offshoot_work.spares
    set kept_until = now() + make_interval(mins => ${BUILD_MINUTES_MAX})
    where heap_id = ${heapId}`)
}

/** Makes a layer of a stage: a listed table with the columns of a layer, and the column `line`. */
export async function finishStage(transaction: Queryable, stage: NewLayer): Promise<void> {
  // The time depends on the number of rows, and nobody waits for it.
  await transaction.query(sql`set local statement_timeout = 0`)
  // On a cluster, the lines are a primary key.
  await transaction.query(sql`
    alter table ${heapName(stage)} drop constraint if exists ${ident(`heap_${stage.heapId}_pkey`)}`)
  await createLayerIndexes(transaction, stage)
}

/** Takes what only a stage has from a table that is about to be published. No worker of autovacuum keeps it waiting. */
export async function endStage(transaction: Queryable, stage: HeapAddress): Promise<void> {
  await transaction.query(sql`
    alter table ${heapName(stage)}
      drop column line,
      alter column epoch drop default,
      reset (autovacuum_enabled)`)
}

/** Creates a layer with the rows of a query, and its indexes. */
export async function buildLayer(
  transaction: Queryable,
  layer: Omit<NewLayer, 'heapId'>,
  rows: Sql,
): Promise<NewLayer> {
  const built = { ...layer, heapId: await listNewHeap(transaction, layer.databaseId) }
  await transaction.query(sql`create table ${heapName(built)} as ${rows}`)
  await createLayerIndexes(transaction, built)
  return built
}

/** Where layers are read. */
interface LayerPlace {
  readonly branchId: string
  /** They are read as of this epoch of the branch. */
  readonly epoch: number
  /** Whether they are read as of all later epochs, too, and by the branch itself. */
  readonly isLasting: boolean
  /** The branch that is read next. It may be the same one, which means its heap. undefined: there is nothing left to read. */
  readonly nextBranchId: string | undefined
}

/**
 * Adds layers to the catalogue, so that all branches that read their place read them from now on. Requires that no fork
 * of that place is on its way, or a transaction that is read committed. Returns false if one of the layers is gone.
 */
export async function publishLayers(
  transaction: Queryable,
  layers: readonly NewLayer[],
  { branchId, epoch, isLasting, nextBranchId }: LayerPlace,
): Promise<boolean> {
  for (const { databaseId, heapId, tableId, columnIds, fileColumnIds } of layers) {
    const published = await transaction.query(sql`
      with listed as (delete from offshoot_work.spares where heap_id = ${heapId} returning heap_id)
      insert into offshoot.heaps
        (id, database_id, branch_id, table_id, column_ids, file_column_ids, kind, epoch, until_epoch,
          next_branch_id)
      overriding system value
      select heap_id, ${databaseId}::bigint, ${branchId}, ${tableId}::bigint, ${columnIds}::bigint[],
        ${fileColumnIds}::bigint[], 'layer', ${epoch}::integer, ${isLasting ? null : epoch}::integer,
        ${nextBranchId ?? null}
      from listed
      returning id`)
    if (published.length === 0) return false
  }
  const forks = isLasting ? sql`fork_epoch >= ${epoch}` : sql`fork_epoch = ${epoch}`
  if (layers.length > 0) {
    await renewReaders(transaction, { branchId, forks, isIncluded: isLasting })
  }
  return true
}

/** Others may read the statistics of a layer. The collector drops it later. */
const DROP_WAIT_MS = 2000

/** Drops those of some layers that were not published. No backup contains them, so it may hold the storage. */
export async function dropNewLayers(
  database: Database,
  layers: readonly HeapAddress[],
): Promise<void> {
  const drop = (layer: HeapAddress) => async (transaction: Transaction) => {
    await setLockWait(transaction, DROP_WAIT_MS)
    await dropSpare(transaction, layer)
  }
  await eachApart(layers, (layer) =>
    runTransaction(database, drop(layer), { isolation: 'read committed' }),
  )
}
