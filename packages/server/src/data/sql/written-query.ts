import type { Node } from 'libpg-query'
import { type DeclaredType, shownType } from '../../dialect/declared-types.js'
import { textOf } from '../../dialect/expressions/calls.js'
import type { ExpressionWriter } from '../../dialect/expressions/expression-writer.js'
import { contentOf, namesOf } from '../../dialect/nodes.js'
import type { ColumnTypes, Relation } from '../../dialect/scope.js'
import { textLength } from '../../postgres/place.js'
import { ident, join, type Sql, sql } from '../../postgres/sql.js'

/* Queries as they are written for PostgreSQL, with the types that their columns are declared with. */

export interface WrittenQuery {
  readonly text: Sql
  /** The names of its columns. */
  readonly columns: readonly string[]
  /** The declared types of its columns. */
  readonly types?: ColumnTypes | undefined
  /** SQL for its columns, where it is not their name. */
  readonly values?: readonly (Sql | undefined)[] | undefined
  /** The number of nodes of the largest column, which PostgreSQL may substitute for its name. */
  readonly weight?: number
}

/** A query before its ORDER BY. */
export interface WrittenBody extends WrittenQuery {
  readonly values: readonly (Sql | undefined)[]
  /** Only its columns can be sorted: it is a UNION or the like, or has DISTINCT. */
  readonly isClosed: boolean
  /**
   * It has ROLLUP or the like, whose groups have nulls instead of values. PostgreSQL finds them where a column is sorted by, but
   * not where a constant that is grouped by is part of another expression.
   */
  readonly hasGroupingSets?: boolean
}

/** Returns a relation as a query. */
export const relationOf = (text: Sql, relation: Relation): WrittenQuery => ({
  text,
  columns: relation.columns,
  types: typesOf(relation),
  values: valuesOf(relation),
})

/** Returns the qualified names of the columns of a relation. */
export const valuesOf = ({ alias, columns }: Relation): Sql[] =>
  columns.map((column) => sql`${ident(alias)}.${ident(column)}`)

export function typesOf({ columns, types, typesInOrder }: Relation): ColumnTypes {
  // The place of a value in its enum is found by the name of its column, which only one column may have.
  return columns.map((column, index) => {
    const type = typesInOrder?.[index]
    return type?.kind === 'enum' ? types?.get(column) : type
  })
}

/** Returns the types of columns by their names. A name that several columns have stands for none of them. */
export function typesByName(
  columns: readonly string[],
  types: ColumnTypes | undefined,
): ReadonlyMap<string, DeclaredType> | undefined {
  if (types?.some((type) => type !== undefined) !== true) return undefined
  const found = new Map<string, DeclaredType | undefined>()
  for (const [index, column] of columns.entries()) {
    found.set(column, found.has(column) ? undefined : types[index])
  }
  return new Map([...found].flatMap(([column, type]) => (type ? [[column, type]] : [])))
}

/** Writes a query whose columns have the types that they are declared with. */
export function shownQuery(text: Sql, { columns, types }: Omit<WrittenQuery, 'text'>): Sql {
  const shown = types?.map(shownType) ?? []
  if (shown.every((type) => type === undefined)) return text
  return select(text, columns, (value, index) => {
    const type = shown[index]
    return type === undefined ? value : sql`${value}::${type}`
  })
}

/** Writes a query with its ORDER BY. */
export function orderedQuery(
  body: WrittenBody,
  sortClause: readonly Node[],
  writer: ExpressionWriter,
): Sql {
  const closed =
    body.isClosed || body.hasGroupingSets ? orderedColumns(body, sortClause, writer) : undefined
  if (closed !== undefined) return closed
  if (body.isClosed) {
    return sql`${body.text} order by ${writer.writeOrder(sortClause, (node) => writer.write(node))}`
  }
  const order = writer.writeOrder(sortClause, (node) => writeSortedOf(node, body, writer))
  return sql`${body.text} order by ${order}`
}

/** Writes what a part of ORDER BY or DISTINCT ON stands for: a column of the result by its name or number, or an expression. */
export function writeSortedOf(
  node: Node | undefined,
  body: Pick<WrittenBody, 'columns' | 'types' | 'values'>,
  writer: ExpressionWriter,
): Sql {
  const position = positionOf(node, body)
  if (position === undefined) return writer.writeSorted(node)
  const type = body.types?.[position]
  if (type?.kind !== 'enum') return writer.write(node)
  const value = body.values[position] ?? ident(body.columns[position] ?? '')
  // It is written once more. In nested subqueries, the text would double with each level.
  writer.context.countText?.(textLength(value))
  return writer.placeOf(value, type)
}

/**
 * Sorts a query by its columns. For the order of an enum they have to be those of a subquery. Returns undefined if it is not
 * sorted by an enum, or by something else, too.
 */
function orderedColumns(
  body: WrittenBody,
  sortClause: readonly Node[],
  writer: ExpressionWriter,
): Sql | undefined {
  const { columns, types, text } = body
  const expressions = new Map(
    body.values.flatMap((value, index) => (value ? [[textOf(value), index]] : [])),
  )
  const positions = new Map(
    sortClause.map((each) => {
      const node = contentOf(each, 'SortBy')?.node
      return [node, positionOf(node, body) ?? expressions.get(textOf(writer.write(node)))]
    }),
  )
  const found = [...positions.values()]
  const hasEnum = found.some((position) => types?.[position ?? -1]?.kind === 'enum')
  if (!hasEnum || found.includes(undefined)) return undefined
  const order = writer.writeOrder(sortClause, (node) => {
    const position = positions.get(node) ?? 0
    const value = sql`${ROWS}.${columnAt(position)}`
    const type = types?.[position]
    return type?.kind === 'enum' ? writer.placeOf(value, type) : value
  })
  return sql`${select(text, columns, (value) => value)} order by ${order}`
}

/** Returns which column of the result a name or number of ORDER BY stands for. */
function positionOf(
  node: Node | undefined,
  { columns }: Pick<WrittenQuery, 'columns'>,
): number | undefined {
  const number = contentOf(node, 'A_Const')?.ival
  if (number !== undefined) return (number.ival ?? 0) - 1
  const [name, ...others] = namesOf(contentOf(node, 'ColumnRef')?.fields)
  if (name === undefined || others.length > 0) return undefined
  const position = columns.indexOf(name)
  return position === -1 ? undefined : position
}

/** The alias of a query, and those of its columns. */
const ROWS = ident('written rows')
const columnAt = (index: number): Sql => ident(`column ${index}`)

function select(
  text: Sql,
  columns: readonly string[],
  write: (value: Sql, index: number) => Sql,
): Sql {
  const list = columns.map(
    (column, index) => sql`${write(columnAt(index), index)} as ${ident(column)}`,
  )
  const names = columns.map((_, index) => columnAt(index))
  return sql`select ${join(list, ', ')} from (${text}) as ${ROWS}(${join(names, ', ')})`
}
