import { INDEX_KEY } from '../../postgres/advisory-keys.js'
import type { Database, Queryable } from '../../postgres/database.js'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import type { StoredColumn, StoredSchema, StoredTable } from '../columns/stored-schema.js'
import {
  BACKGROUND,
  countFolded,
  type FoldPolicy,
  inheritedTiers,
  needsFold,
} from '../layout/fold-policy.js'
import { tablesOf } from '../layout/heap-sizes.js'
import { findLayout, heapName, type Layout, pastName, type Tier } from '../layout/layout.js'
import { storedValue } from '../reading/arms.js'
import { buildLayer } from './layers.js'
import { publishFold } from './publish-fold.js'

/** Thrown if a heap of the tiers has a layer, which is gone soon: a fold must not end between the two. */
export class LayeredError extends Error {}

/** Folds the inherited rows of a table on a branch, if it has too many tiers. Returns whether it did. */
export async function foldTable(
  database: Database,
  options: { branchId: string; tableId: number; policy?: FoldPolicy },
): Promise<boolean> {
  const { branchId, tableId, policy = BACKGROUND } = options
  const layout = await findLayout(database, branchId)
  if (layout === undefined || !needsFold(layout, tableId, policy)) return false
  // The level of such a layer is between those of heaps.
  if (inheritedTiers(layout, tableId).some(({ level }) => !Number.isInteger(level))) {
    throw new LayeredError('the rows of a layer are not yet in their heap')
  }
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
  const inherited = inheritedTiers(layout, tableId)
  const sizes = await sizesOf(connection, inherited)
  const folded = inherited.slice(0, countFolded(sizes, policy))
  const isWhole = folded.length === inherited.length
  if (folded.length === 1 && !isWhole) return false
  if (!(await lockTiers(connection, folded))) return false
  const columnIds = [...new Set(folded.flatMap((tier) => [...tier.columnIds]))]
  const filled = await findFilled(connection, layout, columnIds)
  const { databaseId } = layout
  const table = await findTable(connection, layout, tableId)
  const fileColumnIds = await findFileColumns(connection, folded)
  const layer = { databaseId, tableId, table, columnIds, fileColumnIds }
  const rows = selectNearest(folded, { columnIds, filled, isWhole })
  const fold = await buildLayer(connection, layer, rows)
  return publishFold(connection, fold, { layout, folded })
}

/** Returns the size of each tier, in bytes. */
async function sizesOf(connection: Queryable, tiers: readonly Tier[]): Promise<number[]> {
  const tables = tiers.flatMap(tablesOf)
  const sizes = await connection.server.sizeTables(connection, tables, 'rows')
  return tiers.map((_, index) => (sizes[2 * index] ?? 0) + (sizes[2 * index + 1] ?? 0))
}

/**
 * Takes the locks of index builds on the tiers. An operation that alters one of the tables cancels this
 * transaction, as it does with index builds, instead of waiting for it. Returns whether all locks are free.
 */
async function lockTiers(connection: Queryable, tiers: readonly Tier[]): Promise<boolean> {
  const rows = await connection.query<{ isFree: boolean }>(sql`
    select pg_try_advisory_xact_lock(${INDEX_KEY}::integer, hashint8(s.id)) as "isFree"
    from unnest(${tiers.map(({ heapId }) => heapId)}::bigint[]) s (id)`)
  return rows.every(({ isFree }) => isFree)
}

/**
 * Finds the columns that have a value in rows from before they were added: a fill value, or the value of the column that
 * they were made of, as the schema of the branch says. Columns that the branch does not have are kept, because a merge may
 * give them to its forks.
 */
async function findFilled(
  connection: Queryable,
  { databaseId, schemaId }: Layout,
  columnIds: readonly number[],
): Promise<ReadonlyMap<number, StoredColumn>> {
  const rows = await connection.query<{ column: StoredColumn }>(sql`
    select distinct on (c ->> 'id') c as column
    from offshoot.schemas s,
      jsonb_path_query(s.document, '$.**.columns[*] ? (exists (@.fill) || exists (@.from))') c
    where s.database_id = ${databaseId} and (c ->> 'id')::bigint = any(${columnIds}::bigint[])
    order by c ->> 'id', s.id = ${schemaId}::bigint desc`)
  return new Map(rows.map(({ column }) => [column.id, column]))
}

async function findFileColumns(connection: Queryable, tiers: readonly Tier[]): Promise<number[]> {
  const rows = await connection.query<{ id: number }>(sql`
    select distinct unnest(file_column_ids)::double precision as id
    from offshoot.heaps
    where id = any(${tiers.map(({ heapId }) => heapId)}::bigint[])`)
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

/** Selects the nearest row of each id. A fold of all tiers needs no tombstones. */
function selectNearest(
  tiers: readonly Tier[],
  options: {
    columnIds: readonly number[]
    filled: ReadonlyMap<number, StoredColumn>
    isWhole: boolean
  },
): Sql {
  const { columnIds, filled, isWhole } = options
  const names = [
    ...['version', 'epoch', 'created_at', 'updated_at', 'deleted', 'id'],
    ...columnIds.map((id) => `c${id}`),
  ].map(ident)
  const columns = join(
    names.map((name) => sql`r.${name}`),
    ', ',
  )
  const selects = tiers.flatMap((tier, rank) =>
    selectTier(tier, { rank, columnIds, filled, tiers }),
  )
  return sql`
    select ${columns}
    from (
      select distinct on (a.id) a.*
      from (${join(selects, ' union all ')}) a
      order by a.id, a.rank
    ) r${isWhole ? sql` where not r.deleted` : empty}`
}

function selectTier(
  tier: Tier,
  options: {
    rank: number
    columnIds: readonly number[]
    filled: ReadonlyMap<number, StoredColumn>
    tiers: readonly Tier[]
  },
): Sql[] {
  const { asOf } = tier
  const columns = options.columnIds.map((id) => {
    const name = ident(`c${id}`)
    return tier.columnIds.has(id)
      ? sql`, h.${name}`
      : sql`, ${missingValue(id, tier, options)} as ${name}`
  })
  const select = (table: Sql, condition: Sql) => sql`
    select h.version, h.epoch, h.created_at, h.updated_at, h.deleted, h.id${join([empty, ...columns], '')},
      ${raw(String(options.rank))} as rank
    from ${table} h
    where ${condition}`
  if (asOf === undefined) return [select(heapName(tier), sql`true`)]
  const epoch = raw(String(asOf))
  return [
    select(heapName(tier), sql`h.epoch <= ${epoch}`),
    select(pastName(tier), sql`h.epoch <= ${epoch} and h.until > ${epoch}`),
  ]
}

/** Returns the value of a column that a tier lacks, with the type that the column has in another one. */
function missingValue(
  id: number,
  tier: Tier,
  options: { filled: ReadonlyMap<number, StoredColumn>; tiers: readonly Tier[] },
): Sql {
  const other = options.tiers.find(({ columnIds }) => columnIds.has(id))
  if (other === undefined) throw new Error('a column of a fold must exist in a tier')
  const nothing = sql`(null::${heapName(other)}).${ident(`c${id}`)}`
  const column = options.filled.get(id)
  // A tombstone has no values.
  return column === undefined
    ? nothing
    : sql`case when h.deleted then ${nothing} else ${storedValue(sql`h`, column, tier)} end`
}
