import type { Node } from 'libpg-query'
import { empty, raw, type Sql, sql } from '../../postgres/sql.js'
import {
  COMPARED_BYTES_MAX,
  type Cost,
  OPERATORS,
  PATH_OPERAND,
  PATTERN_BYTES_MAX,
  SEARCHED_BYTES_MAX,
  VALUE_BYTES_MAX,
  VALUE_BYTES_MIN,
} from '../allowed.js'
import { within } from '../bounded-values.js'
import { invalidSql } from '../invalid-sql.js'
import { isBoundedPath } from '../json-path.js'
import { catalogueName, contentOf, type NodeOf, namesOf, requireKnown } from '../nodes.js'
import { listValues } from './columns.js'
import type { ExpressionWriter, Subquery } from './expression-writer.js'
import { lettersOfOperator } from './letters.js'
import { list } from './parts.js'

export function writeOperation(writer: ExpressionWriter, content: NodeOf<'A_Expr'>): Sql {
  requireKnown(content, 'an operation', [
    'kind',
    'name',
    'lexpr',
    'rexpr',
    'location',
    'rexpr_list_start',
    'rexpr_list_end',
  ])
  const { kind, name, lexpr, rexpr } = content
  const listed = contentOf(rexpr, 'List')?.items ?? []
  const left = () => writer.writeBeside(lexpr, [rexpr, ...listed])
  const right = () => writer.writeBeside(rexpr, [lexpr])
  const items = () => listed.map((item) => writer.writeBeside(item, [lexpr]))
  switch (kind) {
    case 'AEXPR_OP':
    case 'AEXPR_LIKE':
    case 'AEXPR_ILIKE': {
      return writeOperator(writer, content)
    }
    case 'AEXPR_SIMILAR':
      return writeOperator(writer, content)
    case 'AEXPR_OP_ANY':
      return writeWithMany(writer, content, sql`any`)
    case 'AEXPR_OP_ALL':
      return writeWithMany(writer, content, sql`all`)
    case 'AEXPR_DISTINCT':
      return sql`(${left()} is distinct from ${right()})`
    case 'AEXPR_NOT_DISTINCT':
      return sql`(${left()} is not distinct from ${right()})`
    case 'AEXPR_NULLIF': {
      const isKnown = writer.declaredType({ A_Expr: content }) !== undefined
      const first = isKnown ? left() : writer.writeTyped(lexpr)
      return sql`nullif(${first}, ${right()})`
    }
    case 'AEXPR_IN': {
      const isIn = catalogueName(name) === '='
      return isIn
        ? sql`(${left()} in (${list(items())}))`
        : sql`(${left()} not in (${list(items())}))`
    }
    case 'AEXPR_BETWEEN':
    case 'AEXPR_NOT_BETWEEN':
    case 'AEXPR_BETWEEN_SYM':
    case 'AEXPR_NOT_BETWEEN_SYM': {
      const compared = writer.enumOf([lexpr, ...listed])
      const place = (value: Sql) =>
        compared === undefined ? value : writer.placeOf(value, compared)
      const [low = empty, high = empty] = items().map(place)
      return sql`(${place(left())} ${BETWEEN[kind]} ${low} and ${high})`
    }
    default:
      throw writer.invalid('an operation of this form is not supported', content.location)
  }
}

/**
 * Refuses operands of `@@` that PostgreSQL could take for a jsonpath. Evaluating one can take memory in
 * proportion to a power of the document's size, which no limit of sizes bounds.
 */
function requireSearch(writer: ExpressionWriter, operands: readonly (Node | undefined)[]): void {
  const isUntyped = (node: Node | undefined) =>
    contentOf(node, 'A_Const') !== undefined || contentOf(node, 'ParamRef') !== undefined
  if (!operands.some(isUntyped)) return
  throw writer.invalid(
    'operator [@@]: both operands must be typed; write to_tsvector(...) @@ to_tsquery(...)',
    undefined,
  )
}

/** Returns whether an operand is a constant with a path whose cost has a bound. */
function isPath(node: Node | undefined): boolean {
  const text = contentOf(node, 'A_Const')?.sval?.sval
  return text !== undefined && isBoundedPath(text)
}

function requirePath(writer: ExpressionWriter, node: Node | undefined): void {
  if (!isPath(node)) throw writer.invalid(`operator [@?]: ${PATH_OPERAND}`, undefined)
}

const asWritten = (value: Sql): Sql => value

/** Comparisons whose outcome depends on the order of values. */
const COMPARISONS: ReadonlySet<string> = new Set(['<', '<=', '>', '>='])

const EQUALITIES: ReadonlySet<string> = new Set(['=', '<>', '!='])

/** Returns the pairs of values that a comparison of two rows compares. */
function rowPairs(
  writer: ExpressionWriter,
  left: Node | undefined,
  right: Node | undefined,
): (readonly [Node, Node | undefined])[] | undefined {
  const [row, other] = [contentOf(left, 'RowExpr'), contentOf(right, 'RowExpr')]
  if (row === undefined || other === undefined) return undefined
  const values = listValues(writer, row.args)
  const others = listValues(writer, other.args)
  if (values.length !== others.length) return undefined
  return values.map((value, index) => [value, others[index]] as const)
}

/** Writes a binary or prefix operator. */
function writeOperator(writer: ExpressionWriter, content: NodeOf<'A_Expr'>): Sql {
  const { name, lexpr, rexpr } = content
  const operator = operatorOf(name)
  const keeps = writer.declaredType({ A_Expr: content }) !== undefined
  const what = `operator [${operator.text}]`
  if (operator.text === '@?') requirePath(writer, rexpr)
  if (operator.text === '@@' && !isPath(rexpr)) requireSearch(writer, [lexpr, rexpr])
  const cost = OPERATORS.get(operator.text) ?? { kind: 'linear' }
  // Only documents are limited, from which `-` removes keys.
  const isDifference =
    operator.text === '-' &&
    [lexpr, rexpr].every((node) => {
      const size = writer.boundOf(node)
      return size !== undefined && size <= VALUE_BYTES_MIN
    })
  const write = (node: Node | undefined, position: number, other: Node | undefined): Sql => {
    if (cost.kind === 'grows') return writer.writeGrowing(node)
    if (cost.kind !== 'bounded' || isDifference) {
      const isCompared = COMPARISONS.has(operator.text) || EQUALITIES.has(operator.text)
      if (isCompared) return writer.writeBeside(node, [other])
      return keeps ? writer.writeBeside(node, [other]) : writer.writeTyped(node)
    }
    const bytesMax = sizeAt(cost.sizes, position)
    // If one operand is small, the other may be as large as a record.
    const isBesideSmall = (writer.sizeOf(other) ?? PATTERN_BYTES_MAX + 1) <= PATTERN_BYTES_MAX
    const isStored = isBesideSmall && writer.isStored(node)
    return writer.writeWithin(node, what, isStored ? SEARCHED_BYTES_MAX : bytesMax)
  }
  const compared = COMPARISONS.has(operator.text) ? writer.enumOf([lexpr, rexpr]) : undefined
  if (compared !== undefined) {
    const place = (node: Node | undefined, other: Node | undefined) =>
      writer.placeOf(writer.writeBeside(node, [other]), compared)
    return sql`(${place(lexpr, rexpr)} ${operator} ${place(rexpr, lexpr)})`
  }
  const pairs = rowPairs(writer, lexpr, rexpr)
  for (const pair of pairs ?? []) writer.requireValues(writer.enumOf(pair), pair)
  const isSorted = COMPARISONS.has(operator.text)
  if (isSorted && pairs?.some((pair) => writer.enumOf(pair) !== undefined)) {
    const row = (index: 0 | 1) =>
      list(
        pairs.map((pair) => {
          const type = writer.enumOf(pair)
          const value = writer.writeGrowing(pair[index], pairs.length)
          return type === undefined ? value : writer.placeOf(value, type)
        }),
      )
    return sql`(row(${row(0)}) ${operator} row(${row(1)}))`
  }
  if (lexpr === undefined) return sql`(${operator} ${writer.write(rexpr)})`
  const letters = lettersOfOperator(writer, operator.text, [lexpr, rexpr]) ?? asWritten
  const left = letters(write(lexpr, 0, rexpr), 0)
  const text = sql`(${left} ${operator} ${letters(write(rexpr, 1, lexpr), 1)})`
  if (writer.isPlain(lexpr) && writer.isPlain(rexpr) && !isHeavy(writer, cost, [lexpr, rexpr])) {
    return text
  }
  return writer.context.effort.count(text, { isHeavy: isHeavy(writer, cost, [lexpr, rexpr]) })
}

/** Maximum size of a list of patterns. They are searched one after the other, so the text must be shorter. */
const PATTERNS_BYTES_MAX = 10 * PATTERN_BYTES_MAX

/** Writes an operator between a value and the elements of an array. */
function writeWithMany(
  writer: ExpressionWriter,
  { name, lexpr, rexpr }: NodeOf<'A_Expr'>,
  quantifier: Sql,
): Sql {
  const operator = operatorOf(name)
  if (operator.text === '@@') requireSearch(writer, [lexpr, rexpr])
  if (operator.text === '@?')
    throw writer.invalid('operator [@?] with ANY or ALL is not supported', undefined)
  const cost = OPERATORS.get(operator.text)
  if (cost?.kind !== 'bounded') {
    const type = writer.enumOf([lexpr])
    const left = writer.write(lexpr)
    const many = writer.writeMany(rexpr, lexpr)
    const array = contentOf(rexpr, 'TypeCast')?.arg ?? rexpr
    writer.requireValues(type, contentOf(array, 'A_ArrayExpr')?.elements ?? [])
    if (type !== undefined && COMPARISONS.has(operator.text)) {
      const value = writer.placeOf(left, type)
      return sql`(${value} ${operator} ${quantifier} ((${writer.placesOf(many, type)})::pg_catalog.int4[]))`
    }
    return sql`(${left} ${operator} ${quantifier} (${many}))`
  }
  const what = `operator [${operator.text}]`
  const isShort = (writer.sizeOf(rexpr) ?? PATTERN_BYTES_MAX + 1) <= PATTERN_BYTES_MAX
  const leftMax = isShort
    ? sizeAt(cost.sizes, 0)
    : Math.min(sizeAt(cost.sizes, 0), COMPARED_BYTES_MAX)
  const left = writer.writeWithin(lexpr, what, leftMax)
  const right = writer.writeWithin(rexpr, what, PATTERNS_BYTES_MAX)
  const letters = lettersOfOperator(writer, operator.text, [lexpr, rexpr]) ?? asWritten
  return sql`(${letters(left, 0)} ${operator} ${quantifier} (${letters(right, 1)}))`
}

/** Writes the values of a subquery, limited to the size that the operator accepts. */
export function writeEach(
  writer: ExpressionWriter,
  link: NodeOf<'SubLink'>,
  query: Subquery,
): { test: Sql; rows: Sql } {
  const operator = operatorOf(link.operName).text
  const cost = OPERATORS.get(operator)
  const type = COMPARISONS.has(operator)
    ? (query.types?.[0] ?? writer.enumOf([link.testexpr]))
    : undefined
  if (type?.kind === 'enum' && query.columns.length === 1) {
    const place = writer.placeOf(sql`elements.element`, type)
    return {
      test: writer.placeOf(writer.write(link.testexpr), type),
      rows: sql`select ${place} from (${query.text}) as elements(element)`,
    }
  }
  if (cost?.kind !== 'bounded' || query.columns.length !== 1) {
    return { test: writer.write(link.testexpr), rows: query.text }
  }
  const test = writer.writeWithin(link.testexpr, 'a subquery', sizeAt(cost.sizes, 0))
  const element = within(sql`elements.element`, sizeAt(cost.sizes, 1))
  const letters = lettersOfOperator(writer, operator, [link.testexpr, link.subselect]) ?? asWritten
  return {
    test: letters(test, 0),
    rows: sql`select ${element} from (${query.text}) as elements(element)`,
  }
}

export function sizeAt(sizes: readonly number[], position: number): number {
  return sizes[Math.min(position, sizes.length - 1)] ?? VALUE_BYTES_MAX
}

/** Maximum size of a constant or parameter for which a search is fast. */
const SHORT_BYTES_MAX = 100

/**
 * Returns whether a call takes long although its arguments need no calculation, which would check for
 * cancellation.
 */
export function isHeavy(
  writer: ExpressionWriter,
  cost: Cost,
  nodes: readonly (Node | undefined)[],
) {
  if (cost.kind !== 'bounded' && cost.kind !== 'multiplies') return false
  const sizes = nodes.map((node) => writer.sizeOf(node))
  return (
    nodes.every((node) => writer.isPlain(node)) && sizes.some((size = 0) => size > SHORT_BYTES_MAX)
  )
}

const BETWEEN = {
  AEXPR_BETWEEN: sql`between`,
  AEXPR_NOT_BETWEEN: sql`not between`,
  AEXPR_BETWEEN_SYM: sql`between symmetric`,
  AEXPR_NOT_BETWEEN_SYM: sql`not between symmetric`,
} as const

export function operatorOf(names: readonly Node[] | undefined): Sql {
  const name = catalogueName(names)
  if (name === undefined || !OPERATORS.has(name)) {
    throw invalidSql(`operator [${namesOf(names).join('.')}] is not supported`)
  }
  return raw(name)
}
