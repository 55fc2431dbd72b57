import { LRUCache } from 'lru-cache'
import { BRANCH_CACHE } from '../common/branch-cache.js'

/*
 * Reads from the text of a statement where a cluster must run it. The texts are written by this process: identifiers
 * that are not in the source are quoted.
 */

/** A statement that the node with a schema must run as it is. */
export interface Placement {
  readonly schema: string
  readonly kind: 'rows' | 'nothing' | 'utility'
  readonly isWrite: boolean
}

/** A statement, as far as a cluster must know it. */
interface PlacedText {
  /** undefined: the statement can be sent to the coordinator. */
  readonly placement: Placement | undefined
  /** The schema of a database that the statement names. */
  readonly schema: string | undefined
  /** Whether it is no query, but defines or locks tables. */
  readonly isDefinition: boolean
  /** The schema of the rows that a query reads. undefined: it is no query, or it reads no rows of databases. */
  readonly reads: string | undefined
  /** The text, divided at names of tables of databases: those are the second part, the fourth, and so on. */
  readonly parts: readonly string[]
}

/** The beginning of the names of tables that exist on a node only, for the time of a transaction. */
export const NODE_TABLE_PREFIX = 'node_'

/** A string, a quoted name, a comment, a word, or a sign that matters. */
const TOKEN =
  /E'(?:[^'\\]|''|\\[\s\S])*'|'(?:[^']|'')*'|"((?:[^"]|"")*)"|--[^\n]*|\/\*[\s\S]*?\*\/|([a-z_][a-z_0-9]*)|[().]/gi
const SCHEMA = /^offshoot_db_[0-9]{1,18}$/
/** Longer texts are read each time. */
const KEPT_LENGTH_MAX = 64 * 1024
const KEPT_TEXTS_MAX = 5_000
const KEPT_LENGTH_SUM_MAX = 32 * 1024 * 1024

const known = new LRUCache<string, PlacedText>({
  max: KEPT_TEXTS_MAX,
  maxSize: KEPT_LENGTH_SUM_MAX,
  sizeCalculation: (_placed, text) => 2 * text.length + 1,
  ...BRANCH_CACHE,
})

export function placeText(text: string): PlacedText {
  let placed = known.get(text)
  if (placed === undefined) {
    placed = readText(text)
    if (text.length <= KEPT_LENGTH_MAX) known.set(text, placed)
  }
  return placed
}

const COMMANDS = new Set(['select', 'values', 'insert', 'update', 'delete'])

function readText(text: string): PlacedText {
  const parts: string[] = []
  let [partAt, nameAt] = [0, -1]
  let schema: string | undefined
  let isNodeTable = false
  let isWrite = false
  let returns = false
  let depth = 0
  let first: string | undefined
  let command: string | undefined
  let before = ''
  for (const match of text.matchAll(TOKEN)) {
    const [token, quoted, word] = match
    const name = quoted ?? word
    if (before === '.' && nameAt >= 0 && name !== undefined) {
      const end = match.index + token.length
      parts.push(text.slice(partAt, nameAt), text.slice(nameAt, end))
      partAt = end
      isNodeTable ||= name.startsWith(NODE_TABLE_PREFIX)
    }
    if (token !== '.') nameAt = -1
    if (quoted !== undefined && SCHEMA.test(quoted)) {
      schema ??= quoted
      nameAt = match.index
    }
    if (token === '(') depth++
    if (token === ')') depth--
    if (word !== undefined) {
      const lower = word.toLowerCase()
      first ??= lower
      if (depth === 0 && COMMANDS.has(lower)) command ??= lower
      if (depth === 0 && lower === 'returning') returns = true
      isWrite ||= isWriting(before, lower)
      before = lower
    } else before = token
  }
  parts.push(text.slice(partAt))
  const isQuery = first === 'with' || COMMANDS.has(first ?? '')
  const reads = isQuery ? schema : undefined
  if (schema === undefined || !(isNodeTable || (isQuery && isWrite))) {
    return { placement: undefined, schema, isDefinition: !isQuery, reads, parts }
  }
  const hasRows = command === 'select' || command === 'values' || returns
  const kind = !isQuery ? 'utility' : hasRows ? 'rows' : 'nothing'
  const placement = { schema, kind, isWrite: isWrite || !isQuery } as const
  // A table that only the node knows concerns no other node.
  return { placement, schema, isDefinition: false, reads, parts }
}

/** Returns whether two words in a row say that a statement writes. */
function isWriting(before: string, word: string): boolean {
  if (word === 'into') return before === 'insert'
  if (word === 'from') return before === 'delete'
  // Not `for update`, `for no key update` or `do update`.
  return word === 'update' && !['for', 'key', 'do'].includes(before)
}
