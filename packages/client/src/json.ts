/**
 * Returns the JSON of a value. Throws for numbers and dates that JSON does not have: `JSON.stringify` makes null of them, which
 * would clear a column.
 */
export function toJson(value: unknown): string | undefined {
  const text = JSON.stringify(value)
  // A look at each value takes longer than all the rest, and only null can hide such a value.
  if (text?.includes('null')) JSON.stringify(value, requireExpressible)
  return text
}

function requireExpressible(this: unknown, key: string, value: unknown): unknown {
  // A date is a text or null already.
  const given = (this as Record<string, unknown>)[key]
  if (typeof given === 'number' && !Number.isFinite(given)) {
    throw new TypeError(`[${key}]: the number ${given} cannot be sent`)
  }
  if (given instanceof Date && value === null) {
    throw new TypeError(`[${key}]: an invalid date cannot be sent`)
  }
  return value
}
