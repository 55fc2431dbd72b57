import type { SqlRunner } from './sql.js'

/** The part of a branch that an ORM needs. A client has it as well: it uses its own branch. */
export interface SqlBranch {
  readonly sql: SqlRunner
}

/** Explains why a transaction is refused. `instead` is the way that works. */
export function interactiveTransaction(instead: string): Error {
  return new Error(
    `Offshoot runs SQL over HTTP, so a transaction cannot stay open between statements. ${instead}`,
  )
}
