import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { Limits } from '@offshoot/contract/limits'
import { inTurns } from '../../common/in-turns.js'
import type { TableCodec } from '../../rows/columns/table-codec.js'
import type { WritableTable } from '../../rows/open-branch.js'
import type { RowInput } from '../../rows/writing/table-writer.js'
import { type TakenFields, takenFields } from '../session/record-errors.js'
import { addFault, type Batch, encodeSlice } from './encode-input.js'
import { recordInput } from './record-input.js'
import { sliceRecords } from './record-slices.js'
import type { RecordContext } from './records.js'
import { isRepeated, readUniqueFields, type UniqueField } from './unique-fields.js'

/**
 * Finds the records of a rejected bulk insert whose id or unique value is taken, in the table or by an earlier
 * record of the request.
 */
export async function findConflicts(
  context: RecordContext,
  table: WritableTable,
  options: { body: Buffer; limits: Limits; refusal: string; taken: TakenFields | undefined },
): Promise<Pick<Batch, 'faults' | 'faultCount'>> {
  const batch: Batch = { ids: [], faults: [], faultCount: 0 }
  const rows: RowInput[] = []
  for (const records of sliceRecords(options.body, options.limits)) {
    const input = await recordInput(context, table, records)
    for (const row of await inTurns(encodeSlice(table.codec, records, batch, input))) rows.push(row)
    await yieldToOthers()
  }
  const fields = await readUniqueFields(context, table, rows)
  await inTurns(addConflicts(batch, fields, { codec: table.codec, rowCount: rows.length }))
  // The conflicting row may have been deleted since.
  if (batch.faultCount === 0) {
    addFault(batch, 0, { message: `invalid record: ${options.refusal}`, ...options.taken })
  }
  return batch
}

function* addConflicts(
  batch: Batch,
  fields: readonly UniqueField[],
  { codec, rowCount }: { codec: TableCodec; rowCount: number },
): Generator<undefined, void, undefined> {
  for (let row = 0; row < rowCount; row++) {
    const taken = fields.filter((field) => isRepeated(field, row))
    const [first] = taken
    if (first !== undefined) {
      const reasons = taken.map(({ path }) => `column [${path}]: is not unique`)
      const message = `invalid record: ${reasons.join('; ')}`
      addFault(batch, row, { message, ...takenFields(codec, first.path) })
    }
    yield
  }
}
