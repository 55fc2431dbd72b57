import type { Node } from 'libpg-query'
import { ident, type Sql, sql } from '../../postgres/sql.js'
import { contentOf, type NodeOf, namesOf } from '../nodes.js'
import { findColumnOf, type Relation } from '../scope.js'
import type { ExpressionWriter } from './expression-writer.js'
import { BRANCH_SCHEMA, list, withoutZone } from './parts.js'

/** The metadata of a record has the name `xata` for Xata clients and `service` for others. */
const METADATA_NAME = /^(?:xata|service)\.(version|createdAt|updatedAt)$/i

/** Returns the other name of a metadata column. */
export function otherMetadataName(name: string): string | undefined {
  const field = METADATA_NAME.exec(name)?.[1]
  if (field === undefined) return undefined
  return name.startsWith('xata') ? `service.${field}` : `xata.${field}`
}

export function writeColumn(
  writer: ExpressionWriter,
  { fields = [], location }: NodeOf<'ColumnRef'>,
): Sql {
  const { scope } = writer
  // A table may be named with its schema.
  const hasSchema = fields.length === 3 && namesOf(fields)[0] === BRANCH_SCHEMA
  const names = namesOf(fields).slice(hasSchema ? 1 : 0)
  const [first, second] = names
  if (names.length === 1 && first !== undefined) {
    const column = findEither(first, (name) => scope.findColumn(name))
    if (column !== undefined) {
      writer.context.expanded += scope.weight
      return writer.context.columnSql?.(column) ?? ident(column)
    }
    const relation = scope.findRelation(first)
    if (relation !== undefined) {
      writer.context.expanded += relation.weight * relation.columns.length
      const [value = ''] = relation.columns
      return relation.isScalar ? columnIn(relation, value) : writeRow(relation)
    }
    throw writer.invalid(`column "${first}" does not exist`, location)
  }
  if (names.length !== 2 || first === undefined) {
    throw writer.invalid(`column "${names.join('.')}" does not exist`, location)
  }
  const relation = scope.findRelation(first)
  if (relation === undefined) {
    throw writer.invalid(`missing FROM-clause entry for table "${first}"`, location)
  }
  if (second === undefined) {
    // A whole row as an argument.
    writer.context.expanded += relation.weight * relation.columns.length
    return writeRow(relation, sql`${ident(relation.alias)}.*`)
  }
  writer.context.expanded += relation.weight
  const column = findEither(second, (name) => findColumnOf(relation, name))
  if (column === undefined)
    throw writer.invalid(`column ${first}.${second} does not exist`, location)
  return columnIn(relation, column)
}

const columnIn = ({ alias }: Relation, column: string): Sql => sql`${ident(alias)}.${ident(column)}`

/** Length of a column that is written for the star of a row, at least. */
const COLUMN_LENGTH = 10

/** Returns the values of a row. A star stands for the columns of its relation. */
export function listValues(writer: ExpressionWriter, values: readonly Node[] = []): Node[] {
  return values.flatMap((node): Node[] => {
    const { fields = [] } = contentOf(node, 'ColumnRef') ?? {}
    const isStar = fields.length > 1 && contentOf(fields.at(-1), 'A_Star') !== undefined
    const relation = isStar ? writer.scope.findRelation(namesOf(fields).at(-2) ?? '') : undefined
    if (relation === undefined) return [node]
    const { columns } = relation
    writer.context.countText?.(columns.length * COLUMN_LENGTH)
    const path = fields.slice(0, -1)
    return columns.map((sval) => ({ ColumnRef: { fields: [...path, { String: { sval } }] } }))
  })
}

/** Writes a row of a relation as a value. Its times without a zone have none. */
function writeRow(relation: Relation, row = ident(relation.alias)): Sql {
  const { columns, types } = relation
  if (![...(types?.values() ?? [])].some(({ kind }) => kind === 'timestamp')) return row
  const values = columns.map((column) => {
    const value = columnIn(relation, column)
    const isTime = types?.get(column)?.kind === 'timestamp'
    return sql`${isTime ? withoutZone(value) : value} as ${ident(column)}`
  })
  // An outer join without a row has no row of nulls.
  return sql`(select shown from (select ${list(values)}) as shown where ${row} is distinct from null)`
}

function findEither(name: string, find: (name: string) => string | undefined): string | undefined {
  const other = otherMetadataName(name)
  return find(name) ?? (other === undefined ? undefined : find(other))
}
