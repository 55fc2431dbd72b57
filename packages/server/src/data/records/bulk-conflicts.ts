import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { Limits } from '@offshoot/contract/limits'
import { arrayLiteral } from '../../rows/columns.js'
import { runReads } from '../../rows/read.js'
import type { BranchTable, WritableTable } from '../../rows/tables.js'
import type { RowInput } from '../../rows/write.js'
import { planColumns } from '../session/session.js'
import { addFault, type Batch, encodeSlice } from './encode-input.js'
import { fileWriter } from './record-files.js'
import { sliceRecords } from './record-slices.js'
import type { RecordContext } from './records.js'

/**
 * Finds the records of a rejected bulk insert whose id or unique value is taken, in the table or by an earlier
 * record of the request.
 */
export async function findConflicts(
  context: RecordContext,
  table: WritableTable,
  options: { body: Buffer; limits: Limits; refusal: string },
): Promise<Pick<Batch, 'faults' | 'faultCount'>> {
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const rows: RowInput[] = []
  for (const records of sliceRecords(options.body, options.limits)) {
    const files = await fileWriter(context, table, records)
    rows.push(...encodeSlice(table.codec, records, batch, files))
    await yieldToOthers()
  }
  const messages = new Map<number, string[]>()
  const note = (index: number, path: string) => {
    messages.set(index, [...(messages.get(index) ?? []), `column [${path}]: is not unique`])
  }
  for (const index of await findTakenIds(context, table, rows)) note(index, 'id')
  for (const column of table.writer.uniqueColumns) {
    const path = table.codec.physical[column]?.path.join('.') ?? ''
    for (const index of await findTakenValues(context, table, { column, rows })) note(index, path)
  }
  for (const [index, list] of [...messages].sort(([left], [right]) => left - right)) {
    addFault(batch, index, `invalid record: ${list.join('; ')}`)
  }
  // The conflicting row may have been deleted since.
  if (batch.faultCount === 0) addFault(batch, 0, `invalid record: ${options.refusal}`)
  return batch
}

/** Finds the rows whose id is taken, by a record or by an earlier row. */
async function findTakenIds(
  context: RecordContext,
  table: BranchTable,
  rows: readonly RowInput[],
): Promise<number[]> {
  const read = planColumns(table, [])
  const [found = []] = await runReads(context.database, context.session.guard, [
    { statement: read.many, values: [arrayLiteral(rows.map((row) => row.id))] },
  ])
  const taken = new Set(found.map((row) => row[0]))
  return rows.flatMap(({ id }, index) => {
    const isTaken = taken.has(id)
    taken.add(id)
    return isTaken ? [index] : []
  })
}

/** Finds the rows whose value of a unique column is taken, as PostgreSQL compares values. */
async function findTakenValues(
  { database, session }: RecordContext,
  { writer }: WritableTable,
  options: { column: number; rows: readonly RowInput[] },
): Promise<number[]> {
  const { column, rows } = options
  const values = rows.map((row) => row.values[column] ?? null)
  const [found = [], repeated = []] = await runReads(database, session.guard, [
    writer.findValues(column, values),
    writer.findRepeated(column, values),
  ])
  const taken = new Set(found.map((row) => row[0]))
  const repeatedAt = new Set(repeated.map((row) => Number(row[0])))
  return values.flatMap((value, index) =>
    value !== null && (taken.has(value) || repeatedAt.has(index)) ? [index] : [],
  )
}
