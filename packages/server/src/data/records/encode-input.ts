import { AppError, type FaultEntry, type ViolationCode } from '@offshoot/contract/errors'
import { Fault } from '../../rows/columns/fault.js'
import type { InputRecord } from '../../rows/columns/record-encoder.js'
import { isFaults, type TableCodec } from '../../rows/columns/table-codec.js'
import type { RowInput } from '../../rows/writing/table-writer.js'
import { describeFaults, type InvalidRecord } from '../session/record-errors.js'
import type { RecordInput } from './record-input.js'

/** Maximum number of faults that a response lists. Its message has the total number. */
export const FAULTS_LISTED_MAX = 1000

/** The ids and the faults of the records of a bulk insert so far. */
export interface Batch {
  readonly ids: string[]
  readonly faults: FaultEntry[]
  faultCount: number
}

/** Records that are encoded between two pauses. */
const RECORDS_PER_STEP = 16

/**
 * Validates and encodes records in steps, and assigns ids. Adds the faults of invalid records, and leaves these
 * out.
 */
export function* encodeSlice(
  codec: TableCodec,
  records: readonly unknown[],
  batch: Batch,
  input: RecordInput,
): Generator<undefined, RowInput[], undefined> {
  const rows: RowInput[] = []
  for (const [index, record] of records.entries()) {
    const row = encodeInput(codec, record, input)
    if ('message' in row) {
      addFault(batch, batch.ids.length, row)
      batch.ids.push('')
    } else {
      rows.push(row)
      batch.ids.push(row.id)
    }
    if (index % RECORDS_PER_STEP === 0) yield
  }
  return rows
}

/** Returns the row of a record, with an id, or a description of its faults. */
export function encodeInput(
  codec: TableCodec,
  record: unknown,
  { origin, newId, files }: RecordInput,
): RowInput | InvalidRecord {
  if (typeof record !== 'object' || record === null || Array.isArray(record)) {
    return { message: 'invalid record: expected an object' }
  }
  const given = (record as InputRecord).id
  const id = given === undefined ? undefined : codec.encodeId(given)
  const pending = files?.pending.length
  const values = codec.encodeRecord(record as InputRecord, origin, files?.encode)
  if (!(id instanceof Fault) && !isFaults(values)) {
    return id === undefined ? { id: newId(), isNewId: true, values } : { id, values }
  }
  // File contents of an invalid record are not stored.
  if (pending !== undefined) files?.pending.splice(pending)
  const faults = [...(id instanceof Fault ? [id] : []), ...(isFaults(values) ? values : [])]
  return describeFaults(codec, faults)
}

export function addFault(
  batch: Batch,
  index: number,
  fault: Pick<FaultEntry, 'message' | 'code' | 'table' | 'column'>,
): void {
  batch.faultCount++
  if (batch.faults.length < FAULTS_LISTED_MAX) batch.faults.push({ index, status: 400, ...fault })
}

/** Returns the code of an error with a list: that of all its entries, if they have the same one. */
export function codeOfFaults(faults: readonly FaultEntry[]): ViolationCode | 'invalid_record' {
  const [first] = faults
  const haveSame = faults.every(({ code }) => code === first?.code)
  return (haveSame && first?.code) || 'invalid_record'
}

/** Returns the error of a rejected bulk insert. */
export function bulkFailed({ faults, faultCount }: Pick<Batch, 'faults' | 'faultCount'>): AppError {
  const count = faultCount === 1 ? '1 record is' : `${faultCount} records are`
  const code = codeOfFaults(faults)
  return new AppError(code, `${count} invalid; nothing was inserted`, {
    errors: faults,
  })
}
