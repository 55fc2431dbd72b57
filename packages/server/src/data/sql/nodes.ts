import type { Node } from 'libpg-query'
import { sqlFault } from './sql-fault.js'

/** The names of the kinds of nodes in a parsed statement. */
export type NodeKind = Node extends infer Each ? (Each extends object ? keyof Each : never) : never

/** The content of a node of a kind. */
export type NodeOf<Kind extends NodeKind> =
  Extract<Node, Record<Kind, unknown>> extends Record<Kind, infer Content> ? Content : never

export function kindOf(node: Node): NodeKind {
  const [kind] = Object.keys(node)
  if (kind === undefined) throw new Error('a node must be of a kind')
  return kind as NodeKind
}

/** The content of a node, when it is of that kind. */
export function contentOf<Kind extends NodeKind>(
  node: Node | undefined,
  kind: Kind,
): NodeOf<Kind> | undefined {
  return (node as Partial<Record<Kind, NodeOf<Kind>>> | undefined)?.[kind]
}

/** The texts of a list of names, such as that of a function with its schema. */
export function namesOf(nodes: readonly Node[] | undefined): (string | undefined)[] {
  return (nodes ?? []).map((node) => contentOf(node, 'String')?.sval)
}

/**
 * Parts of a node that are not known here are refused, rather than left out of what is written: the
 * statement would mean something else.
 */
export function requireKnown(content: object, what: string, known: readonly string[]): void {
  for (const [name, value] of Object.entries(content)) {
    if (!known.includes(name) && value !== undefined && value !== false) {
      throw sqlFault(`${what}: [${name}] is not supported`)
    }
  }
}
