/*
 * Indexes of columns: which columns have an index, its state, and the background builder.
 */

export {
  getVectorIndexing,
  releaseKeptIndexes,
  requestExtensionIndexes,
  UnindexableError,
  wantsIndex,
  wantsSearchIndex,
} from './indexes/heap-indexes.js'
export { IndexBuilder } from './indexes/index-builder.js'
export { findIndexStates } from './indexes/index-state.js'
export { findVectorIndex, type VectorIndex } from './indexes/vector-index.js'
