import type { IntBits } from '@offshoot/contract/schema'
import type { Node } from 'libpg-query'
import { textLength } from '../../postgres/place.js'
import { empty, ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { PATTERN_BYTES_MAX, SEARCHED_BYTES_MAX, TYPES } from '../allowed.js'
import { boundOfResult, boundOfText } from '../bounded-results.js'
import { type Effort, knownSize, valueTooLarge, within } from '../bounded-values.js'
import {
  type DeclaredType,
  DeclaredTypes,
  type EnumType,
  requireValueOf,
  shownType,
} from '../declared-types.js'
import { invalidSql } from '../invalid-sql.js'
import {
  catalogueName,
  contentOf,
  kindOf,
  type NodeKind,
  type NodeOf,
  namesOf,
  requireKnown,
} from '../nodes.js'
import type { ColumnTypes, Scope } from '../scope.js'
import { BRANCH_SCHEMA, isOfRanges, list, pick, withoutZone } from './parts.js'
import { writeFrame } from './window-frame.js'

/** A subquery of an expression, as it is written. */
export interface Subquery {
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
  /**
   * Returns the size of a whole number as which a parameter is sent, which its first use decides. `bits` is the one that this use
   * would have. undefined: its type is what PostgreSQL finds.
   */
  parameterBits?(number: number, bits: IntBits): IntBits | undefined
  /** Returns the type that a caller declares for a parameter, as a name of PostgreSQL. undefined: none. */
  parameterType?(number: number): string | undefined
  /** Returns the size of the text of a parameter, in bytes. */
  parameterSize(number: number): number
  /** Returns the size of the values of a column, if its type limits it. */
  columnSize?(name: string): number | undefined
  /** Returns whether the values of a column are texts. */
  isText?(name: string): boolean
  /** Returns SQL for a column of the scope. By default, its name. */
  columnSql?(name: string): Sql
  /** Finds the enum type of this name, if a column has it. */
  findEnum?(name: string): EnumType | undefined
  /** Returns SQL for the place of a value in the list of an enum. By default, the list is a part of it. */
  placeOf?(value: Sql, type: EnumType): Sql
  /** Notes a value of an enum that the statement names. */
  useValue?(type: EnumType, value: string): void
  /** Counts text that is written for a name towards the length of the statement. */
  countText?(length: number): void
  readonly effort: Effort
  /** The number of nodes so far, including those that PostgreSQL may substitute for columns. */
  expanded: number
  /** Whether a range has been written. */
  hasRanges?: boolean
}

/** The number of columns of the largest size that a searched text can be joined from. */
const JOINED_COLUMNS_MAX = 4

/** How nodes of a kind are written. Other kinds are rejected. */
export type Writers = {
  readonly [Kind in NodeKind]?: (writer: ExpressionWriter, content: NodeOf<Kind>) => Sql
}

/** Rewrites the expressions of a query. Everything that is not explicitly supported is rejected. */
export class ExpressionWriter {
  readonly #writers: Writers
  readonly #types: DeclaredTypes
  readonly #queries = new Map<Node, Subquery>()

  constructor(
    readonly context: StatementContext,
    readonly scope: Scope,
    writers: Writers,
  ) {
    this.#writers = writers
    this.#types = new DeclaredTypes({
      columnType: (names) => scope.typeOf(names),
      enumNamed: (names) => this.#enumNamed(names),
      parameterType: (number) => context.parameterType?.(number),
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
    const type = this.commonType(nodes)
    // PostgreSQL finds the type of values that have different ones.
    if (type === undefined) return nodes.map((node) => this.writeTyped(node))
    return nodes.map((node) => this.#typed(node, type))
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
    const types = others.map((each) => this.declaredType(each))
    const type =
      types.find((each) => each?.kind === 'enum') ??
      types.find((each) => each?.kind === 'timestamp') ??
      this.commonType(others)
    return this.#typed(node, type)
  }

  /** Writes an array that a value is compared with. A parameter is one of such values. */
  writeMany(node: Node | undefined, beside: Node | undefined): Sql {
    const type = this.declaredType(beside)
    const bits = this.#bitsOf(node, type)
    const value = this.write(node)
    if (bits !== undefined) return asStored(value, bits, '[]')
    const isTime = contentOf(node, 'ParamRef') !== undefined && type?.kind === 'timestamp'
    return isTime ? sql`cast(${value} as pg_catalog.timestamp[])` : value
  }

  /** Returns the size of the whole number that a parameter is, beside a value of a type. */
  #bitsOf(node: Node | undefined, type: DeclaredType | undefined): IntBits | undefined {
    const { number } = contentOf(node, 'ParamRef') ?? {}
    if (number === undefined || type?.kind !== 'integer' || type.isKnown) return undefined
    return this.context.parameterBits?.(number, type.bits)
  }

  /** Writes a value as one of a type, if it has none. */
  #typed(node: Node | undefined, type: DeclaredType | undefined): Sql {
    const bits = this.#bitsOf(node, type)
    const value = this.write(node)
    if (bits !== undefined) return asStored(value, bits)
    if (type?.kind === 'enum') this.requireValues(type, [node])
    if (type?.kind !== 'timestamp') return value
    const isUntyped =
      contentOf(node, 'ParamRef') !== undefined || contentOf(node, 'A_Const')?.sval !== undefined
    return isUntyped ? withoutZone(value) : value
  }

  /** Throws if a text is no value of an enum. Parameters are checked when their values are known. */
  requireValues(type: EnumType | undefined, nodes: readonly (Node | undefined)[]): void {
    if (type === undefined) return
    for (const node of nodes) {
      const { sval, location } = contentOf(node, 'A_Const') ?? {}
      if (sval !== undefined) {
        requireValueOf(type, sval.sval ?? '', () => this.context.positionOf(location))
        this.context.useValue?.(type, sval.sval ?? '')
      }
      const { number } = contentOf(node, 'ParamRef') ?? {}
      if (number !== undefined) this.context.compareParameter?.(number, type)
    }
  }

  /** Whether an expression is an enum, or a row with one. */
  hasEnum(node: Node | undefined): boolean {
    const { args = [] } = contentOf(node, 'RowExpr') ?? {}
    return this.enumOf([node]) !== undefined || args.some((each) => this.hasEnum(each))
  }

  /** Writes what an expression is sorted by. Values of an enum are sorted by their places in its list. */
  writeSorted(node: Node | undefined): Sql {
    const { args = [] } = contentOf(node, 'RowExpr') ?? {}
    if (args.length > 0 && this.hasEnum(node)) {
      return sql`row(${list(args.map((each) => this.writeSorted(each)))})`
    }
    const type = this.enumOf([node])
    const value = this.write(node)
    return type === undefined ? value : this.placeOf(value, type)
  }

  /** Writes the place of a value in the list of its enum. Places have the order of the values. */
  placeOf(value: Sql, type: EnumType): Sql {
    const given = this.context.placeOf?.(value, type)
    if (given !== undefined) return given
    return sql`pg_catalog.array_position(${this.#listOf(type)}, ${value})`
  }

  /** Writes the places of the values of an array. */
  placesOf(values: Sql, type: EnumType): Sql {
    if (this.context.placeOf !== undefined) {
      throw invalidSql('values of an enum cannot be compared with an array here, except by =')
    }
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
    if (this.context.placeOf !== undefined) {
      throw invalidSql(
        'GREATEST and LEAST of values of an enum are not possible here; compare them in CASE',
      )
    }
    const items = values.map((value) => literal(value))
    const written = sql`array[${join(items, ', ')}]::pg_catalog.text[]`
    this.context.countText?.(textLength(written))
    return written
  }

  write(node: Node | undefined): Sql {
    if (node === undefined) throw invalidSql('an expression is missing')
    const kind = kindOf(node)
    const write = this.#writers[kind] as ((writer: this, content: unknown) => Sql) | undefined
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
    const isBounded = size !== undefined || this.#isBounded(node, bytesMax)
    return isBounded ? value : within(value, bytesMax)
  }

  /** Writes an argument of a function whose result is larger than its arguments. */
  writeGrowing(node: Node | undefined, count = 2): Sql {
    const { valueBytesMax } = this.context.effort
    const bytesMax = Math.floor(valueBytesMax / Math.max(1, count / 2))
    const isColumn = contentOf(node, 'ColumnRef') !== undefined
    const value = this.writeTyped(node)
    return isColumn && !this.#isBounded(node, bytesMax) ? within(value, bytesMax) : value
  }

  /** Returns whether the values of an expression are no larger than `bytesMax`, as its columns tell. */
  #isBounded(node: Node | undefined, bytesMax: number): boolean {
    if (this.isStored(node) && bytesMax >= SEARCHED_BYTES_MAX) return true
    const size = this.boundOf(node) ?? this.#boundOfText(node)
    return (size ?? Number.POSITIVE_INFINITY) <= bytesMax
  }

  /** Returns the largest size of the texts of an expression over one row. A column has texts as large as a record. */
  #boundOfText(node: Node | undefined): number | undefined {
    const { isText } = this.context
    if (isText === undefined) return undefined
    return boundOfText(node, {
      ofText: (each) => {
        const [name, ...more] = namesOf(contentOf(each, 'ColumnRef')?.fields)
        const isColumn = name !== undefined && more.length === 0 && isText(name)
        return isColumn ? SEARCHED_BYTES_MAX : this.#sizeOfConstant(each)
      },
      ofOther: (each) => this.boundOf(each),
    })
  }

  #sizeOfConstant(node: Node): number | undefined {
    return contentOf(node, 'A_Const') === undefined ? undefined : this.sizeOf(node)
  }

  /**
   * Returns the largest size of a text that a call of an expression over one row searches for a constant: if that is short, a
   * text that is joined from several columns takes no longer than one column and a long one.
   */
  searchedMax(sizes: readonly number[], args: readonly Node[]): number {
    const [bytesMax = 0, patternMax = 1] = sizes
    const isSearched = bytesMax === SEARCHED_BYTES_MAX && patternMax === PATTERN_BYTES_MAX
    if (this.context.isText === undefined || !isSearched) return bytesMax
    const pattern = args.length < 2 ? 1 : (this.sizeOf(args[1]) ?? patternMax)
    const times = Math.floor(patternMax / Math.max(1, pattern))
    return bytesMax * Math.max(1, Math.min(JOINED_COLUMNS_MAX, times))
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
    parts.push(...writeFrame(window, (node) => this.write(node)))
    return sql`(${parts.length === 0 ? empty : join(parts, ' ')})`
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
    if (isOfRanges(name)) this.context.hasRanges = true
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

/** Writes a parameter that clients send as a whole number of a size. It is calculated with as columns are: in the widest type. */
function asStored(value: Sql, bits: IntBits, dimension: '' | '[]' = ''): Sql {
  const sent = bits === 16 ? sql`pg_catalog.int2` : sql`pg_catalog.int4`
  const array = raw(dimension)
  return sql`cast(cast(${value} as ${sent}${array}) as pg_catalog.int8${array})`
}

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

/** Converts `ColumnRef` to `column ref`, for error messages. */
function describeKind(kind: string): string {
  return kind
    .replace(/^A_/, '')
    .replace(/([a-z])([A-Z])/g, '$1 $2')
    .toLowerCase()
}
