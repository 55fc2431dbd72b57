import type { Limits } from '@offshoot/contract/limits'
import { allDone } from '../common/all-done.js'
import type { Queryable } from '../postgres/database.js'
import { type Sql, sql } from '../postgres/sql.js'
import type { StoredTable } from './columns/stored-schema.js'
import { compileTable } from './columns/table-codec.js'
import { lockFolds } from './heaps/publish-fold.js'
import type { ForkPoint } from './layout/fork.js'
import { sizeTables } from './layout/heap-sizes.js'
import {
  type BranchRows,
  findLayout,
  type Layout,
  type LevelRow,
  layoutOf,
  layoutSql,
  ownRows,
  type Source,
  sourcesOf,
  toLayout,
} from './layout/layout.js'
import { selectVisible } from './reading/arms.js'

/*
 * Where the rows of a branch are, and how they are moved and measured.
 */

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

/** Moves the rows of a branch, and the forks that read them, to another branch with the same state. */
export async function moveRows(
  transaction: Queryable,
  { databaseId, from, to }: { databaseId: string; from: string; to: string },
): Promise<void> {
  await allDone([
    lockFolds(transaction, databaseId),
    // First the heaps, then the forks: `deleteUnseenVersions` relies on this order.
    transaction.query(sql`
      update offshoot.heaps set branch_id = ${to} where branch_id = ${from}`),
    transaction.query(sql`
      update offshoot.heaps set next_branch_id = ${to} where next_branch_id = ${from}`),
    // The stamps of the forks change, because sessions cache the layout of a branch.
    transaction.query(sql`
      update offshoot.branches
      set parent_id = ${to}, stamp = nextval('offshoot.stamps')
      where parent_id = ${from}`),
  ])
}

/** Returns assignments that turn a branch without rows into a fork of the given state. */
export function restartFrom(point: ForkPoint): Sql {
  return sql`parent_id = ${point.id}, fork_epoch = ${point.epoch}, epoch = 1,
      fork_stamp = nextval('offshoot.stamps'), resets = resets + 1`
}

/** The rows or bytes that a branch stores itself, and those that it inherits. */
export interface Amounts {
  readonly owned: number
  readonly inherited: number
}

/** Returns the size of a table on a branch. Counts every row. */
export async function measureTable(
  transaction: Queryable,
  rows: BranchRows,
  { table, limits }: { table: StoredTable; limits: Limits },
): Promise<{ rows: Amounts; bytes: Amounts }> {
  const layout = layoutOf(rows)
  return {
    rows: await countRows(transaction, layout, { table, limits }),
    bytes: await countBytes(transaction, layout, table),
  }
}

async function countRows(
  transaction: Queryable,
  layout: Layout,
  { table, limits }: { table: StoredTable; limits: Limits },
): Promise<Amounts> {
  const codec = compileTable(table, { limits, jsonAsText: false })
  const [own, inherited] = [
    selectVisible(ownRows(layout), codec),
    selectVisible(layout, codec, { isInherited: true }),
  ]
  const [row] = await transaction.query<Amounts>(sql`
    select
      (select count(*)::integer from (${own}) o) as owned,
      (select count(*)::integer from (${inherited}) i) as inherited`)
  return row ?? { owned: 0, inherited: 0 }
}

async function countBytes(
  transaction: Queryable,
  layout: Layout,
  table: StoredTable,
): Promise<Amounts> {
  const sources = sourcesOf(layout, table.id)
  const sizeOf = async (isCounted: (source: Source) => boolean): Promise<number> => {
    const names = sources
      .filter(isCounted)
      .flatMap(({ heapId }) => [`heap_${heapId}`, `past_${heapId}`])
    return sizeTables(transaction, { databaseId: layout.databaseId, names })
  }
  return {
    owned: await sizeOf(({ level }) => level <= 0),
    inherited: await sizeOf(({ level }) => level > 0),
  }
}
