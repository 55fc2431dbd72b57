import type { BranchTable } from '../../rows/open-branch.js'
import type { FileWriter } from '../files/file-input.js'
import type { Origin } from '../session/session.js'
import { type NewId, newIds } from './new-ids.js'
import { originOfRecords } from './new-numbers.js'
import { fileWriter } from './record-files.js'
import type { RecordContext } from './records.js'

/** What the records of a request are encoded with. */
export interface RecordInput {
  readonly origin: Origin
  readonly newId: NewId
  readonly files: FileWriter | undefined
}

export async function recordInput(
  context: RecordContext,
  table: BranchTable,
  records: readonly unknown[],
): Promise<RecordInput> {
  return {
    origin: await originOfRecords(context.session, { table, records }),
    newId: await newIds(context.session, table, records),
    files: await fileWriter(context, table, records),
  }
}
