/** Nesting depth down to which a value is divided. Deeper values are written at once. */
const DIVIDED_DEPTH = 4

/**
 * Writes a value as JSON text, in steps between which the event loop can run other work. The value
 * consists of plain objects, lists, texts, numbers and booleans.
 */
export function* writeJson(
  value: unknown,
  depth = DIVIDED_DEPTH,
): Generator<undefined, string, undefined> {
  if (typeof value !== 'object' || value === null || depth === 0) return JSON.stringify(value)
  const parts: string[] = []
  if (Array.isArray(value)) {
    for (const item of value) {
      parts.push(yield* writeJson(item ?? null, depth - 1))
      yield
    }
    return `[${parts.join(',')}]`
  }
  for (const [name, member] of Object.entries(value)) {
    if (member === undefined) continue
    parts.push(`${JSON.stringify(name)}:${yield* writeJson(member, depth - 1)}`)
  }
  return `{${parts.join(',')}}`
}
