import { createHash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import { allDone } from '../../common/all-done.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { SCHEMA_PREFIX } from '../../postgres/place.js'
import { type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { listAllColumns, type StoredTable } from '../columns/stored-schema.js'
import { createGate, createGateSql } from '../gates/gate.js'
import type { Gates } from '../gates/gates.js'
import { BACKGROUND, needsFold } from '../layout/fold-policy.js'
import {
  type HeapAddress,
  heapName,
  type Layout,
  layoutSql,
  pastName,
  toLayout,
  versionsName,
} from '../layout/layout.js'
import { removeEach } from '../layout/storage-hold.js'
import { createTables, describeHeap, HEAP_COLUMNS, HEAP_VALUES } from './heap-ddl.js'

/*
 * To create the tables of a heap takes longer than all the rest of the first write of a fork. So each database keeps a
 * few empty heaps for the tables that forks have written to lately. A first write takes one of them, and another
 * one is created after the request.
 */

/** Spare heaps for each definition of a table. */
export const SPARES_OF_TABLE = 4
/** Spare heaps of one database. */
export const SPARES_MAX = 32
/** Tables that wait for spare heaps, of all databases. Further ones get some after their next first write. */
const QUEUE_MAX = 1000
/** Spare heaps are created after this time, so that the request which has taken one is over. */
const REFILL_AFTER_MS = 250
/** Spare heaps that nobody has taken are dropped after this time. */
const AGE_MAX_S = 600
/** Spare heaps that one step drops. */
const STEP_SPARES = 20

interface SpareTables {
  readonly databaseId: string
  readonly tables: readonly StoredTable[]
}

/**
 * Identifies the columns and indexes of a table. undefined: there are no spare heaps for it. Whether vectors are
 * indexed also depends on the extensions of PostgreSQL.
 */
function definitionOf(table: StoredTable): string | undefined {
  if (listAllColumns(table.columns).some(({ type }) => type === 'vector')) return undefined
  const { id, idType, columns, searchIndex, constraints, history } = table
  const isKept = history !== undefined
  return createHash('sha256')
    .update(JSON.stringify({ id, idType, columns, searchIndex, constraints, isKept }))
    .digest('base64url')
}

/** The result of giving spare heaps to a branch. */
interface Assigned {
  /** Whether all tables have got a heap. */
  readonly isComplete: boolean
  /** The layout with the new heaps. undefined: something else of the branch has changed since its layout was read. */
  readonly layout: Layout | undefined
}

/** Does the same as `SpareHeaps.assign` in a transaction that has the exclusive gate. Some of the tables may get no heap. */
export async function assignSparesIn(
  transaction: Queryable,
  layout: Layout,
  tables: readonly StoredTable[],
): Promise<void> {
  await allDone([
    createGate(transaction, layout.branchId),
    transaction.query(prepared(assignSql(layout, tables))),
  ])
}

function assignSql(layout: Layout, tables: readonly StoredTable[]): Sql {
  const wanted = tables.flatMap((table) => {
    const definition = definitionOf(table)
    const isDeep = needsFold(layout, table.id, BACKGROUND)
    return definition === undefined ? [] : [{ ...describeHeap(table), definition, isDeep }]
  })
  const { branchId, databaseId, schemaId } = layout
  return sql`
    with wanted as (
      select t, t ->> 'definition' as definition
      from jsonb_array_elements(${JSON.stringify(wanted)}::jsonb) t
    ),
    branch as (
      select b.id, b.epoch, b.stamp
      from offshoot.branches b
      where b.id = ${branchId} and b.schema_id = ${schemaId} and b.deleted_at is null and not exists (
        select
        from offshoot.heaps h
        join wanted w on h.table_id = (w.t ->> 'tableId')::bigint
        where h.branch_id = b.id and h.kind = 'heap'
      )
    ),
    taken as (
      delete from offshoot_work.spares
      -- PostgreSQL may run the query of an IN for each row, and then takes another spare heap each time.
      where heap_id = any(array(
        select s.heap_id
        from branch
        cross join wanted w
        cross join lateral (
          select heap_id
          from offshoot_work.spares s
          where s.database_id = ${databaseId} and s.definition = w.definition
          order by heap_id
          limit 1
          for update skip locked
        ) s
      ))
      returning heap_id, definition
    ),
    inserted as (
      insert into offshoot.heaps (id, database_id, branch_id, epoch, ${HEAP_COLUMNS})
      overriding system value
      select taken.heap_id, ${databaseId}::bigint, branch.id, branch.epoch, ${HEAP_VALUES}
      from branch, taken
      join wanted on wanted.definition = taken.definition
      returning id
    ),
    folding as (
      insert into offshoot.work (kind, database_id, subject)
      select 'fold', ${databaseId}::bigint, branch.id || ' ' || (t ->> 'tableId')
      from branch, taken
      join wanted on wanted.definition = taken.definition
      where (t -> 'isDeep')::boolean
    ),
    renewed as (
      update offshoot.branches
      set stamp = nextval('offshoot.stamps')
      where id = ${branchId} and exists (select from inserted)
    )
    select count(*), (select stamp from branch) as stamp from inserted`
}

/** Tables of which this process is about to create spare heaps, by database and definition. */
type Queue = Map<string, Wanting>

/** A table that wants spare heaps. */
interface Wanting {
  readonly databaseId: string
  readonly table: StoredTable
  readonly definition: string
}

/** The spare heaps that one process gives to branches, and creates. */
export class SpareHeaps {
  readonly #gates: Gates
  /** Spare heaps of each database of users. 0: this process neither creates nor takes any. */
  readonly #max: number
  /** undefined: no spare heaps are being created. */
  #queue: Queue | undefined
  /** Resolves when the queue is empty. */
  #work: Promise<void> = Promise.resolve()

  constructor(gates: Gates, max: number) {
    this.#gates = gates
    this.#max = max
  }

  /**
   * Gives a branch spare heaps for tables that it is about to write to for the first time, in a single round trip.
   * Does nothing if the schema of the branch has changed, or if another request has created one of the heaps.
   */
  async assign(
    layout: Layout,
    { tables, owner }: { tables: readonly StoredTable[]; owner: string },
  ): Promise<Assigned> {
    if (this.#max === 0) return { isComplete: false, layout: undefined }
    // The commit of the write that follows waits for the disk, and so for this one, too.
    const options = { owner, isRepeatable: true }
    const { branchId } = layout
    const statements = [
      createGateSql(branchId),
      assignSql(layout, tables),
      sql`select (${layoutSql(sql`${branchId}`)})::text`,
    ]
    const [, [assigned] = [], [found] = []] = await this.#gates.runStatementsAlone(
      [branchId],
      statements,
      options,
    )
    const [count, stamp] = assigned ?? []
    return {
      isComplete: count === String(tables.length),
      layout: stamp === layout.stamp ? toLayout(JSON.parse(found?.[0] ?? '[]')) : undefined,
    }
  }

  /** Creates spare heaps for tables after a branch has taken some. Does not wait for it. */
  refill({ databaseId, tables }: SpareTables): void {
    if (this.#max === 0) return
    const queue: Queue = this.#queue ?? new Map()
    for (const table of tables) {
      const definition = definitionOf(table)
      if (definition !== undefined && queue.size < QUEUE_MAX) {
        queue.set(`${databaseId} ${definition}`, { databaseId, table, definition })
      }
    }
    if (this.#queue !== undefined || queue.size === 0) return
    this.#queue = queue
    this.#work = this.#createWaiting(queue).finally(() => {
      this.#queue = undefined
    })
  }

  /** Waits until this process creates no more spare heaps. */
  async untilRefilled(): Promise<void> {
    await this.#work
  }

  /** One at a time, so that requests find connections. */
  async #createWaiting(queue: Queue): Promise<void> {
    await delay(REFILL_AFTER_MS, undefined, { ref: false })
    for (const [key, wanting] of queue) {
      queue.delete(key)
      try {
        await this.#createWanted(wanting)
      } catch {
        // The database may be gone, or PostgreSQL is stopping. Requests create what they need.
      }
    }
  }

  /** Creates spare heaps of a table. Requests may take them as fast as they are created; other tables get their turn, too. */
  async #createWanted(wanting: Wanting): Promise<void> {
    for (let count = 0; count < SPARES_OF_TABLE; count++) {
      if (!(await this.#createOne(wanting))) return
    }
  }

  /** Creates a spare heap, unless there are enough. Returns whether it did. */
  #createOne({ databaseId, table, definition }: Wanting): Promise<boolean> {
    const create = async (transaction: Queryable): Promise<boolean> => {
      const [next] = await transaction.query<{ heapId: string }>(sql`
        select nextval(pg_get_serial_sequence('offshoot.heaps', 'id')) as "heapId"
        from offshoot.databases d
        cross join lateral (
          select count(*) as all, count(*) filter (where definition = ${definition}) as own
          from offshoot_work.spares
          where database_id = d.id
        ) s
        where d.id = ${databaseId} and s.own < ${SPARES_OF_TABLE} and s.all < ${this.#max}`)
      if (next === undefined) return false
      await createTables(transaction, [{ databaseId, heapId: next.heapId, table }])
      await transaction.query(sql`
        insert into offshoot_work.spares (heap_id, database_id, definition, kept_until)
        values (${next.heapId}, ${databaseId}, ${definition},
          now() + make_interval(secs => ${AGE_MAX_S}))`)
      return true
    }
    // A crash loses both the tables and their entry.
    return this.#gates.runAlone([], create, { isRepeatable: true })
  }
}

/** Drops spare heaps and unpublished layers that are too old, and those of deleted databases. Returns whether there may be more. */
export async function collectSpares(database: Database): Promise<boolean> {
  const old = await database.query<HeapAddress>(sql`
    select heap_id as "heapId", database_id as "databaseId"
    from offshoot_work.spares s
    where kept_until < now()
      or not exists (select from offshoot.databases d where d.id = s.database_id)
    order by random()
    limit ${STEP_SPARES}`)
  const dropped = await removeEach(database, old, dropSpare)
  return dropped > 0 && old.length === STEP_SPARES
}

/** Returns whether it has dropped the spare heap: another process may have done so, or it is in use by now. */
export async function dropSpare(transaction: Queryable, heap: HeapAddress): Promise<boolean> {
  const [spare] = await transaction.query(sql`
    delete from offshoot_work.spares
    where heap_id in (
      select heap_id from offshoot_work.spares where heap_id = ${heap.heapId}
      for update skip locked
    )
    returning heap_id`)
  if (spare === undefined) return false
  await transaction.query(sql`
    drop table if exists ${heapName(heap)}, ${pastName(heap)}, ${versionsName(heap)}`)
  return true
}

/** Lists the tables of spare heaps and unpublished layers, which a backup leaves out. The catalogue may be of a version without them. */
export async function listSpareTables(
  database: Queryable,
): Promise<{ readonly schema: string; readonly name: string }[]> {
  const [known] = await database.query(sql`
    select from pg_tables where schemaname = 'offshoot_work' and tablename = 'spares'`)
  if (known === undefined) return []
  return database.query(sql`
    select ${SCHEMA_PREFIX} || s.database_id as schema, kind || s.heap_id as name
    from offshoot_work.spares s, unnest(array['heap_', 'past_', 'versions_']) kind`)
}
