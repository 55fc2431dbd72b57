/*
 * The public interface of the package.
 */
export { acquireDataLock, type DataLock } from './data-lock.js'
export { DataLockError, EmbeddedError } from './errors.js'
export { findRunning, hasCluster } from './running.js'
export {
  type Connection,
  type EmbeddedOptions,
  type EmbeddedPostgres,
  startEmbedded,
} from './start-embedded.js'
