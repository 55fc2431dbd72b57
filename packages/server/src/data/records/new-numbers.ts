import type { EncodedUpdate } from '../../rows/columns/record-encoder.js'
import type { BranchTable } from '../../rows/open-branch.js'
import { type Origin, originOf, type Session } from '../session/session.js'
import type { BrokenRule } from '../session/taken-numbers.js'

/** Records of a table that may be new. */
interface NewRecords {
  readonly table: BranchTable
  readonly records: Iterable<unknown>
}

/**
 * Returns what generated values of records depend on, with numbers for the columns that have a sequence. All are taken at
 * once. A sequence goes on after the greatest number that a record has.
 */
export async function originOfRecords(
  session: Session,
  ...sets: readonly NewRecords[]
): Promise<Origin> {
  const origin = originOf(session)
  const numbers = new Map<number, ReadonlyMap<unknown, string>>()
  for (const { table, records } of sets) {
    for (const column of table.codec.sequences) {
      numbers.set(column.id, await takeFor(session, { table, column, records }))
    }
  }
  if (numbers.size === 0) return origin
  return { ...origin, numberOf: (record, columnId) => numbers.get(columnId)?.get(record) }
}

async function takeFor(
  { numbers }: Session,
  {
    table,
    column,
    records,
  }: NewRecords & { readonly column: BranchTable['codec']['sequences'][number] },
): Promise<ReadonlyMap<unknown, string>> {
  const { id: itemId, name, max } = column
  const missing: unknown[] = []
  let above = 0
  for (const record of records) {
    if (typeof record !== 'object' || record === null) continue
    const given = (record as Readonly<Record<string, unknown>>)[name]
    if (given === undefined) missing.push(record)
    // Any other value is refused, or too great, and moves no sequence.
    else if (column.follows(given)) above = Math.max(above, given)
  }
  if (missing.length === 0 && above === 0) return new Map()
  const first = await numbers.take({
    ...{ itemId, count: missing.length, above, max },
    of: `table [${table.codec.table.name}]: column [${name}]`,
  })
  return new Map(missing.map((record, index) => [record, String(first + index)]))
}

/** Updates of records of a table. */
interface Updates {
  readonly table: BranchTable
  readonly updates: Iterable<EncodedUpdate>
}

/** Lets sequences go on after the numbers that updates give. Results of arithmetic are not known before. */
export async function followUpdates(
  { numbers }: Session,
  { table: { codec }, updates }: Updates,
): Promise<void> {
  if (codec.sequences.length === 0) return
  const listed = [...updates]
  for (const { follows, id: itemId, name, max } of codec.sequences) {
    const column = codec.indexes.get(name) ?? -1
    let above = 0
    for (const { columns, values } of listed) {
      const number = Number(values[columns.indexOf(column)] ?? 0)
      if (follows(number)) above = Math.max(above, number)
    }
    const of = `table [${codec.table.name}]: column [${name}]`
    if (above > 0) await numbers.take({ itemId, count: 0, above, max, of })
  }
}

/** Gives back the numbers that a request has taken for records that were refused, while others of it were stored. */
export async function giveBackRefused(
  session: Session,
  { codec }: BranchTable,
  {
    stored,
    broken,
  }: {
    stored: Iterable<{
      readonly id?: string | undefined
      readonly values: readonly (string | null)[]
    }>
    /** The rules that the others have broken. */
    broken: Iterable<BrokenRule>
  },
): Promise<void> {
  const { ids, sequences, table, indexes } = codec
  if (ids.create !== undefined && sequences.length === 0) return
  const greatest = new Map<number, number>()
  const raise = (itemId: number, text: string | null | undefined) => {
    const number = Number(text ?? 0)
    if (number > (greatest.get(itemId) ?? 0)) greatest.set(itemId, number)
  }
  for (const { id, values } of stored) {
    if (ids.create === undefined) raise(table.id, id)
    for (const { id: itemId, name } of sequences) raise(itemId, values[indexes.get(name) ?? -1])
  }
  await session.numbers.giveBackAbove(greatest, broken)
}
