/** Why a backup or a restore cannot be made, in words for the one who asked for it. */
export class BackupError extends Error {}
