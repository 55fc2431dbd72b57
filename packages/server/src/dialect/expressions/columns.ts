import { ident, type Sql, sql } from '../../postgres/sql.js'
import { type NodeOf, namesOf } from '../nodes.js'
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
  writer.context.expanded += relation.weight
  // A whole row as an argument.
  if (second === undefined) return sql`${ident(relation.alias)}.*`
  const column = findEither(second, (name) => findColumnOf(relation, name))
  if (column === undefined)
    throw writer.invalid(`column ${first}.${second} does not exist`, location)
  return columnIn(relation, column)
}

const columnIn = ({ alias }: Relation, column: string): Sql => sql`${ident(alias)}.${ident(column)}`

/** Writes a row of a relation as a value. Its times without a zone have none. */
function writeRow(relation: Relation): Sql {
  const { alias, columns, types } = relation
  const row = ident(alias)
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
