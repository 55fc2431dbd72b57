/*
 * Indexes of columns: which columns have one, how far it is, and the process that makes them.
 */

export {
  getVectorIndexing,
  requestExtensionIndexes,
  UnindexableError,
  wantsIndex,
  wantsSearchIndex,
} from './indexes/heap-indexes.js'
export { IndexBuilder } from './indexes/index-builder.js'
export { findIndexStates } from './indexes/index-state.js'
export { findVectorIndex, type VectorIndex } from './indexes/vector-index.js'
