import type { WritableTable } from '../../rows/open-branch.js'
import type { RowInput } from '../../rows/writing/table-writer.js'
import type { Violation } from '../session/record-errors.js'
import type { RecordContext } from './records.js'

/** A row, by its index, that links to a record which does not exist. */
interface BrokenRow {
  readonly row: number
  readonly violation: Violation
}

/**
 * Finds the rows of a request that link to records which do not exist. Rows of the request count as existing, unless
 * their own links are broken.
 */
export async function findBrokenLinks(
  { session }: Pick<RecordContext, 'session'>,
  { writer }: WritableTable,
  rows: readonly RowInput[],
): Promise<BrokenRow[]> {
  const searches = writer.findMissing(rows)
  if (searches.length === 0) return []
  const found = await session.branch.runReads(searches.map(({ call }) => call))
  const missing = searches.flatMap((search, position) =>
    (found[position] ?? []).map(([row]) => ({ search, row: Number(row) })),
  )
  const free = new Set(rows.map(({ id }) => id))
  const broken = new Map<number, Violation>()
  for (let count = -1; count < broken.size; ) {
    count = broken.size
    for (const { search, row } of missing) {
      if (broken.has(row) || (search.isOwn && free.has(search.targetOf(row)))) continue
      broken.set(row, search.violationOf(row))
      free.delete(rows[row]?.id ?? '')
    }
  }
  return [...broken].map(([row, violation]) => ({ row, violation }))
}
