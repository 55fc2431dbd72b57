import type { Node, ParseResult } from 'libpg-query'
import createParser, { type ParserModule } from 'libpg-query/wasm/libpg-query.js'
import { sqlFault } from './sql-fault.js'

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

/** The statements of a text, as a tree. */
export async function parseSql(text: string): Promise<readonly Node[]> {
  if (text.includes('\0')) throw sqlFault('the statement contains a NUL character')
  loading ??= createParser()
  const parser = await loading
  try {
    const result = parseWith(parser, text)
    if ('message' in result) throw new SyntaxFault(result.message, characterAt(text, result.cursor))
    return (JSON.parse(result.tree) as ParseResult).stmts?.flatMap(({ stmt }) => stmt ?? []) ?? []
  } catch (error) {
    if (error instanceof SyntaxFault) throw error
    // It ran out of stack in the middle, and what it left behind is of no use any more.
    loading = undefined
    throw sqlFault('the statement is nested too deeply')
  }
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
