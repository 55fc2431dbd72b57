/** A backup or restore failed for a reason that its user can act on. */
export class BackupError extends Error {}
