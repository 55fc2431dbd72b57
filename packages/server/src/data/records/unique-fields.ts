import { arrayLiteral } from '../../postgres/carriers.js'
import type { WritableTable } from '../../rows/open-branch.js'
import type { RowInput } from '../../rows/writing/table-writer.js'
import { planColumns } from '../session/session.js'
import type { RecordContext } from './records.js'

/** The id or a unique column, with the values that some rows have in it. Rows are given by index. */
export interface UniqueField {
  readonly path: string
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
  for (const column of table.writer.uniqueColumns) {
    fields.push(await readValues(context, table, { column, rows }))
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
  return { path: 'id', taken, first }
}

/** Reads the values of a unique column, as PostgreSQL compares them. */
async function readValues(
  { session }: RecordContext,
  { writer, codec }: WritableTable,
  options: { column: number; rows: readonly RowInput[] },
): Promise<UniqueField> {
  const { column, rows } = options
  const values = rows.map((row) => row.values[column] ?? null)
  const [found = [], repeated = []] = await session.branch.runReads([
    writer.findValues(column, values),
    writer.findRepeated(column, values),
  ])
  const takenValues = new Set(found.map((row) => row[0]))
  const firstOf = new Map(repeated.map((row) => [Number(row[0]), Number(row[1])]))
  const taken = new Set<number>()
  const first = values.map((value, index) => {
    if (value === null) return undefined
    if (takenValues.has(value)) taken.add(index)
    return firstOf.get(index) ?? index
  })
  return { path: codec.physical[column]?.path.join('.') ?? '', taken, first }
}
