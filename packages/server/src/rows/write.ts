/*
 * Writing rows: calls for one or many rows of a table on a branch, sinks for bulk inserts, the transactions
 * they run in, and the reasons why PostgreSQL rejects values.
 */

export { answersName, findAnswering } from './layout/database-schema.js'
export { takeFilledHeap } from './layout/filled-heaps.js'
export {
  type ComparedStream,
  publishStream,
  requireGuard,
  StreamOutdatedError,
  stageStream,
} from './merging/publish-stream.js'
export { runSharedInsert } from './running/shared-calls.js'
export {
  openTransaction,
  runSteps,
  runWrites,
  type WriteTransaction,
} from './running/transactions.js'
export { describeRefusal, isTaken, rowsBefore, takenColumn } from './writing/refusals.js'
export { openSink, type RowSink, rowsPerStep } from './writing/row-sink.js'
export { collectStage, type StagedRow, StagedRows, type Written } from './writing/staged-rows.js'
export type { RowInput, TableWriter, UniqueCheck, UpdateInput } from './writing/table-writer.js'
