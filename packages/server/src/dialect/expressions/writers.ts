import { empty, ident, integer, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { slot } from '../../postgres/statement.js'
import { COLLATIONS } from '../allowed.js'
import { collected } from '../bounded-values.js'
import { shownType } from '../declared-types.js'
import { invalidSql } from '../invalid-sql.js'
import { catalogueName, contentOf, type NodeOf, namesOf, requireKnown } from '../nodes.js'
import type { Scope } from '../scope.js'
import { writeValue } from './calls.js'
import { listValues, writeColumn } from './columns.js'
import { ExpressionWriter, type StatementContext, type Writers } from './expression-writer.js'
import { uniqueKeys, writeJsonAggregate, writeJsonArray, writeJsonObject } from './json.js'
import { operatorOf, writeEach, writeOperation } from './operators.js'
import { list, pick } from './parts.js'

/** Returns a writer for the expressions of a statement. */
export function createWriter(context: StatementContext, scope: Scope): ExpressionWriter {
  return new ExpressionWriter(context, scope, WRITERS)
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
      return arrayOf(query, shownType(found.types?.[0]))
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

/** Writes the array of the values of a query, with the type that they are declared with. */
function arrayOf(query: Sql, type: Sql | undefined): Sql {
  const element = sql`elements.element`
  const typed = type === undefined ? element : sql`cast(${element} as ${type})`
  return sql`array(select ${collected(typed)} from (${query}) as elements(element))`
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
  RowExpr: (writer, { args }) =>
    sql`row(${list(writer.writeAllGrowing(listValues(writer, args)))})`,
  NamedArgExpr: (writer, { name = '', arg }) => sql`${ident(name)} => ${writer.writeTyped(arg)}`,
  GroupingFunc: (writer, { args }) => sql`grouping(${list(writer.writeAll(args))})`,
  CollateClause(writer, { arg, collname, location }) {
    const name = catalogueName(collname)
    if (name === undefined || !COLLATIONS.has(name)) {
      throw writer.invalid(`collation [${namesOf(collname).join('.')}] is not supported`, location)
    }
    return sql`(${writer.write(arg)} collate pg_catalog.${ident(name)})`
  },
  SQLValueFunction(writer, { op = '', typmod = 0, location }) {
    // With digits of a second, the name ends like this.
    const named = op.replace(/_N$/, '')
    const value = TIME_VALUES[named]
    const name = named.replace('SVFOP_', '').toLowerCase()
    if (value === undefined) throw writer.invalid(`[${name}] is not supported`, location)
    return named === op ? value : sql`${value}(${integer(typmod)})`
  },
}
