import { AppError, type FaultEntry } from '@offshoot/contract/errors'
import type { Limits } from '@offshoot/contract/limits'
import type { ParsedLine } from '../../common/line-reader.js'
import type { BranchTable } from '../../rows/open-branch.js'
import type { StagedRow } from '../../rows/writing/staged-rows.js'
import type { InvalidRecord } from '../session/record-errors.js'
import { codeOfFaults, encodeInput, FAULTS_LISTED_MAX } from './encode-input.js'
import type { RecordInput } from './record-input.js'
import type { StreamSource } from './stream-source.js'

/*
 * The lines of a stream of records, one JSON object per line.
 */

/** How a stream treats a record whose id exists. */
export type ExistingRecords = 'refuse' | 'skip' | 'replace'

export interface StreamRequest {
  readonly source: StreamSource
  readonly idempotencyKey: string | undefined
  /** The URL of the request, which is part of its idempotency hash. */
  readonly url: string
  /** Called with the entry of the log when records are stored. */
  onEntry?(id: string): void
  /** Called before more bytes of a long line are held; throws if there is no room for them. */
  onHold(bytes: number): void
}

/** The results of the lines so far. */
export class Tally {
  inserted = 0
  failed = 0
  /** Existing records that were changed, or left as they are. undefined if neither was asked for. */
  kept:
    | { readonly updated: number; readonly unchanged?: number }
    | { readonly skipped: number }
    | undefined
  readonly faults: FaultEntry[] = []
  /** The result of each line, in their order. undefined if it was not asked for, or if there are too many. */
  results: unknown[] | undefined

  refuse(line: number, fault: InvalidRecord): void {
    this.failed++
    if (this.faults.length < FAULTS_LISTED_MAX) {
      this.faults.push({ index: line - 1, line, status: 400, ...fault })
    }
  }

  /** Faults by line. Lines that are not JSON are found earlier than invalid records. */
  get sorted(): FaultEntry[] {
    return this.faults.toSorted((left, right) => left.index - right.index)
  }

  toJson(): string {
    const errors = this.sorted.map(({ index, status, ...fault }) => fault)
    const { results, inserted, failed, kept } = this
    return JSON.stringify({ results, inserted, ...kept, failed, errors })
  }
}

export function valuesOf(lines: readonly ParsedLine[]): unknown[] {
  return lines.map(({ value }) => value)
}

/** Lines that are encoded between two pauses. */
const LINES_PER_STEP = 16

/** Validates and encodes lines, in steps. Counts invalid ones and leaves them out. */
export function* encodeLines(
  table: BranchTable,
  lines: readonly ParsedLine[],
  { tally, input }: { tally: Tally; input: RecordInput },
): Generator<undefined, StagedRow[], undefined> {
  const rows: StagedRow[] = []
  for (const [index, { line, value, fault }] of lines.entries()) {
    const row = fault === undefined ? encodeInput(table.codec, value, input) : { message: fault }
    if ('message' in row) tally.refuse(line, row)
    else rows.push({ line, id: row.id, isNewId: row.isNewId === true, values: row.values })
    if (index % LINES_PER_STEP === 0) yield
  }
  return rows
}

/** JSON escapes a character with up to six characters, so a line may be that much longer than its record. */
const ESCAPE_FACTOR = 6

/** Returns the maximum length of a line. A record with files may be as long as a request. */
export function lineBytesMax({ codec }: BranchTable, limits: Limits): number {
  const bytes = limits.recordBytesMax * ESCAPE_FACTOR
  return codec.fileColumns.length === 0 ? bytes : Math.max(bytes, limits.requestBytesMax)
}

export function streamFailed(tally: Tally): AppError {
  const count = tally.failed === 1 ? '1 line is' : `${tally.failed} lines are`
  return new AppError(codeOfFaults(tally.faults), `${count} invalid; nothing was inserted`, {
    errors: tally.sorted,
  })
}
