/** A problem of the embedded PostgreSQL that a person can act on. */
export class EmbeddedError extends Error {
  override readonly name = 'EmbeddedError'
}

/** The data folder belongs to another process, or cannot be locked. */
export class DataLockError extends Error {
  override readonly name = 'DataLockError'
}

/** The code of a failed system call, such as `ENOENT`. */
export function errorCode(error: unknown): string | undefined {
  if (!(error instanceof Error) || !('code' in error)) return undefined
  return typeof error.code === 'string' ? error.code : undefined
}

export function errorMessage(error: unknown): string {
  return error instanceof Error ? error.message : String(error)
}
