import type { Node } from 'libpg-query'
import { empty, join, raw, type Sql, sql } from '../../postgres/sql.js'
import { FUNCTIONS } from '../allowed.js'
import { catalogueName, contentOf, type NodeOf } from '../nodes.js'
import { sortedLike, writeCollected, writeOver } from './calls.js'
import type { ExpressionWriter } from './expression-writer.js'
import { list } from './parts.js'

/** Writes `json_object('a' : 1)`. */
export function writeJsonObject(
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
export function writeJsonArray(
  writer: ExpressionWriter,
  { exprs = [], output, absent_on_null }: NodeOf<'JsonArrayConstructor'>,
): Sql {
  const values = exprs.map((node) => contentOf(node, 'JsonValueExpr')?.raw_expr ?? node)
  const options = [absent_on_null ? empty : sql` null on null`, jsonOutput(writer, output).text]
  return sql`json_array(${list(writer.writeAllGrowing(values))}${join(options, '')})`
}

export const uniqueKeys = (isUnique: boolean | undefined): Sql =>
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
export function writeJsonAggregate(
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
