import type { Node, ParseResult, TypeName } from 'libpg-query'
import type { ParserModule } from 'libpg-query/wasm/libpg-query.js'
import { isWellFormed } from '../common/is-well-formed.js'
import { invalidSql } from './invalid-sql.js'
import { namesOf } from './nodes.js'
import { DEPTH_MAX, NODES_MAX, OPERATOR_STEPS_MAX } from './sql-limits.js'

/*
 * PostgreSQL's parser, compiled to WebAssembly. The statement that runs is written from the syntax tree, never
 * from the text, so safety does not depend on the correctness of the parser.
 */

let loading: Promise<ParserModule> | undefined

/** Offsets of the fields in the structures of results and errors. */
const TREE_AT = 0
const ERROR_AT = 8
const MESSAGE_AT = 0
const CURSOR_AT = 16

export interface ParsedText {
  readonly nodes: readonly Node[]
  /** The texts of the statements. */
  readonly texts: readonly string[]
  /** The total number of nodes. */
  readonly nodeCount: number
  /** The number of nodes that calculate a value, such as functions and operators. */
  readonly callCount: number
  /** The names of relations: of tables or of WITH queries. */
  readonly relationNames: ReadonlySet<string>
  /** The names of the types of casts. */
  readonly typeNames: ReadonlySet<string>
}

/** Parses a text into the syntax trees of its statements. */
export async function parseSql(text: string): Promise<ParsedText> {
  if (text.includes('\0')) throw invalidSql('the statement contains a NUL character')
  if (!isWellFormed(text)) throw invalidSql('the statement contains half of a surrogate pair')
  requireShortOperators(text)
  loading ??= load().catch((error: unknown) => {
    loading = undefined
    throw error
  })
  const parser = await loading
  const result = parseBounded(parser, text)
  if ('message' in result)
    throw new SqlSyntaxError(result.message, characterAt(text, result.cursor))
  const { stmts = [] } = JSON.parse(result.tree) as ParseResult
  const statements = stmts.filter(({ stmt }) => stmt !== undefined)
  return {
    nodes: statements.flatMap(({ stmt }) => stmt ?? []),
    texts: textsOf(text, statements),
    ...requireSize(stmts),
  }
}

/** Cuts a text into those of its statements. Places are counted in bytes. */
function textsOf(text: string, statements: NonNullable<ParseResult['stmts']>): string[] {
  if (statements.length < 2) return statements.map(() => text)
  const bytes = Buffer.from(text)
  return statements.map(({ stmt_location: start = 0, stmt_len: length }) =>
    bytes.subarray(start, length ? start + length : undefined).toString(),
  )
}

/** Loads the parser when it is first needed: it takes 20 MB of memory, and many processes get no SQL. */
async function load(): Promise<ParserModule> {
  const { default: createParser } = await import('libpg-query/wasm/libpg-query.js')
  return createParser()
}

/** Loads the parser, so that the first statement does not wait for it. */
export async function warmUpParser(): Promise<void> {
  await parseSql('select 1')
}

function parseBounded(parser: ParserModule, text: string) {
  try {
    return parseWith(parser, text)
  } catch {
    // A stack overflow leaves the module in an undefined state, so a new one must be loaded.
    loading = undefined
    throw tooDeep()
  }
}

export function tooDeep() {
  return invalidSql(`the statement is nested too deeply: at most ${DEPTH_MAX} levels are possible`)
}

const CALLS: ReadonlySet<string> = new Set([
  'A_ArrayExpr',
  'A_Expr',
  'FuncCall',
  'JsonArrayAgg',
  'JsonArrayConstructor',
  'JsonObjectAgg',
  'JsonObjectConstructor',
  'RowExpr',
])

const OPERATOR_CHARACTERS = /[~!@#^&|`?+\-*/%<>=]+/g

/** Rejects long runs of operator characters, also in literals and comments, where they would be harmless. */
function requireShortOperators(text: string): void {
  let steps = 0
  for (const [run] of text.matchAll(OPERATOR_CHARACTERS)) steps += run.length * run.length
  if (steps > OPERATOR_STEPS_MAX) {
    throw invalidSql('the statement has too long a row of operator characters')
  }
}

/**
 * Checks the number and the nesting of nodes, without recursion. Later steps walk the tree recursively and rely
 * on these limits.
 */
function requireSize(root: unknown): Omit<ParsedText, 'nodes' | 'texts'> {
  let count = 0
  let callCount = 0
  const relationNames = new Set<string>()
  const typeNames = new Set<string>()
  let level: unknown[] = [root]
  for (let depth = 0; level.length > 0; ) {
    const next: unknown[] = []
    let hasNodes = false
    for (const value of level) {
      if (typeof value !== 'object' || value === null) continue
      const fields = Object.values(value)
      const [kind = ''] = fields.length === 1 ? Object.keys(value) : []
      // A node is an object with a single field, named after its kind.
      if (kind >= 'A' && kind < '[') {
        count++
        hasNodes = true
        if (CALLS.has(kind)) callCount++
      }
      const { relname, typeName } = value as { relname?: unknown; typeName?: TypeName }
      if (typeof relname === 'string') relationNames.add(relname)
      const type = namesOf(typeName?.names).at(-1)
      if (type !== undefined) typeNames.add(type)
      for (const each of fields) if (typeof each === 'object') next.push(each)
    }
    if (hasNodes) depth++
    if (depth > DEPTH_MAX) throw tooDeep()
    if (count > NODES_MAX) throw invalidSql(`a statement can have at most ${NODES_MAX} parts`)
    level = next
  }
  return { nodeCount: count, callCount, relationNames, typeNames }
}

/** The text has a syntax error. */
export class SqlSyntaxError extends Error {
  constructor(
    message: string,
    /** The position in characters, from 1. */
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

/** Limits the cursor to the text. It counts Unicode characters, so a surrogate pair counts once. */
function characterAt(text: string, cursor: number): number {
  return Math.max(1, Math.min(cursor, text.length))
}
