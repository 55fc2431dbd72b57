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
