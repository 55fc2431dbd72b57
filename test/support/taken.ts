import { expect } from 'vitest'

/** Returns the fields that an error with this message has if it is about nothing but a taken or missing value. */
export function takenFields(message: string): object {
  const table = /^(?:invalid SQL: )?table \[([^\]]*)\]/.exec(message)?.[1] ?? expect.any(String)
  const column = /column \[([^\]]*)\]: is not unique/.exec(message)?.[1]
  if (column !== undefined) return { code: 'unique_violation', table, column }
  const missing =
    /column \[([^\]]*)\]: (?:a value is required|cannot be null)$/.exec(message)?.[1] ??
    /^invalid SQL: .*column \[(id)\]: expected [^:]*, got null$/.exec(message)?.[1]
  if (missing !== undefined) return { code: 'not_null_violation', table, column: missing }
  const isTaken = /record \[[^\]]*\] already exists$/.test(message)
  return isTaken ? { code: 'unique_violation', table, column: 'id' } : {}
}
