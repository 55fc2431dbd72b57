import type { Queryable } from '../../postgres/database.js'
import { ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import type { PhysicalColumn } from '../columns/column-tree.js'
import { COLUMN_TYPE_ENTRIES, isFileType } from '../columns/column-types.js'
import {
  createIndexes,
  releaseIndexes,
  requestIndexes,
  wantsIndex,
  wantsSearchIndex,
} from '../indexes/heap-indexes.js'
import { stopBuilding } from '../indexes/index-lock.js'
import { heapName, pastName, uniqueIndexName } from './layout.js'
import { mayRemoveStorage } from './storage-hold.js'
import { listAllColumns, type StoredColumn, type StoredTable } from './stored-schema.js'

type ColumnShape = Pick<PhysicalColumn, 'id' | 'physicalName' | 'sqlType' | 'column'>

function physicalShapes(columns: readonly StoredColumn[]): ColumnShape[] {
  return listAllColumns(columns).map((column) => ({
    id: column.id,
    physicalName: `c${column.id}`,
    sqlType: COLUMN_TYPE_ENTRIES[column.type].sqlType,
    column,
  }))
}

/** Creates the heap and the past of a table on a branch. Requires the exclusive gate. */
export async function createHeap(
  transaction: Queryable,
  options: { databaseId: string; branchId: string; epoch: number; table: StoredTable },
): Promise<void> {
  const shapes = physicalShapes(options.table.columns)
  const [row] = await transaction.query<{ id: string }>(sql`
    insert into offshoot.heaps
      (database_id, branch_id, table_id, column_ids, file_column_ids, epoch)
    values (${options.databaseId}, ${options.branchId}, ${options.table.id},
      ${shapes.map((shape) => shape.id)}, ${fileColumnIds(shapes)}, ${options.epoch})
    returning id`)
  if (row === undefined) throw new Error('an inserted heap must be returned')
  const definitions = shapes.map(
    (shape) => sql`, ${ident(shape.physicalName)} ${raw(shape.sqlType)}`,
  )
  // Fixed-width columns come first, to avoid alignment padding.
  const common = sql`
    version integer not null default 0,
    epoch integer not null,
    created_at timestamptz(3) not null default now(),
    updated_at timestamptz(3) not null default now(),
    deleted boolean not null default false`
  await transaction.query(sql`
    create table ${heapName(row.id)} (
      ${common},
      id text collate "C" primary key${join([sql``, ...definitions], '')}
    )`)
  await transaction.query(sql`
    create table ${pastName(row.id)} (
      ${common},
      until integer not null,
      id text collate "C" not null${join([sql``, ...definitions], '')},
      primary key (id, until)
    )`)
  // Finds changes since a fork. The partial index is empty for a branch that was never forked.
  await transaction.query(sql`create index on ${heapName(row.id)} (epoch) where epoch > 1`)
  await transaction.query(sql`create index on ${pastName(row.id)} (until)`)
  for (const shape of shapes) {
    await createUniqueIndexes(transaction, row.id, shape)
    await createIndexes(transaction, { heapId: row.id, table: options.table, column: shape.column })
  }
  await createFileIndexes(transaction, row.id, shapes)
}

/** Adds a column and its nested columns to an existing heap. Existing rows get the fill value. */
export async function addHeapColumn(
  transaction: Queryable,
  options: { heapId: string; table: StoredTable; column: StoredColumn },
): Promise<void> {
  const { heapId } = options
  const shapes = physicalShapes([options.column])
  await stopBuilding(transaction, heapId)
  for (const table of [heapName(heapId), pastName(heapId)]) {
    const additions = shapes.map(
      (shape) => sql`add column ${ident(shape.physicalName)} ${raw(shape.sqlType)}${fillOf(shape)}`,
    )
    await transaction.query(sql`alter table ${table} ${join(additions, ', ')}`)
    for (const shape of shapes.filter(({ column }) => column.fill !== undefined)) {
      // The default has filled existing rows; inserts always give a value.
      await transaction.query(
        sql`alter table ${table} alter column ${ident(shape.physicalName)} drop default`,
      )
    }
  }
  for (const shape of shapes) await createUniqueIndexes(transaction, heapId, shape)
  await createFileIndexes(transaction, heapId, shapes)
  await transaction.query(sql`
    update offshoot.heaps
    set column_ids = column_ids || ${shapes.map((shape) => shape.id)}::bigint[],
      file_column_ids = file_column_ids || ${fileColumnIds(shapes)}::bigint[]
    where id = ${heapId}`)
  for (const { column } of shapes) {
    if (!wantsIndex(column) && !wantsSearchIndex(options.table, column)) continue
    await requestIndexes(transaction, { heapId, table: options.table, column })
  }
}

function fillOf({ column, sqlType }: ColumnShape): Sql {
  const { fill } = column
  return fill === undefined ? sql`` : sql` default (${literal(fill)}::${raw(sqlType)})`
}

/** The past is indexed too, to compare values that a fork writes with those it inherits. */
async function createUniqueIndexes(
  transaction: Queryable,
  heapId: string,
  { id, physicalName, column }: ColumnShape,
): Promise<void> {
  if (column.unique !== true) return
  await transaction.query(sql`
    create unique index ${ident(uniqueIndexName(heapId, id))}
    on ${heapName(heapId)} (${ident(physicalName)})
    where not deleted`)
  await transaction.query(sql`create index on ${pastName(heapId)} (${ident(physicalName)})`)
}

function fileColumnIds(shapes: readonly ColumnShape[]): number[] {
  return shapes.filter(({ column }) => isFileType(column.type)).map(({ id }) => id)
}

/** Returns SQL for the content hashes in a `file` or `file[]` column. */
export function mentionedContents(column: Sql): Sql {
  return sql`jsonb_path_query_array(${column}, '$[*].sha256')`
}

/** Indexes content hashes, because the collector looks for rows that refer to a content. */
async function createFileIndexes(
  transaction: Queryable,
  heapId: string,
  shapes: readonly ColumnShape[],
): Promise<void> {
  for (const id of fileColumnIds(shapes)) {
    const column = ident(`c${id}`)
    for (const table of [heapName(heapId), pastName(heapId)]) {
      await transaction.query(sql`
        create index on ${table} using gin ((${mentionedContents(column)}))
        where ${column} is not null`)
    }
  }
}

/** Drops the indexes of a removed column. Its values stay, for forks that still have the column. */
export async function dropColumnRules(
  transaction: Queryable,
  options: { heapId: string; column: StoredColumn },
): Promise<void> {
  const { heapId } = options
  for (const column of listAllColumns([options.column])) {
    await releaseIndexes(transaction, { heapId, column })
  }
  if (options.column.unique !== true) return
  await stopBuilding(transaction, heapId)
  const name = uniqueIndexName(heapId, options.column.id)
  await transaction.query(sql`drop index if exists offshoot_rows.${ident(name)}`)
}

/** Drops a heap. While a backup holds the storage, leaves the heap to the collector instead. */
export async function dropHeap(transaction: Queryable, heapId: string): Promise<void> {
  if (!(await mayRemoveStorage(transaction))) {
    await transaction.query(sql`
      update offshoot.heaps set branch_id = ${`dropped ${heapId}`} where id = ${heapId}`)
    return
  }
  await stopBuilding(transaction, heapId)
  await transaction.query(sql`drop table if exists ${heapName(heapId)}, ${pastName(heapId)}`)
  await transaction.query(sql`delete from offshoot.heaps where id = ${heapId}`)
}
