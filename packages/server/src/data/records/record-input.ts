import type { BranchTable } from '../../rows/open-branch.js'
import type { FileWriter } from '../files/file-input.js'
import { type NewId, newIds } from './new-ids.js'
import { fileWriter } from './record-files.js'
import type { RecordContext } from './records.js'

/** What the records of a request are encoded with. */
export interface RecordInput {
  /** The value of columns with the default `now`. */
  readonly now: string
  readonly newId: NewId
  readonly files: FileWriter | undefined
}

export async function recordInput(
  context: RecordContext,
  table: BranchTable,
  records: readonly unknown[],
): Promise<RecordInput> {
  return {
    now: new Date().toISOString(),
    newId: await newIds(context.session, table, records),
    files: await fileWriter(context, table, records),
  }
}
