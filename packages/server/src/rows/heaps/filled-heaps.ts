import type { Database, Queryable } from '../../postgres/database.js'
import { isUndefinedTable } from '../../postgres/failures.js'
import { raw, sql } from '../../postgres/sql.js'
import { listAllColumns, type StoredTable } from '../columns/stored-schema.js'
import type { Gates } from '../gates/gates.js'
import {
  type HeapAddress,
  heapName,
  inheritsRows,
  type Layout,
  ownHeap,
  ownLayer,
} from '../layout/layout.js'
import { createTables, describeHeap, HEAP_COLUMNS, HEAP_VALUES } from './heap-ddl.js'
import { endStage, listNewHeap } from './layers.js'

/*
 * A heap that is filled before its branch has it. As long as a table is empty and no fork knows its heap, nobody can tell
 * that heap from another one. So a stream fills a heap of its own, with all indexes, and the branch takes it by a change
 * of the catalogue: its rows are written once. Until then, the heap is listed like a layer that is not yet published.
 */

/** A heap that a branch can take in place of its own. */
export interface FilledHeap extends HeapAddress {
  readonly table: StoredTable
  readonly branchId: string
  /** The heap of the branch, which must stay empty until then. */
  readonly ownId: string
  /** The epoch in which the branch must still be then. */
  readonly epoch: number
}

/** A condition on the branch `b`: its heap is empty, no fork knows it, and it has the indexes of its schema. */
const isReplaceable = (own: HeapAddress) => sql`exists (
      select
      from offshoot.heaps h
      where h.id = ${own.heapId} and h.branch_id = b.id and h.kind = 'heap'
        and not exists (
          select from offshoot.branches f where f.parent_id = b.id and f.fork_epoch >= h.epoch
        )
        and not exists (
          select from offshoot.heaps o
          where o.branch_id = b.id and o.table_id = h.table_id and o.next_branch_id = b.id
        )
        and not exists (select from offshoot.index_work w where w.heap_id = h.id)
    )
    and not exists (select from ${heapName(own)})`

/**
 * Creates a heap to fill, with the column `line`. Returns undefined if the branch may not take it in the end: its table
 * has rows, or others read its heap.
 */
export async function createFilledHeap(
  { database, gates }: { readonly database: Database; readonly gates: Gates },
  layout: Layout,
  table: StoredTable,
): Promise<FilledHeap | undefined> {
  const { branchId, databaseId } = layout
  const own = ownHeap(layout, table.id)
  // A heap that keeps versions must see each row that is written. Heaps that are elsewhere are made known to all nodes, and an index of vectors depends on the extensions of PostgreSQL.
  const isExcluded =
    database.server.hasRowsApart ||
    table.history !== undefined ||
    listAllColumns(table.columns).some(({ type }) => type === 'vector')
  if (own === undefined || isExcluded) return undefined
  if (ownLayer(layout, table.id) !== undefined || inheritsRows(layout, table.id)) return undefined
  const [branch] = await database
    .query<{ epoch: number }>(sql`
      select b.epoch from offshoot.branches b where b.id = ${branchId} and ${isReplaceable(own)}`)
    .catch((error: unknown) => {
      // The layout is outdated: another stream has replaced the heap.
      if (!isUndefinedTable(error)) throw error
      return []
    })
  if (branch === undefined) return undefined
  const { epoch } = branch
  const rowEpoch = raw(String(epoch))
  const create = async (transaction: Queryable): Promise<string> => {
    const heap = { databaseId, heapId: await listNewHeap(transaction, databaseId), table }
    await createTables(transaction, [heap])
    await transaction.query(sql`
      alter table ${heapName(heap)}
        add column line bigint not null,
        alter column epoch set default ${rowEpoch},
        set (autovacuum_enabled = false)`)
    return heap.heapId
  }
  // A crash loses both the tables and their entry.
  const heapId = await gates.runAlone([], create, { isRepeatable: true })
  return { databaseId, heapId, table, branchId, ownId: own.heapId, epoch }
}

/**
 * Gives the heap to its branch, whose gate must be locked. Returns false, and has no effect, if the branch was forked or
 * has got rows of the table since the heap was created. Takes a fixed number of statements.
 */
export async function takeFilledHeap(transaction: Queryable, heap: FilledHeap): Promise<boolean> {
  const { databaseId, heapId, branchId, ownId, epoch, table } = heap
  const own = { databaseId, heapId: ownId }
  const [branch] = await transaction.query(sql`
    select b.id
    from offshoot.branches b
    where b.id = ${branchId} and b.epoch = ${epoch} and ${isReplaceable(own)}`)
  if (branch === undefined) return false
  const [filled] = await transaction.query(sql`
    delete from offshoot_work.spares where heap_id = ${heapId} returning heap_id`)
  if (filled === undefined) return false
  await endStage(transaction, heap)
  // Others may be reading the empty heap. The collector drops it later.
  await transaction.query(sql`
    update offshoot.heaps set branch_id = ${`dropped ${ownId}`} where id = ${ownId}`)
  await transaction.query(sql`
    insert into offshoot.heaps (id, database_id, branch_id, epoch, ${HEAP_COLUMNS})
    overriding system value
    select ${heapId}::bigint, ${databaseId}::bigint, ${branchId}, ${epoch}::integer,
      ${HEAP_VALUES}
    from (select ${JSON.stringify(describeHeap(table))}::jsonb) d (t)`)
  await transaction.query(sql`
    update offshoot.branches set stamp = nextval('offshoot.stamps') where id = ${branchId}`)
  return true
}
