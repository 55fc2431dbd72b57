import { setTimeout as delay } from 'node:timers/promises'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction, setLockWait } from '../../postgres/run-transaction.js'
import { raw, type Sql, sql } from '../../postgres/sql.js'
import type { StoredSchema } from '../columns/stored-schema.js'
import type { Gates } from '../gates/gates.js'
import { findLayout, type HeapAddress, heapName, type Layout } from '../layout/layout.js'
import { absorbSql, findLayered, type LayeredHeap } from './absorb-sql.js'
import { dropHeap } from './heap-ddl.js'
import { renewReaders } from './renew-readers.js'

/*
 * The outcome of a large merge or stream is published as layers, in constant time. Afterwards the rows are moved to the
 * heaps, in steps that are so small that nobody waits long, and that change no state of the branch. A writer moves
 * the rows that it writes itself. Reads are slower until a layer is gone, but never wrong.
 */

/** Rows that one step moves. Writers of the branch wait for it. */
const STEP_ROWS = 1000

/** Others may read a layer that was released. The collector drops it later. */
const DROP_WAIT_MS = 100

/**
 * The ids of the rows that one step moves. It begins after the last id of the step before: as long as a snapshot may see
 * the rows that were moved, PostgreSQL would pass all of them again.
 */
const nextIds = (layer: Sql, afterId: string) => sql`
    select id from ${layer} where id > ${afterId} order by id limit ${raw(String(STEP_ROWS))}`

/** Lists the heaps with layers of a branch. */
async function listLayered(transaction: Queryable, layout: Layout): Promise<LayeredHeap[]> {
  if (layout.levels[0]?.layers.size === 0) return []
  const [row] = await transaction.query<{ document: StoredSchema }>(sql`
    select document from offshoot.schemas where id = ${layout.schemaId}`)
  return (row?.document.tables ?? []).flatMap((table) => findLayered(layout, table) ?? [])
}

/**
 * Moves all rows of layers to the heaps of a branch at once. Requires the exclusive gate. The layout stays
 * valid until the transaction ends: its layers are empty.
 */
export async function absorbAll(transaction: Queryable, layout: Layout): Promise<void> {
  for (const layered of await listLayered(transaction, layout)) {
    await move(transaction, layered, sql`select id from ${heapName(layered.layer)}`)
    await release(transaction, layered)
  }
}

async function move(transaction: Queryable, layered: LayeredHeap, ids: Sql): Promise<void> {
  for (const statement of absorbSql(layered, { ids })) await transaction.query(statement)
}

/**
 * Takes a layer without rows out of the layouts of all branches that read it. Those that still know it find it
 * empty, until it is dropped.
 */
async function release(
  transaction: Queryable,
  { branchId, layer: { heapId, epoch } }: LayeredHeap,
): Promise<void> {
  await transaction.query(sql`
    update offshoot.heaps set branch_id = ${`dropped ${heapId}`} where id = ${heapId}`)
  const forks = sql`fork_epoch >= ${epoch}`
  await renewReaders(transaction, { branchId, forks, isIncluded: true })
}

/** Where the next step begins: all rows of the layer up to this id are moved. */
interface Progress {
  readonly heapId: string
  readonly lastId: string
}

/** The result of a step. */
interface Absorbed {
  /** A layer without rows, which was taken out of the layouts. */
  readonly released: HeapAddress | undefined
  /** undefined: there is nothing more to do. */
  readonly next: Progress | undefined
}

const NOTHING_MOVED = { heapId: '', lastId: '' }

/** Moves some rows. */
async function absorbSome(
  transaction: Queryable,
  branchId: string,
  progress: Progress,
): Promise<Absorbed> {
  const layout = await findLayout(transaction, branchId, { hidden: true })
  const [first, ...others] = layout === undefined ? [] : await listLayered(transaction, layout)
  if (first === undefined) return { released: undefined, next: undefined }
  const { heapId } = first.layer
  const ids = await transaction.query<{ id: string }>(
    nextIds(heapName(first.layer), progress.heapId === heapId ? progress.lastId : ''),
  )
  const moved = ids.map(({ id }) => id)
  await move(transaction, first, sql`select unnest(${moved}::text[]) collate "C"`)
  // Rows are never added to a layer.
  const lastId = moved[STEP_ROWS - 1]
  if (lastId !== undefined) return { released: undefined, next: { heapId, lastId } }
  await release(transaction, first)
  return { released: first.layer, next: others.length === 0 ? undefined : NOTHING_MOVED }
}

interface LayeredHeaps {
  readonly database: Database
  readonly gates: Gates
}

/**
 * Moves the rows of all layers of a branch to its heaps, in small steps. Between them, waiting requests have
 * the branch for as long as a step takes.
 */
export async function absorbLayers(heaps: LayeredHeaps, branchId: string): Promise<void> {
  if (!(await hasLayer(heaps.database, branchId))) return
  await absorbSteps(heaps, { branchId, isHidden: false, endsAt: Number.POSITIVE_INFINITY })
}

async function absorbSteps(
  heaps: LayeredHeaps,
  { endsAt, ...branch }: { branchId: string; isHidden: boolean; endsAt: number },
): Promise<void> {
  let next: Progress | undefined = NOTHING_MOVED
  while (next !== undefined && performance.now() < endsAt) {
    const startedAt = performance.now()
    next = await absorbStep(heaps, { ...branch, progress: next })
    if (next !== undefined) await delay(performance.now() - startedAt)
  }
}

async function hasLayer(database: Queryable, branchId: string): Promise<boolean> {
  const [row] = await database.query(sql`
    select from offshoot.heaps where branch_id = ${branchId} and next_branch_id = branch_id limit 1`)
  return row !== undefined
}

/** Returns where the next step begins, or undefined if all rows are moved. */
async function absorbStep(
  { database, gates }: LayeredHeaps,
  { branchId, isHidden, progress }: { branchId: string; isHidden: boolean; progress: Progress },
): Promise<Progress | undefined> {
  // Nobody writes to a hidden branch, and it has no gate.
  const { released, next } = await gates.runAlone(isHidden ? [] : [branchId], (transaction) =>
    absorbSome(transaction, branchId, progress),
  )
  if (released !== undefined) await dropReleased(database, released).catch(() => undefined)
  return next
}

async function dropReleased(database: Database, layer: HeapAddress): Promise<void> {
  await runTransaction(
    database,
    async (transaction) => {
      await setLockWait(transaction, DROP_WAIT_MS)
      await dropHeap(transaction, layer)
    },
    { isolation: 'read committed' },
  )
}

/** The background moves rows of one branch for this time, then it is the turn of others. */
const TURN_MS_MAX = 2000

/** Moves rows of the layers of a branch for a while. Returns whether there may be more. */
export async function absorbNext(heaps: LayeredHeaps): Promise<boolean> {
  const [found] = await heaps.database.query<{ branchId: string; isHidden: boolean }>(sql`
    select b.id as "branchId", b.deleted_at is not null as "isHidden"
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    where h.next_branch_id = h.branch_id
      -- The heap of a hidden branch may be gone, because folds have made all reads skip it.
      and exists (
        select from offshoot.heaps own
        where own.branch_id = h.branch_id and own.table_id = h.table_id and own.kind = 'heap'
      )
    -- If one of them fails, the next round tries another one.
    order by random()
    limit 1`)
  if (found === undefined) return false
  await absorbSteps(heaps, { ...found, endsAt: performance.now() + TURN_MS_MAX })
  return true
}
