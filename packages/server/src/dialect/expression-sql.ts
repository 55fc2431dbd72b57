import type { Node } from 'libpg-query'
import { textLength } from '../postgres/place.js'
import { empty, ident, join, literal, raw, type Sql, sql } from '../postgres/sql.js'
import { slot } from '../postgres/statement.js'
import {
  COLLATIONS,
  COMPARED_BYTES_MAX,
  type Cost,
  FORMED_FUNCTIONS,
  FUNCTIONS,
  OPERATORS,
  PATH_OPERAND,
  PATTERN_BYTES_MAX,
  SEARCHED_BYTES_MAX,
  SIZED_FUNCTIONS,
  TYPES,
  VALUE_BYTES_MAX,
  VALUE_BYTES_MIN,
} from './allowed.js'
import { boundOfResult } from './bounded-results.js'
import { collected, type Effort, knownSize, valueTooLarge, within } from './bounded-values.js'
import {
  type DeclaredType,
  DeclaredTypes,
  type EnumType,
  keepsType,
  requireValueOf,
  shownType,
} from './declared-types.js'
import { invalidSql } from './invalid-sql.js'
import { isBoundedPath } from './json-path.js'
import { contentOf, kindOf, type NodeKind, type NodeOf, namesOf, requireKnown } from './nodes.js'
import { type ColumnTypes, findColumnOf, type Relation, type Scope } from './scope.js'

/** A subquery of an expression, as it is written. */
interface Subquery {
  readonly text: Sql
  readonly columns: readonly string[]
  /** The declared types of its columns. */
  readonly types?: ColumnTypes | undefined
}

/** The statement that expressions belong to. */
export interface StatementContext {
  /** Converts a byte offset of the statement to a position in characters, from 1. */
  positionOf(location: number | undefined): number | undefined
  useParameter(number: number): void
  /** Notes a parameter that must be a value of an enum. */
  compareParameter?(number: number, type: EnumType): void
  /** Notes a parameter where only a constant is allowed. */
  misplaceParameter(number: number, location: number | undefined): void
  /** Writes a subquery of an expression. */
  subquery(node: Node | undefined, scope: Scope): Subquery
  /** Returns the size of the text of a parameter, in bytes. */
  parameterSize(number: number): number
  /** Returns the size of the values of a column, if its type limits it. */
  columnSize?(name: string): number | undefined
  /** Returns SQL for a column of the scope. By default, its name. */
  columnSql?(name: string): Sql
  /** Finds the enum type of this name, if a column has it. */
  findEnum?(name: string): EnumType | undefined
  /** Counts text that is written for a name towards the length of the statement. */
  countText?(length: number): void
  readonly effort: Effort
  /** The number of nodes so far, including those that PostgreSQL may substitute for columns. */
  expanded: number
}

type Writers = {
  readonly [Kind in NodeKind]?: (writer: ExpressionWriter, content: NodeOf<Kind>) => Sql
}

const list = (expressions: readonly Sql[]): Sql =>
  expressions.length === 0 ? empty : join(expressions, ', ')

/** Rewrites the expressions of a query. Everything that is not explicitly supported is rejected. */
export class ExpressionWriter {
  readonly #types: DeclaredTypes
  readonly #queries = new Map<Node, Subquery>()

  constructor(
    readonly context: StatementContext,
    readonly scope: Scope,
  ) {
    this.#types = new DeclaredTypes({
      columnType: (names) => scope.typeOf(names),
      enumNamed: (names) => this.#enumNamed(names),
      queryType: (link) => this.query(link).types?.[0],
    })
  }

  /** Returns the type that the columns of an expression are declared with, if it keeps it. */
  declaredType(node: Node | undefined): DeclaredType | undefined {
    return this.#types.of(node)
  }

  /** Returns the type that the values of all of these expressions have. */
  commonType(nodes: readonly (Node | undefined)[]): DeclaredType | undefined {
    return this.#types.ofAll(nodes)
  }

  /** Returns the enum that one of some expressions has. The others are compared with its values. */
  enumOf(nodes: readonly (Node | undefined)[]): EnumType | undefined {
    for (const node of nodes) {
      const type = this.declaredType(node)
      if (type?.kind === 'enum') return type
    }
    return undefined
  }

  /** Writes a value with the type that it is declared with. A time without a zone is that of the session. */
  writeTyped(node: Node | undefined): Sql {
    const value = this.write(node)
    const type = shownType(this.declaredType(node))
    return type === undefined ? value : sql`cast(${value} as ${type})`
  }

  /** Writes values of which one becomes the result, such as those of COALESCE. */
  writeAlternatives(nodes: readonly (Node | undefined)[]): Sql[] {
    // PostgreSQL finds the type of values that have different ones.
    if (this.commonType(nodes) === undefined) return nodes.map((node) => this.writeTyped(node))
    return nodes.map((node) => this.writeBeside(node, nodes))
  }

  /** Writes a subquery. Its types are asked for before it is a part of an expression. */
  query({ subselect }: NodeOf<'SubLink'>): Subquery {
    const known = subselect && this.#queries.get(subselect)
    if (known !== undefined) return known
    const written = this.context.subquery(subselect, this.scope)
    if (subselect !== undefined) this.#queries.set(subselect, written)
    return written
  }

  /**
   * Writes a value that is compared with others. Beside a time without a zone, a text or parameter is one, too. Beside an enum,
   * it must be one of its values.
   */
  writeBeside(node: Node | undefined, others: readonly (Node | undefined)[]): Sql {
    const value = this.write(node)
    this.requireValues(this.enumOf(others), [node])
    const isUntyped =
      contentOf(node, 'ParamRef') !== undefined || contentOf(node, 'A_Const')?.sval !== undefined
    const isTime = isUntyped && others.some((each) => this.declaredType(each)?.kind === 'timestamp')
    return isTime ? withoutZone(value) : value
  }

  /** Throws if a text is no value of an enum. Parameters are checked when their values are known. */
  requireValues(type: EnumType | undefined, nodes: readonly (Node | undefined)[]): void {
    if (type === undefined) return
    for (const node of nodes) {
      const { sval, location } = contentOf(node, 'A_Const') ?? {}
      if (sval !== undefined) {
        requireValueOf(type, sval.sval ?? '', this.context.positionOf(location))
      }
      const { number } = contentOf(node, 'ParamRef') ?? {}
      if (number !== undefined) this.context.compareParameter?.(number, type)
    }
  }

  /** Writes what an expression is sorted by. Values of an enum are sorted by their places in its list. */
  writeSorted(node: Node | undefined): Sql {
    const type = this.enumOf([node])
    const value = this.write(node)
    return type === undefined ? value : this.placeOf(value, type)
  }

  /** Writes the place of a value in the list of its enum. Places have the order of the values. */
  placeOf(value: Sql, type: EnumType): Sql {
    return sql`pg_catalog.array_position(${this.#listOf(type)}, ${value})`
  }

  /** Writes the places of the values of an array. */
  placesOf(values: Sql, type: EnumType): Sql {
    const place = this.placeOf(sql`elements.element`, type)
    return sql`
      select array(select ${place} from pg_catalog.unnest(given.list) as elements(element))
      from (select cast(${values} as pg_catalog.text[]) as list) as given
      where given.list is not null`
  }

  /** Writes the value at a place of the list of an enum. */
  valueAt(place: Sql, type: EnumType): Sql {
    return sql`(${this.#listOf(type)})[${place}]`
  }

  #listOf({ values }: EnumType): Sql {
    const items = values.map((value) => literal(value))
    const written = sql`array[${join(items, ', ')}]::pg_catalog.text[]`
    this.context.countText?.(textLength(written))
    return written
  }

  write(node: Node | undefined): Sql {
    if (node === undefined) throw invalidSql('an expression is missing')
    const kind = kindOf(node)
    const write = WRITERS[kind] as ((writer: this, content: unknown) => Sql) | undefined
    if (write === undefined) {
      const { location } = (contentOf(node, kind) ?? {}) as { location?: number }
      throw this.invalid(`${describeKind(kind)} is not supported`, location)
    }
    this.context.expanded++
    return this.context.effort.inside(() => write(this, contentOf(node, kind)))
  }

  /** Returns the size of a constant or parameter in bytes, or undefined for other values. */
  sizeOf(node: Node | undefined): number | undefined {
    return knownSize(node, (number) => this.context.parameterSize(number))
  }

  /** Returns the largest size of the values of an expression over one row, if the types of its columns tell. */
  boundOf(node: Node | undefined): number | undefined {
    const { columnSize } = this.context
    if (columnSize === undefined) return undefined
    return boundOfResult(node, (each) => {
      const [name, ...more] = namesOf(contentOf(each, 'ColumnRef')?.fields)
      return name === undefined || more.length > 0 ? this.sizeOf(each) : columnSize(name)
    })
  }

  /** Returns whether a node is a column of a table, whose values are no larger than a record. */
  isStored(node: Node | undefined): boolean {
    const names = namesOf(contentOf(node, 'ColumnRef')?.fields)
    const [first = '', second] = names
    if (names.length === 1) return this.scope.isStored(first)
    return names.length === 2 && second !== undefined
      ? this.scope.findRelation(first)?.isStored === true
      : false
  }

  /** Returns whether the value needs no calculation. */
  isPlain(node: Node | undefined): boolean {
    return node === undefined || this.sizeOf(node) !== undefined || this.isStored(node)
  }

  /** Writes an argument with a limited size. */
  writeWithin(node: Node | undefined, what: string, bytesMax: number): Sql {
    const named = contentOf(node, 'NamedArgExpr')
    if (named !== undefined) {
      return sql`${ident(named.name ?? '')} => ${this.writeWithin(named.arg, what, bytesMax)}`
    }
    const size = this.sizeOf(node)
    if (size !== undefined && size > bytesMax) throw valueTooLarge(what, bytesMax)
    const value = this.writeTyped(node)
    const isSmall = size !== undefined || (this.isStored(node) && bytesMax >= SEARCHED_BYTES_MAX)
    return isSmall ? value : within(value, bytesMax)
  }

  /** Writes an argument of a function whose result is larger than its arguments. */
  writeGrowing(node: Node | undefined, count = 2): Sql {
    const { valueBytesMax } = this.context.effort
    const bytesMax = Math.floor(valueBytesMax / Math.max(1, count / 2))
    const isColumn = contentOf(node, 'ColumnRef') !== undefined
    const isBounded = (this.boundOf(node) ?? Number.POSITIVE_INFINITY) <= bytesMax
    const isSmall = isBounded || (this.isStored(node) && bytesMax >= SEARCHED_BYTES_MAX)
    const value = this.writeTyped(node)
    return isColumn && !isSmall ? within(value, bytesMax) : value
  }

  writeAllGrowing(nodes: readonly Node[] | undefined): Sql[] {
    return (nodes ?? []).map((node) => this.writeGrowing(node, nodes?.length))
  }

  writeAll(nodes: readonly Node[] | undefined): Sql[] {
    return (nodes ?? []).map((node) => this.write(node))
  }

  /** Writes the list of an ORDER BY clause. */
  writeOrder(
    nodes: readonly Node[] | undefined,
    writeSorted: (node: Node | undefined) => Sql = (node) => this.writeSorted(node),
  ): Sql {
    return list(
      (nodes ?? []).map((node) => {
        const sort = contentOf(node, 'SortBy')
        if (sort === undefined) throw invalidSql('ORDER BY: a part is not supported')
        requireKnown(sort, 'ORDER BY', ['node', 'sortby_dir', 'sortby_nulls', 'location'])
        const direction = pick(SORT_DIRECTIONS, sort.sortby_dir)
        return sql`${writeSorted(sort.node)}${direction}${pick(SORT_NULLS, sort.sortby_nulls)}`
      }),
    )
  }

  writeWindow(window: NodeOf<'WindowDef'>): Sql {
    const { refname, partitionClause = [], orderClause = [] } = window
    const parts: Sql[] = []
    if (refname !== undefined) parts.push(ident(refname))
    if (partitionClause.length > 0) {
      parts.push(sql`partition by ${list(this.writeAll(partitionClause))}`)
    }
    if (orderClause.length > 0) parts.push(sql`order by ${this.writeOrder(orderClause)}`)
    parts.push(...this.#writeFrame(window))
    return sql`(${parts.length === 0 ? empty : join(parts, ' ')})`
  }

  #writeFrame({ frameOptions = 0, startOffset, endOffset }: NodeOf<'WindowDef'>): Sql[] {
    if ((frameOptions & FRAME.isGiven) === 0) return []
    const unit = FRAME_UNITS.find(([bit]) => (frameOptions & bit) !== 0)?.[1] ?? sql`range`
    const bound = (bounds: typeof FRAME_STARTS, offset: Node | undefined): Sql => {
      const found = bounds.find(([bit]) => (frameOptions & bit) !== 0)
      if (found === undefined) throw invalidSql('a window frame is not supported')
      const [, words, hasOffset] = found
      return hasOffset ? sql`${this.write(offset)} ${words}` : words
    }
    const start = bound(FRAME_STARTS, startOffset)
    const extent =
      (frameOptions & FRAME.isBetween) === 0
        ? start
        : sql`between ${start} and ${bound(FRAME_ENDS, endOffset)}`
    const excluded = FRAME_EXCLUSIONS.find(([bit]) => (frameOptions & bit) !== 0)?.[1] ?? empty
    return [sql`${unit} ${extent}${excluded}`]
  }

  invalid(message: string, location: number | undefined) {
    return invalidSql(message, this.context.positionOf(location))
  }

  /** Finds the enum that the name of a type stands for. */
  #enumNamed(names: readonly Node[] | undefined): EnumType | undefined {
    const [name = '', schema = BRANCH_SCHEMA] = namesOf(names).toReversed()
    if (TYPES.has(catalogueName(names) ?? '') || schema !== BRANCH_SCHEMA) return undefined
    return this.context.findEnum?.(name)
  }

  writeType(type: NodeOf<'TypeName'> | undefined): Sql {
    if (type === undefined) throw invalidSql('a type is missing')
    requireKnown(type, 'a type', ['names', 'typemod', 'typmods', 'arrayBounds', 'location'])
    // Values of an enum are texts.
    const name = this.#enumNamed(type.names) === undefined ? catalogueName(type.names) : 'text'
    if (name === undefined || !TYPES.has(name)) {
      throw this.invalid(`type [${namesOf(type.names).join('.')}] is not supported`, type.location)
    }
    const modifiers = (type.typmods ?? []).map(
      (node) => contentOf(node, 'A_Const')?.ival?.ival ?? 0,
    )
    if (name === 'interval' && modifiers.length > 0) {
      throw this.invalid('fields of an interval are not supported', type.location)
    }
    const sizes = modifiers.length === 0 ? '' : `(${modifiers.map(Number).join(',')})`
    const dimensions = '[]'.repeat(type.arrayBounds?.length ?? 0)
    return sql`pg_catalog.${ident(name)}${raw(sizes)}${raw(dimensions)}`
  }
}

const withoutZone = (value: Sql): Sql => sql`cast(${value} as pg_catalog.timestamp)`

const SORT_DIRECTIONS: Readonly<Record<string, Sql>> = {
  SORTBY_DEFAULT: empty,
  SORTBY_ASC: sql` asc`,
  SORTBY_DESC: sql` desc`,
}
const SORT_NULLS: Readonly<Record<string, Sql>> = {
  SORTBY_NULLS_DEFAULT: empty,
  SORTBY_NULLS_FIRST: sql` nulls first`,
  SORTBY_NULLS_LAST: sql` nulls last`,
}

/** Bits of `frameOptions`, as PostgreSQL defines them. */
const FRAME = { isGiven: 0x1, isBetween: 0x10 } as const
const FRAME_UNITS: readonly (readonly [bit: number, words: Sql])[] = [
  [0x2, sql`range`],
  [0x4, sql`rows`],
  [0x8, sql`groups`],
]
type FrameBound = readonly [bit: number, words: Sql, hasOffset: boolean]
const FRAME_STARTS: readonly FrameBound[] = [
  [0x20, sql`unbounded preceding`, false],
  [0x80, sql`unbounded following`, false],
  [0x200, sql`current row`, false],
  [0x800, sql`preceding`, true],
  [0x2000, sql`following`, true],
]
const FRAME_ENDS: readonly FrameBound[] = [
  [0x40, sql`unbounded preceding`, false],
  [0x100, sql`unbounded following`, false],
  [0x400, sql`current row`, false],
  [0x1000, sql`preceding`, true],
  [0x4000, sql`following`, true],
]
const FRAME_EXCLUSIONS: readonly (readonly [bit: number, words: Sql])[] = [
  [0x8000, sql` exclude current row`],
  [0x10000, sql` exclude group`],
  [0x20000, sql` exclude ties`],
]

function pick(choices: Readonly<Record<string, Sql>>, name: string | undefined): Sql {
  const found = name === undefined ? empty : choices[name]
  if (found === undefined) throw invalidSql(`[${name}] is not supported`)
  return found
}

/** Converts `ColumnRef` to `column ref`, for error messages. */
function describeKind(kind: string): string {
  return kind
    .replace(/^A_/, '')
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase()
}

/** Returns a name that has no schema or the schema pg_catalog. */
export function catalogueName(nodes: readonly Node[] | undefined): string | undefined {
  const names = namesOf(nodes)
  if (names.length === 1) return names[0]
  return names.length === 2 && names[0] === 'pg_catalog' ? names[1] : undefined
}

function operatorOf(names: readonly Node[] | undefined): Sql {
  const name = catalogueName(names)
  if (name === undefined || !OPERATORS.has(name)) {
    throw invalidSql(`operator [${namesOf(names).join('.')}] is not supported`)
  }
  return raw(name)
}

function writeConstant(writer: ExpressionWriter, constant: NodeOf<'A_Const'>): Sql {
  if (constant.isnull) return sql`null`
  if (constant.sval !== undefined) return literal(constant.sval.sval ?? '')
  if (constant.boolval !== undefined) return constant.boolval.boolval ? sql`true` : sql`false`
  const number = constant.fval?.fval ?? (constant.ival && String(constant.ival.ival ?? 0))
  // Only digits, which need no quoting.
  if (number === undefined || !/^-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?$/i.test(number)) {
    throw writer.invalid('a constant of this form is not supported', constant.location)
  }
  return number.startsWith('-') ? sql`(${raw(number)})` : raw(number)
}

/** The metadata of a record has the name `xata` for Xata clients and `service` for others. */
const METADATA_NAME = /^(?:xata|service)\.(version|createdAt|updatedAt)$/i

/** Returns the other name of a metadata column. */
export function otherMetadataName(name: string): string | undefined {
  const field = METADATA_NAME.exec(name)?.[1]
  if (field === undefined) return undefined
  return name.startsWith('xata') ? `service.${field}` : `xata.${field}`
}

/** The tables of a branch are in this schema. */
export const BRANCH_SCHEMA = 'public'

function writeColumn(
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

function writeOperation(writer: ExpressionWriter, content: NodeOf<'A_Expr'>): Sql {
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
    case 'AEXPR_NULLIF':
      return sql`nullif(${left()}, ${right()})`
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

/** Comparisons whose outcome depends on the order of values. */
const COMPARISONS: ReadonlySet<string> = new Set(['<', '<=', '>', '>='])
const EQUALITIES: ReadonlySet<string> = new Set(['=', '<>', '!='])

/** Returns the pairs of values that a comparison of two rows compares. */
function rowPairs(
  left: Node | undefined,
  right: Node | undefined,
): (readonly [Node, Node | undefined])[] | undefined {
  const values = contentOf(left, 'RowExpr')?.args
  const others = contentOf(right, 'RowExpr')?.args
  if (values === undefined || values.length !== others?.length) return undefined
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
      return keeps ? writer.write(node) : writer.writeTyped(node)
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
  const pairs = rowPairs(lexpr, rexpr)
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
  const text = sql`(${write(lexpr, 0, rexpr)} ${operator} ${write(rexpr, 1, lexpr)})`
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
    const many = writer.write(rexpr)
    const array = contentOf(rexpr, 'TypeCast')?.arg ?? rexpr
    writer.requireValues(type, contentOf(array, 'A_ArrayExpr')?.elements ?? [])
    if (type !== undefined && COMPARISONS.has(operator.text)) {
      const value = writer.placeOf(writer.write(lexpr), type)
      return sql`(${value} ${operator} ${quantifier} ((${writer.placesOf(many, type)})::pg_catalog.int4[]))`
    }
    const isTime =
      contentOf(rexpr, 'ParamRef') !== undefined && writer.declaredType(lexpr)?.kind === 'timestamp'
    const typed = isTime ? sql`cast(${many} as pg_catalog.timestamp[])` : many
    return sql`(${writer.write(lexpr)} ${operator} ${quantifier} (${typed}))`
  }
  const what = `operator [${operator.text}]`
  const isShort = (writer.sizeOf(rexpr) ?? PATTERN_BYTES_MAX + 1) <= PATTERN_BYTES_MAX
  const leftMax = isShort
    ? sizeAt(cost.sizes, 0)
    : Math.min(sizeAt(cost.sizes, 0), COMPARED_BYTES_MAX)
  const left = writer.writeWithin(lexpr, what, leftMax)
  const right = writer.writeWithin(rexpr, what, PATTERNS_BYTES_MAX)
  return sql`(${left} ${operator} ${quantifier} (${right}))`
}

/** Writes the values of a subquery, limited to the size that the operator accepts. */
function writeEach(
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
  return { test, rows: sql`select ${element} from (${query.text}) as elements(element)` }
}

function sizeAt(sizes: readonly number[], position: number): number {
  return sizes[Math.min(position, sizes.length - 1)] ?? VALUE_BYTES_MAX
}

/** Maximum size of a constant or parameter for which a search is fast. */
const SHORT_BYTES_MAX = 100

/**
 * Returns whether a call takes long although its arguments need no calculation, which would check for
 * cancellation.
 */
function isHeavy(writer: ExpressionWriter, cost: Cost, nodes: readonly (Node | undefined)[]) {
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

function writeLogic(writer: ExpressionWriter, { boolop, args }: NodeOf<'BoolExpr'>): Sql {
  const parts = writer.writeAll(args)
  if (boolop === 'NOT_EXPR') return sql`(not ${parts[0] ?? empty})`
  return sql`(${join(parts, boolop === 'AND_EXPR' ? ' and ' : ' or ')})`
}

const BOOLEAN_TESTS: Readonly<Record<string, Sql>> = {
  IS_TRUE: sql`is true`,
  IS_NOT_TRUE: sql`is not true`,
  IS_FALSE: sql`is false`,
  IS_NOT_FALSE: sql`is not false`,
  IS_UNKNOWN: sql`is unknown`,
  IS_NOT_UNKNOWN: sql`is not unknown`,
}

function writeCase(writer: ExpressionWriter, { arg, args, defresult }: NodeOf<'CaseExpr'>): Sql {
  const subject = arg === undefined ? empty : sql` ${writer.write(arg)}`
  const found = (args ?? []).map((node) => contentOf(node, 'CaseWhen'))
  const results = writer.writeAlternatives([
    ...found.map((branch) => branch?.result),
    ...(defresult === undefined ? [] : [defresult]),
  ])
  const branches = found.map((branch, index) => {
    const condition = writer.writeBeside(branch?.expr, [arg])
    return sql` when ${condition} then ${results[index] ?? empty}`
  })
  const otherwise = defresult === undefined ? empty : sql` else ${results.at(-1) ?? empty}`
  return sql`(case${subject}${join(branches, '')}${otherwise} end)`
}

const FUNCTION_PARTS = [
  'funcname',
  'args',
  'agg_order',
  'agg_filter',
  'over',
  'agg_within_group',
  'agg_star',
  'agg_distinct',
  'funcformat',
  'location',
]

/** Why functions of clients are not supported, or where they are. */
const REASONS: Readonly<Record<string, string>> = {
  nextval: ' here: only `select nextval(...)` alone, and in VALUES for the column of the sequence',
  currval: ': RETURNING returns the numbers of new records',
  lastval: ': RETURNING returns the numbers of new records',
  pg_export_snapshot: ': run pg_dump without --jobs',
}

/** Returns the name of a function. Throws if it is not allowed. */
export function functionName(writer: ExpressionWriter, call: NodeOf<'FuncCall'>): string {
  const name = catalogueName(call.funcname)
  if (name === undefined || !FUNCTIONS.has(name)) {
    const shown = namesOf(call.funcname).join('.')
    const reason = REASONS[name ?? '']
    const message = `function [${shown}] is not supported`
    throw writer.invalid(reason === undefined ? message : `${message}${reason}`, call.location)
  }
  return name
}

/** Writes a function call in an expression. */
function writeValue(writer: ExpressionWriter, call: NodeOf<'FuncCall'>): Sql {
  const { args = [] } = call
  const name = functionName(writer, call)
  const cost = FUNCTIONS.get(name) ?? { kind: 'linear' }
  const text = writeCall(writer, call)
  // Cast to text, because values of type regtype could be used to look up objects of the server.
  if (name === 'pg_typeof') return sql`cast(${text} as pg_catalog.text)`
  return writer.context.effort.count(text, { isHeavy: isHeavy(writer, cost, args) })
}

export function writeCall(writer: ExpressionWriter, call: NodeOf<'FuncCall'>): Sql {
  requireKnown(call, 'a function call', FUNCTION_PARTS)
  const name = functionName(writer, call)
  requireSize(writer, name, call)
  requireForm(writer, name, call)
  const order = call.agg_order ?? []
  const isWithin = call.agg_within_group === true
  const { args, replaced, filter } = writeArguments(writer, name, call)
  const sorted = sortedLike(writer, replaced, { isDistinct: call.agg_distinct === true })
  const extreme = extremeOf(writer, name, call)
  const values =
    extreme === undefined || isWithin ? args : args.map((value) => writer.placeOf(value, extreme))
  const inside = [
    call.agg_distinct ? sql`distinct ` : empty,
    call.agg_star ? sql`*` : list(values),
    order.length > 0 && !isWithin ? sql` order by ${writer.writeOrder(order, sorted)}` : empty,
  ]
  const after = [
    // Such an aggregate returns a value that it has sorted.
    isWithin
      ? sql` within group (order by ${writer.writeOrder(order, (node) => (extreme === undefined ? writer.writeTyped(node) : writer.writeSorted(node)))})`
      : empty,
    filter === undefined ? empty : sql` filter (where ${filter})`,
    call.over === undefined ? empty : sql` over ${writeOver(writer, call.over)}`,
  ]
  const text = sql`pg_catalog.${ident(name)}(${join(inside, '')})${join(after, '')}`
  return extreme === undefined ? text : writer.valueAt(text, extreme)
}

/** Aggregates that find a value by the order of values. */
const EXTREMES: ReadonlySet<string> = new Set(['min', 'max'])

/** Returns the enum of which a call finds a value by its place. */
function extremeOf(
  writer: ExpressionWriter,
  name: string,
  call: NodeOf<'FuncCall'>,
): EnumType | undefined {
  if (EXTREMES.has(name)) return writer.enumOf(call.args ?? [])
  return call.agg_within_group ? writer.enumOf([{ FuncCall: call }]) : undefined
}

/**
 * Returns how the values of an aggregate are sorted. What is an argument, too, is written like it: DISTINCT needs that, and
 * it saves to keep the value twice.
 */
function sortedLike(
  writer: ExpressionWriter,
  replaced: ReadonlyMap<string, Sql>,
  { isDistinct }: { isDistinct: boolean },
) {
  return (node: Node | undefined) => {
    if (!isDistinct && writer.enumOf([node]) !== undefined) return writer.writeSorted(node)
    const value = writer.writeTyped(node)
    return replaced.get(textOf(value)) ?? value
  }
}

interface WrittenArguments {
  readonly args: readonly Sql[]
  /** How arguments are written, by how they would be if their size was not counted. */
  readonly replaced: ReadonlyMap<string, Sql>
  readonly filter: Sql | undefined
}

function writeArguments(
  writer: ExpressionWriter,
  name: string,
  call: NodeOf<'FuncCall'>,
): WrittenArguments {
  const { args: nodes = [] } = call
  const cost = FUNCTIONS.get(name) ?? { kind: 'linear' }
  const filter = call.agg_filter === undefined ? undefined : writer.write(call.agg_filter)
  if (cost.kind === 'collects') return writeCollected(writer, call, { filter, ...cost })
  const what = `function [${name}]`
  const keeps = keepsType(name) && writer.declaredType({ FuncCall: call }) !== undefined
  const args = nodes.map((node, index) => {
    if (cost.kind === 'grows') return writer.writeGrowing(node, nodes.length)
    if (cost.kind !== 'bounded' && cost.kind !== 'multiplies') {
      return keeps ? writer.write(node) : writer.writeTyped(node)
    }
    return writer.writeWithin(node, what, argumentMax(writer, { name, call, cost, index }))
  })
  return { args, replaced: new Map(), filter }
}

function argumentMax(
  writer: ExpressionWriter,
  options: {
    name: string
    call: NodeOf<'FuncCall'>
    cost: Extract<Cost, { sizes: readonly number[] }>
    index: number
  },
): number {
  const { name, call, cost, index } = options
  const { args = [] } = call
  if (cost.kind === 'bounded') {
    // An optional array of weights may precede the ranked text.
    const hasWeights =
      name.startsWith('ts_rank') &&
      (args.length === 4 || (args.length === 3 && contentOf(args[2], 'A_Const') === undefined))
    return sizeAt(cost.sizes, hasWeights ? index - 1 : index)
  }
  if (index !== 0) return sizeAt(cost.sizes, index)
  const factor = args[cost.factor]
  const size = contentOf(factor, 'A_Const')?.ival?.ival ?? writer.sizeOf(factor)
  const times = Math.max(1, size ?? sizeAt(cost.sizes, cost.factor))
  return Math.min(sizeAt(cost.sizes, 0), Math.floor(VALUE_BYTES_MAX / times))
}

/** Writes the arguments of an aggregate that collects them. The size of each value is counted. */
function writeCollected(
  writer: ExpressionWriter,
  { args: nodes = [] }: NodeOf<'FuncCall'>,
  { filter, bytesMax }: { filter: Sql | undefined; bytesMax: number },
): WrittenArguments {
  const replaced = new Map<string, Sql>()
  let knownBytes = 0
  const args = nodes.map((node) => {
    const size = writer.sizeOf(node)
    const value = writer.writeTyped(node)
    if (size !== undefined) {
      knownBytes += size
      return value
    }
    const counted = collected(value, bytesMax)
    replaced.set(textOf(value), counted)
    return counted
  })
  if (replaced.size > 0) return { args, replaced, filter }
  // All arguments are constants, which the aggregate still keeps for each row.
  const bytes = sql`${raw(String(knownBytes))}::pg_catalog.int4`
  const counted = sql`${collected(bytes, bytesMax)} is not null`
  return {
    args,
    replaced,
    filter: filter === undefined ? counted : sql`(${filter}) and ${counted}`,
  }
}

/** Returns a text that is equal for equal expressions. */
export function textOf({ strings, values }: Sql): string {
  return JSON.stringify([strings, values])
}

function writeOver(writer: ExpressionWriter, window: NodeOf<'WindowDef'>): Sql {
  return window.name === undefined ? writer.writeWindow(window) : ident(window.name)
}

/** Refuses a constant argument of another form. */
function requireForm(writer: ExpressionWriter, name: string, call: NodeOf<'FuncCall'>): void {
  const form = FORMED_FUNCTIONS.get(name)
  if (form === undefined) return
  const given = call.args?.[form.argument]
  const constant = contentOf(contentOf(given, 'TypeCast')?.arg ?? given, 'A_Const')
  const text = constant?.sval?.sval
  if (text !== undefined && form.isValid(text)) return
  throw writer.invalid(`function [${name}]: ${form.message}`, call.location)
}

function requireSize(writer: ExpressionWriter, name: string, call: NodeOf<'FuncCall'>): void {
  const sized = SIZED_FUNCTIONS.get(name)
  if (sized === undefined) return
  const constant = contentOf(call.args?.[sized.argument], 'A_Const')
  const size = constant?.ival === undefined ? undefined : (constant.ival.ival ?? 0)
  if (size === undefined || size > sized.max) {
    const message = `function [${name}]: the size must be written as a number up to ${sized.max}`
    throw writer.invalid(message, call.location)
  }
}

function writeSubquery(writer: ExpressionWriter, link: NodeOf<'SubLink'>): Sql {
  requireKnown(link, 'a subquery', ['subLinkType', 'testexpr', 'operName', 'subselect', 'location'])
  const found = writer.query(link)
  const { text: query, columns } = found
  const test = () => writer.write(link.testexpr)
  switch (link.subLinkType) {
    case 'EXISTS_SUBLINK':
      return sql`(exists (${query}))`
    case 'EXPR_SUBLINK':
      return sql`(${query})`
    case 'ARRAY_SUBLINK':
      if (columns.length !== 1) {
        throw writer.invalid('subquery must return only one column', link.location)
      }
      return sql`array(select ${collected(sql`elements.element`)} from (${query}) as elements(element))`
    case 'ANY_SUBLINK': {
      // IN has no explicit operator.
      if (link.operName === undefined) return sql`(${test()} in (${query}))`
      const each = writeEach(writer, link, found)
      return sql`(${each.test} ${operatorOf(link.operName)} any (${each.rows}))`
    }
    case 'ALL_SUBLINK': {
      const each = writeEach(writer, link, found)
      return sql`(${each.test} ${operatorOf(link.operName)} all (${each.rows}))`
    }
    default:
      throw writer.invalid('a subquery of this form is not supported', link.location)
  }
}

/** Writes `json_object('a' : 1)`. */
function writeJsonObject(
  writer: ExpressionWriter,
  { exprs = [], output, absent_on_null, unique }: NodeOf<'JsonObjectConstructor'>,
): Sql {
  const pairs = exprs.map((node) => {
    const { key, value } = contentOf(node, 'JsonKeyValue') ?? {}
    const count = 2 * exprs.length
    return sql`${writer.writeGrowing(key, count)} value ${writer.writeGrowing(value?.raw_expr, count)}`
  })
  const options = [
    absent_on_null ? sql` absent on null` : empty,
    uniqueKeys(unique),
    jsonOutput(writer, output).text,
  ]
  return sql`json_object(${list(pairs)}${join(options, '')})`
}

/** Writes `json_array(1, 2)`. */
function writeJsonArray(
  writer: ExpressionWriter,
  { exprs = [], output, absent_on_null }: NodeOf<'JsonArrayConstructor'>,
): Sql {
  const values = exprs.map((node) => contentOf(node, 'JsonValueExpr')?.raw_expr ?? node)
  const options = [absent_on_null ? empty : sql` null on null`, jsonOutput(writer, output).text]
  return sql`json_array(${list(writer.writeAllGrowing(values))}${join(options, '')})`
}

const uniqueKeys = (isUnique: boolean | undefined): Sql =>
  isUnique ? sql` with unique keys` : empty

/** Writes the type of a document. */
function jsonOutput(
  writer: ExpressionWriter,
  output: NodeOf<'JsonOutput'> | undefined,
): { text: Sql; isBinary: boolean } {
  if (output?.typeName === undefined) return { text: empty, isBinary: false }
  const isBinary = catalogueName(output.typeName.names) === 'jsonb'
  return { text: sql` returning ${writer.writeType(output.typeName)}`, isBinary }
}

/** Writes an aggregate that collects its arguments in a document. */
function writeJsonAggregate(
  writer: ExpressionWriter,
  made: NodeOf<'JsonAggConstructor'> | undefined,
  given: {
    readonly name: 'json_arrayagg' | 'json_objectagg'
    readonly args: readonly (Node | undefined)[]
    readonly options: readonly Sql[]
  },
): Sql {
  const { output, agg_filter, agg_order = [], over } = made ?? {}
  const { text: type, isBinary } = jsonOutput(writer, output)
  const cost = FUNCTIONS.get(isBinary ? 'jsonb_agg' : 'json_agg')
  if (cost?.kind !== 'collects') throw new Error('an aggregate must have a limit')
  const nodes = given.args.flatMap((node) => node ?? [])
  const isGiven = agg_filter === undefined ? undefined : writer.write(agg_filter)
  const { args, replaced, filter } = writeCollected(
    writer,
    { args: nodes },
    { filter: isGiven, bytesMax: cost.bytesMax },
  )
  const sorted = sortedLike(writer, replaced, { isDistinct: false })
  const order =
    agg_order.length === 0 ? empty : sql` order by ${writer.writeOrder(agg_order, sorted)}`
  const inside = sql`${join(args, ' value ')}${order}${join(given.options, '')}${type}`
  const after = [
    filter === undefined ? empty : sql` filter (where ${filter})`,
    over === undefined ? empty : sql` over ${writeOver(writer, over)}`,
  ]
  return sql`${raw(given.name)}(${inside})${join(after, '')}`
}

/**
 * Writes subscripts of arrays and documents. Fields are rejected, because PostgreSQL may call a function for
 * them.
 */
function writeElement(writer: ExpressionWriter, content: NodeOf<'A_Indirection'>): Sql {
  const indices = (content.indirection ?? []).map((node) => {
    const index = contentOf(node, 'A_Indices')
    if (index === undefined) {
      throw invalidSql('(expression).field is not supported; name the column by its table')
    }
    const upper = index.uidx === undefined ? empty : writer.write(index.uidx)
    if (!index.is_slice) return sql`[${upper}]`
    return sql`[${index.lidx === undefined ? empty : writer.write(index.lidx)}:${upper}]`
  })
  return sql`(${writer.write(content.arg)})${join(indices, '')}`
}

const TIME_VALUES: Readonly<Record<string, Sql>> = {
  SVFOP_CURRENT_DATE: sql`current_date`,
  SVFOP_CURRENT_TIME: sql`current_time`,
  SVFOP_CURRENT_TIMESTAMP: sql`current_timestamp`,
  SVFOP_LOCALTIME: sql`localtime`,
  SVFOP_LOCALTIMESTAMP: sql`localtimestamp`,
}

const WRITERS: Writers = {
  A_Const: writeConstant,
  ColumnRef: writeColumn,
  A_Expr: writeOperation,
  BoolExpr: writeLogic,
  CaseExpr: writeCase,
  FuncCall: writeValue,
  SubLink: writeSubquery,
  A_Indirection: writeElement,
  ParamRef(writer, { number, location }) {
    if (number === undefined || number < 1)
      throw writer.invalid('there is no parameter $0', location)
    writer.context.useParameter(number)
    return sql`${slot(number - 1)}`
  },
  NullTest: (writer, { arg, nulltesttype }) =>
    nulltesttype === 'IS_NULL'
      ? sql`(${writer.write(arg)} is null)`
      : sql`(${writer.write(arg)} is not null)`,
  BooleanTest: (writer, { arg, booltesttype }) =>
    sql`(${writer.write(arg)} ${pick(BOOLEAN_TESTS, booltesttype)})`,
  CoalesceExpr: (writer, { args = [] }) => sql`coalesce(${list(writer.writeAlternatives(args))})`,
  MinMaxExpr(writer, { op, args = [] }) {
    const type = writer.enumOf(args)
    const values = writer.writeAlternatives(args)
    const compared =
      type === undefined ? values : values.map((value) => writer.placeOf(value, type))
    const name = op === 'IS_GREATEST' ? sql`greatest` : sql`least`
    const found = sql`${name}(${list(compared)})`
    return type === undefined ? found : writer.valueAt(found, type)
  },
  TypeCast(writer, cast) {
    const { arg, typeName } = cast
    const parameter = contentOf(arg, 'ParamRef')
    // The parser also accepts a parameter as the constant of `date '2026-01-31'`; PostgreSQL does not.
    if ((parameter?.location ?? 0) > (typeName?.location ?? 0)) {
      writer.context.misplaceParameter(parameter?.number ?? 0, parameter?.location)
      return sql`null`
    }
    writer.requireValues(writer.enumOf([{ TypeCast: cast }]), [arg])
    return sql`cast(${writer.writeTyped(arg)} as ${writer.writeType(typeName)})`
  },
  JsonObjectConstructor: writeJsonObject,
  JsonArrayConstructor: writeJsonArray,
  JsonObjectAgg: (writer, { arg, constructor: made, absent_on_null, unique }) =>
    writeJsonAggregate(writer, made, {
      name: 'json_objectagg',
      args: [arg?.key, arg?.value?.raw_expr],
      options: [absent_on_null ? sql` absent on null` : empty, uniqueKeys(unique)],
    }),
  JsonArrayAgg: (writer, { arg, constructor: made, absent_on_null }) =>
    writeJsonAggregate(writer, made, {
      name: 'json_arrayagg',
      args: [arg?.raw_expr],
      options: [absent_on_null ? empty : sql` null on null`],
    }),
  A_ArrayExpr: (writer, { elements }) => sql`array[${list(writer.writeAllGrowing(elements))}]`,
  RowExpr: (writer, { args }) => sql`row(${list(writer.writeAllGrowing(args))})`,
  NamedArgExpr: (writer, { name = '', arg }) => sql`${ident(name)} => ${writer.writeTyped(arg)}`,
  GroupingFunc: (writer, { args }) => sql`grouping(${list(writer.writeAll(args))})`,
  CollateClause(writer, { arg, collname, location }) {
    const name = catalogueName(collname)
    if (name === undefined || !COLLATIONS.has(name)) {
      throw writer.invalid(`collation [${namesOf(collname).join('.')}] is not supported`, location)
    }
    return sql`(${writer.write(arg)} collate pg_catalog.${ident(name)})`
  },
  SQLValueFunction(writer, { op = '', location }) {
    const value = TIME_VALUES[op]
    const name = op.replace('SVFOP_', '').toLowerCase()
    if (value === undefined) throw writer.invalid(`[${name}] is not supported`, location)
    return value
  },
}
