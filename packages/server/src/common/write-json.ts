import { roundedIn } from './exact-json.js'

/** Members up to which an object or a list without further ones is written at once. */
const MEMBERS_AT_ONCE = 100

/**
 * Writes a value as JSON text, in steps between which the event loop can run other work. The value
 * consists of plain objects, lists, texts, numbers and booleans. Numbers whose digits are remembered are written with them.
 */
export function* writeJson(value: unknown): Generator<undefined, string, undefined> {
  if (isShort(value)) return JSON.stringify(value)
  const rounded = roundedIn(value as object)
  let parts: string[] = []
  if (Array.isArray(value)) {
    const chunks: string[] = []
    for (const [index, item] of value.entries()) {
      const digits = rounded?.get(String(index))
      if (digits !== undefined) parts.push(digits)
      else parts.push(isShort(item) ? JSON.stringify(item ?? null) : yield* writeJson(item))
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
    const text =
      rounded?.get(name) ?? (isShort(member) ? JSON.stringify(member) : yield* writeJson(member))
    parts.push(`${JSON.stringify(name)}:${text}`)
    if (parts.length % MEMBERS_AT_ONCE === 0) yield
  }
  yield
  return `{${parts.join(',')}}`
}

/** Writes a short value as JSON text. Numbers whose digits are remembered are written with them. */
export function writeExactly(value: unknown): string {
  if (!hasRounded(value)) return JSON.stringify(value)
  const steps = writeJson(value)
  for (;;) {
    const step = steps.next()
    if (step.done) return step.value
  }
}

/** Returns whether the digits of a number in a value are remembered. */
function hasRounded(value: unknown): boolean {
  if (!isComposite(value)) return false
  if (roundedIn(value) !== undefined) return true
  return Object.values(value).some(hasRounded)
}

/** Returns whether a value has few members, none of which has any, and all numbers have their digits. */
function isShort(value: unknown): boolean {
  if (!isComposite(value)) return true
  if (roundedIn(value) !== undefined) return false
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

/**
 * JSON text, as a whole or in parts. Joining parts of many megabytes would block the event loop, so
 * they stay apart until they are sent.
 */
export type JsonText = string | readonly string[]

/** Characters up to which a text is joined at once. */
const JOINED_LENGTH = 1024 * 1024

/** Writes a list of JSON texts, with the text before and after it. */
export function listJson(before: string, items: readonly string[], after: string): JsonText {
  let length = 0
  for (const item of items) length += item.length
  if (length <= JOINED_LENGTH) return `${before}${items.join(',')}${after}`
  const parts: string[] = [before]
  for (const [index, item] of items.entries()) {
    if (index > 0) parts.push(',')
    parts.push(item)
  }
  parts.push(after)
  return parts
}

export function joinJson(text: JsonText): string {
  return typeof text === 'string' ? text : text.join('')
}

/** Returns JSON in which the keys of objects are sorted, so that equal values have equal texts. */
export function toCanonicalJson(value: unknown): string {
  return JSON.stringify(value, (_key, part: unknown) => {
    if (typeof part !== 'object' || part === null || Array.isArray(part)) return part
    return Object.fromEntries(Object.entries(part).sort(([a], [b]) => (a < b ? -1 : 1)))
  })
}

/** An object whose members are values as JSON text, or nested objects. */
export type JsonTree = Map<string, string | JsonTree>

/** Puts a value into the object that a path leads to. */
export function putValue(
  tree: JsonTree,
  [key = '', ...rest]: readonly string[],
  value: string,
): void {
  if (rest.length === 0) {
    tree.set(key, value)
    return
  }
  const known = tree.get(key)
  const inner: JsonTree = known instanceof Map ? known : new Map()
  tree.set(key, inner)
  putValue(inner, rest, value)
}

export function writeTree(tree: JsonTree): string {
  const members = [...tree].map(([key, value]) => {
    return `${JSON.stringify(key)}:${typeof value === 'string' ? value : writeTree(value)}`
  })
  return `{${members.join(',')}}`
}
