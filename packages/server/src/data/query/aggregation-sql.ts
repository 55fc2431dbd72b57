import { arrayLiteral } from '../../postgres/carriers.js'
import { empty, ident, join, literal, raw, type Sql, sql } from '../../postgres/sql.js'
import { type Call, compileSharing } from '../../postgres/statement.js'
import type { Aggregations, Bucketing, Buckets, Measure } from './aggregation.js'
import type { BaseRows } from './base-rows.js'
import { extremeOf } from './enum-order.js'
import type { FieldType } from './field.js'
import { Parameters } from './parameters.js'

/** Maximum number of buckets of one aggregation, in all enclosing buckets together. */
export const BUCKETS_MAX = 10_000

/**
 * One aggregation with buckets, or the root of the request. All its buckets form one relation, whose keys are
 * those of the enclosing buckets and its own.
 */
export interface AggregationNode {
  readonly index: number
  readonly buckets: Buckets | undefined
  readonly parent: AggregationNode | undefined
  /** Types of the keys, outermost first. */
  readonly keys: readonly FieldType[]
  readonly measures: readonly { readonly name: string; readonly measure: Measure }[]
  readonly children: readonly { readonly name: string; readonly node: AggregationNode }[]
}

/** Lists the nodes of a request. The root is first, and a node precedes those nested in it. */
export function listNodes(aggregations: Aggregations): AggregationNode[] {
  const nodes: AggregationNode[] = []

  function add(
    inner: Aggregations,
    buckets: Buckets | undefined,
    parent: AggregationNode | undefined,
  ): AggregationNode {
    const index = nodes.length
    const children: { name: string; node: AggregationNode }[] = []
    const node: AggregationNode = {
      index,
      buckets,
      parent,
      keys: [
        ...(parent?.keys ?? []),
        ...(buckets === undefined ? [] : [keyType(buckets.bucketing)]),
      ],
      measures: inner.flatMap(({ name, what }) =>
        what.kind === 'buckets' ? [] : [{ name, measure: what }],
      ),
      children,
    }
    nodes.push(node)
    for (const { name, what } of inner) {
      if (what.kind !== 'buckets') continue
      children.push({ name, node: add(what.aggregations, what, node) })
    }
    return node
  }

  add(aggregations, undefined, undefined)
  return nodes
}

function keyType({ kind, field }: Bucketing): FieldType {
  if (kind === 'numericHistogram') return 'float'
  return kind === 'dateHistogram' ? 'datetime' : field.type
}

const nodeName = ({ index }: AggregationNode): Sql => ident(`node_${index}`)
const keyName = (depth: number): Sql => ident(`bucket_${depth}`)
const outerName = (depth: number): Sql => ident(`outer_${depth}`)
const measureName = (index: number): Sql => ident(`measure_${index}`)

/**
 * Compiles the aggregations to one statement, so that all results come from one snapshot. Each row is a
 * bucket: the number of its node, and a JSON array with its keys, its count and its measures as texts.
 */
export function aggregationSql(nodes: readonly AggregationNode[], base: BaseRows): Call {
  const parameters = new Parameters()
  const relations = nodes.map(
    (node) => sql`, ${nodeName(node)} as (${nodeSql(node, { base, parameters })})`,
  )
  const results = nodes.map((node) => {
    const names = [
      ...node.keys.map((_type, depth) => keyName(depth)),
      sql`bucket_count`,
      ...node.measures.map((_measure, index) => measureName(index)),
    ]
    const texts = names.map((name) => sql`${name}::text`)
    return sql`
      select ${raw(String(node.index))} as node, place, array_to_json(array[${join(texts, ', ')}])::text
      from ${nodeName(node)}`
  })
  const text = sql`
    with base as materialized (${base.relation(parameters)})${join([empty, ...relations], '')}
    ${join(results, ' union all ')}
    order by node, place`
  return { statement: compileSharing(text), values: parameters.values }
}

interface NodeContext {
  readonly base: BaseRows
  readonly parameters: Parameters
}

function nodeSql(node: AggregationNode, context: NodeContext): Sql {
  const { buckets, parent, keys } = node
  const measures = node.measures.map(({ measure }, index) => {
    return sql`, ${measureSql(measure, context)} as ${measureName(index)}`
  })
  const measured = join([sql`, count(*) as bucket_count`, ...measures], '')
  if (buckets === undefined || parent === undefined) {
    return sql`select 1 as place${finish(node, context, sql`select 1 as place${measured} from base`)}`
  }
  const own = keySql(buckets.bucketing, context)
  const outer = parent.keys.map((_type, depth) => keyName(depth))
  // Only rows of the enclosing buckets: `topValues` leaves some buckets out.
  const around =
    outer.length === 0
      ? sql`from base`
      : sql`from (
          select ${join(
            ancestors(node).map((bucketing, depth) => {
              return sql`${keySql(bucketing, context)} as ${outerName(depth)}`
            }),
            ', ',
          )}, base.* from base
        ) base
        join ${nodeName(parent)} parent on ${join(
          outer.map((name, depth) => sql`parent.${name} = base.${outerName(depth)}`),
          ' and ',
        )}`
  const selected = [
    ...outer.map((name) => sql`parent.${name} as ${name}`),
    sql`${own} as ${keyName(keys.length - 1)}`,
  ]
  const groups = keys.map((_type, index) => raw(String(index + 1)))
  const grouped = sql`
    select ${join(selected, ', ')}${measured}
    ${around}
    where ${own} is not null
    group by ${join(groups, ', ')}`
  const key = keyName(keys.length - 1)
  const { bucketing } = buckets
  const order =
    bucketing.kind === 'topValues' ? sql`bucket_count desc, ${key} asc` : sql`${key} asc`
  const partition = outer.length === 0 ? empty : sql`partition by ${join(outer, ', ')}`
  const size = bucketing.kind === 'topValues' ? bucketing.size : BUCKETS_MAX + 1
  return sql`
    select place, ${join(
      keys.map((_type, depth) => keyName(depth)),
      ', ',
    )}${finish(
      node,
      context,
      sql`select *, row_number() over (${partition} order by ${order}) as place
        from (${grouped}) buckets`,
    )}
    where place <= ${raw(String(size))}
    limit ${raw(String(BUCKETS_MAX + 1))}`
}

/** Returns the definitions of the enclosing buckets, outermost first. */
function ancestors({ parent }: AggregationNode): Bucketing[] {
  if (parent?.buckets === undefined) return []
  return [...ancestors(parent), parent.buckets.bucketing]
}

/** Selects the count and the measures. Some measures are calculated here, in a second step. */
function finish({ measures }: AggregationNode, { parameters }: NodeContext, from: Sql): Sql {
  const finished = measures.map(({ measure }, index) => {
    const name = measureName(index)
    const value =
      measure.kind === 'percentiles' ? percentilesSql(name, measure.percents, parameters) : name
    return sql`, ${value} as ${name}`
  })
  return sql`, bucket_count${join([empty, ...finished], '')} from (${from}) measured`
}

function measureSql(measure: Measure, { base, parameters }: NodeContext): Sql {
  if (measure.kind === 'count') {
    if (measure.filter === undefined) return sql`count(*)`
    return sql`count(*) filter (where ${base.condition(measure.filter)})`
  }
  const value = base.value(measure.field)
  switch (measure.kind) {
    case 'sum':
      return sql`sum(${value})`
    case 'max':
    case 'min':
      if (measure.field.values !== undefined) {
        return extremeOf(measure.field.values, value, { parameters, extreme: measure.kind })
      }
      return measure.kind === 'max' ? sql`max(${value})` : sql`min(${value})`
    case 'average':
      // Decimals and whole numbers are rounded once, at the end.
      return sql`avg(${value})::double precision`
    case 'uniqueCount':
      return sql`count(distinct ${value})`
    case 'percentiles':
      return sql`array_agg(${value}::double precision order by ${value}) filter (where ${value} is not null)`
  }
}

/** Interpolates between the two values next to position p/100 * n - 0.5, which is limited to the list. */
function percentilesSql(sorted: Sql, percents: readonly number[], parameters: Parameters): Sql {
  const list = parameters.share(arrayLiteral(percents.map(String)))
  const below = sql`${sorted}[floor(p.position)::integer + 1]`
  const above = sql`${sorted}[ceil(p.position)::integer + 1]`
  return sql`to_json(array(
    select ${below} + (${above} - ${below}) * (p.position - floor(p.position))
    from (
      select place, greatest(0, least(cardinality(${sorted}) - 1,
        percent / 100 * cardinality(${sorted}) - 0.5)) as position
      from unnest(${list}::double precision[]) with ordinality as given (percent, place)
    ) p
    order by p.place
  ))`
}

/** Returns the key of the bucket that a row belongs to. */
function keySql(bucketing: Bucketing, { base, parameters }: NodeContext): Sql {
  const value = base.value(bucketing.field)
  switch (bucketing.kind) {
    case 'topValues':
      return value
    case 'numericHistogram': {
      const interval = sql`${parameters.share(String(bucketing.interval))}::double precision`
      const offset = sql`${parameters.share(String(bucketing.offset))}::double precision`
      return sql`(floor((${value} - ${offset}) / ${interval}) * ${interval} + ${offset})`
    }
    case 'dateHistogram': {
      const { interval, offsetMinutes } = bucketing
      const shift = sql`make_interval(mins => ${parameters.share(String(offsetMinutes))}::double precision::integer)`
      if (typeof interval !== 'string') {
        const length = sql`make_interval(secs => ${parameters.share(String(interval.ms))}::double precision / 1000.0)`
        return sql`date_bin(${length}, ${value}::timestamptz, 'epoch'::timestamptz - ${shift})`
      }
      const local = sql`((${value}::timestamptz at time zone 'UTC') + ${shift})`
      return sql`((date_trunc(${literal(interval)}, ${local}) - ${shift}) at time zone 'UTC')`
    }
  }
}
