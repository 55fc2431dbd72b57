import { setImmediate as yieldToOthers } from 'node:timers/promises'
import type { Node } from 'libpg-query'
import { invalidSql } from '../../../dialect/invalid-sql.js'
import { contentOf, kindOf, type NodeKind, type NodeOf, namesOf } from '../../../dialect/nodes.js'
import { parseSql, SqlSyntaxError } from '../../../dialect/parser.js'
import { cutQualifiers, readAfter, readParentheses } from '../../../dialect/source-text.js'
import { notSupported } from './not-supported.js'

/** A statement that changes the schema, or that stands beside such a statement. */
interface ParsedSchemaStatement {
  readonly node: Node
  /** The text that the node is part of. */
  readonly source: string
  /** The text of the statement alone. */
  readonly statement: string
  /** It does nothing if what it makes exists. */
  readonly skipsExisting?: boolean
}

export interface ParsedSchema {
  /** The statements of each text. */
  readonly texts: readonly (readonly ParsedSchemaStatement[])[]
  /** The texts of expressions, by the parts of statements that have them. */
  readonly expressions: ReadonlyMap<object, string>
}

/** A text without these words at the beginning of a statement, a line or behind a comment changes no schema. */
const SCHEMA_WORDS = /(?:^|[;\n\r]|\*\/)[ \t\f\v]*(?:create|alter|drop|comment|do)\b/i

const SCHEMA_KINDS: ReadonlySet<NodeKind> = new Set([
  'CreateStmt',
  'AlterTableStmt',
  'RenameStmt',
  'DropStmt',
  'IndexStmt',
  'CommentStmt',
  'CreateEnumStmt',
  'AlterEnumStmt',
  'CreateExtensionStmt',
  'CreateSchemaStmt',
  'CreateSeqStmt',
  'AlterSeqStmt',
  'DoStmt',
])

export function isSchemaNode(node: Node): boolean {
  return SCHEMA_KINDS.has(kindOf(node))
}

/** Parses texts of which at least one changes the schema. Returns undefined if none does. */
export function parseSchema(
  texts: readonly string[],
): Promise<ParsedSchema | undefined> | undefined {
  return texts.some((text) => SCHEMA_WORDS.test(text)) ? parseAll(texts) : undefined
}

async function parseAll(texts: readonly string[]): Promise<ParsedSchema | undefined> {
  const parsed: ParsedSchemaStatement[][] = []
  for (const source of texts) {
    const found = await parseSql(source).catch((error: unknown) => {
      // Planning reports it, with its place.
      if (error instanceof SqlSyntaxError) return undefined
      throw error
    })
    if (found === undefined) return undefined
    const { nodes, texts } = found
    const statements: ParsedSchemaStatement[] = []
    for (const [at, node] of nodes.entries()) {
      statements.push(await unwrap({ node, source, statement: texts[at] ?? source }))
    }
    parsed.push(statements)
  }
  if (!parsed.flat().some(({ node }) => isSchemaNode(node))) return undefined
  const expressions = new Map<object, string>()
  for (const statement of parsed.flat()) await readExpressions(statement, expressions)
  return { texts: parsed, expressions }
}

/**
 * The block of a DO whose statement does nothing if what it makes exists. Tools for migrations write it. There is no white space
 * at its ends: to look for it there would take time with the square of its length.
 */
const SKIPPING_BLOCK =
  /^begin\s(.*)\sexception(?:\s+when\s+duplicate_(?:object|table|column)\s+then\s+null\s*;)+\s*end\s*;?$/is

/** Returns the statement that a DO runs, if its block is such a one. */
async function unwrap(outer: ParsedSchemaStatement): Promise<ParsedSchemaStatement> {
  const parts = (contentOf(outer.node, 'DoStmt')?.args ?? []).map((each) =>
    contentOf(each, 'DefElem'),
  )
  const textOf = (name: string) =>
    contentOf(parts.find((part) => part?.defname === name)?.arg, 'String')?.sval
  const [, source] = SKIPPING_BLOCK.exec((textOf('as') ?? '').trim()) ?? []
  if (source === undefined || (textOf('language') ?? 'plpgsql') !== 'plpgsql') return outer
  const inner = await parseSql(source).catch((error: unknown) => {
    if (error instanceof SqlSyntaxError) throw invalidSql(error.message)
    throw error
  })
  const [node, ...others] = inner.nodes
  if (node === undefined || others.length > 0 || !isSchemaNode(node)) return outer
  return { node, source, statement: outer.statement, skipsExisting: true }
}

/** Reads the texts of the checks, computed columns and conversions of a statement. */
async function readExpressions(
  { node, source }: ParsedSchemaStatement,
  expressions: Map<object, string>,
): Promise<void> {
  const { relname = '' } =
    (contentOf(node, 'CreateStmt') ?? contentOf(node, 'AlterTableStmt'))?.relation ?? {}
  const elements = [
    ...(contentOf(node, 'CreateStmt')?.tableElts ?? []),
    ...(contentOf(node, 'AlterTableStmt')?.cmds ?? []).flatMap(
      (command) => contentOf(command, 'AlterTableCmd')?.def ?? [],
    ),
  ]
  for (const element of elements) {
    // A request can have thousands of expressions, and reading each takes a while.
    await yieldToOthers()
    const column = contentOf(element, 'ColumnDef')
    const inner = [element, ...(column?.constraints ?? [])].flatMap(
      (each) => contentOf(each, 'Constraint') ?? [],
    )
    for (const constraint of inner) {
      const { contype, raw_expr: tree, location } = constraint
      const after = contype === undefined ? undefined : WORDS_BEFORE[contype]
      if (tree === undefined || after === undefined) continue
      const text = readParentheses(source, { from: location ?? 0, after })
      expressions.set(tree, await readExpression(text, tree, relname))
    }
    if (column?.raw_default !== undefined) {
      const text = readAfter(source, { from: column.location ?? 0, after: 'using' })
      const tree = column.raw_default
      expressions.set(tree, await readExpression(text, tree, relname))
    }
  }
}

/** The words before the expressions of constraints. */
const WORDS_BEFORE: Readonly<Record<string, string | undefined>> = {
  CONSTR_CHECK: 'check',
  CONSTR_GENERATED: 'as',
}

const PREFIX = 'select (\n'

/**
 * Returns a text that was cut out of a statement if it is that of an expression. Columns lose the name of the table, which
 * an expression over one row does not know.
 */
async function readExpression(
  text: string | undefined,
  tree: Node,
  table: string,
): Promise<string> {
  const { nodes } = await parseSql(`${PREFIX}${text ?? ''}\n)`).catch(() => ({ nodes: [] }))
  const [target] = contentOf(nodes[0], 'SelectStmt')?.targetList ?? []
  const found = contentOf(target, 'ResTarget')?.val
  if (text === undefined || nodes.length !== 1 || shapeOf(found) !== shapeOf(tree)) {
    throw invalidSql('the text of an expression cannot be read: write it without comments')
  }
  const places = listColumnRefs(found).flatMap(({ location = 0, fields = [] }) => {
    const names = namesOf(fields)
    const isQualified = names.length === 2 && names[0] === table
    if (names.at(-1) === 'id' && (isQualified || names.length === 1)) {
      throw notSupported('an expression that uses column [id]', 'use other columns of the record')
    }
    return isQualified ? location - PREFIX.length : []
  })
  return cutQualifiers(text, places).trim()
}

/** Lists the columns that an expression names. */
export function listColumnRefs(root: Node | undefined): NodeOf<'ColumnRef'>[] {
  const found: NodeOf<'ColumnRef'>[] = []
  const waiting: unknown[] = [root]
  while (waiting.length > 0) {
    const value = waiting.pop()
    if (typeof value !== 'object' || value === null) continue
    const column = contentOf(value as Node, 'ColumnRef')
    if (column !== undefined) found.push(column)
    waiting.push(...Object.values(value))
  }
  return found
}

/** Members of nodes that tell where a part of them begins or ends, such as the list of IN. */
const PLACE = /^(?:location|(?:rexpr_)?list_(?:start|end))$/

/** The form of a tree, without the places of its parts. */
function shapeOf(tree: Node | undefined): string {
  return JSON.stringify(tree, (name, value: unknown) => (PLACE.test(name) ? undefined : value))
}
