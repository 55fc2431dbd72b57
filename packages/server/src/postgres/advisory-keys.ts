/*
 * Keys of advisory locks. All processes of an instance, also of different versions, must use the same
 * keys, so a key never changes.
 */

/** Held while the catalogue is migrated. */
export const MIGRATION_KEY = 6_001_001
/** Held by a backup, or a restore of a database; see `rows/layout/storage-hold.ts`. */
export const STORAGE_KEY = 6_001_002
/** Held while a whole instance is restored. */
export const RESTORE_KEY = 6_001_003
/**
 * Held, together with the id of a heap, while an index of the heap is built. Locks with two keys
 * never conflict with locks with one, so this key may equal one of the others.
 */
export const INDEX_KEY = 6_001_002
/** Held, together with the id of a database, while the history of the database is compacted or moved. */
export const HISTORY_KEY = 6_001_005
/** Held, together with the id of a database, while a fold is published or rows are moved. */
export const FOLD_KEY = 6_001_006
/** Held, together with a hash of the id of a branch, while the gate of the branch is created, or must not be. */
export const GATE_KEY = 6_001_007
/** Held, together with a hash of its name, while a shape database is created, filled or dropped. */
export const SHAPE_KEY = 6_001_008
/** Held, together with the id of a database, while sequences of the database are joined. */
export const SEQUENCE_KEY = 6_001_009
