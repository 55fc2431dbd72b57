import type { Sql } from '../postgres/sql.js'
import type { TableCodec } from './columns/table-codec.js'
import { type BranchRows, layoutOf, withTable } from './layout/layout.js'
import { type VisibleArm, visibleArms } from './reading/arms.js'
import type { TableLookup } from './reading/read-plan.js'

/*
 * Reading rows: the physical tables they come from, read plans, records as JSON, and running reads under the
 * guard of a session.
 */

export { schemaName } from './layout/database-schema.js'
export { countArms, countScans, selectNoRows, type VisibleArm } from './reading/arms.js'
export { countValues } from './reading/count-values.js'
export { selectJsonRows } from './reading/json-rows.js'
export {
  countOwn,
  countTexts,
  linkedTables,
  listContents,
  type ReadPlan,
  readsContents,
  requireScannedTables,
  type TableLookup,
  textOf,
} from './reading/read-plan.js'
export {
  type MetadataForm,
  writeFound,
  writeMetadata,
  writeRecord,
  writeSelection,
} from './reading/record-json.js'
export { indexedText, type TextKind, textKindOf } from './reading/searched-text.js'
export {
  joinRecord,
  type PlanRoot,
  recordAs,
  selectLinked,
  selectOwn,
  selectPlan,
} from './reading/select-plan.js'
export { estimateTexts } from './reading/text-statistics.js'
export { type Guard, keyGuardCall } from './running/guard.js'
export { runReads, runSnapshot } from './running/reads.js'
export { runSharedRead } from './running/shared-calls.js'
export {
  confirmed,
  confirmKey,
  isConfirmed,
  NewStorageError,
  StaleError,
} from './running/staleness.js'
export { type OpenTransaction, runSerialReads } from './running/transactions.js'

/**
 * Returns the physical tables that rows of a table come from on a branch. Together they contain each visible
 * row once. The list is empty if nothing was ever written.
 */
export function listArms(
  lookup: Pick<TableLookup, 'rows'>,
  codec: TableCodec,
  alias: Sql,
): VisibleArm[] {
  return visibleArms(layoutOf(lookup.rows), codec, alias)
}

/** Restricts the rows of a branch to one table, so that less data is sent to a worker thread. */
export function rowsOfTable(rows: BranchRows, tableId: number): BranchRows {
  return withTable(layoutOf(rows), tableId)
}
