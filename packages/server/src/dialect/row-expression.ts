import { AppError } from '@offshoot/contract/errors'
import { LIMITS } from '@offshoot/contract/limits'
import type { Node } from 'libpg-query'
import { literal, Sql, sql } from '../postgres/sql.js'
import { Slot, slot } from '../postgres/statement.js'
import { FUNCTIONS, ROW_FUNCTIONS } from './allowed.js'
import { Effort } from './bounded-values.js'
import type { EnumType } from './declared-types.js'
import type { ExpressionWriter, StatementContext } from './expressions/expression-writer.js'
import { createWriter } from './expressions/writers.js'
import { invalidSql } from './invalid-sql.js'
import { catalogueName, contentOf, type NodeOf, namesOf, requireKnown } from './nodes.js'
import { type ParsedText, parseSql, SqlSyntaxError, tooDeep } from './parser.js'
import { cutName, findName, NameIndex, Scope } from './scope.js'
import { EXPRESSION_CALLS_MAX } from './sql-limits.js'

/*
 * Expressions over the columns of one row, such as the condition of a check constraint. They are written in the dialect
 * of SQL statements, without subqueries, parameters and aggregates. The SQL that PostgreSQL runs is written from the
 * syntax tree, never from the text.
 */

/** A text in which numbers are the ids of columns. Columns can be renamed, and are stored in several tables. */
export type ExpressionParts = readonly (string | number)[]

/**
 * The place of a value in the list of an enum column, or the beginning of a call that returns it, which ends with a
 * parenthesis. The list is not a part of the expression, because it can change.
 */
export interface PlaceIn {
  readonly placeIn: number
  readonly value?: string
}

/** SQL in which numbers are the ids of columns, and in which values of enums are compared by their places. */
export type StoredParts = readonly (string | number | PlaceIn)[]

/** A value of an enum column that an expression names. */
interface NamedValue {
  readonly column: number
  readonly value: string
}

export interface RowExpression {
  /** The expression as it was given. */
  readonly text: ExpressionParts
  /** The expression as PostgreSQL evaluates it. */
  readonly sql: StoredParts
  /** The values of enums that it names, which its columns must have. */
  readonly values?: readonly NamedValue[]
  /** It is evaluated once for each record, and not stored. */
  readonly isOnce?: true
}

/** A column that an expression can use. A column inside an object has a dotted name. */
interface RowColumn {
  readonly id: number
  readonly name: string
  /** The largest size of its values. undefined: that of a record. */
  readonly bytesMax?: number | undefined
  /** Whether its values are texts. */
  readonly isText?: boolean
  /** Its values, if it is an enum. */
  readonly enum?: EnumType | undefined
}

/** A syntactically valid expression. */
interface ParsedExpression {
  readonly text: string
  readonly node: Node
  readonly size: Pick<ParsedText, 'nodeCount' | 'callCount'>
}

const PREFIX = 'select (\n'
const PREFIX_BYTES = Buffer.byteLength(PREFIX)

/** Expressions by their texts, or the errors of invalid ones. */
export type ParsedExpressions = ReadonlyMap<string, ParsedExpression | AppError>

/** Parses expressions. Returns the error of an invalid one in its place. */
export async function parseRowExpressions(texts: Iterable<string>): Promise<ParsedExpressions> {
  const parsed = new Map<string, ParsedExpression | AppError>()
  for (const text of new Set(texts)) {
    parsed.set(
      text,
      await parseRowExpression(text).catch((error: unknown) => {
        if (error instanceof AppError) return error
        throw error
      }),
    )
  }
  return parsed
}

async function parseRowExpression(text: string): Promise<ParsedExpression> {
  const { expressionLengthMax } = LIMITS
  if (text.length > expressionLengthMax) {
    throw invalidSql(`an expression can have at most ${expressionLengthMax} characters`)
  }
  const { nodes, ...size } = await parseSql(`${PREFIX}${text}\n)`).catch((error: unknown) => {
    if (!(error instanceof SqlSyntaxError)) throw error
    const position = Math.max(1, Math.min(error.position - PREFIX.length, text.length + 1))
    throw invalidSql(error.message, position)
  })
  if (size.callCount > EXPRESSION_CALLS_MAX) {
    throw invalidSql(
      `an expression can have at most ${EXPRESSION_CALLS_MAX} functions and operators, and this one has ${size.callCount}`,
    )
  }
  const [statement, ...others] = nodes
  const select = contentOf(statement, 'SelectStmt')
  const [target, ...further] = select?.targetList ?? []
  const result = contentOf(target, 'ResTarget')
  if (select === undefined || result?.val === undefined || others.length + further.length > 0) {
    throw invalidSql('one expression is expected')
  }
  requireKnown(select, 'an expression', ['targetList', 'limitOption', 'op'])
  requireKnown(result, 'an expression', ['val', 'location'])
  return { text, node: result.val, size }
}

/**
 * Resolves the columns of an expression, and writes the SQL that is evaluated. An expression that is evaluated once can name
 * an enum that only the column has that gets its values.
 */
export function bindRowExpression(
  parsed: ParsedExpression,
  columns: readonly RowColumn[],
  { isOnce = false, enums = [] }: { isOnce?: boolean; enums?: readonly EnumType[] } = {},
): RowExpression {
  const known = columns.map((column) => ({ ...column, name: cutName(column.name) }))
  const find = (name: string) => findName(known, name, (column) => column.name)
  const names = known.map(({ name }) => name)
  const scope = new Scope(undefined)
  scope.addRelation({
    name: '',
    alias: '',
    columns: names,
    types: new Map(known.flatMap(({ name, enum: type }) => (type ? [[name, type]] : []))),
    names: new NameIndex(names),
    isStored: true,
    isScalar: false,
    weight: 1,
  })
  const context = new RowContext(parsed, { columns: known, find, enums })
  requireValue(parsed.node, { isOnce })
  const written = writeAll(createWriter(context, scope), parsed.node, { isOnce })
  const positions = listColumns(parsed.node).map(({ location = 0, fields }) => ({
    start: location - PREFIX_BYTES,
    id: find(namesOf(fields)[0] ?? '')?.id ?? 0,
  }))
  const { values } = context
  return {
    ...{ text: cutAtColumns(parsed.text, positions), sql: written },
    ...(isOnce ? { isOnce } : values.length > 0 && { values }),
  }
}

function writeAll(
  writer: ExpressionWriter,
  node: Node,
  { isOnce }: { isOnce: boolean },
): StoredParts {
  let written: Sql
  try {
    written = writer.write(node)
  } catch (error) {
    throw error instanceof RangeError ? tooDeep() : error
  }
  const parts = toStoredParts(written)
  // Such a call limits the time of a statement. An expression that is stored has to be cheap without it.
  if (isOnce) return parts
  if (parts.some((part) => typeof part === 'string' && part.includes('offshoot_sql.'))) {
    throw invalidSql('the expression calculates, compares or searches values that can be too large')
  }
  return parts
}

class RowContext implements StatementContext {
  readonly effort: Effort
  expanded = 0
  readonly #parsed: ParsedExpression
  readonly #find: (name: string) => RowColumn | undefined
  readonly #enums: readonly EnumType[]
  readonly #idOfEnum: ReadonlyMap<EnumType, number>
  /** The values of enums that the expression names, by their places in JSON. */
  readonly #values = new Map<string, NamedValue>()

  constructor(
    parsed: ParsedExpression,
    {
      columns,
      find,
      enums,
    }: {
      columns: readonly RowColumn[]
      find(name: string): RowColumn | undefined
      enums: readonly EnumType[]
    },
  ) {
    this.#parsed = parsed
    this.#find = find
    this.#enums = enums
    this.#idOfEnum = new Map(
      columns.flatMap(({ id, enum: type }) => (type === undefined ? [] : [[type, id]])),
    )
    // Its calls are few, and PostgreSQL checks for cancellation between rows.
    this.effort = new Effort(parsed.size, { pauses: false })
  }

  positionOf(location: number | undefined): number | undefined {
    if (location === undefined) return undefined
    const bytes = Buffer.from(this.#parsed.text).subarray(0, location - PREFIX_BYTES)
    return bytes.toString().length + 1
  }

  readonly columnSize = (name: string): number | undefined => this.#find(name)?.bytesMax

  readonly isText = (name: string): boolean => this.#find(name)?.isText === true

  columnSql(name: string): Sql {
    return sql`${slot(this.#find(name)?.id ?? 0)}`
  }

  findEnum(name: string): EnumType | undefined {
    return this.#enums.find((each) => each.name === name)
  }

  placeOf(value: Sql, type: EnumType): Sql {
    const placeIn = this.#idOfEnum.get(type)
    if (placeIn === undefined) {
      throw invalidSql(`values of enum [${type.name}] can only be compared by = here`)
    }
    const constant = value.values.length > 0 ? undefined : value.text
    // PostgreSQL would calculate the place of a constant before it knows a collation.
    const known = type.values.find((each) => literal(each).text === constant)
    if (known !== undefined) return sql`${new PlaceSlot({ placeIn, value: known })}`
    return sql`${new PlaceSlot({ placeIn })}${value})`
  }

  useValue(type: EnumType, value: string): void {
    const named = { column: this.#idOfEnum.get(type) ?? 0, value }
    this.#values.set(JSON.stringify(named), named)
  }

  get values(): readonly NamedValue[] {
    return [...this.#values.values()]
  }

  useParameter(): void {
    throw invalidSql('an expression cannot have parameters')
  }

  misplaceParameter(): void {
    this.useParameter()
  }

  parameterSize(): number {
    return 0
  }

  subquery(): never {
    throw invalidSql('an expression cannot have subqueries')
  }
}

/** Functions whose result is another one each time. PostgreSQL refuses them in an expression that is stored. */
const CHANGING: ReadonlySet<string> = new Set(
  `clock_timestamp gen_random_uuid now random statement_timestamp timeofday transaction_timestamp uuidv4 uuidv7`.split(
    ' ',
  ),
)

/** Refuses functions that take or return many rows, and those whose result is not that of the record. */
function requireValue(node: Node, { isOnce }: { isOnce: boolean }): void {
  const [time] = listNodes(node, 'SQLValueFunction')
  const mutable = (name: string) =>
    invalidSql(
      `function [${name}] is not possible, because its result depends on the time or on chance`,
    )
  if (isOnce && time !== undefined) {
    throw mutable((time.op ?? '').replace(/^SVFOP_|_N$/g, '').toLowerCase())
  }
  for (const call of listNodes(node, 'FuncCall')) {
    const name = catalogueName(call.funcname) ?? ''
    const { kind } = FUNCTIONS.get(name) ?? {}
    if (kind === 'collects' || kind === 'folds' || ROW_FUNCTIONS.has(name)) {
      throw invalidSql(`function [${name}] is not possible in an expression over one row`)
    }
    const isOfNow = CHANGING.has(name) || (name === 'age' && call.args?.length === 1)
    if (isOnce && isOfNow) throw mutable(name)
  }
}

function listColumns(node: Node): NodeOf<'ColumnRef'>[] {
  return listNodes(node, 'ColumnRef').sort(
    ({ location: left = 0 }, { location: right = 0 }) => left - right,
  )
}

function listNodes<Kind extends 'ColumnRef' | 'FuncCall' | 'SQLValueFunction'>(
  root: Node,
  kind: Kind,
): NodeOf<Kind>[] {
  const found: NodeOf<Kind>[] = []
  const waiting: unknown[] = [root]
  while (waiting.length > 0) {
    const value = waiting.pop()
    if (typeof value !== 'object' || value === null) continue
    const content = contentOf(value as Node, kind)
    if (content !== undefined) found.push(content)
    waiting.push(...Object.values(value))
  }
  return found
}

/** A name of a column as it is written: quoted or bare. */
const NAME = /^(?:"(?:[^"]|"")*"|[\p{L}_][\p{L}\p{N}_$]*)/u

function cutAtColumns(
  text: string,
  columns: readonly { start: number; id: number }[],
): ExpressionParts {
  const bytes = Buffer.from(text)
  const parts: (string | number)[] = []
  let end = 0
  for (const { start, id } of columns) {
    const [name = ''] = NAME.exec(bytes.subarray(start).toString()) ?? []
    parts.push(bytes.subarray(end, start).toString(), id)
    end = start + Buffer.byteLength(name)
  }
  parts.push(bytes.subarray(end).toString())
  return parts.filter((part) => part !== '')
}

/** Returns the parts of SQL whose values are slots with the ids of columns. */
export function toParts({ strings, values }: Sql): ExpressionParts {
  const parts = strings.flatMap((text, index): (string | number)[] => {
    const value = values[index]
    return value instanceof Slot ? [text, value.position] : [text]
  })
  return parts.filter((part) => part !== '')
}

/** Placeholder for the place of a value. */
class PlaceSlot {
  constructor(readonly part: PlaceIn) {}
}

function toStoredParts({ strings, values }: Sql): StoredParts {
  const parts = strings.flatMap((text, index): (string | number | PlaceIn)[] => {
    const value: unknown = values[index]
    if (value instanceof PlaceSlot) return [text, value.part]
    return value instanceof Slot ? [text, value.position] : [text]
  })
  return parts.filter((part) => part !== '')
}

/** Returns the ids of the columns that an expression uses. */
export function columnIdsIn(parts: StoredParts): number[] {
  return [
    ...new Set(
      parts.flatMap((part) =>
        typeof part === 'string' ? [] : typeof part === 'number' ? part : part.placeIn,
      ),
    ),
  ]
}

/** Returns an expression for columns of PostgreSQL's types of enums, which have the order of their values. */
export function shownParts(parts: StoredParts): ExpressionParts {
  return parts.map((part) => {
    if (typeof part !== 'object') return part
    return part.value === undefined ? '(' : literal(part.value).text
  })
}

/** Returns the SQL of an expression. `columnSql` returns an expression for a column, by its id. */
export function expressionSql(parts: ExpressionParts, columnSql: (id: number) => Sql): Sql {
  const strings = ['']
  const values: Sql[] = []
  for (const part of parts) {
    if (typeof part === 'string') strings[strings.length - 1] += part
    else {
      values.push(columnSql(part))
      strings.push('')
    }
  }
  return new Sql(strings, values)
}

/** Returns the text of an expression with the names that its columns have now. */
export function expressionText(parts: ExpressionParts, nameOf: (id: number) => string): string {
  return parts.map((part) => (typeof part === 'string' ? part : writeName(nameOf(part)))).join('')
}

const BARE_NAME = /^[a-z_][a-z0-9_]*$/

function writeName(name: string): string {
  return BARE_NAME.test(name) && !RESERVED.has(name) ? name : `"${name}"`
}

/** Words of SQL that are not the name of a column unless they are quoted. */
const RESERVED: ReadonlySet<string> = new Set(
  `all analyse analyze and any array as asc asymmetric authorization between bigint binary bit boolean both case cast
  char character check coalesce collate collation column concurrently constraint create cross current_catalog
  current_date current_role current_schema current_time current_timestamp current_user dec decimal default deferrable
  desc distinct do else end except exists extract false fetch float for foreign freeze from full grant greatest group
  grouping having ilike in initially inner inout int integer intersect interval into is isnull join json json_array
  json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize json_table json_value
  lateral leading least left like limit localtime localtimestamp merge_action national natural nchar none normalize not
  notnull null nullif numeric offset on only or order out outer overlaps overlay placing position precision primary real
  references returning right row select session_user setof similar smallint some substring symmetric system_user table
  tablesample then time timestamp to trailing treat trim true union unique user using values varchar variadic verbose
  when where window with xmlattributes xmlconcat xmlelement xmlexists xmlforest xmlnamespaces xmlparse xmlpi xmlroot
  xmlserialize xmltable`.split(/\s+/),
)
