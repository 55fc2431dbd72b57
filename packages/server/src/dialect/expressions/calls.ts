import type { Node } from 'libpg-query'
import { empty, ident, join, raw, type Sql, sql } from '../../postgres/sql.js'
import {
  type Cost,
  FORMED_FUNCTIONS,
  FUNCTIONS,
  SIZED_FUNCTIONS,
  VALUE_BYTES_MAX,
} from '../allowed.js'
import { collected } from '../bounded-values.js'
import { type EnumType, keepsType, TEXT } from '../declared-types.js'
import { catalogueName, contentOf, type NodeOf, namesOf, requireKnown } from '../nodes.js'
import type { ExpressionWriter } from './expression-writer.js'
import { inColumnCollation, lettersOfCall } from './letters.js'
import { isHeavy, sizeAt } from './operators.js'
import { isOfRanges, list } from './parts.js'

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
export function writeValue(writer: ExpressionWriter, call: NodeOf<'FuncCall'>): Sql {
  const { args = [] } = call
  const name = functionName(writer, call)
  const cost = FUNCTIONS.get(name) ?? { kind: 'linear' }
  const text = inColumns(writer, name, call)
  // Cast to text, because values of type regtype could be used to look up objects of the server.
  if (name === 'pg_typeof') return sql`cast(${text} as pg_catalog.text)`
  return writer.context.effort.count(text, { isHeavy: isHeavy(writer, cost, args) })
}

/** Writes a call, of which the result is a text like those of columns. */
function inColumns(writer: ExpressionWriter, name: string, call: NodeOf<'FuncCall'>): Sql {
  const text = writeCall(writer, call)
  return lettersOfCall(writer, name, call) === undefined ? text : inColumnCollation(name, text)
}

export function writeCall(writer: ExpressionWriter, call: NodeOf<'FuncCall'>): Sql {
  requireKnown(call, 'a function call', FUNCTION_PARTS)
  const name = functionName(writer, call)
  if (isOfRanges(name)) writer.context.hasRanges = true
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
export function sortedLike(
  writer: ExpressionWriter,
  replaced: ReadonlyMap<string, Sql>,
  { isDistinct }: { isDistinct: boolean },
) {
  return (node: Node | undefined) => {
    if (!isDistinct && writer.hasEnum(node)) return writer.writeSorted(node)
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
  const nodes = (call.args ?? []).map((node) => withText(writer, node))
  const cost = FUNCTIONS.get(name) ?? { kind: 'linear' }
  const filter = call.agg_filter === undefined ? undefined : writer.write(call.agg_filter)
  if (cost.kind === 'collects') {
    return writeCollected(writer, { ...call, args: nodes }, { filter, ...cost })
  }
  const what = `function [${name}]`
  const keeps = keepsType(name) && writer.declaredType({ FuncCall: call }) !== undefined
  const args = nodes.map((node, index) => {
    if (cost.kind === 'grows') return writer.writeGrowing(node, nodes.length)
    if (cost.kind !== 'bounded' && cost.kind !== 'multiplies') {
      return keeps ? writer.write(node) : writer.writeTyped(node)
    }
    return writer.writeWithin(node, what, argumentMax(writer, { name, call, cost, index }))
  })
  const letters = lettersOfCall(writer, name, call)
  return { args: letters === undefined ? args : args.map(letters), replaced: new Map(), filter }
}

/** Returns a parameter that is declared as a text as one: functions can take values of any type. */
function withText(writer: ExpressionWriter, node: Node): Node {
  const { number, location = 0 } = contentOf(node, 'ParamRef') ?? {}
  if (number === undefined || writer.context.parameterType?.(number) !== TEXT) return node
  const typeName = { names: [{ String: { sval: TEXT } }], location }
  return { TypeCast: { arg: node, typeName } }
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
    if (index === 0 && !hasWeights) return writer.searchedMax(cost.sizes, args)
    return sizeAt(cost.sizes, hasWeights ? index - 1 : index)
  }
  if (index !== 0) return sizeAt(cost.sizes, index)
  const factor = args[cost.factor]
  const size = contentOf(factor, 'A_Const')?.ival?.ival ?? writer.sizeOf(factor)
  const times = Math.max(1, size ?? sizeAt(cost.sizes, cost.factor))
  return Math.min(writer.searchedMax(cost.sizes, args), Math.floor(VALUE_BYTES_MAX / times))
}

/** Writes the arguments of an aggregate that collects them. The size of each value is counted. */
export function writeCollected(
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

export function writeOver(writer: ExpressionWriter, window: NodeOf<'WindowDef'>): Sql {
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
