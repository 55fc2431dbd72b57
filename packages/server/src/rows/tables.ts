import { LRUCache } from 'lru-cache'
import { BRANCH_CACHE } from '../common/branch-cache.js'
import type { Database, Queryable } from '../postgres/database.js'
import type { Sql } from '../postgres/sql.js'
import type { Statement } from '../postgres/statement.js'
import type { Fault } from './columns/fault.js'
import type { TableCodec } from './columns/table-codec.js'
import { ensureHeaps } from './layout/ensure-heaps.js'
import {
  type BranchRows,
  findLayout,
  type LevelRow,
  layoutOf,
  layoutSql,
  ownHeap,
  shallowLayoutSql,
  toLayout,
  toShallowLayout,
} from './layout/layout.js'
import {
  countTexts,
  linkedTables,
  planRead,
  type ReadPlan,
  readsContents,
  refuseColumns,
  type TableLookup,
} from './reading/read-plan.js'
import { compileReadMany, compileReadOne } from './reading/select-plan.js'
import { type Guard, ownerOf } from './running/guard.js'
import { NewStorageError } from './running/staleness.js'
import { TableWriter } from './writing/table-writer.js'

/*
 * The tables of a branch, and the statements that read and write them. Callers do not know whether a branch
 * has a parent.
 */

export type { BranchRows, ReadIds, StoredAs } from './layout/layout.js'
export {
  applySchemaChanges,
  type SchemaChange,
  UnfillableColumnError,
} from './layout/schema-changes.js'
export {
  areRelated,
  findStartRows,
  readByIds,
  type StartPoint,
  startPoint,
  startRows,
} from './layout/states.js'

const READS_MAX = 20_000
/** A level takes about as much memory as this number of columns. */
const COLUMNS_OF_LEVEL = 10
/** Estimated length of the statements of all compiled reads, in characters. */
const READS_LENGTH_MAX = 64 * 1024 * 1024
/** Estimated length of one value in a statement, for each table that rows come from. */
const VALUE_LENGTH = 100

/** Finds the rows of a branch. Returns undefined if there is no such branch. */
export function findRows(database: Queryable, branchId: string): Promise<BranchRows | undefined> {
  return findLayout(database, branchId)
}

/**
 * A subquery that finds the rows of a branch together with other things. `toRows` takes its result. With `hidden`, the
 * branch may be hidden.
 */
export const rowsSql: (branchId: Sql, options?: { hidden?: boolean }) => Sql = layoutSql

export function toRows(found: unknown): BranchRows | undefined {
  return toLayout((found ?? []) as readonly LevelRow[])
}

/** Like `rowsSql`, for `toShallowRows`: finds the rows of a branch only if it inherits from few others. */
export const shallowRowsSql: (branchId: Sql) => Sql = shallowLayoutSql

export function toShallowRows(found: unknown): BranchRows | undefined {
  return toShallowLayout((found ?? []) as readonly LevelRow[])
}

/** Returns whether the branch was ever forked, so that its writers keep old versions. */
export function hasForks(rows: BranchRows): boolean {
  return layoutOf(rows).hasForks
}

/** A table on a branch. */
export interface BranchTable {
  readonly codec: TableCodec
  /** undefined until `makeWritable` has created the branch's own storage for the table. */
  readonly writer: TableWriter | undefined
  /**
   * Compiles statements that read the given columns (dotted paths). Returns faults if columns are invalid.
   */
  read(columns: readonly string[]): CompiledRead | readonly Fault[]
}

/** A table that the branch can write to. */
export type WritableTable = BranchTable & { readonly writer: TableWriter }

export interface CompiledRead {
  readonly plan: ReadPlan
  /** Estimated length of the statements, in characters. */
  readonly length: number
  /** Whether contents of files are requested. They must be loaded separately. */
  readonly hasContents: boolean
  /** Takes an id. */
  readonly one: Statement
  /** Takes an array of ids. */
  readonly many: Statement
}

/** Returns the number of columns of all physical tables that rows of a branch come from. */
export function countStoredColumns(rows: BranchRows): number {
  const { levels } = layoutOf(rows)
  const heaps = levels.flatMap(({ heaps, overlays, folds }) => [
    ...heaps.values(),
    ...overlays.values(),
    ...folds.values(),
  ])
  return heaps.reduce(
    (count, { columnIds }) => count + 1 + columnIds.size,
    levels.length * COLUMNS_OF_LEVEL,
  )
}

/** The tables of a branch. Each is compiled on first use. */
export class BranchTables implements TableLookup {
  readonly rows: BranchRows
  readonly #schema: SchemaTables
  readonly #tables = new Map<string, BranchTable>()

  constructor(rows: BranchRows, schema: SchemaTables) {
    this.rows = rows
    this.#schema = schema
  }

  tableById(id: number): TableCodec | undefined {
    return this.#schema.tableById(id)
  }

  find(name: string): BranchTable | undefined {
    const known = this.#tables.get(name)
    if (known !== undefined) return known
    const codec = this.#schema.tableByName(name)
    if (codec === undefined) return undefined
    const table = createTable(this, codec)
    this.#tables.set(name, table)
    return table
  }
}

/** The tables of a schema. */
interface SchemaTables {
  tableByName(name: string): TableCodec | undefined
  tableById(id: number): TableCodec | undefined
}

/** One cache for compiled reads of all tables, because there is no limit to the combinations of columns. */
const reads = new LRUCache<string, CompiledRead>({
  max: READS_MAX,
  maxSize: READS_LENGTH_MAX,
  sizeCalculation: ({ length }, key) => key.length + length,
  ...BRANCH_CACHE,
})
let tableCount = 0

function createTable(lookup: TableLookup, codec: TableCodec): BranchTable {
  const layout = layoutOf(lookup.rows)
  const heap = ownHeap(layout, codec.table.id)
  const number = ++tableCount
  return {
    codec,
    writer: heap && new TableWriter(layout, codec, heap),
    read(columns) {
      const refused = refuseColumns(columns)
      if (refused !== undefined) return [refused]
      const key = `${number} ${columns.join()}`
      const known = reads.get(key)
      if (known !== undefined) return known
      const plan = planRead(lookup, codec, columns)
      if (Array.isArray(plan)) return plan as readonly Fault[]
      const read = compileRead(lookup, plan as ReadPlan)
      reads.set(key, read)
      return read
    },
  }
}

/** Compiles statements on first use, because a query needs only the plan. */
function compileRead(lookup: TableLookup, plan: ReadPlan): CompiledRead {
  let one: Statement | undefined
  let many: Statement | undefined
  const values = countTexts(plan) + linkedTables(plan).length
  const levels = layoutOf(lookup.rows).levels.length
  return {
    plan,
    length: 2 * VALUE_LENGTH * values * (2 * levels),
    hasContents: readsContents(plan),
    get one() {
      one ??= compileReadOne(lookup, plan)
      return one
    },
    get many() {
      many ??= compileReadMany(lookup, plan)
      return many
    },
  }
}

/**
 * Returns the tables, ready for writes. The first write of a branch to a table creates its own storage. In
 * that case, throws a `StaleError`, so that the request starts over with the new layout.
 */
export async function makeWritable(
  database: Database,
  guard: Guard,
  tables: readonly BranchTable[],
): Promise<WritableTable[]> {
  const writable = tables.filter(isWritable)
  if (writable.length === tables.length) return writable
  const missing = tables.filter((table) => !isWritable(table))
  const stored = missing.map(({ codec }) => codec.table)
  const layout = layoutOf(guard.rows)
  const rows = await ensureHeaps(database, layout, { tables: stored, owner: ownerOf(guard) })
  throw new NewStorageError(rows)
}

export function isWritable(table: BranchTable): table is WritableTable {
  return table.writer !== undefined
}
