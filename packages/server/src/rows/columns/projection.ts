import type { ColumnNode, ColumnTree } from './column-tree.js'
import type { ValueCodec } from './column-type.js'
import { Fault } from './fault.js'

/** Some columns of a table: what to select, and how to make a record of it. */
export interface Projection {
  /** Indexes into the physical columns, in the order in which `decodeFields` reads their texts. */
  readonly columns: readonly number[]
  readonly fields: readonly ProjectedField[]
}

export interface ProjectedField {
  /** Position in the texts of a row. */
  readonly position: number
  /** `"name":` as the first member of its object, and as a further one. */
  readonly firstKey: string
  readonly furtherKey: string
  readonly codec: ValueCodec
  /** Of an object column. */
  readonly nested: readonly ProjectedField[] | undefined
}

/** `paths` are columns by dotted path; `*` stands for all of a table, `object.*` of an object. */
export function compileProjection(
  tree: ColumnTree,
  paths: readonly string[],
): Projection | Fault[] {
  const chosen = new Set<number>()
  const faults: Fault[] = []
  for (const path of paths) {
    if (path === '*') {
      for (const index of tree.physical.keys()) chosen.add(index)
    } else if (!choosePath(tree, path, chosen)) {
      faults.push(new Fault(`column [${path}]: column not found`))
    }
  }
  if (faults.length > 0) return faults
  const columns = [...chosen].sort((left, right) => left - right)
  const positions = new Map(columns.map((index, position) => [index, position]))
  return { columns, fields: compileFields(tree.nodes, positions) }
}

/**
 * Takes in the objects on the way too, because only they tell a row without the object from one whose
 * nested columns are null or filled later.
 */
function choosePath(tree: ColumnTree, path: string, chosen: Set<number>): boolean {
  const names = path.split('.')
  const indexes: number[] = []
  let level: Pick<ColumnTree, 'byName'> | undefined = tree
  let node: ColumnNode | undefined
  for (const [depth, name] of names.entries()) {
    if (name === '*' && depth > 0 && depth === names.length - 1 && level !== undefined) break
    node = level?.byName.get(name)
    if (node === undefined) return false
    indexes.push(node.index)
    level = node.nested
  }
  if (node === undefined) return false
  for (const index of indexes) chosen.add(index)
  for (let index = node.index; index < node.end; index++) chosen.add(index)
  return true
}

function compileFields(
  nodes: readonly ColumnNode[],
  positions: ReadonlyMap<number, number>,
): ProjectedField[] {
  return nodes.flatMap((node) => {
    const position = positions.get(node.index)
    if (position === undefined) return []
    const key = `${JSON.stringify(node.column.name)}:`
    const nested = node.nested && compileFields(node.nested.nodes, positions)
    return [{ position, firstKey: key, furtherKey: `,${key}`, codec: node.codec, nested }]
  })
}

/** The members of a JSON object, without its braces. Nulls are left out. */
export function decodeFields(
  fields: readonly ProjectedField[],
  texts: readonly (string | null)[],
): string {
  let members = ''
  for (const field of fields) {
    const text = texts[field.position]
    if (text === null || text === undefined) continue
    members += members === '' ? field.firstKey : field.furtherKey
    members +=
      field.nested === undefined
        ? field.codec.decode(text)
        : `{${decodeFields(field.nested, texts)}}`
  }
  return members
}
