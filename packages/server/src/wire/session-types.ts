import type { SchemaTypes } from '../data/sql/schema/enum-types.js'

/**
 * The enums that a client has created. They belong to columns, so only its connection knows the names of those that no column
 * has. They change with the transaction.
 */
export class SessionTypes {
  #known: SchemaTypes = new Map()
  /** What was known when the transaction began. */
  #before: SchemaTypes | undefined
  /** What was known when each of its savepoints was made. */
  #saved: SchemaTypes[] = []

  get known(): SchemaTypes {
    return this.#known
  }

  /** Keeps what a change of the schema has left. */
  keep(types: SchemaTypes): void {
    this.#known = types
  }

  begin(): void {
    this.#before = this.#known
  }

  end({ isKept }: { isKept: boolean }): void {
    if (!isKept && this.#before !== undefined) this.#known = this.#before
    this.#before = undefined
    this.#saved = []
  }

  /** The transaction makes a savepoint, after `depth` others. */
  save(depth: number): void {
    this.#saved.length = depth
    this.#saved.push(this.#known)
  }

  /** The transaction returns to a savepoint, which is after `depth` others. */
  returnTo(depth: number): void {
    this.#known = this.#saved[depth] ?? this.#known
    this.#saved.length = depth + 1
  }
}
