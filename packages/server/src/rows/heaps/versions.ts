import { AppError } from '@offshoot/contract/errors'
import type { Database, Queryable } from '../../postgres/database.js'
import { runTransaction } from '../../postgres/run-transaction.js'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { collected } from '../../telemetry/events.js'
import type { StoredTable } from '../columns/stored-schema.js'
import { type HeapAddress, heapName, versionsName } from '../layout/layout.js'
import { removeEach } from '../layout/storage-hold.js'

/*
 * A table with a history keeps each version of its records: the row before and after each change, as JSON, who changed it
 * and when. The versions that a branch makes are in a table beside its heap. Triggers of the heap write them
 * (`offshoot.keep_versions`), in the transaction of the row, whoever writes it. Other tables have no triggers.
 */

/** A table that may keep versions. */
type Keeping = Pick<StoredTable, 'history'>

const TRIGGERS = [
  { name: 'keep_inserted', event: sql`insert`, rows: sql`new table as new_rows` },
  {
    name: 'keep_updated',
    event: sql`update`,
    rows: sql`old table as old_rows new table as new_rows`,
  },
  { name: 'keep_deleted', event: sql`delete`, rows: sql`old table as old_rows` },
] as const

const dropTriggers = (heap: HeapAddress): Sql[] =>
  TRIGGERS.map(({ name }) => sql`drop trigger if exists ${ident(name)} on ${heapName(heap)}`)

const createTriggers = (heap: HeapAddress): Sql[] =>
  TRIGGERS.map(
    ({ name, event, rows }) => sql`
      create trigger ${ident(name)} after ${event} on ${heapName(heap)}
      referencing ${rows}
      for each statement execute function offshoot.keep_versions()`,
  )

const createVersions = (heap: HeapAddress): Sql[] => [
  sql`
    create table if not exists ${versionsName(heap)} (
      id text collate "C" not null,
      at timestamptz not null,
      epoch integer not null,
      user_id text,
      key_name text,
      cause text,
      old_row jsonb,
      new_row jsonb
    )`,
  sql`create index if not exists ${ident(`versions_${heap.heapId}_record`)} on ${versionsName(heap)} (id, at)`,
  sql`create index if not exists ${ident(`versions_${heap.heapId}_age`)} on ${versionsName(heap)} (at)`,
]

/** Returns statements for what a new heap needs to keep versions, if its table does. */
export function newVersionsStatements(
  { server }: Queryable,
  heap: HeapAddress,
  { history }: Keeping,
): Sql[] {
  if (history === undefined) return []
  requireTriggers(server)
  return [...createVersions(heap), ...createTriggers(heap)]
}

/** Nodes of a cluster run no triggers on tables that they share. */
function requireTriggers({ hasRowsApart }: Queryable['server']): void {
  if (!hasRowsApart) return
  throw new AppError(
    'invalid_schema',
    'field [history]: this service keeps rows on a cluster, where versions of records cannot be kept',
  )
}

/** Makes an existing heap keep versions, or stop to. The collector drops the versions. Requires the exclusive gate. */
export async function changeHistory(
  transaction: Queryable,
  heap: HeapAddress,
  { history }: Keeping,
): Promise<void> {
  if (history !== undefined) requireTriggers(transaction.server)
  await lockHeap(transaction, heap)
  const created = history === undefined ? [] : [...createVersions(heap), ...createTriggers(heap)]
  for (const statement of [...dropTriggers(heap), ...created]) await transaction.query(statement)
}

/** Keeps the collector from dropping versions that are asked for again. */
async function lockHeap(transaction: Queryable, { heapId }: HeapAddress): Promise<void> {
  await transaction.query(sql`select from offshoot.heaps where id = ${heapId} for no key update`)
}

/** Selects the heaps `h` of branches with `history`, that of their table in the schema of the branch, or null. */
const HISTORIES = sql`
    from offshoot.heaps h
    join offshoot.branches b on b.id = h.branch_id
    join offshoot.schemas s on s.id = b.schema_id
    cross join lateral (
      select (
        select t -> 'history'
        from jsonb_array_elements(s.document -> 'tables') t
        where (t -> 'id')::bigint = h.table_id
      ) as history
    ) as kept`

/** Adds the triggers of restored heaps. */
export async function completeVersions(
  database: Queryable,
  { databaseId }: { databaseId: string | null },
): Promise<void> {
  const heaps = await database.query<HeapAddress>(sql`
    select h.database_id as "databaseId", h.id as "heapId"
    ${HISTORIES}
    where h.kind = 'heap' and history is not null
      and h.database_id = coalesce(${databaseId}::bigint, h.database_id)`)
  for (const heap of heaps) await changeHistory(database, heap, { history: { keep: '' } })
}

/** Rows that are written between these statements make no versions. */
export const BEGIN_MOVING = sql`select set_config('offshoot.moves_rows', 'on', true)`
export const END_MOVING = sql`select set_config('offshoot.moves_rows', 'off', true)`

/** Runs a step that writes rows of a table without making versions. */
export async function movingRows(
  transaction: Queryable,
  { history }: Keeping,
  move: () => Promise<unknown>,
): Promise<void> {
  if (history === undefined) {
    await move()
    return
  }
  await transaction.query(BEGIN_MOVING)
  await move()
  await transaction.query(END_MOVING)
}

/** Who changes rows, and by what kind of operation. */
export interface Author {
  readonly by: { readonly keyId: string }
  readonly cause: string
}

/** Notes who changes rows by this transaction, if a table keeps versions. */
export async function noteAuthor(
  transaction: Queryable,
  tables: readonly Keeping[],
  { by, cause }: Author,
): Promise<void> {
  if (tables.every(({ history }) => history === undefined)) return
  await transaction.query(sql`
    select set_config('offshoot.key_id', ${by.keyId}::text, true),
      set_config('offshoot.cause', ${cause}::text, true)`)
}

/**
 * Keeps a version of each row of a layer that is about to be published over a heap, or of a draft that is about to replace
 * rows of it.
 */
export function keepLayerVersions({
  heap,
  layer,
  epoch,
}: {
  heap: HeapAddress
  layer: HeapAddress
  epoch: Sql
}): Sql {
  return sql`
    insert into ${versionsName(heap)}
      (id, at, epoch, user_id, key_name, cause, old_row, new_row)
    select l.id, clock_timestamp(), ${epoch}, a.user_id, a.key_name, a.cause,
      case when not h.deleted then to_jsonb(h) end, case when not l.deleted then to_jsonb(l) end
    from ${heapName(layer)} l
    left join ${heapName(heap)} h on h.id = l.id
    cross join offshoot.version_author() a`
}

/** Versions that one step deletes, and tables of versions that one step looks at. */
const STEP_VERSIONS = 10_000
const STEP_TABLES = 50

/** Versions of a heap, and how long they are kept. */
interface KeptVersions extends HeapAddress {
  /** Null: no longer. */
  readonly keep: string | null
}

/**
 * Deletes versions that are no longer kept: those that were replaced longer ago than the table says, and all versions of
 * tables that keep none any more. Those of deleted branches are dropped with the heaps. Returns whether there may be more.
 */
export async function collectVersions(database: Database): Promise<boolean> {
  const tables = await database.query<KeptVersions>(sql`
    select h.database_id as "databaseId", h.id as "heapId", history ->> 'keep' as keep
    ${HISTORIES}
    where h.kind = 'heap' and b.deleted_at is null
      -- Few heaps have versions, and the index on the names of tables finds them.
      and h.id = any(array(
        select substr(c.relname, 10)::bigint
        from pg_class c
        where c.relname >= 'versions_' and c.relname < 'versions_:' and c.relkind = 'r'
          and c.relname ~ '^versions_[0-9]+$'
      ))
    -- Tables that cannot be changed must not always be the first ones.
    order by random()
    limit ${STEP_TABLES}`)
  const dropped = await removeEach(
    database,
    tables.filter(({ keep }) => keep === null),
    dropVersions,
  )
  let deleted = 0
  for (const kept of tables) deleted += kept.keep === null ? 0 : await deleteOld(database, kept)
  collected.add('version', deleted)
  return dropped > 0 || deleted >= STEP_VERSIONS
}

async function dropVersions(transaction: Queryable, heap: HeapAddress): Promise<boolean> {
  await lockHeap(transaction, heap)
  // The history may have been asked for again: then the heap has its triggers, and the versions stay.
  const [kept] = await transaction.query(sql`
    select ${HISTORIES} where h.id = ${heap.heapId} and history is not null`)
  if (kept !== undefined) return false
  await transaction.query(sql`drop table if exists ${versionsName(heap)}`)
  return true
}

/**
 * Deletes some versions that were replaced before the time for which they are kept. The last version of a record has the
 * row as it is, or was deleted, so it ends with its own age: the next change keeps the row that it replaces.
 */
async function deleteOld(database: Database, { keep, ...heap }: KeptVersions): Promise<number> {
  const versions = versionsName(heap)
  const before = sql`(now() - ${keep}::text::interval)`
  return runTransaction(
    database,
    async (transaction) => {
      const deleted = await transaction.query(sql`
        delete from ${versions}
        where ctid = any(array(
          select v.ctid
          from ${versions} v
          where v.at < ${before} and coalesce(
            (select w.at from ${versions} w where w.id = v.id and w.at > v.at order by w.at limit 1),
            v.at) < ${before}
          order by v.at
          limit ${STEP_VERSIONS}
        ))
        returning 1`)
      return deleted.length
    },
    { isolation: 'read committed' },
  )
}
