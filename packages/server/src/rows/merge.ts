/*
 * Comparing the rows of two branches, and merging one into the other. A `Difference` is that of a table between two
 * states. A `Comparison` has the changes and the conflicts of a merge. How they are stored and published stays below.
 */

export { boundOwnRows } from './layout/heap-sizes.js'
export { analyzeGrownHeaps } from './layout/heap-statistics.js'
export { NO_COLUMN, type RowTexts, UNDECIDED } from './merging/compare-rows.js'
export {
  Comparison,
  type Outcome,
  OutdatedError,
  type TableComparison,
} from './merging/comparison.js'
export { Difference, hasManyChanges } from './merging/difference.js'
export { dropStagedOverlays } from './merging/publish-overlay.js'
export type { RowResolution } from './merging/settle.js'
export { dropLostStages, type RowConflict } from './merging/stage.js'
export type { TableBase, TableState } from './merging/table-states.js'
export { isWrittenBetween } from './merging/written-between.js'
