import { arrayLiteral } from '../../postgres/carriers.js'
import type { WritableTable } from '../../rows/open-branch.js'
import type { RowInput, TableWriter } from '../../rows/writing/table-writer.js'
import { columnTaken, type Violation } from '../session/record-errors.js'
import { planColumns } from '../session/session.js'
import type { RecordContext } from './records.js'

/** The id or a unique key, with the values that some rows have in it. Rows are given by index. */
export interface UniqueField {
  /** The violation of a row whose value is taken. */
  readonly violation: Violation
  /** The rows whose value exists on the branch. */
  readonly taken: ReadonlySet<number>
  /** The first row with an equal value, for each row. undefined for a row without a value. */
  readonly first: readonly (number | undefined)[]
}

/** Returns whether the value of a row exists on the branch, or is that of an earlier row. */
export function isRepeated({ taken, first }: UniqueField, row: number): boolean {
  return taken.has(row) || (first[row] !== undefined && first[row] !== row)
}

/** Reads which ids and unique values of rows are taken, and which rows have equal ones. */
export async function readUniqueFields(
  context: RecordContext,
  table: WritableTable,
  rows: readonly RowInput[],
): Promise<UniqueField[]> {
  const fields = [await readIds(context, table, rows)]
  for (const key of table.writer.uniqueKeys) {
    fields.push(await readValues(context, table, { key, rows }))
  }
  return fields
}

async function readIds(
  { session }: RecordContext,
  table: WritableTable,
  rows: readonly RowInput[],
): Promise<UniqueField> {
  const read = planColumns(table, [])
  const [found = []] = await session.branch.runReads([
    { statement: read.many, values: [arrayLiteral(rows.map((row) => row.id))] },
  ])
  const takenIds = new Set(found.map((row) => row[0]))
  const firstOf = new Map<string, number>()
  const taken = new Set<number>()
  const first = rows.map(({ id }, index) => {
    if (takenIds.has(id)) taken.add(index)
    const known = firstOf.get(id)
    if (known === undefined) firstOf.set(id, index)
    return known ?? index
  })
  return { violation: columnTaken(table.codec), taken, first }
}

/** Reads the values of a unique key, as PostgreSQL compares them. */
async function readValues(
  { session }: RecordContext,
  { writer }: WritableTable,
  options: { key: TableWriter['uniqueKeys'][number]; rows: readonly RowInput[] },
): Promise<UniqueField> {
  const { key, rows } = options
  const [found = [], repeated = []] = await session.branch.runReads([
    writer.findValues(key, rows),
    writer.findRepeated(key, rows),
  ])
  const taken = new Set(found.map((row) => Number(row[0])))
  const firstOf = new Map(repeated.map((row) => [Number(row[0]), Number(row[1])]))
  const first = rows.map(({ values }, index) =>
    writer.hasValue(key, values) ? (firstOf.get(index) ?? index) : undefined,
  )
  return { violation: writer.violationOf(key), taken, first }
}
