import type { Node } from 'libpg-query'
import { invalidSql } from './invalid-sql.js'

/** The kinds of nodes in a parsed statement. */
export type NodeKind = Node extends infer Each ? (Each extends object ? keyof Each : never) : never

/** The content of a node of the given kind. */
export type NodeOf<Kind extends NodeKind> =
  Extract<Node, Record<Kind, unknown>> extends Record<Kind, infer Content> ? Content : never

export function kindOf(node: Node): NodeKind {
  const [kind] = Object.keys(node)
  if (kind === undefined) throw new Error('a node must be of a kind')
  return kind as NodeKind
}

/** Returns the content of a node if it is of the given kind. */
export function contentOf<Kind extends NodeKind>(
  node: Node | undefined,
  kind: Kind,
): NodeOf<Kind> | undefined {
  return (node as Partial<Record<Kind, NodeOf<Kind>>> | undefined)?.[kind]
}

/** Returns the texts of a list of names, such as a function with its schema. */
export function namesOf(nodes: readonly Node[] | undefined): (string | undefined)[] {
  return (nodes ?? []).map((node) => contentOf(node, 'String')?.sval)
}

/**
 * Throws if a node has unknown parts. Ignoring them would change the meaning of the statement.
 */
export function requireKnown(content: object, what: string, known: readonly string[]): void {
  for (const [name, value] of Object.entries(content)) {
    if (!known.includes(name) && value !== undefined && value !== false) {
      throw invalidSql(`${what}: [${name}] is not supported`)
    }
  }
}

/** Visits all members of a parsed statement. The parser has limited their number and depth. */
export function visit(value: unknown, use: (kind: string, content: unknown) => void): void {
  if (typeof value !== 'object' || value === null) return
  // A statement has up to a hundred thousand members, and a list of the entries of each takes most of the time.
  for (const name in value) {
    const member = (value as Readonly<Record<string, unknown>>)[name]
    use(name, member)
    if (typeof member === 'object') visit(member, use)
  }
}

/** Returns a name that has no schema or the schema pg_catalog. */
export function catalogueName(nodes: readonly Node[] | undefined): string | undefined {
  const names = namesOf(nodes)
  if (names.length === 1) return names[0]
  return names.length === 2 && names[0] === 'pg_catalog' ? names[1] : undefined
}

/** Returns whether an expression is a star, which stands for columns. */
export const hasStar = (node: Node | undefined): boolean =>
  contentOf(contentOf(node, 'ColumnRef')?.fields?.at(-1), 'A_Star') !== undefined
