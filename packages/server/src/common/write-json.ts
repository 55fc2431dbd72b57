/** Members up to which an object or a list without further ones is written at once. */
const MEMBERS_AT_ONCE = 100

/**
 * Writes a value as JSON text, in steps between which the event loop can run other work. The value
 * consists of plain objects, lists, texts, numbers and booleans.
 */
export function* writeJson(value: unknown): Generator<undefined, string, undefined> {
  if (isShort(value)) return JSON.stringify(value)
  let parts: string[] = []
  if (Array.isArray(value)) {
    const chunks: string[] = []
    for (const item of value) {
      parts.push(isShort(item) ? JSON.stringify(item ?? null) : yield* writeJson(item))
      if (parts.length < MEMBERS_AT_ONCE) continue
      // Hundreds of thousands of short texts would be copied by the garbage collector.
      chunks.push(parts.join(','))
      parts = []
      yield
    }
    if (parts.length > 0) chunks.push(parts.join(','))
    return `[${chunks.join(',')}]`
  }
  for (const [name, member] of Object.entries(value as object)) {
    if (member === undefined) continue
    const text = isShort(member) ? JSON.stringify(member) : yield* writeJson(member)
    parts.push(`${JSON.stringify(name)}:${text}`)
    if (parts.length % MEMBERS_AT_ONCE === 0) yield
  }
  yield
  return `{${parts.join(',')}}`
}

/** Returns whether a value has few members, none of which has any. */
function isShort(value: unknown): boolean {
  if (!isComposite(value)) return true
  // A for-in loop would first make a list of all indexes.
  if (Array.isArray(value)) return value.length <= MEMBERS_AT_ONCE && !value.some(isComposite)
  let count = 0
  for (const name in value) {
    if (++count > MEMBERS_AT_ONCE || isComposite((value as Record<string, unknown>)[name])) {
      return false
    }
  }
  return true
}

function isComposite(value: unknown): value is object {
  return typeof value === 'object' && value !== null
}
