import { AppError } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { Queryable } from '../../postgres/database.js'
import type { Transaction } from '../../postgres/run-transaction.js'
import { ident, sql } from '../../postgres/sql.js'
import { physicalName } from '../columns/column-tree.js'
import type { StoredColumn, StoredTable } from '../columns/stored-schema.js'
import { compileTable } from '../columns/table-codec.js'
import { followedMax, inRangeSql, wholeRange } from '../columns/whole-numbers.js'
import { type HeapAddress, heapName, layoutOf } from '../layout/layout.js'
import { continueSequences } from '../layout/sequences.js'
import { type CheckedRows, selectChecked } from '../reading/checked-rows.js'
import type { AlteredColumn } from './column-problems.js'
import type { GeneratedColumn } from './made-values.js'

/** Lets the sequence of a new column go on after the numbers that existing rows have got. */
export async function startSequence(
  transaction: Transaction,
  heap: HeapAddress,
  { table, column: { id, name, bits } }: GeneratedColumn,
): Promise<void> {
  const [{ last = '0' } = {}] = await transaction.query<{ last: string }>(sql`
    select count(*) as last from ${heapName(heap)} where not deleted`)
  const { max } = wholeRange(bits)
  if (Number(last) > max) {
    throw new AppError(
      'invalid_schema',
      `table [${table.name}]: column [${name}]: the numbers up to ${max} are too few for ${last} records`,
    )
  }
  const { databaseId } = heap
  const sequences = [{ itemIds: [id], above: Number(last) }]
  await continueSequences(transaction, { databaseId, sequences })
}

/** Returns whether a column gets its numbers from a sequence that does not know all of its values. */
export function startsNumbering({ before, column }: AlteredColumn): boolean {
  if (column.generate !== 'sequence') return false
  return before.generate !== 'sequence' || before.id !== column.id
}

/** Lets the sequence of a changed column go on after that of the column before, and after the stored numbers. */
export async function continueSequence(
  transaction: Transaction,
  checked: CheckedRows,
  { table, before, column, limits }: AlteredColumn & { limits: Limits },
): Promise<void> {
  const { databaseId } = layoutOf(checked.rows)
  const above = await findGreatest(transaction, checked, { table, column, limits })
  const itemIds = [...new Set([before.id, column.id])]
  await continueSequences(transaction, { databaseId, sequences: [{ itemIds, above }] })
}

/** Returns the greatest number of a column after which its sequence goes on. 0: there is none. */
export async function findGreatest(
  transaction: Queryable,
  checked: CheckedRows,
  { table, column, limits }: { table: StoredTable; column: StoredColumn; limits: Limits },
): Promise<number> {
  const { stored } = compileTable({ ...table, columns: [column] }, { limits, jsonAsText: false })
  const value = sql`v.${ident(physicalName(column))}`
  const range = { min: 1, max: followedMax(wholeRange(column.bits).max) }
  const [{ last = null } = {}] = await transaction.query<{ last: string | null }>(sql`
    select max(${value})::text as last
    from (${selectChecked(checked, stored)}) v
    where ${inRangeSql(value, range)}`)
  return Number(last ?? 0)
}
