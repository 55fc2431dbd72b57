import type { Node, ParseResult } from 'libpg-query'
import createParser, { type ParserModule } from 'libpg-query/wasm/libpg-query.js'
import { sqlFault } from './sql-fault.js'
import { DEPTH_MAX, NODES_MAX, OPERATOR_STEPS_MAX } from './sql-limits.js'

/*
 * PostgreSQL's own grammar, compiled to WebAssembly. What it makes of a text is only ever read: the
 * statement that runs is written anew from it, so nothing depends on the parser being right.
 */

let loading: Promise<ParserModule> | undefined

/** Where the parts of a result and of an error are. */
const TREE_AT = 0
const ERROR_AT = 8
const MESSAGE_AT = 0
const CURSOR_AT = 16

export interface ParsedText {
  readonly nodes: readonly Node[]
  /** How many there are, with all that are inside of them. */
  readonly nodeCount: number
  /** How many of them make a value of others. */
  readonly callCount: number
  /** The names that stand where a table or a query of WITH can. */
  readonly relationNames: ReadonlySet<string>
}

/** The statements of a text, as a tree. */
export async function parseSql(text: string): Promise<ParsedText> {
  if (text.includes('\0')) throw sqlFault('the statement contains a NUL character')
  requireShortOperators(text)
  loading ??= createParser()
  const parser = await loading
  const result = parseBounded(parser, text)
  if ('message' in result) throw new SyntaxFault(result.message, characterAt(text, result.cursor))
  const { stmts = [] } = JSON.parse(result.tree) as ParseResult
  return { nodes: stmts.flatMap(({ stmt }) => stmt ?? []), ...requireSize(stmts) }
}

/** Loads the parser, which would keep the first statement waiting otherwise. */
export async function warmUpParser(): Promise<void> {
  await parseSql('select 1')
}

function parseBounded(parser: ParserModule, text: string) {
  try {
    return parseWith(parser, text)
  } catch {
    // It ran out of stack in the middle, and what it left behind is of no use any more.
    loading = undefined
    throw tooDeep()
  }
}

export function tooDeep() {
  return sqlFault(`the statement is nested too deeply: at most ${DEPTH_MAX} levels are possible`)
}

const CALLS: ReadonlySet<string> = new Set(['A_ArrayExpr', 'A_Expr', 'FuncCall', 'RowExpr'])

const OPERATOR_CHARACTERS = /[~!@#^&|`?+\-*/%<>=]+/g

/** In a text or a comment such a run costs nothing, but nobody needs one that long there either. */
function requireShortOperators(text: string): void {
  let steps = 0
  for (const [run] of text.matchAll(OPERATOR_CHARACTERS)) steps += run.length * run.length
  if (steps > OPERATOR_STEPS_MAX) {
    throw sqlFault('the statement has too long a row of operator characters')
  }
}

/**
 * Counts nodes and how deep they are in each other, without recursion: everything behind this walks
 * the tree recursively and can rely on it.
 */
function requireSize(root: unknown): Omit<ParsedText, 'nodes'> {
  let count = 0
  let callCount = 0
  const relationNames = new Set<string>()
  let level: unknown[] = [root]
  for (let depth = 0; level.length > 0; ) {
    const next: unknown[] = []
    let hasNodes = false
    for (const value of level) {
      if (typeof value !== 'object' || value === null) continue
      const fields = Object.values(value)
      const [kind = ''] = fields.length === 1 ? Object.keys(value) : []
      // A node is an object with one field, which has the name of its kind.
      if (kind >= 'A' && kind < '[') {
        count++
        hasNodes = true
        if (CALLS.has(kind)) callCount++
      }
      const { relname } = value as { relname?: unknown }
      if (typeof relname === 'string') relationNames.add(relname)
      for (const each of fields) if (typeof each === 'object') next.push(each)
    }
    if (hasNodes) depth++
    if (depth > DEPTH_MAX) throw tooDeep()
    if (count > NODES_MAX) throw sqlFault(`a statement can have at most ${NODES_MAX} parts`)
    level = next
  }
  return { nodeCount: count, callCount, relationNames }
}

/** PostgreSQL does not understand the text. */
export class SyntaxFault extends Error {
  constructor(
    message: string,
    /** In characters, from 1. */
    readonly position: number,
  ) {
    super(message)
  }
}

function parseWith(
  parser: ParserModule,
  text: string,
): { tree: string } | { message: string; cursor: number } {
  const bytes = parser.lengthBytesUTF8(text) + 1
  const input = parser._malloc(bytes)
  parser.stringToUTF8(text, input, bytes)
  const result = parser._wasm_parse_query_raw(input)
  const error = parser.getValue(result + ERROR_AT, 'i32')
  const read =
    error === 0
      ? { tree: parser.UTF8ToString(parser.getValue(result + TREE_AT, 'i32')) }
      : {
          message: parser.UTF8ToString(parser.getValue(error + MESSAGE_AT, 'i32')),
          cursor: parser.getValue(error + CURSOR_AT, 'i32'),
        }
  parser._wasm_free_parse_result(result)
  parser._free(input)
  return read
}

/** The cursor counts characters already; only pairs of surrogates count once there. */
function characterAt(text: string, cursor: number): number {
  return Math.max(1, Math.min(cursor, text.length))
}
