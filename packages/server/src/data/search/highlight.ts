import { type JsonTree, putValue, writeTree } from '../../common/write-json.js'
import type { SearchColumn } from './search-plan.js'

/** Placeholders around matches. They are replaced by tags after HTML escaping. */
export const MARK_START = '\u0001'
export const MARK_END = '\u0002'

/** Maximum number of parts returned per column. */
export const FRAGMENTS_MAX = 5

/** A part of a text, and whether it is cut off before and after. */
export type Part = readonly [text: string, isCutBefore: boolean, isCutAfter: boolean]

const ENTITIES: Readonly<Record<string, string>> = {
  '&': '&amp;',
  '<': '&lt;',
  '>': '&gt;',
  '"': '&quot;',
  "'": '&#x27;',
}

/** Returns the text of a part with matches in tags, or undefined if trimming removed all matches. */
export function writeFragment(
  [text, isCutBefore, isCutAfter]: Part,
  options: { encodeHTML: boolean },
): string | undefined {
  const whole = trimEnd(isCutBefore ? trimStart(text) : text, isCutAfter)
  if (!whole.includes(MARK_START)) return undefined
  const encoded = options.encodeHTML
    ? whole.replace(/[&<>"']/g, (character) => ENTITIES[character] ?? character)
    : whole
  return encoded.replaceAll(MARK_START, '<em>').replaceAll(MARK_END, '</em>')
}

/** Removes a partial word at the start of a part. */
function trimStart(text: string): string {
  const mark = text.indexOf(MARK_START)
  const end = text.indexOf(MARK_END)
  // The part starts within a match that belongs to the previous part.
  if (end >= 0 && end < mark) return text.slice(end + 1).trimStart()
  const space = text.search(/\s/)
  return space >= 0 && space < mark ? text.slice(space).trimStart() : text
}

function trimEnd(text: string, isCut: boolean): string {
  if (!isCut) return text
  const start = text.lastIndexOf(MARK_START)
  const end = text.lastIndexOf(MARK_END)
  if (start > end) return end < 0 ? `${text}${MARK_END}` : text.slice(0, start).trimEnd()
  const rest = text.slice(end + 1)
  const space = rest.search(/\s\S*$/)
  return space < 0 ? text : `${text.slice(0, end + 1)}${rest.slice(0, space)}`
}

/** Returns `{"title":["..<em>word</em>.."]}`. Nested columns are in nested objects. */
export function writeHighlight(
  columns: readonly SearchColumn[],
  parts: readonly (readonly Part[] | null)[],
  options: { encodeHTML: boolean },
): string {
  const tree: JsonTree = new Map()
  for (const [index, { path }] of columns.entries()) {
    const fragments = (parts[index] ?? []).flatMap((part) => writeFragment(part, options) ?? [])
    if (fragments.length > 0) putValue(tree, path, JSON.stringify(fragments))
  }
  return writeTree(tree)
}
