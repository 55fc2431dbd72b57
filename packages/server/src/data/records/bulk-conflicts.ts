import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { Limits } from '@offshoot/contract/limits'
import { inTurns } from '../../common/in-turns.js'
import type { WritableTable } from '../../rows/open-branch.js'
import type { Refusal } from '../../rows/writing/refusals.js'
import type { RowInput } from '../../rows/writing/table-writer.js'
import { type ViolationFields, violationFields } from '../session/record-errors.js'
import { findBrokenLinks } from './broken-links.js'
import { addFault, type Batch, encodeSlice } from './encode-input.js'
import { findFailing } from './failing-records.js'
import { recordInput } from './record-input.js'
import { sliceRecords } from './record-slices.js'
import type { RecordContext } from './records.js'
import { isRepeated, readUniqueFields, type UniqueField } from './unique-fields.js'

/**
 * Finds the records of a rejected bulk insert that break a rule: their id or unique value is taken, in the table or by
 * an earlier record of the request, they fail a check, or they link to a missing record.
 */
export async function findConflicts(
  context: RecordContext,
  table: WritableTable,
  options: {
    body: Buffer
    limits: Limits
    refusal: Refusal
    fields: ViolationFields | undefined
  },
): Promise<Pick<Batch, 'faults' | 'faultCount'>> {
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const rows: RowInput[] = []
  for (const records of sliceRecords(options.body, options.limits)) {
    const input = await recordInput(context, table, records)
    for (const row of await inTurns(encodeSlice(table.codec, records, batch, input))) rows.push(row)
    await yieldToOthers()
  }
  const fields = await readUniqueFields(context, table, rows)
  await inTurns(addConflicts(batch, fields, rows.length))
  await addFailures(context, table, { batch, rows })
  for (const { row, violation } of await findBrokenLinks(context, table, rows)) {
    const message = `invalid record: ${violation.message}`
    addFault(batch, row, { message, ...violationFields(violation) })
  }
  // The conflicting row may have been deleted since.
  if (batch.faultCount === 0) {
    addFault(batch, options.refusal.rowsBefore ?? 0, {
      message: `invalid record: ${options.refusal.message}`,
      ...options.fields,
    })
  }
  return batch
}

function* addConflicts(
  batch: Batch,
  fields: readonly UniqueField[],
  rowCount: number,
): Generator<undefined, void, undefined> {
  for (let row = 0; row < rowCount; row++) {
    const taken = fields.filter((field) => isRepeated(field, row))
    const [first] = taken
    if (first !== undefined) {
      const reasons = taken.map(({ violation }) => violation.message)
      const message = `invalid record: ${reasons.join('; ')}`
      addFault(batch, row, { message, ...violationFields(first.violation) })
    }
    yield
  }
}

/** Adds the records that fail checks, or for which they cannot be evaluated. */
async function addFailures(
  { session }: RecordContext,
  table: WritableTable,
  { batch, rows }: { batch: Batch; rows: readonly RowInput[] },
): Promise<void> {
  for (const { row, violation } of await findFailing(session, table, rows)) {
    const message = `invalid record: ${violation.message}`
    addFault(batch, row, { message, ...violationFields(violation) })
  }
}
