import { FOLD_KEY, INDEX_KEY } from '../../postgres/advisory-keys.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { codeOf, isUndefinedTable, QUERY_CANCELED } from '../../postgres/failures.js'
import { empty, ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { TOO_LONG } from '../indexes/heap-indexes.js'
import { foldIndexStatements } from './heap-ddl.js'
import { findLayout, heapName, type Layout, pastName, type Source, sourcesOf } from './layout.js'
import type { StoredSchema, StoredTable } from './stored-schema.js'

/*
 * A branch reads a table from one source for each level of its chain that has written to it. To keep chains
 * short, the nearest inherited sources are condensed into one table, a fold, as in a log-structured merge
 * tree. Inherited states never change, so a fold is built without any lock that others wait for, and is
 * published at the end. It belongs to the state that it starts with: all branches that inherit this state
 * read it. A fold of all sources needs no further ones, and the chain ends there.
 */

/** How many sources a table may have, and how many inherited ones stay behind a new fold. */
export interface FoldPolicy {
  /** A table with more sources, the own heap of the branch included, is folded. */
  readonly sourcesMax: number
  /** Inherited sources that a fold leaves, at most. */
  readonly leftMax: number
}

/** The policy of the background. */
const BACKGROUND: FoldPolicy = { sourcesMax: 4, leftMax: 2 }

/**
 * A branch that would read a table from more sources than this has it folded before its first write to the
 * table. Otherwise statements could outgrow PostgreSQL's lock table while the background is busy.
 */
const SOURCES_MAX = 12

/**
 * A source that is at most this many times as large as the nearer ones together is folded with them. So each
 * row is copied rarely, and the sizes of folds grow geometrically.
 */
const SIZE_FACTOR = 2

/** A fold that fails as often is given up. Reads work without it. */
const ATTEMPTS_MAX = 10

/** Others may lock the rows of branches. The fold is built again later, so it does not wait long. */
const PUBLISH_TIMEOUT_MS = 5_000

/** Returns how many of the inherited sources to fold, by their sizes, the nearest first. */
export function countFolded(sizes: readonly number[], { leftMax }: FoldPolicy): number {
  let count = Math.max(1, sizes.length - leftMax)
  let total = sizes.slice(0, count).reduce((sum, size) => sum + size, 0)
  for (let next = sizes[count]; next !== undefined; next = sizes[count]) {
    if (next > SIZE_FACTOR * total) break
    total += next
    count++
  }
  return count
}

/**
 * Queues tables that a branch reads from many sources. Called in the transaction that creates the own heaps
 * of the branch.
 */
export async function requestFolds(
  transaction: Queryable,
  layout: Layout,
  tables: readonly Pick<StoredTable, 'id'>[],
): Promise<void> {
  const deep = tables.filter(({ id }) => needsFold(layout, id, BACKGROUND))
  if (deep.length === 0) return
  await transaction.query(sql`
    insert into offshoot.fold_work (branch_id, table_id)
    select ${layout.branchId}, unnest(${deep.map(({ id }) => id)}::bigint[])`)
}

function needsFold(layout: Layout, tableId: number, { sourcesMax }: FoldPolicy): boolean {
  const inherited = inheritedSources(layout, tableId)
  return inherited.length + 1 > sourcesMax && inherited.length > 0 && !isFolded(layout, tableId)
}

function inheritedSources(layout: Layout, tableId: number): Source[] {
  return sourcesOf(layout, tableId).filter(({ level }) => level > 0)
}

/** Whether the state that a branch started with has a fold. */
function isFolded({ levels }: Layout, tableId: number): boolean {
  return levels[1]?.folds.has(tableId) === true
}

/** Requests fold one at a time, because each fold needs a connection of its own. */
let lastFold: Promise<unknown> = Promise.resolve()

/** Folds tables that have so many sources that another one would be too many. */
export async function foldTooDeep(
  database: Database,
  layout: Layout,
  tables: readonly Pick<StoredTable, 'id'>[],
): Promise<void> {
  for (const { id } of tables) {
    if (!needsFold(layout, id, { ...BACKGROUND, sourcesMax: SOURCES_MAX })) continue
    const fold = lastFold.then(() => {
      return foldTable(database, { branchId: layout.branchId, tableId: id })
    })
    lastFold = fold.catch(() => undefined)
    await fold.catch((error: unknown) => {
      if (!isPassing(error)) throw error
    })
  }
}

/** Folds the first table in the queue. Returns whether there was one. */
export async function foldNext(database: Database): Promise<boolean> {
  const [work] = await database.query<{ id: string; branchId: string; tableId: string }>(sql`
    select id, branch_id as "branchId", table_id as "tableId"
    from offshoot.fold_work
    order by id
    limit 1`)
  if (work === undefined) return false
  try {
    await foldTable(database, { branchId: work.branchId, tableId: Number(work.tableId) })
    await database.query(sql`delete from offshoot.fold_work where id = ${work.id}`)
  } catch (error) {
    // To the end of the queue, so that it does not keep others waiting.
    await database.query(sql`
      with failed as (delete from offshoot.fold_work where id = ${work.id} returning *)
      insert into offshoot.fold_work (branch_id, table_id, attempts)
      select branch_id, table_id, attempts + 1 from failed where attempts < ${ATTEMPTS_MAX}`)
    if (!isPassing(error)) throw error
  }
  return true
}

/** A schema edit has cancelled the fold, its sources are gone, or another process has built it. */
function isPassing(error: unknown): boolean {
  const passing = [QUERY_CANCELED, '55P03', '23505', '40P01']
  return isUndefinedTable(error) || passing.includes(codeOf(error) ?? '')
}

/** Returns the number of tables in the queue. */
export async function countFoldWork(database: Queryable): Promise<number> {
  const [row] = await database.query<{ count: number }>(sql`
    select count(*)::integer as count from offshoot.fold_work`)
  return row?.count ?? 0
}

/** Folds the inherited rows of a table on a branch, if it has too many sources. Returns whether it did. */
export async function foldTable(
  database: Database,
  options: { branchId: string; tableId: number; policy?: FoldPolicy },
): Promise<boolean> {
  const { branchId, tableId, policy = BACKGROUND } = options
  const layout = await findLayout(database, branchId)
  if (layout === undefined || !needsFold(layout, tableId, policy)) return false
  // The statements may take long, and the transaction must not occupy a connection of the pool.
  const connection = await database.openLong()
  try {
    await connection.query(sql`begin isolation level read committed`)
    const isBuilt = await buildFold(connection, { layout, tableId, policy })
    await connection.query(isBuilt ? sql`commit` : sql`rollback`)
    return isBuilt
  } finally {
    await connection.end()
  }
}

async function buildFold(
  connection: Queryable,
  options: { layout: Layout; tableId: number; policy: FoldPolicy },
): Promise<boolean> {
  const { layout, tableId, policy } = options
  const inherited = inheritedSources(layout, tableId)
  const sizes = await sizesOf(connection, inherited)
  const folded = inherited.slice(0, countFolded(sizes, policy))
  const isWhole = folded.length === inherited.length
  if (folded.length === 1 && !isWhole) return false
  if (!(await lockSources(connection, folded))) return false
  const [row] = await connection.query<{ heapId: string }>(sql`
    select nextval(pg_get_serial_sequence('offshoot.heaps', 'id')) as "heapId"`)
  if (row === undefined) throw new Error('a sequence must return a number')
  const { heapId } = row
  const columnIds = [...new Set(folded.flatMap((source) => [...source.columnIds]))]
  const fills = await findFills(connection, layout, columnIds)
  await connection.query(sql`
    create table ${heapName(heapId)} as ${selectNearest(folded, { columnIds, fills, isWhole })}`)
  const fileColumnIds = await findFileColumns(connection, folded)
  const table = await findTable(connection, layout, tableId)
  await connection.query(sql`alter table ${heapName(heapId)} add primary key (id)`)
  const indexes = { heapId, table, columnIds, fileColumnIds }
  for (const statement of await foldIndexStatements(connection, indexes)) {
    await createIfPossible(connection, statement)
  }
  await connection.query(sql`analyze ${heapName(heapId)}`)
  return publishFold(connection, { layout, tableId, heapId, folded, columnIds, fileColumnIds })
}

/** Creates an index. Queries work without it if a value is too long for it. */
async function createIfPossible(connection: Queryable, statement: Sql): Promise<void> {
  await connection.query(sql`savepoint without_index`)
  try {
    await connection.query(statement)
  } catch (error) {
    if (codeOf(error) !== TOO_LONG) throw error
    await connection.query(sql`rollback to savepoint without_index`)
  }
  await connection.query(sql`release savepoint without_index`)
}

/** Returns the size of each source, in bytes. */
async function sizesOf(connection: Queryable, sources: readonly Source[]): Promise<number[]> {
  const rows = await connection.query<{ bytes: string | null }>(sql`
    select pg_relation_size(to_regclass('offshoot_rows.heap_' || s.id))
      + coalesce(pg_relation_size(to_regclass('offshoot_rows.past_' || s.id)), 0) as bytes
    from unnest(${sources.map(({ heapId }) => heapId)}::text[]) with ordinality s (id, n)
    order by s.n`)
  return rows.map(({ bytes }) => Number(bytes ?? 0))
}

/**
 * Takes the locks of index builds on the sources. An operation that alters one of the tables cancels this
 * transaction, as it does with index builds, instead of waiting for it. Returns whether all locks are free.
 */
async function lockSources(connection: Queryable, sources: readonly Source[]): Promise<boolean> {
  const rows = await connection.query<{ isFree: boolean }>(sql`
    select pg_try_advisory_xact_lock(${INDEX_KEY}::integer, hashint8(s.id)) as "isFree"
    from unnest(${sources.map(({ heapId }) => heapId)}::bigint[]) s (id)`)
  return rows.every(({ isFree }) => isFree)
}

/**
 * Finds the fill values of columns, in PostgreSQL's text form. A column has the same fill value in all
 * schemas. Columns that the branch does not have are kept, because a merge may give them to its forks.
 */
async function findFills(
  connection: Queryable,
  { databaseId }: Layout,
  columnIds: readonly number[],
): Promise<ReadonlyMap<number, string>> {
  const rows = await connection.query<{ id: string; fill: string }>(sql`
    select distinct c ->> 'id' as id, c ->> 'fill' as fill
    from offshoot.schemas s,
      jsonb_path_query(s.document, '$.**.columns[*] ? (exists (@.fill))') c
    where s.database_id = ${databaseId} and (c ->> 'id')::bigint = any(${columnIds}::bigint[])`)
  return new Map(rows.map(({ id, fill }) => [Number(id), fill]))
}

async function findFileColumns(
  connection: Queryable,
  sources: readonly Source[],
): Promise<number[]> {
  const rows = await connection.query<{ id: number }>(sql`
    select distinct unnest(file_column_ids)::double precision as id
    from offshoot.heaps
    where id = any(${sources.map(({ heapId }) => heapId)}::bigint[])`)
  return rows.map(({ id }) => id)
}

/** Finds the definition of the table on the branch, which says what indexes the fold has. */
async function findTable(
  connection: Queryable,
  { schemaId }: Layout,
  tableId: number,
): Promise<StoredTable | undefined> {
  const [row] = await connection.query<{ document: StoredSchema }>(sql`
    select document from offshoot.schemas where id = ${schemaId}`)
  return row?.document.tables.find(({ id }) => id === tableId)
}

/** Selects the nearest row of each id. A fold of all sources needs no tombstones. */
function selectNearest(
  sources: readonly Source[],
  options: {
    columnIds: readonly number[]
    fills: ReadonlyMap<number, string>
    isWhole: boolean
  },
): Sql {
  const { columnIds, fills, isWhole } = options
  const names = [
    ...['version', 'epoch', 'created_at', 'updated_at', 'deleted', 'id'],
    ...columnIds.map((id) => `c${id}`),
  ].map(ident)
  const columns = join(
    names.map((name) => sql`r.${name}`),
    ', ',
  )
  const selects = sources.flatMap((source, rank) =>
    selectSource(source, { rank, columnIds, fills, sources }),
  )
  return sql`
    select ${columns}
    from (
      select distinct on (a.id) a.*
      from (${join(selects, ' union all ')}) a
      order by a.id, a.rank
    ) r${isWhole ? sql` where not r.deleted` : empty}`
}

function selectSource(
  source: Source,
  options: {
    rank: number
    columnIds: readonly number[]
    fills: ReadonlyMap<number, string>
    sources: readonly Source[]
  },
): Sql[] {
  const { heapId, asOf } = source
  const columns = options.columnIds.map((id) => {
    const name = ident(`c${id}`)
    return source.columnIds.has(id)
      ? sql`, h.${name}`
      : sql`, ${missingValue(id, options)} as ${name}`
  })
  const select = (table: Sql, condition: Sql) => sql`
    select h.version, h.epoch, h.created_at, h.updated_at, h.deleted, h.id${join([empty, ...columns], '')},
      ${raw(String(options.rank))} as rank
    from ${table} h
    where ${condition}`
  if (asOf === undefined) return [select(heapName(heapId), sql`true`)]
  const epoch = raw(String(asOf))
  return [
    select(heapName(heapId), sql`h.epoch <= ${epoch}`),
    select(pastName(heapId), sql`h.epoch <= ${epoch} and h.until > ${epoch}`),
  ]
}

/** Returns the value of a column that a source lacks, with the type that the column has in another one. */
function missingValue(
  id: number,
  { fills, sources }: { fills: ReadonlyMap<number, string>; sources: readonly Source[] },
): Sql {
  const other = sources.find(({ columnIds }) => columnIds.has(id))
  if (other === undefined) throw new Error('a column of a fold must exist in a source')
  const nothing = sql`(null::${heapName(other.heapId)}).${ident(`c${id}`)}`
  const fill = fills.get(id)
  // A tombstone has no values.
  return fill === undefined
    ? nothing
    : sql`case when h.deleted then ${nothing} else ${literal(fill)} end`
}

/**
 * Inserts the fold into the catalogue, unless a reset has moved its sources to another branch meanwhile. The
 * stamps of all branches that inherit the state change, so that they read the fold from now on.
 */
async function publishFold(
  connection: Queryable,
  options: {
    layout: Layout
    tableId: number
    heapId: string
    folded: readonly Source[]
    columnIds: readonly number[]
    fileColumnIds: readonly number[]
  },
): Promise<boolean> {
  const { tableId, heapId, folded, columnIds, fileColumnIds } = options
  const { branchId, databaseId } = options.layout
  await connection.query(
    sql`select set_config('lock_timeout', ${String(PUBLISH_TIMEOUT_MS)}, true)`,
  )
  await lockFolds(connection, databaseId)
  const layout = await findLayout(connection, branchId)
  const sources = layout && inheritedSources(layout, tableId)
  const state = layout?.levels[1]
  const isSame =
    sources !== undefined &&
    folded.every(({ heapId, asOf }, index) => {
      return sources[index]?.heapId === heapId && sources[index]?.asOf === asOf
    })
  if (!isSame || state?.asOf === undefined) return false
  const next = sources[folded.length]
  await connection.query(sql`
    insert into offshoot.heaps
      (id, database_id, branch_id, table_id, column_ids, file_column_ids, epoch, kind, next_branch_id)
    overriding system value
    values (${heapId}, ${databaseId}, ${state.branchId}, ${tableId}, ${columnIds}::bigint[],
      ${fileColumnIds}::bigint[], ${state.asOf}, 'fold', ${next?.branchId ?? null})`)
  await connection.query(sql`
    with recursive readers as (
      select id
      from offshoot.branches
      where parent_id = ${state.branchId} and fork_epoch = ${state.asOf}
      union all
      select b.id from readers r join offshoot.branches b on b.parent_id = r.id
    )
    update offshoot.branches
    set stamp = nextval('offshoot.stamps')
    where id in (
      select id
      from offshoot.branches
      where id in (select id from readers) and deleted_at is null
      order by id
      for no key update
    )`)
  // Deleted branches of the chain may have lost their last reader.
  const levels = layout?.levels.slice(1, next?.level) ?? []
  await connection.query(sql`
    insert into offshoot.sweeps (branch_id)
    select id
    from offshoot.branches
    where id = any(${levels.map((level) => level.branchId)}::text[]) and deleted_at is not null`)
  return true
}

/** Excludes others that publish folds of a database or move rows to another branch. */
export async function lockFolds(transaction: Queryable, databaseId: string): Promise<void> {
  await transaction.query(sql`
    select pg_advisory_xact_lock(${FOLD_KEY}::integer, hashint8(${databaseId}::bigint))`)
}
