import type { ColumnNode, ColumnTree } from './column-tree.js'
import type { ValueCodec } from './column-type.js'
import { isFileType } from './column-types.js'
import { Fault } from './fault.js'
import {
  DEFAULT_FILE_FIELDS,
  type FileRecord,
  type FileSelection,
  fileFields,
  NO_FILES,
  writeFiles,
} from './file-value.js'

/** The columns to select from a table, and how to write them as JSON. */
export interface Projection {
  /** Indexes into the physical columns, in the order in which `decodeFields` reads their texts. */
  readonly columns: readonly number[]
  readonly fields: readonly ProjectedField[]
}

export interface ProjectedField {
  /** Position in the texts of a row. */
  readonly position: number
  /** `"name":` as the first member of its object; `furtherKey` has a comma in front. */
  readonly firstKey: string
  readonly furtherKey: string
  readonly codec: ValueCodec
  /** Set for object columns only. */
  readonly nested: readonly ProjectedField[] | undefined
  /** Set for file columns only: the fields of the files to write. */
  readonly file: FileSelection | undefined
  /**
   * Replaces null: a `file[]` column without a value is written as an empty list. Other nulls are left out.
   */
  readonly nullText: string | undefined
}

/** The selected columns, and the selected fields of file columns. */
class Choice {
  readonly columns = new Set<number>()
  readonly fileFields = new Map<number, Set<string>>()

  constructor(private readonly tree: ColumnTree) {}

  add(index: number, fields: readonly string[] = DEFAULT_FILE_FIELDS): void {
    this.columns.add(index)
    const type = this.tree.physical[index]?.column.type
    if (type === undefined || !isFileType(type)) return
    this.fileFields.set(index, new Set([...(this.fileFields.get(index) ?? []), ...fields]))
  }
}

/**
 * `paths` are dotted paths of columns. `*` selects all columns of the table, `object.*` those of an object.
 */
export function compileProjection(
  tree: ColumnTree,
  paths: readonly string[],
): Projection | Fault[] {
  const choice = new Choice(tree)
  const faults: Fault[] = []
  for (const path of paths) {
    if (path === '*') {
      for (const index of tree.physical.keys()) choice.add(index)
    } else if (!choosePath(tree, path, choice)) {
      faults.push(new Fault(`column [${path}]: column not found`))
    }
  }
  if (faults.length > 0) return faults
  const columns = [...choice.columns].sort((left, right) => left - right)
  const positions = new Map(columns.map((index, position) => [index, position]))
  return { columns, fields: compileFields(tree.nodes, positions, choice) }
}

/**
 * Adds a path to the selection, with its enclosing objects: only their presence columns tell a row without
 * the object from a row whose nested columns are null.
 */
function choosePath(tree: ColumnTree, path: string, choice: Choice): boolean {
  const names = path.split('.')
  const indexes: number[] = []
  let level: Pick<ColumnTree, 'byName'> | undefined = tree
  let node: ColumnNode | undefined
  for (const [depth, name] of names.entries()) {
    const isLast = depth === names.length - 1
    if (name === '*' && depth > 0 && isLast && level !== undefined) break
    if (node?.isFile) {
      const fields = fileFields(name)
      if (fields === undefined || !isLast) return false
      for (const index of indexes) choice.add(index, fields)
      return true
    }
    node = level?.byName.get(name)
    if (node === undefined) return false
    indexes.push(node.index)
    level = node.nested
  }
  if (node === undefined) return false
  for (const index of indexes) choice.add(index)
  for (let index = node.index; index < node.end; index++) choice.add(index)
  return true
}

function compileFields(
  nodes: readonly ColumnNode[],
  positions: ReadonlyMap<number, number>,
  choice: Choice,
): ProjectedField[] {
  return nodes.flatMap((node) => {
    const position = positions.get(node.index)
    if (position === undefined) return []
    const key = `${JSON.stringify(node.column.name)}:`
    const nested = node.nested && compileFields(node.nested.nodes, positions, choice)
    const fields = choice.fileFields.get(node.index)
    const { column, codec } = node
    const file = fields && { columnId: column.id, isList: column.type === 'file[]', fields }
    const nullText = file?.isList ? NO_FILES : undefined
    return [{ position, firstKey: key, furtherKey: `,${key}`, codec, nested, file, nullText }]
  })
}

/**
 * Returns the members of a JSON object, without braces. Nulls are left out, except for `file[]` columns.
 * Without `record`, files have no links.
 */
export function decodeFields(
  fields: readonly ProjectedField[],
  texts: readonly (string | null)[],
  record?: FileRecord,
): string {
  let members = ''
  for (const field of fields) {
    const text = texts[field.position] ?? field.nullText
    if (text === undefined) continue
    members += members === '' ? field.firstKey : field.furtherKey
    members +=
      field.nested === undefined
        ? decodeField(field, text, record)
        : `{${decodeFields(field.nested, texts, record)}}`
  }
  return members
}

export function decodeField(field: ProjectedField, text: string, record?: FileRecord): string {
  return field.file === undefined ? field.codec.decode(text) : writeFiles(text, field.file, record)
}
