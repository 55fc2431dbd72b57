/**
 * The reason why a value cannot be stored, as a short lower-case phrase. Faults are returned, not thrown: a
 * request may contain thousands of them, and all are reported.
 */
export class Fault {
  constructor(
    readonly message: string,
    /** The dotted path of a column that must have a value and has none. undefined: the fault is another one. */
    readonly missing?: string,
    /** The dotted path of the column at fault, if it is known. */
    readonly column = missing,
  ) {}

  static expected(what: string, value: unknown): Fault {
    return new Fault(`expected ${what}, got ${describe(value)}`)
  }
}

/** Names the kind of a JSON value, for "expected a string, got ...". */
function describe(value: unknown): string {
  if (value === null) return 'null'
  if (Array.isArray(value)) return 'an array'
  if (typeof value === 'object') return 'an object'
  return value === undefined ? 'nothing' : `a ${typeof value}`
}
