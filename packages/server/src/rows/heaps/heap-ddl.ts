import type { Progress } from '@offshoot/contract/operations'
import { allDone } from '../../common/all-done.js'
import { expressionSql } from '../../dialect/row-expression.js'
import type { Queryable } from '../../postgres/database.js'
import { codeOf } from '../../postgres/failures.js'
import { empty, ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { prepared } from '../../postgres/statement.js'
import { type PhysicalColumn, physicalName } from '../columns/column-tree.js'
import { COLUMN_TYPE_ENTRIES, isFileType } from '../columns/column-types.js'
import {
  checkOf,
  isComputed,
  listStoredChecks,
  type StoredCheck,
} from '../columns/computed-columns.js'
import {
  listAllColumns,
  listKeyColumns,
  type StoredColumn,
  type StoredConstraint,
  type StoredTable,
} from '../columns/stored-schema.js'
import { createGate } from '../gates/gate.js'
import {
  newIndexStatements,
  releaseIndexes,
  requestIndexes,
  TOO_LONG,
  typedKeys,
  wantsIndex,
  wantsSearchIndex,
} from '../indexes/heap-indexes.js'
import { stopBuilding } from '../indexes/index-lock.js'
import { sampleStatistics } from '../layout/heap-statistics.js'
import {
  checkName,
  type Heap,
  type HeapAddress,
  heapName,
  pastKeyIndexName,
  pastName,
  qualified,
  uniqueIndexName,
  versionsName,
} from '../layout/layout.js'
import { StorageHold } from '../layout/storage-hold.js'
import { heapColumns, storedValue } from '../reading/arms.js'
import { divideRows } from './row-parts.js'
import { movingRows, newVersionsStatements } from './versions.js'

type ColumnShape = Pick<PhysicalColumn, 'id' | 'physicalName' | 'sqlType' | 'column'>

/** Describes the columns of heaps, which do not have computed ones. */
function physicalShapes(columns: readonly StoredColumn[]): ColumnShape[] {
  return listAllColumns(columns.filter((column) => !isComputed(column))).map((column) => ({
    id: column.id,
    physicalName: physicalName(column),
    sqlType: COLUMN_TYPE_ENTRIES[column.type].sqlType,
    column,
  }))
}

interface NewHeap extends HeapAddress {
  readonly table: StoredTable
}

/** Creates the heaps and pasts of tables on a branch, in few round trips. Requires the exclusive gate. */
export async function createHeaps(
  transaction: Queryable,
  options: {
    databaseId: string
    branchId: string
    epoch: number
    tables: readonly StoredTable[]
  },
): Promise<void> {
  if (options.tables.length === 0) return
  const [, heaps] = await allDone([
    createGate(transaction, options.branchId),
    insertHeaps(transaction, options),
  ])
  await createTables(transaction, heaps)
}

/** Creates the tables of heaps. */
export async function createTables(
  transaction: Queryable,
  heaps: readonly NewHeap[],
): Promise<void> {
  const statements: Sql[] = []
  for (const heap of heaps) {
    const shapes = physicalShapes(heap.table.columns)
    statements.push(...tableStatements(heap, shapes), ...idIndexStatements(heap, heap.table))
    statements.push(...ruleStatements(heap, heap.table))
    statements.push(...newVersionsStatements(transaction, heap, heap.table))
    for (const { column } of shapes) {
      statements.push(...(await newIndexStatements(transaction, { ...heap, column })))
    }
  }
  await transaction.server.define(transaction, statements)
}

/** A description of the columns of a new heap, for statements that insert heaps. */
export function describeHeap({ id, columns }: StoredTable): {
  readonly tableId: number
  readonly columnIds: readonly number[]
  readonly fileColumnIds: readonly number[]
} {
  const shapes = physicalShapes(columns)
  return {
    tableId: id,
    columnIds: shapes.map((shape) => shape.id),
    fileColumnIds: fileColumnIds(shapes),
  }
}

const idsIn = (name: string): Sql => sql`
    array(select jsonb_array_elements_text(t -> ${name}::text)::bigint)`

/** Values for `HEAP_COLUMNS` from a row `t` with the description of a heap. */
export const HEAP_VALUES = sql`(t ->> 'tableId')::bigint, ${idsIn('columnIds')}, ${idsIn('fileColumnIds')}`
export const HEAP_COLUMNS = sql`table_id, column_ids, file_column_ids`

async function insertHeaps(
  transaction: Queryable,
  options: {
    databaseId: string
    branchId: string
    epoch: number
    tables: readonly StoredTable[]
  },
): Promise<NewHeap[]> {
  const { databaseId, branchId, epoch } = options
  const tables = new Map(options.tables.map((table) => [table.id, table]))
  const given = [...tables.values()].map(describeHeap)
  const rows = await transaction.query<{ heapId: string; tableId: string }>(
    prepared(sql`
    insert into offshoot.heaps (database_id, branch_id, epoch, ${HEAP_COLUMNS})
    select ${databaseId}::bigint, ${branchId}, ${epoch}::integer, ${HEAP_VALUES}
    from jsonb_array_elements(${JSON.stringify(given)}::jsonb) t
    returning id as "heapId", table_id as "tableId"`),
  )
  return rows.flatMap(({ heapId, tableId }) => {
    const table = tables.get(Number(tableId))
    return table === undefined ? [] : [{ databaseId, heapId, table }]
  })
}

/** The columns that all rows have, except for their ids. Those of fixed width come first, to avoid alignment padding. */
export const rowColumns = (defaultEpoch = empty): Sql => sql`
    version integer not null default 0,
    epoch integer not null ${defaultEpoch},
    created_at timestamptz(3) not null default now(),
    updated_at timestamptz(3) not null default now(),
    deleted boolean not null default false`

/** Returns a statement that creates a table like a heap, without its rules, indexes and past. */
export function draftStatement(heap: HeapAddress, columns: readonly StoredColumn[]): Sql {
  return heapStatement(heap, physicalShapes(columns))
}

function heapStatement(heap: HeapAddress, shapes: readonly ColumnShape[]): Sql {
  return sql`
      create table ${heapName(heap)} (
        ${rowColumns()},
        id text collate "C" primary key${columnDefinitions(shapes)}
      )`
}

function columnDefinitions(shapes: readonly ColumnShape[]): Sql {
  const definitions = shapes.map(
    (shape) => sql`, ${ident(shape.physicalName)} ${raw(shape.sqlType)}`,
  )
  return join([sql``, ...definitions], '')
}

function tableStatements(heap: HeapAddress, shapes: readonly ColumnShape[]): Sql[] {
  return [
    heapStatement(heap, shapes),
    sql`
      create table ${pastName(heap)} (
        ${rowColumns()},
        until integer not null,
        id text collate "C" not null${columnDefinitions(shapes)},
        primary key (id, until)
      )`,
    // Finds changes since a fork. The partial index is empty for a branch that was never forked.
    sql`create index on ${heapName(heap)} (epoch) where epoch > 1`,
    sql`create index on ${pastName(heap)} (until)`,
    ...fileIndexStatements(heap, shapes),
  ]
}

/** Ids of another type than text also have an index by that type, for pages in its order and for SQL. */
function idIndexStatements(
  heap: HeapAddress,
  { idType }: Pick<StoredTable, 'idType'>,
  { past } = { past: true },
): Sql[] {
  if (idType === undefined) return []
  const tables = past ? [heapName(heap), pastName(heap)] : [heapName(heap)]
  return tables.map((table) => sql`create index on ${table} ${typedKeys('id', idType)}`)
}

async function runAll(transaction: Queryable, statements: readonly Sql[]): Promise<void> {
  for (const statement of statements) await transaction.query(statement)
}

/**
 * Adds a column and its nested columns to an existing heap. Existing rows get the value of the column that it is made of,
 * or else the fill value. Their versions and epochs stay: nobody has read the column yet. Forks that exist do not read it
 * (`column_epochs`), so rows of the past have no values of it.
 */
export async function addHeapColumn(
  transaction: Queryable,
  heap: Heap,
  {
    table,
    column,
    tell,
  }: {
    table: StoredTable
    column: StoredColumn
    /** Is told how far the conversion of the values has come. It throws if it is to stop. */
    tell?: ((progress: Progress) => void) | undefined
  },
): Promise<void> {
  const { heapId } = heap
  const shapes = physicalShapes([column])
  const ids = shapes.map(({ id }) => id)
  await stopBuilding(transaction, heapId)
  const alter = (name: Sql, clauseOf: (shape: ColumnShape) => Sql, some = shapes) =>
    transaction.query(sql`alter table ${name} ${join(some.map(clauseOf), ', ')}`)
  const added = ({ physicalName, sqlType }: ColumnShape) =>
    sql`add column ${ident(physicalName)} ${raw(sqlType)}`
  await alter(heapName(heap), (shape) => sql`${added(shape)}${fillOf(shape)}`)
  await alter(pastName(heap), added)
  const filled = shapes.filter((shape) => shape.column.fill !== undefined)
  if (filled.length > 0) {
    // The default has filled existing rows; inserts always give a value.
    const withoutDefault = (shape: ColumnShape) =>
      sql`alter column ${ident(shape.physicalName)} drop default`
    await alter(heapName(heap), withoutDefault, filled)
  }
  if (column.from !== undefined) {
    const converted = storedValue(sql`h`, column, heap)
    await movingRows(transaction, table, async () => {
      const step = `writing column [${table.name}.${column.name}]`
      const parts = await divideRows(transaction, heap)
      for (const [index, isPart] of parts.entries()) {
        tell?.({ step, done: index, total: parts.length })
        await transaction.query(sql`
          update ${heapName(heap)} h
          set ${ident(physicalName(column))} = ${converted}
          where not h.deleted and ${isPart}`)
      }
    })
  }
  await runAll(transaction, [
    ...ruleStatements(heap, { columns: [column] }),
    ...fileIndexStatements(heap, shapes),
  ])
  await transaction.query(sql`
    update offshoot.heaps h
    set column_ids = h.column_ids || ${ids}::bigint[],
      file_column_ids = h.file_column_ids || ${fileColumnIds(shapes)}::bigint[],
      column_epochs = coalesce(h.column_epochs, '{}')
        || (select jsonb_object_agg(i, b.epoch) from unnest(${ids}::bigint[]) i)
    from offshoot.branches b
    where h.id = ${heapId} and b.id = h.branch_id`)
  for (const shape of shapes) {
    if (!wantsIndex(shape.column) && !wantsSearchIndex(table, shape.column)) continue
    await requestIndexes(transaction, { ...heap, table, column: shape.column })
  }
}

/**
 * Changes the indexes of a column of a heap after its rules. An index that no rule needs any more is dropped now, because
 * it would refuse values.
 */
export async function alterHeapColumn(
  transaction: Queryable,
  heap: HeapAddress,
  options: { table: StoredTable; before: StoredColumn; column: StoredColumn },
): Promise<void> {
  const { table, before, column } = options
  if ((before.unique ?? false) === (column.unique ?? false)) return
  await stopBuilding(transaction, heap.heapId)
  // A merge has created the heap with the index, if the target had none.
  const name = uniqueIndexName(heap.heapId, column.id)
  await transaction.query(sql`drop index if exists ${qualified(heap.databaseId, name)}`)
  if (column.unique) await runAll(transaction, ruleStatements(heap, { columns: [column] }))
  await requestIndexes(transaction, { ...heap, table, column })
}

function fillOf({ column, sqlType }: ColumnShape): Sql {
  const { fill } = column
  return fill === undefined ? sql`` : sql` default (${literal(fill)}::${raw(sqlType)})`
}

/** Returns statements for the unique indexes and the checks of a table, or of some of its columns and constraints. */
function ruleStatements(
  heap: HeapAddress,
  rules: Pick<StoredTable, 'columns' | 'constraints'>,
): Sql[] {
  const keys = [...listKeyColumns(rules)].flatMap(([id, columns]) => {
    const names = join(
      columns.map((column) => ident(physicalName({ id: column }))),
      ', ',
    )
    return [
      sql`
        create unique index ${ident(uniqueIndexName(heap.heapId, id))}
        on ${heapName(heap)} (${names})
        where not deleted`,
      // The past is indexed too, to compare values that a fork writes with those it inherits.
      sql`create index if not exists ${ident(pastKeyIndexName(heap.heapId, id))} on ${pastName(heap)} (${names})`,
    ]
  })
  return [...keys, ...listStoredChecks(rules).map((check) => checkStatement(heap, check))]
}

/** Rows that the heap has already were checked as rows of the branch, with those that it inherits. */
function checkStatement(heap: HeapAddress, { id, expression }: StoredCheck): Sql {
  const condition = expressionSql(expression, (column) => ident(physicalName({ id: column })))
  return sql`
    alter table ${heapName(heap)}
    add constraint ${ident(checkName(heap.heapId, id))}
    check (deleted or (${condition})) not valid`
}

/** Adds a constraint to a heap. Throws if rows of the heap have the same value of a unique key. */
export async function addHeapConstraint(
  transaction: Queryable,
  heap: HeapAddress,
  { table, constraint }: { table: StoredTable; constraint: StoredConstraint },
): Promise<void> {
  const check = checkOf(constraint, table)
  if (check !== undefined) return addHeapCheck(transaction, heap, check)
  // A merge has created the heap with it, if the target had none.
  await dropHeapConstraint(transaction, heap, constraint)
  await runAll(transaction, ruleStatements(heap, { columns: [], constraints: [constraint] }))
}

/** Adds a check to a heap, in place of the one that it has. */
export async function addHeapCheck(
  transaction: Queryable,
  heap: HeapAddress,
  check: StoredCheck,
): Promise<void> {
  await dropHeapConstraint(transaction, heap, check)
  await transaction.query(checkStatement(heap, check))
}

export async function dropHeapConstraint(
  transaction: Queryable,
  heap: HeapAddress,
  { id }: { readonly id: number },
): Promise<void> {
  const { databaseId, heapId } = heap
  await stopBuilding(transaction, heapId)
  const indexes = [uniqueIndexName(heapId, id), pastKeyIndexName(heapId, id)]
  await runAll(transaction, [
    sql`alter table ${heapName(heap)} drop constraint if exists ${ident(checkName(heapId, id))}`,
    ...indexes.map((name) => sql`drop index if exists ${qualified(databaseId, name)}`),
  ])
}

/** A table that was filled at once, and what is known of its columns. */
interface FilledTable extends HeapAddress {
  /** The definition of the table, which says what indexes it has. */
  readonly table: StoredTable | undefined
  readonly columnIds: readonly number[]
  readonly fileColumnIds: readonly number[]
}

/** Creates the primary key and the indexes of a layer, and collects its statistics. */
export async function createLayerIndexes(
  transaction: Queryable,
  filled: FilledTable,
): Promise<void> {
  const name = heapName(filled)
  await transaction.query(sql`alter table ${name} add primary key (id)`)
  for (const statement of await layerIndexStatements(transaction, filled)) {
    await createIfPossible(transaction, statement)
  }
  const columns = heapColumns({ ...filled, columnIds: new Set(filled.columnIds) })
  await sampleStatistics(transaction, name, { columns })
}

/** Creates an index. Queries work without it if a value is too long for it. */
async function createIfPossible(transaction: Queryable, statement: Sql): Promise<void> {
  await transaction.query(sql`savepoint without_index`)
  try {
    await transaction.query(statement)
  } catch (error) {
    if (codeOf(error) !== TOO_LONG) throw error
    await transaction.query(sql`rollback to savepoint without_index`)
  }
  await transaction.query(sql`release savepoint without_index`)
}

/** Returns statements that create the indexes of a layer: those of a heap, except for vectors. */
async function layerIndexStatements(database: Queryable, options: FilledTable): Promise<Sql[]> {
  const { databaseId, heapId, table, columnIds } = options
  const statements = table === undefined ? [] : idIndexStatements(options, table, { past: false })
  for (const [id, columns] of table === undefined ? [] : listKeyColumns(table)) {
    if (!columns.every((column) => columnIds.includes(column))) continue
    const names = columns.map((column) => ident(physicalName({ id: column })))
    statements.push(sql`
      create index ${ident(uniqueIndexName(heapId, id))}
      on ${heapName(options)} (${join(names, ', ')})`)
  }
  for (const { id, column } of physicalShapes(table?.columns ?? [])) {
    if (table === undefined || !columnIds.includes(id) || column.type === 'vector') continue
    const target = { databaseId, heapId, table, column }
    const indexes = await newIndexStatements(database, target, { past: false })
    statements.push(...indexes)
  }
  return [
    ...statements,
    ...options.fileColumnIds.map((id) => fileIndexStatement(heapName(options), id)),
  ]
}

export function fileColumnIds(shapes: readonly Pick<ColumnShape, 'id' | 'column'>[]): number[] {
  return shapes.filter(({ column }) => isFileType(column.type)).map(({ id }) => id)
}

/** Returns SQL for the content hashes in a `file` or `file[]` column. */
export function mentionedContents(column: Sql): Sql {
  return sql`jsonb_path_query_array(${column}, '$[*].sha256')`
}

/** Indexes content hashes, because the collector looks for rows that refer to a content. */
function fileIndexStatements(heap: HeapAddress, shapes: readonly ColumnShape[]): Sql[] {
  return fileColumnIds(shapes).flatMap((id) =>
    [heapName(heap), pastName(heap)].map((table) => fileIndexStatement(table, id)),
  )
}

function fileIndexStatement(table: Sql, columnId: number): Sql {
  const column = ident(`c${columnId}`)
  return sql`
    create index on ${table} using gin ((${mentionedContents(column)}))
    where ${column} is not null`
}

/**
 * Releases the indexes of a removed column. Its values stay, for forks that still have the column. While there
 * may be such forks, the builder decides whether to drop an index. A unique index refuses nothing meanwhile,
 * because the branch writes no more values of the column.
 */
export async function dropColumnRules(
  transaction: Queryable,
  heap: HeapAddress,
  options: { column: StoredColumn; hasForks: boolean },
): Promise<void> {
  const { databaseId, heapId } = heap
  const { hasForks } = options
  for (const column of listAllColumns([options.column])) {
    await releaseIndexes(transaction, { databaseId, heapId, column })
  }
  if (options.column.unique !== true || hasForks) return
  await stopBuilding(transaction, heapId)
  const name = uniqueIndexName(heapId, options.column.id)
  await transaction.query(sql`drop index if exists ${qualified(databaseId, name)}`)
}

/** Drops a heap or a layer. While a backup holds the storage, leaves it to the collector instead. */
export async function dropHeap(transaction: Queryable, heap: HeapAddress): Promise<void> {
  const { heapId } = heap
  if (!(await new StorageHold(transaction).mayRemove())) {
    await transaction.query(sql`
      update offshoot.heaps set branch_id = ${`dropped ${heapId}`} where id = ${heapId}`)
    return
  }
  await stopBuilding(transaction, heapId)
  await transaction.query(sql`
    drop table if exists ${heapName(heap)}, ${pastName(heap)}, ${versionsName(heap)}`)
  await transaction.query(sql`delete from offshoot.heaps where id = ${heapId}`)
}
