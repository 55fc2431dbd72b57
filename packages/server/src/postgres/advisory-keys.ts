/*
 * Advisory locks are told apart by numbers that all users of a PostgreSQL share. Every process of Offshoot
 * must use the same ones, so none may change.
 */

/** Held while the catalogue is migrated. */
export const MIGRATION_KEY = 6_001_001
/** Held by a backup; see `rows/layout/storage-hold.ts`. */
export const STORAGE_KEY = 6_001_002
/** Held while an instance is restored. */
export const RESTORE_KEY = 6_001_003
/**
 * Held, together with the id of a heap, while an index of it is made. Locks with two numbers never meet
 * those with one, so it can be equal to one of the keys above.
 */
export const INDEX_KEY = 6_001_002
